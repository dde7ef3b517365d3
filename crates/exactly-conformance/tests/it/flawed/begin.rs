//! What a begin finds, and what can be wrong with that.

use std::time::Duration;

use exactly::clock::{Clock as _, Timestamp};
use exactly::store::Phase;
use exactly::store::record::{self, Change, Record, State};
use exactly::{Attempt, Call, Claim, Fingerprint, Key, OnLost, Replay, Scope, Verdict};

use super::{Flawed, wrapped};
use crate::flaw::Flaw;

impl Flawed {
    /// The call as this store understands it.
    pub(super) fn understood(&self, call: &Call) -> Call {
        let (scope, key) = (call.scope(), call.key());
        let principal = scope.principal();
        let (scope, key) = match self.flaw {
            Flaw::IgnoresPrincipal => (Scope::global(scope.operation()), key.clone()),
            Flaw::IgnoresOperation => (Scope::new(principal.unwrap_or("global"), "any"), key.clone()),
            Flaw::GlobalIsEmpty => (
                Scope::new(principal.unwrap_or_default(), scope.operation()),
                key.clone(),
            ),
            Flaw::ComparesNamesLoosely if principal.is_some() => {
                let principal = principal.unwrap_or_default().trim().to_lowercase();
                (Scope::new(principal, scope.operation()), key.clone())
            }
            Flaw::CutsKeys => {
                let cut: String = key.as_str().chars().take(100).collect();
                (scope.clone(), Key::new(cut).unwrap())
            }
            Flaw::FindsByContent => (scope.clone(), Key::new(format!("{:?}", call.fingerprint())).unwrap()),
            Flaw::CutsControlCharacters => {
                let cut = |text: &str| text.chars().filter(|char| !char.is_control()).collect::<String>();
                (
                    Scope::new(cut(principal.unwrap_or_default()), cut(scope.operation())),
                    key.clone(),
                )
            }
            _ => (scope.clone(), key.clone()),
        };
        let fingerprint = match self.flaw {
            Flaw::IgnoresContent => Fingerprint::of("any"),
            _ => *call.fingerprint(),
        };
        let mut understood = call.clone();
        if (&scope, &key, &fingerprint) != (call.scope(), call.key(), call.fingerprint()) {
            understood = Call::new(scope, key, fingerprint)
                .with_lease(call.lease())
                .with_on_lost(call.on_lost());
        }
        match self.flaw {
            Flaw::TokenPerQuestion => understood.again(),
            Flaw::RerunsDoubt => understood.with_on_lost(OnLost::Rerun),
            Flaw::LeaseWraps => understood.with_lease(wrapped(call.lease())),
            _ => understood,
        }
    }

    /// What is wrong before the model is asked.
    pub(super) fn verdict_of_flaw(&self, record: Option<&Record>, call: &Call, now: Timestamp) -> Option<Verdict> {
        let record = record?;
        let other_content = record.fingerprint != *call.fingerprint();
        let own = record.token == call.token();
        match (&record.state, record::phase(record, now), self.flaw) {
            (State::InFlight { lease_until, .. }, Phase::InFlight, flaw) => {
                let stretched = flaw == Flaw::StretchedByTheClock && !other_content && !own;
                let retry_after = lease_until.since(now);
                (flaw == Flaw::InFlightBeforeContent || stretched).then_some(Verdict::InFlight { retry_after })
            }
            (_, Phase::InDoubt, flaw) => {
                let claim = Claim {
                    id: *call.id(),
                    token: record.token,
                    attempt: record.attempt,
                };
                let ended = flaw == Flaw::OwnClaimEndsWithItsLease && own;
                (flaw == Flaw::DoubtBeforeContent || ended).then_some(Verdict::InDoubt(claim))
            }
            (_, Phase::Lost, Flaw::LostBeforeContent) if other_content => {
                let (change, verdict) = record::begin(None, call, now);
                self.change(call.id(), change);
                Some(verdict)
            }
            (State::Done { outcome, expires_at }, _, flaw) => {
                let expired = expires_at.is_some_and(|at| at <= now);
                let replay = Replay {
                    outcome: outcome.clone(),
                    expires_in: None,
                };
                match flaw {
                    Flaw::DoneBeforeContent => Some(Verdict::Replay(replay)),
                    Flaw::ExpiredReplays if expired => Some(Verdict::Replay(replay)),
                    Flaw::ExpiredBlocks if expired => Some(Verdict::InFlight {
                        retry_after: Duration::from_secs(1),
                    }),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The record as this store sees it before the model is asked.
    pub(super) fn seen(&self, call: &Call, now: Timestamp) -> Option<Record> {
        let mut record = self.record(call.id())?;
        let Record { state, attempt, .. } = &mut record;
        if let State::InFlight {
            lease,
            lease_until,
            on_lost,
        } = state
        {
            match self.flaw {
                Flaw::AskerDecidesToRerun => *on_lost = call.on_lost(),
                Flaw::AttemptsDoNotCount if *lease_until <= now => *attempt = Attempt::new(u32::MAX)?,
                Flaw::ClockFreesTheKey if lease_until.since(now) > *lease => return None,
                Flaw::RunsEverybody => return None,
                Flaw::NoLeaseIsNoRecord if lease.is_zero() => return None,
                _ => {}
            }
        }
        Some(record)
    }

    pub(super) fn begin_now(&self, call: &Call, seen: Option<&Record>) -> Verdict {
        let now = self.clock.now();
        if let Some(verdict) = self.verdict_of_flaw(seen, call, now) {
            return verdict;
        }
        let (change, verdict) = record::begin(seen, call, now);
        if let Change::Put(mut record) = change {
            if self.flaw == Flaw::AttemptsDoNotCount {
                record.attempt = Attempt::FIRST;
            }
            self.put(call, record);
        }
        self.after_begin(call, &verdict, now);
        self.told(call, verdict)
    }

    /// What is wrong once the model has spoken.
    fn after_begin(&self, call: &Call, verdict: &Verdict, now: Timestamp) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(call.id()) else {
            return;
        };
        match (&mut entry.record.state, verdict, self.flaw) {
            (State::InFlight { lease, lease_until, .. }, Verdict::InFlight { .. }, Flaw::WaitingProlongs) => {
                *lease_until = now.after(*lease);
            }
            (
                State::Done {
                    expires_at: Some(at), ..
                },
                Verdict::Replay(_),
                Flaw::ReplayingProlongs,
            ) => {
                *at = now.after(Duration::from_mins(30));
            }
            (_, Verdict::Mismatch { .. }, Flaw::MismatchPutsItsContent) => {
                entry.record.fingerprint = *call.fingerprint();
            }
            _ => {}
        }
    }

    /// The verdict as this store tells it.
    pub(super) fn told(&self, call: &Call, verdict: Verdict) -> Verdict {
        match (verdict, self.flaw) {
            (Verdict::Run(claim), Flaw::AttemptsDoNotCount) => Verdict::Run(Claim {
                attempt: Attempt::FIRST,
                ..claim
            }),
            (Verdict::InFlight { .. }, Flaw::TellsTheWholeLease) => Verdict::InFlight {
                retry_after: call.lease(),
            },
            (Verdict::Mismatch { .. }, Flaw::MismatchHasNoEnd) => Verdict::Mismatch { expires_in: None },
            (Verdict::Mismatch { .. }, Flaw::MismatchHasAnEnd) => Verdict::Mismatch {
                expires_in: Some(Duration::from_hours(24)),
            },
            (Verdict::Replay(replay), Flaw::ReplayHasNoEnd) => Verdict::Replay(Replay {
                expires_in: None,
                ..replay
            }),
            (verdict, _) => verdict,
        }
    }
}
