//! The record's state machine, as pure functions.
//!
//! Every store is measured against these, and most call them: they read a row, ask here what becomes of it, and write
//! the [`Change`] in the same atomic step. Time is an argument.

use std::time::Duration;

use bytes::Bytes;

use super::{Fenced, Keep, Phase, Replay, Verdict};
use crate::clock::Timestamp;
use crate::{Attempt, Call, CallId, Claim, Fingerprint, OnLost, Token};

/// How long a lost attempt that may be rerun is remembered before [`is_sweepable`] lets go of it. Forgetting it only
/// makes the next attempt count from one again.
pub const LOST_KEEP: Duration = Duration::from_hours(24);

/// What a store remembers of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The content of the request that used the key first.
    pub fingerprint: Fingerprint,
    /// The latest attempt.
    pub attempt: Attempt,
    /// The fence of the latest attempt.
    pub token: Token,
    /// How far it got.
    pub state: State,
}

/// How far a call got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Claimed. Lost once `lease_until` has come; whether that means doubt is `on_lost`'s word.
    InFlight {
        /// How long the lease was granted for, to notice a clock that was set back.
        lease: Duration,
        /// When it ends.
        lease_until: Timestamp,
        /// What follows then.
        on_lost: OnLost,
    },
    /// It happened.
    Done {
        /// What it answered.
        outcome: Bytes,
        /// When it is forgotten; `None` if never.
        expires_at: Option<Timestamp>,
    },
}

/// What a transition does to the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Keep,
    /// It becomes this.
    Put(Record),
    /// It is gone.
    Delete,
}

/// What a caller is told, and what becomes of the record, when it begins `call`.
pub fn begin(record: Option<&Record>, call: &Call, now: Timestamp) -> (Change, Verdict) {
    let Some(record) = record.filter(|record| !is_expired(record, now)) else {
        return claim(call, Attempt::FIRST, now);
    };
    // Before anything else, so that a wrong payload is told so even while the first request is in flight.
    if record.fingerprint != *call.fingerprint() {
        return (
            Change::Keep,
            Verdict::Mismatch {
                expires_in: expires_in(record, now),
            },
        );
    }
    match &record.state {
        State::Done { outcome, .. } => {
            let replay = Replay {
                outcome: outcome.clone(),
                expires_in: expires_in(record, now),
            };
            (Change::Keep, Verdict::Replay(replay))
        }
        // Our own claim: its acknowledgement was lost on the way.
        State::InFlight { .. } if record.token == call.token() => claim(call, record.attempt, now),
        State::InFlight {
            lease_until, on_lost, ..
        } if *lease_until <= now => match on_lost {
            OnLost::Rerun => claim(call, record.attempt.next(), now),
            OnLost::Doubt => (Change::Keep, Verdict::InDoubt(claim_of(record, *call.id()))),
        },
        State::InFlight { lease, lease_until, .. } => {
            let remaining = lease_until.since(now);
            if remaining <= *lease {
                return (Change::Keep, Verdict::InFlight { retry_after: remaining });
            }
            // No lease lasts longer than it was granted for: the clock was set back. Counting from now, the owner has
            // one whole lease to show that it is alive, and a dead one blocks the key no longer than that.
            (
                Change::Put(with_lease(record, *lease, now)),
                Verdict::InFlight { retry_after: *lease },
            )
        }
    }
}

/// What [`begin`] would say without claiming; `None` if it would claim.
pub fn peek(record: Option<&Record>, call: &Call, now: Timestamp) -> Option<Verdict> {
    match begin(record, call, now).1 {
        Verdict::Run(_) => None,
        verdict => Some(verdict),
    }
}

/// In flight → in flight, with a lease that starts now.
pub fn renew(record: Option<&Record>, claim: &Claim, lease: Duration, now: Timestamp) -> (Change, Fenced) {
    match owned(record, claim) {
        Some(Record {
            state: State::Done { .. },
            ..
        })
        | None => (Change::Keep, Fenced::Superseded),
        Some(record) => (Change::Put(with_lease(record, lease, now)), Fenced::Applied),
    }
}

/// In flight → done.
pub fn complete(
    record: Option<&Record>,
    claim: &Claim,
    outcome: &Bytes,
    keep: Keep,
    now: Timestamp,
) -> (Change, Fenced) {
    match owned(record, claim) {
        None => (Change::Keep, Fenced::Superseded),
        Some(Record {
            state: State::Done { outcome: stored, .. },
            ..
        }) => (
            Change::Keep,
            if stored == outcome {
                Fenced::Applied
            } else {
                Fenced::Superseded
            },
        ),
        Some(record) => {
            let state = State::Done {
                outcome: outcome.clone(),
                expires_at: keep.until(now),
            };
            (
                Change::Put(Record {
                    state,
                    ..record.clone()
                }),
                Fenced::Applied,
            )
        }
    }
}

/// In flight → absent. A record that is gone already is as abandoned as can be.
pub fn abandon(record: Option<&Record>, claim: &Claim) -> (Change, Fenced) {
    match (record, owned(record, claim)) {
        (None, _) => (Change::Keep, Fenced::Applied),
        (
            Some(_),
            Some(Record {
                state: State::InFlight { .. },
                ..
            }),
        ) => (Change::Delete, Fenced::Applied),
        (Some(_), _) => (Change::Keep, Fenced::Superseded),
    }
}

/// Done → absent, because an operator said so. A record that is gone already is as forgotten as can be.
pub fn forget(record: Option<&Record>, claim: &Claim) -> (Change, Fenced) {
    match (record, owned(record, claim)) {
        (None, _) => (Change::Keep, Fenced::Applied),
        (
            Some(_),
            Some(Record {
                state: State::Done { .. },
                ..
            }),
        ) => (Change::Delete, Fenced::Applied),
        (Some(_), _) => (Change::Keep, Fenced::Superseded),
    }
}

/// In flight → lost, at once.
pub fn lose(record: Option<&Record>, claim: &Claim, now: Timestamp) -> (Change, Fenced) {
    renew(record, claim, Duration::ZERO, now)
}

/// Whether nothing is forgotten by deleting the record.
pub fn is_sweepable(record: &Record, now: Timestamp) -> bool {
    match &record.state {
        State::Done { .. } => is_expired(record, now),
        State::InFlight {
            lease_until,
            on_lost: OnLost::Rerun,
            ..
        } => lease_until.after(LOST_KEEP) <= now,
        State::InFlight {
            on_lost: OnLost::Doubt, ..
        } => false,
    }
}

/// How the record looks to a person.
pub fn phase(record: &Record, now: Timestamp) -> Phase {
    match &record.state {
        State::Done { .. } => Phase::Done,
        State::InFlight { lease_until, .. } if *lease_until > now => Phase::InFlight,
        State::InFlight {
            on_lost: OnLost::Doubt, ..
        } => Phase::InDoubt,
        State::InFlight {
            on_lost: OnLost::Rerun, ..
        } => Phase::Lost,
    }
}

fn claim(call: &Call, attempt: Attempt, now: Timestamp) -> (Change, Verdict) {
    let lease = call.lease();
    let state = State::InFlight {
        lease,
        lease_until: now.after(lease),
        on_lost: call.on_lost(),
    };
    let record = Record {
        fingerprint: *call.fingerprint(),
        attempt,
        token: call.token(),
        state,
    };
    (Change::Put(record), Verdict::Run(call.claim(attempt)))
}

fn with_lease(record: &Record, lease: Duration, now: Timestamp) -> Record {
    let mut record = record.clone();
    if let State::InFlight {
        lease: granted,
        lease_until,
        ..
    } = &mut record.state
    {
        *granted = lease;
        *lease_until = now.after(lease);
    }
    record
}

fn owned<'a>(record: Option<&'a Record>, claim: &Claim) -> Option<&'a Record> {
    record.filter(|record| record.token == claim.token)
}

fn claim_of(record: &Record, id: CallId) -> Claim {
    Claim {
        id,
        token: record.token,
        attempt: record.attempt,
    }
}

fn is_expired(record: &Record, now: Timestamp) -> bool {
    matches!(record.state, State::Done { expires_at: Some(expires_at), .. } if expires_at <= now)
}

fn expires_in(record: &Record, now: Timestamp) -> Option<Duration> {
    match record.state {
        State::Done { expires_at, .. } => expires_at.map(|expires_at| expires_at.since(now)),
        State::InFlight { .. } => None,
    }
}
