//! Fenced writes, and what can be wrong with them.

use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Clock as _;
use exactly::store::record::{self, Change, LOST_KEEP, Record, State};
use exactly::{CallId, Claim, Fenced, Keep, OnLost};

use super::{Flawed, wrapped};
use crate::flaw::Flaw;

const DAY: Duration = Duration::from_hours(24);

impl Flawed {
    /// The claim that would be let through, whoever asks.
    pub(super) fn owner(&self, claim: &Claim) -> Claim {
        match self.record(&claim.id) {
            Some(record) => Claim {
                id: claim.id,
                token: record.token,
                attempt: record.attempt,
            },
            None => claim.clone(),
        }
    }

    /// The claim as a store with a weak fence understands it.
    fn admitted(&self, claim: &Claim) -> Claim {
        let owner = self.owner(claim);
        if self.flaw == Flaw::FencesByAttempt && owner.attempt == claim.attempt {
            owner
        } else {
            claim.clone()
        }
    }

    pub(super) fn renew_now(&self, claim: &Claim, lease: Duration) -> Fenced {
        let now = self.clock.now();
        let claim = match self.flaw {
            Flaw::RenewsUnfenced => self.owner(claim),
            _ => self.admitted(claim),
        };
        let record = self.record(&claim.id);
        let lease = match (self.flaw, record.as_ref().map(|record| &record.state)) {
            (Flaw::RenewalIsIgnored, _) if !lease.is_zero() => return Fenced::Applied,
            (Flaw::NoRevival, Some(State::InFlight { lease_until, .. })) if *lease_until <= now => {
                return Fenced::Superseded;
            }
            (Flaw::RenewalAdds, Some(State::InFlight { lease_until, .. })) if !lease.is_zero() => {
                lease_until.since(now) + lease
            }
            (Flaw::LeaseWraps, _) => wrapped(lease),
            _ => lease,
        };
        let (change, fenced) = record::renew(record.as_ref(), &claim, lease, now);
        self.change(&claim.id, change);
        fenced
    }

    pub(super) fn complete_now(&self, claim: &Claim, outcome: &Bytes, keep: Keep) -> Fenced {
        let now = self.clock.now();
        let claim = match self.flaw {
            Flaw::CompletesUnfenced => self.owner(claim),
            Flaw::WritesNextDoor => self.next_door(claim),
            _ => self.admitted(claim),
        };
        let record = self.record(&claim.id);
        let entry = self.entries().get(&claim.id).cloned();
        if let Some(fenced) = self.completion_of_flaw(&claim, outcome, keep) {
            return fenced;
        }
        let outcome = match self.flaw {
            Flaw::TextOnly => &Bytes::from(String::from_utf8_lossy(outcome).into_owned()),
            Flaw::CutsOutcomes => &outcome.slice(..outcome.len().min(65_536)),
            _ => outcome,
        };
        let keep = match (self.flaw, keep) {
            (Flaw::KeepsFromTheStart, Keep::For(keep)) => {
                let age = entry.map(|entry| now.since(entry.created_at)).unwrap_or_default();
                Keep::For(keep.saturating_sub(age))
            }
            (Flaw::KeepsForADay, _) | (Flaw::PermanentIsADay, Keep::Forever) => Keep::For(DAY),
            (Flaw::RetentionWraps, Keep::For(keep)) => Keep::For(wrapped(keep)),
            (_, keep) => keep,
        };
        let (change, fenced) = record::complete(record.as_ref(), &claim, outcome, keep, now);
        self.change(&claim.id, change);
        fenced
    }

    /// What is wrong before the model is asked.
    fn completion_of_flaw(&self, claim: &Claim, outcome: &Bytes, keep: Keep) -> Option<Fenced> {
        let now = self.clock.now();
        let mut record = self.record(&claim.id)?;
        match (&mut record.state, self.flaw) {
            (State::Done { .. }, Flaw::CompletesOnce) => return Some(Fenced::Superseded),
            (State::Done { outcome: stored, .. }, Flaw::RepeatsOldOutcomes) if stored == outcome => {
                return Some(Fenced::Applied);
            }
            (State::Done { outcome: stored, .. }, Flaw::CompletesAgain) => *stored = outcome.clone(),
            (State::Done { expires_at, .. }, Flaw::RepeatingProlongs) => {
                if let Keep::For(keep) = keep {
                    *expires_at = Some(now.after(keep));
                }
            }
            (State::InFlight { lease_until, .. }, Flaw::LateOutcomeRefused) if *lease_until <= now => {
                return Some(Fenced::Superseded);
            }
            (State::InFlight { .. }, Flaw::EmptyIsNothing) if outcome.is_empty() => {
                self.change(&claim.id, Change::Delete);
                return Some(Fenced::Applied);
            }
            (State::InFlight { .. }, Flaw::ForgetsOutcomes) => {
                self.change(&claim.id, Change::Delete);
                return Some(Fenced::Applied);
            }
            (State::InFlight { lease_until, .. }, Flaw::KeptUntilTheLeaseEnds) => {
                let keep = Keep::For(lease_until.since(now));
                let (change, fenced) = record::complete(Some(&record), claim, outcome, keep, now);
                self.change(&claim.id, change);
                return Some(fenced);
            }
            _ => return None,
        }
        (record.token == claim.token).then(|| {
            self.change(&claim.id, Change::Put(record));
            Fenced::Applied
        })
    }

    pub(super) fn abandon_now(&self, claim: &Claim) -> Fenced {
        let claim = match self.flaw {
            Flaw::AbandonsUnfenced => self.owner(claim),
            _ => self.admitted(claim),
        };
        let record = self.record(&claim.id);
        let mut outcome = record::abandon(record.as_ref(), &claim);
        match (self.flaw, &record) {
            (Flaw::AbandoningIsIgnored, _) => outcome.0 = Change::Keep,
            (Flaw::AbandonsOnce, None) => outcome.1 = Fenced::Superseded,
            (
                Flaw::AbandonsWhatIsDone,
                Some(Record {
                    state: State::Done { .. },
                    ..
                }),
            ) => {
                outcome = (Change::Delete, Fenced::Applied);
            }
            // The row stays, with a lease that has ended.
            (Flaw::AbandoningKeepsTheContent, Some(record)) if outcome.0 == Change::Delete => {
                let mut record = record.clone();
                if let State::InFlight {
                    lease_until, on_lost, ..
                } = &mut record.state
                {
                    (*lease_until, *on_lost) = (self.clock.now(), OnLost::Rerun);
                }
                outcome.0 = Change::Put(record);
            }
            _ => {}
        }
        self.change(&claim.id, outcome.0);
        outcome.1
    }

    pub(super) async fn sweep_now(&self, limit: u32) -> u32 {
        let now = self.clock.now();
        let limit = if self.flaw == Flaw::SweepIgnoresItsLimit {
            u32::MAX
        } else {
            limit
        };
        let sweepable = |record: &Record| match (&record.state, self.flaw) {
            (_, Flaw::SweepsEverything) => true,
            (
                State::InFlight {
                    lease_until,
                    on_lost: OnLost::Doubt,
                    ..
                },
                Flaw::SweepsDoubt,
            ) => lease_until.after(LOST_KEEP) <= now,
            (
                State::InFlight {
                    lease_until,
                    on_lost: OnLost::Rerun,
                    ..
                },
                Flaw::SweepsLostAtOnce,
            ) => *lease_until <= now,
            (State::InFlight { .. }, Flaw::NeverSweepsLost) => false,
            _ => record::is_sweepable(record, now),
        };
        let found: Vec<CallId> = {
            let entries = self.entries();
            let found = entries
                .iter()
                .filter(|(_, entry)| sweepable(&entry.record))
                .map(|(id, _)| *id);
            found.take(usize::try_from(limit).unwrap()).collect()
        };
        if self.flaw == Flaw::SweepLosesTheRace {
            tokio::task::yield_now().await;
        }
        self.entries().retain(|id, _| !found.contains(id));
        u32::try_from(found.len()).unwrap()
    }

    /// The claim on whichever other record comes first.
    fn next_door(&self, claim: &Claim) -> Claim {
        let entries = self.entries();
        let next = entries.iter().find(|(_, entry)| entry.record.token != claim.token);
        next.map_or_else(
            || claim.clone(),
            |(id, entry)| Claim {
                id: *id,
                token: entry.record.token,
                attempt: entry.record.attempt,
            },
        )
    }
}
