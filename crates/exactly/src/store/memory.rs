//! Records in this process's memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::record::{self, Change, Record, State};
use super::{
    CallView, Fenced, Filter, Inspect, Keep, Note, Noted, Operate, Page, Reply, Store, TrailFilter, Verdict, Wakeups,
    Watch,
};
use crate::clock::{Clock, SteadyClock, Timestamp};
use crate::{Call, CallId, Claim, Key, Scope, StoreError, StoreErrorKind};

/// Keeps records in memory: for tests, and for effects that die with the process too.
///
/// A restart forgets every key, so a payment that is retried across one happens twice. Use a durable store for anything
/// that outlives the process.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Box<dyn Clock>,
    entries_max: usize,
    // A std mutex, since every transition is a map operation and nothing awaits while holding it. The clock is read under
    // it: a moment that passed while waiting for it would look like a clock that was set back.
    entries: Mutex<HashMap<CallId, Entry>>,
    trail: Mutex<Vec<Noted>>,
    wakeups: Wakeups,
}

#[derive(Debug)]
struct Entry {
    scope: Scope,
    key: Key,
    created_at: Timestamp,
    record: Record,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// How many records a store holds unless told otherwise.
    pub const ENTRIES_MAX_DEFAULT: usize = 1_000_000;

    /// How many entries of the trail a store holds; the oldest make room.
    const TRAIL_MAX: usize = 10_000;

    /// An empty store on a clock that no step of the wall clock moves.
    pub fn new() -> Self {
        Self::with_clock(SteadyClock::default())
    }

    /// An empty store that judges time by `clock`.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self {
            clock: Box::new(clock),
            entries_max: Self::ENTRIES_MAX_DEFAULT,
            entries: Mutex::default(),
            trail: Mutex::default(),
            wakeups: Wakeups::default(),
        }
    }

    /// Holds at most `max` records; beyond that [`begin`](Store::begin) fails as full. Nothing is evicted, because a
    /// forgotten key is an effect repeated.
    #[must_use]
    pub fn with_entries_max(mut self, max: usize) -> Self {
        self.entries_max = max;
        self
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<CallId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_now(&self, call: &Call) -> Result<Verdict, StoreError> {
        let mut entries = self.entries();
        let now = self.clock.now();
        let entry = entries.get_mut(call.id());
        let (change, verdict) = record::begin(entry.as_ref().map(|entry| &entry.record), call, now);
        match (change, entry) {
            (Change::Put(record), Some(entry)) => {
                // Only a forgotten outcome is ever replaced: its key starts anew.
                if matches!(entry.record.state, State::Done { .. }) {
                    entry.created_at = now;
                }
                entry.record = record;
            }
            (Change::Put(record), None) => {
                if entries.len() >= self.entries_max {
                    let context = format!(
                        "begin record: all {} entries are taken; sweep, or raise with_entries_max",
                        self.entries_max
                    );
                    return Err(StoreError::new(StoreErrorKind::Full, context));
                }
                let entry = Entry {
                    scope: call.scope().clone(),
                    key: call.key().clone(),
                    created_at: now,
                    record,
                };
                entries.insert(*call.id(), entry);
            }
            (Change::Keep | Change::Delete, _) => {}
        }
        Ok(verdict)
    }

    fn step(&self, claim: &Claim, transition: impl FnOnce(Option<&Record>, Timestamp) -> (Change, Fenced)) -> Fenced {
        let mut entries = self.entries();
        let now = self.clock.now();
        let entry = entries.get_mut(&claim.id);
        let (change, fenced) = transition(entry.as_ref().map(|entry| &entry.record), now);
        match (change, entry) {
            (Change::Put(record), Some(entry)) => entry.record = record,
            (Change::Delete, Some(_)) => {
                entries.remove(&claim.id);
            }
            (Change::Keep, _) | (_, None) => {}
        }
        fenced
    }

    fn settle(&self, claim: &Claim, transition: impl FnOnce(Option<&Record>, Timestamp) -> (Change, Fenced)) -> Fenced {
        let fenced = self.step(claim, transition);
        self.wakeups.wake(&claim.id);
        fenced
    }
}

impl Store for MemoryStore {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move { self.begin_now(call) })
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        Box::pin(async move {
            let entries = self.entries();
            let record = entries.get(call.id()).map(|entry| &entry.record);
            Ok(record::peek(record, call, self.clock.now()))
        })
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        Box::pin(async move { Ok(self.step(claim, |record, now| record::renew(record, claim, lease, now))) })
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        Box::pin(
            async move { Ok(self.settle(claim, |record, now| record::complete(record, claim, outcome, keep, now))) },
        )
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move { Ok(self.settle(claim, |record, _| record::abandon(record, claim))) })
    }

    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move { Ok(self.settle(claim, |record, now| record::lose(record, claim, now))) })
    }

    fn sweep(&self, limit: u32) -> Reply<'_, u32> {
        Box::pin(async move {
            let mut entries = self.entries();
            let now = self.clock.now();
            let mut left = limit;
            entries.retain(|_, entry| {
                let gone = left > 0 && record::is_sweepable(&entry.record, now);
                left -= u32::from(gone);
                !gone
            });
            Ok(limit - left)
        })
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.wakeups.watch(id)
    }
}

impl Inspect for MemoryStore {
    fn get<'a>(&'a self, id: &'a CallId) -> Reply<'a, Option<CallView>> {
        Box::pin(async move { Ok(self.entries().get(id).map(|entry| entry.view(*id, self.clock.now()))) })
    }

    fn list<'a>(&'a self, filter: &'a Filter) -> Reply<'a, Page> {
        Box::pin(async move {
            let limit = usize::try_from(filter.limit.clamp(1, Filter::LIMIT_MAX)).unwrap_or(1);
            let entries = self.entries();
            let now = self.clock.now();
            // Sorted when somebody asks, because calls are looked up far more often than listed.
            let after = |id: &&CallId| filter.after.as_ref().is_none_or(|after| *id > after);
            let mut ids: Vec<_> = entries.keys().filter(after).collect();
            ids.sort_unstable();
            let mut matching = ids
                .into_iter()
                .filter_map(|id| Some(entries.get(id)?.view(*id, now)))
                .filter(|view| filter.matches(view));
            let calls: Vec<_> = matching.by_ref().take(limit).collect();
            let next = matching.next().and(calls.last().map(|view| view.claim.id));
            Ok(Page { calls, next })
        })
    }
}

impl Operate for MemoryStore {
    fn forget<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move { Ok(self.settle(claim, |record, _| record::forget(record, claim))) })
    }

    fn note<'a>(&'a self, note: &'a Note) -> Reply<'a, ()> {
        Box::pin(async move {
            let mut trail = self.trail.lock().unwrap_or_else(PoisonError::into_inner);
            let (at, note) = (self.clock.now(), note.clone());
            let number = trail.last().map_or(1, |last| last.number + 1);
            trail.push(Noted { number, at, note });
            let too_many = trail.len().saturating_sub(Self::TRAIL_MAX);
            let too_old = trail
                .iter()
                .take_while(|noted| noted.at.after(Noted::KEEP) <= at)
                .count();
            trail.drain(..too_many.max(too_old));
            Ok(())
        })
    }

    fn trail<'a>(&'a self, filter: &'a TrailFilter) -> Reply<'a, Vec<Noted>> {
        Box::pin(async move {
            let limit = usize::try_from(filter.limit.clamp(1, TrailFilter::LIMIT_MAX)).unwrap_or(1);
            let trail = self.trail.lock().unwrap_or_else(PoisonError::into_inner);
            let matching = trail.iter().filter(|noted| {
                filter.after.is_none_or(|after| noted.number > after)
                    && filter.call.is_none_or(|call| noted.note.call == Some(call))
            });
            Ok(matching.take(limit).cloned().collect())
        })
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        Box::pin(async move { Ok(self.clock.now()) })
    }
}

impl Entry {
    fn view(&self, id: CallId, now: Timestamp) -> CallView {
        let (until, outcome_len) = match &self.record.state {
            State::InFlight { lease_until, .. } => (Some(*lease_until), None),
            State::Done { outcome, expires_at } => (*expires_at, u64::try_from(outcome.len()).ok()),
        };
        CallView {
            scope: self.scope.clone(),
            key: self.key.clone(),
            fingerprint: self.record.fingerprint,
            phase: record::phase(&self.record, now),
            claim: Claim {
                id,
                token: self.record.token,
                attempt: self.record.attempt,
            },
            created_at: self.created_at,
            until,
            outcome_len,
        }
    }
}
