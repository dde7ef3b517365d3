//! A store with one flaw. Without it, it is sound: a map and the model.

mod begin;
mod inspect;
mod operate;
mod writes;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::{Clock as _, ManualClock, Timestamp, millis};
use exactly::store::record::{self, Change, Record, State};
use exactly::store::{Reply, Wakeups, Watch};
use exactly::{Call, CallId, Claim, Fenced, Keep, Key, Scope, Store, StoreError, StoreErrorKind, Verdict};
use exactly_conformance::StoreHarness;

use self::operate::Trail;
use crate::flaw::Flaw;

/// A place whose stores are flawed.
pub(crate) struct FlawedPlace {
    clock: Arc<ManualClock>,
    entries: Arc<Mutex<BTreeMap<CallId, Entry>>>,
    trail: Arc<Mutex<Trail>>,
    wakeups: Wakeups,
}

impl StoreHarness for FlawedPlace {
    type Store = Flawed;

    async fn fresh() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        Self {
            clock,
            entries: Arc::default(),
            trail: Arc::default(),
            wakeups: Wakeups::default(),
        }
    }

    async fn open(&self) -> Arc<Flawed> {
        let flaw = Flaw::present();
        let wakeups = match flaw {
            Flaw::WakesNobodyElsewhere => Wakeups::default(),
            _ => self.wakeups.clone(),
        };
        let trail = match flaw {
            Flaw::TrailEndsWithItsStore => Arc::default(),
            _ => Arc::clone(&self.trail),
        };
        Arc::new(Flawed {
            flaw,
            clock: Arc::clone(&self.clock),
            entries: Arc::clone(&self.entries),
            trail,
            wakeups,
        })
    }

    async fn elapse(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn rewind(&self, by: Duration) {
        let now = self.clock.now().as_millis();
        self.clock.set(Timestamp::from_millis(now - millis(by)));
    }
}

#[derive(Debug)]
pub(crate) struct Flawed {
    pub(crate) flaw: Flaw,
    pub(crate) clock: Arc<ManualClock>,
    entries: Arc<Mutex<BTreeMap<CallId, Entry>>>,
    trail: Arc<Mutex<Trail>>,
    pub(crate) wakeups: Wakeups,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) scope: Scope,
    pub(crate) key: Key,
    pub(crate) created_at: Timestamp,
    pub(crate) record: Record,
}

impl Flawed {
    pub(crate) fn entries(&self) -> MutexGuard<'_, BTreeMap<CallId, Entry>> {
        self.entries.lock().unwrap()
    }

    /// A store of its own with the same records, in which nobody waits.
    pub(crate) fn copy(&self) -> Self {
        let entries = Arc::new(Mutex::new(self.entries().clone()));
        Self {
            flaw: self.flaw,
            clock: Arc::clone(&self.clock),
            entries,
            trail: Arc::clone(&self.trail),
            wakeups: Wakeups::default(),
        }
    }

    fn record(&self, id: &CallId) -> Option<Record> {
        self.entries().get(id).map(|entry| entry.record.clone())
    }

    fn put(&self, call: &Call, record: Record) {
        let now = self.clock.now();
        let (scope, key) = (call.scope().clone(), call.key().clone());
        let mut entries = self.entries();
        let created_at = match entries.get(call.id()) {
            Some(Entry {
                record: Record {
                    state: State::Done { .. },
                    ..
                },
                created_at,
                ..
            }) => {
                if self.flaw == Flaw::ShowsTheOldestDate {
                    *created_at
                } else {
                    now
                }
            }
            Some(_) if self.flaw == Flaw::ShowsTheLatestDate => now,
            Some(entry) => entry.created_at,
            None => now,
        };
        entries.insert(
            *call.id(),
            Entry {
                scope,
                key,
                created_at,
                record,
            },
        );
    }

    fn change(&self, id: &CallId, change: Change) {
        let mut entries = self.entries();
        match change {
            Change::Keep => {}
            Change::Put(record) => {
                if let Some(entry) = entries.get_mut(id) {
                    entry.record = record;
                }
            }
            Change::Delete => drop(entries.remove(id)),
        }
    }
}

impl Store for Flawed {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            let call = &self.understood(call);
            let odd = call
                .scope()
                .principal()
                .is_some_and(|principal| principal.contains('\0'));
            if odd && self.flaw == Flaw::FailsOnNul {
                return Err(StoreError::new(
                    StoreErrorKind::Unavailable,
                    "begin record: invalid byte sequence",
                ));
            }
            let seen = self.seen(call, self.clock.now());
            let fresh = seen.is_none();
            match self.flaw {
                Flaw::ChecksThenInserts if fresh => tokio::task::yield_now().await,
                Flaw::ChecksThenTakesOver if !fresh => tokio::task::yield_now().await,
                _ => {}
            }
            let verdict = self.begin_now(call, seen.as_ref());
            match self.flaw {
                Flaw::KeepsClaimsOfTheCancelled => tokio::task::yield_now().await,
                Flaw::FreesKeysOfTheCancelled | Flaw::GivesBackLate => {
                    let mut given_back = GivenBack {
                        store: self,
                        call,
                        answered: false,
                    };
                    tokio::task::yield_now().await;
                    given_back.answered = true;
                }
                _ => {}
            }
            Ok(verdict)
        })
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        Box::pin(async move {
            let call = &self.understood(call);
            let seen = self.seen(call, self.clock.now());
            if self.flaw == Flaw::PeekClaims {
                return Ok(
                    Some(self.begin_now(call, seen.as_ref())).filter(|verdict| !matches!(verdict, Verdict::Run(_)))
                );
            }
            if let Some(verdict) = self.verdict_of_flaw(seen.as_ref(), call, self.clock.now()) {
                return Ok(Some(verdict));
            }
            let verdict = record::peek(seen.as_ref(), call, self.clock.now());
            Ok(match (verdict, self.flaw) {
                (Some(Verdict::InDoubt(_)), Flaw::PeekHidesDoubt) => None,
                (verdict, _) => verdict.map(|verdict| self.told(call, verdict)),
            })
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        Box::pin(async move { Ok(self.renew_now(claim, lease)) })
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        Box::pin(async move {
            if self.flaw == Flaw::CompletesInTwoSteps {
                let record = self.record(&claim.id);
                tokio::task::yield_now().await;
                let (change, fenced) = record::complete(record.as_ref(), claim, outcome, keep, self.clock.now());
                self.change(&claim.id, change);
                return Ok(fenced);
            }
            let fenced = self.complete_now(claim, outcome, keep);
            if self.flaw != Flaw::WakesNobody {
                self.wakeups.wake(&claim.id);
            }
            Ok(fenced)
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move {
            let fenced = self.abandon_now(claim);
            if !matches!(self.flaw, Flaw::WakesNobody | Flaw::WakesOnlyForOutcomes) {
                self.wakeups.wake(&claim.id);
            }
            Ok(fenced)
        })
    }

    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move {
            let fenced = match self.flaw {
                Flaw::LosingIsIgnored => Fenced::Applied,
                Flaw::LosingIsAbandoning => self.abandon_now(claim),
                Flaw::LosesUnfenced => self.renew_now(&self.owner(claim), Duration::ZERO),
                _ => self.renew_now(claim, Duration::ZERO),
            };
            if !matches!(self.flaw, Flaw::WakesNobody | Flaw::WakesOnlyForOutcomes) {
                self.wakeups.wake(&claim.id);
            }
            Ok(fenced)
        })
    }

    fn sweep(&self, limit: u32) -> Reply<'_, u32> {
        Box::pin(async move { Ok(self.sweep_now(limit).await) })
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.wakeups.watch(id)
    }
}

/// Frees the key when a caller gives up: at once and whoever holds it, or its own claim but after a while.
struct GivenBack<'a> {
    store: &'a Flawed,
    call: &'a Call,
    answered: bool,
}

impl Drop for GivenBack<'_> {
    fn drop(&mut self) {
        let (id, token) = (*self.call.id(), self.call.token());
        match self.store.flaw {
            _ if self.answered => {}
            Flaw::GivesBackLate => {
                let entries = Arc::clone(&self.store.entries);
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    entries.lock().unwrap().retain(|_, entry| entry.record.token != token);
                });
            }
            _ => self.store.change(&id, Change::Delete),
        }
    }
}

/// A duration in a column that is too narrow for it.
fn wrapped(duration: Duration) -> Duration {
    let ms = u32::try_from(duration.as_millis() & u128::from(u32::MAX)).unwrap();
    if duration == Duration::MAX {
        Duration::ZERO
    } else {
        Duration::from_millis(ms.into())
    }
}
