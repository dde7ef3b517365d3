//! Tasks in this process's memory.

mod tables;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use self::tables::{Row, Tables};
use super::{
    Ask, AttemptView, Book, Card, Depth, Enqueued, Entry, InspectQueue, Lane, LaneView, Lease, Leased, Queue, Registry,
    Rescued, Revision, Ruling, Settlement, Task, TaskFilter, TaskId, TaskPage, TaskState, TaskView, Walk, Walked,
    check_batch,
};
use crate::clock::{Clock, SteadyClock, Timestamp};
use crate::store::Reply;
use crate::{Fenced, StoreError, StoreErrorKind};

/// Keeps tasks in memory: for tests, and for work that dies with the process too.
#[derive(Debug)]
pub struct MemoryQueue {
    clock: Box<dyn Clock>,
    tasks_max: usize,
    // A std mutex, since every step is a few map operations and nothing awaits while holding it.
    tables: Mutex<Tables>,
    arrivals: watch::Sender<u64>,
}

impl Default for MemoryQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryQueue {
    /// How many tasks a queue holds unless told otherwise, done ones included.
    pub const TASKS_MAX_DEFAULT: usize = 1_000_000;

    /// An empty queue on a clock that no step of the wall clock moves.
    pub fn new() -> Self {
        Self::with_clock(SteadyClock::default())
    }

    /// An empty queue that judges time by `clock`.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self {
            clock: Box::new(clock),
            tasks_max: Self::TASKS_MAX_DEFAULT,
            tables: Mutex::default(),
            arrivals: watch::Sender::new(0),
        }
    }

    /// Holds at most `max` tasks; beyond that [`enqueue`](Queue::enqueue) fails as full. Nothing is evicted.
    #[must_use]
    pub fn with_tasks_max(mut self, max: usize) -> Self {
        self.tasks_max = max;
        self
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out one step. The clock is read under the lock, so that steps and their times have one order.
    fn step<'a, T: Send + 'a>(&'a self, step: impl FnOnce(&mut Tables, Timestamp) -> T + Send + 'a) -> Reply<'a, T> {
        Box::pin(async move {
            let mut tables = self.tables();
            let now = self.clock.now();
            Ok(step(&mut tables, now))
        })
    }

    /// The same for steps after which there may be something to lease.
    fn arrive<'a, T: Send + 'a>(&'a self, step: impl FnOnce(&mut Tables, Timestamp) -> T + Send + 'a) -> Reply<'a, T> {
        Box::pin(async move {
            let answer = self.step(step).await;
            self.arrivals.send_modify(|count| *count += 1);
            answer
        })
    }
}

impl Queue for MemoryQueue {
    fn enqueue<'a>(&'a self, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        Box::pin(async move {
            check_batch(tasks.len(), "enqueue tasks")?;
            let answers = self.arrive(|tables, now| {
                let room = self.tasks_max.saturating_sub(tables.rows.len());
                let new = |task: &&Task| !tables.rows.contains_key(&task.id());
                if tasks.iter().filter(new).count() > room {
                    let max = self.tasks_max;
                    let context = format!("enqueue tasks: all {max} places are taken; prune, or raise with_tasks_max");
                    return Err(StoreError::new(StoreErrorKind::Full, context));
                }
                Ok(tasks.iter().map(|task| tables.enqueue(task, now)).collect())
            });
            answers.await?
        })
    }

    fn lease<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Vec<Leased>> {
        self.step(|tables, now| tables.lease(ask, now))
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], lease: Duration) -> Reply<'a, Vec<Ruling>> {
        Box::pin(async move {
            check_batch(leases.len(), "renew leases")?;
            self.step(move |tables, now| {
                let renewed = leases.iter().map(|own| match tables.running(own) {
                    Some(row) => {
                        row.view.due_at = Some(now.after(lease));
                        Ruling::Applied
                    }
                    None => Ruling::Superseded,
                });
                renewed.collect()
            })
            .await
        })
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Reply<'a, Vec<Ruling>> {
        Box::pin(async move {
            check_batch(settlements.len(), "settle tasks")?;
            self.arrive(|tables, now| {
                let settled = settlements.iter();
                settled
                    .map(|settlement| tables.settle(settlement, now).into())
                    .collect()
            })
            .await
        })
    }

    fn rescue(&self, rescues_max: u32, limit: u32) -> Reply<'_, Vec<Rescued>> {
        self.arrive(move |tables, now| {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let lost = tables.lost(limit, now);
            lost.into_iter()
                .filter_map(|id| tables.rescue(id, rescues_max, now))
                .collect()
        })
    }

    fn revive<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        Box::pin(async move {
            check_batch(ids.len(), "revive tasks")?;
            self.arrive(|tables, now| ids.iter().map(|id| tables.revive(*id, now)).collect())
                .await
        })
    }

    fn conclude<'a>(&'a self, seen: Lease, outcome: &'a Bytes) -> Reply<'a, Fenced> {
        Box::pin(async move { self.arrive(|tables, now| tables.conclude(seen, outcome, now)).await })
    }

    fn hasten<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        Box::pin(async move {
            check_batch(ids.len(), "hasten tasks")?;
            self.arrive(|tables, now| ids.iter().map(|id| tables.hasten(*id, now)).collect())
                .await
        })
    }

    fn prune(&self, state: TaskState, age: Duration, limit: u32) -> Reply<'_, u32> {
        self.step(move |tables, now| {
            let old = |row: &&Row| {
                matches!(state, TaskState::Done | TaskState::Dead)
                    && row.view.state == state
                    && row.view.ended_at.is_some_and(|ended| ended.after(age) <= now)
            };
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let old: Vec<TaskId> = tables
                .rows
                .values()
                .filter(old)
                .map(|row| row.view.id)
                .take(limit)
                .collect();
            for id in &old {
                tables.rows.remove(id);
            }
            u32::try_from(old.len()).unwrap_or(u32::MAX)
        })
    }

    /// It has no transactions to raise a mark in, and so none to forget.
    fn prune_marks(&self, _age: Duration, _limit: u32) -> Reply<'_, u32> {
        Box::pin(async { Ok(0) })
    }

    fn pause_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()> {
        self.step(|tables, _| tables.lane(lane, |lane| lane.paused = true))
    }

    fn resume_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()> {
        self.arrive(|tables, _| tables.lane(lane, |lane| lane.paused = false))
    }

    fn cap_lane<'a>(&'a self, lane: &'a Lane, cap: Option<u32>) -> Reply<'a, ()> {
        self.arrive(move |tables, _| tables.lane(lane, |lane| lane.cap = cap))
    }

    fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }
}

impl Book for MemoryQueue {
    fn write_schedule<'a>(&'a self, name: &'a str, definition: &'a Bytes, paused: Option<bool>) -> Reply<'a, ()> {
        self.step(move |tables, now| {
            let was = tables.schedules.get(name);
            let entry = Entry {
                name: name.into(),
                definition: definition.clone(),
                paused: paused.unwrap_or_else(|| was.is_some_and(|was| was.paused)),
                position: was.and_then(|was| was.position),
                changed_at: now,
            };
            tables.schedules.insert(name.into(), entry);
        })
    }

    fn pause_schedule<'a>(&'a self, name: &'a str, paused: bool) -> Reply<'a, bool> {
        self.step(move |tables, now| {
            let Some(entry) = tables.schedules.get_mut(name) else {
                return false;
            };
            (entry.paused, entry.changed_at) = (paused, now);
            true
        })
    }

    fn read_schedule<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Entry>> {
        self.step(|tables, _| tables.schedules.get(name).cloned())
    }

    fn schedules(&self) -> Reply<'_, Vec<Entry>> {
        self.step(|tables, _| tables.schedules.values().cloned().collect())
    }

    fn erase_schedule<'a>(&'a self, name: &'a str) -> Reply<'a, bool> {
        self.step(|tables, _| tables.schedules.remove(name).is_some())
    }

    fn advance_schedule<'a>(&'a self, name: &'a str, position: Timestamp) -> Reply<'a, ()> {
        self.step(move |tables, _| {
            if let Some(entry) = tables.schedules.get_mut(name) {
                entry.position = entry.position.max(Some(position));
            }
        })
    }

    fn calendar(&self) -> Reply<'_, Timestamp> {
        self.step(|_, now| now)
    }
}

impl Registry for MemoryQueue {
    fn write_card<'a>(
        &'a self,
        name: &'a str,
        value: &'a Bytes,
        over: Option<Revision>,
    ) -> Reply<'a, Option<Revision>> {
        self.step(move |tables, now| {
            if tables.cards.get(name).map(|card| card.revision) != over {
                return None;
            }
            let revision = Revision::next(over, now);
            let card = Card {
                name: name.into(),
                value: value.clone(),
                revision,
                changed_at: now,
            };
            tables.cards.insert(name.into(), card);
            Some(revision)
        })
    }

    fn read_card<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Card>> {
        self.step(|tables, _| tables.cards.get(name).cloned())
    }

    fn cards<'a>(&'a self, prefix: &'a str, after: &'a str, limit: u32) -> Reply<'a, Vec<Card>> {
        self.step(move |tables, _| {
            let first = Bound::Included(prefix.max(after));
            let cards = tables.cards.range::<str, _>((first, Bound::Unbounded));
            let cards = cards.map(|(_, card)| card).filter(|card| &*card.name > after);
            cards
                .take_while(|card| card.name.starts_with(prefix))
                .take(usize::try_from(limit).unwrap_or(usize::MAX))
                .cloned()
                .collect()
        })
    }

    fn erase_card<'a>(&'a self, name: &'a str, over: Revision) -> Reply<'a, Fenced> {
        self.step(move |tables, _| match tables.cards.get(name) {
            Some(card) if card.revision == over => {
                tables.cards.remove(name);
                Fenced::Applied
            }
            _ => Fenced::Superseded,
        })
    }
}

impl InspectQueue for MemoryQueue {
    fn show(&self, id: TaskId) -> Reply<'_, Option<TaskView>> {
        self.step(move |tables, _| tables.rows.get(&id).map(|row| row.view.clone()))
    }

    fn attempts(&self, id: TaskId) -> Reply<'_, Vec<AttemptView>> {
        self.step(move |tables, _| tables.rows.get(&id).map(|row| row.history.clone()).unwrap_or_default())
    }

    fn list<'a>(&'a self, filter: &'a TaskFilter, page: TaskPage) -> Reply<'a, Vec<TaskView>> {
        self.step(move |tables, _| {
            let after = |row: &&Row| page.after.is_none_or(|after| row.view.id > after);
            let rows = tables.rows.values().filter(after).map(|row| &row.view);
            let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
            rows.filter(|view| filter.takes(view)).take(limit).cloned().collect()
        })
    }

    fn walk<'a>(&'a self, walk: &'a Walk) -> Reply<'a, Walked> {
        self.step(|tables, _| {
            let parked = |view: &&TaskView| matches!(view.state, TaskState::Held | TaskState::Dead);
            let after = |view: &&TaskView| walk.after.is_none_or(|after| view.id > after);
            let views = tables.rows.values().map(|row| &row.view).filter(after);
            let mut seen = views.filter(|view| !walk.is_over_parked() || parked(view));
            let (mut tasks, mut end) = (Vec::new(), None);
            for _ in 0..walk.steps.max(1) {
                let view = seen.next();
                end = view.map(|view| view.id);
                let Some(view) = view else { break };
                if walk.takes(view) {
                    tasks.push(view.clone());
                }
                if tasks.len() >= usize::try_from(walk.limit.max(1)).unwrap_or(usize::MAX) {
                    break;
                }
            }
            walk.walked(tasks, end)
        })
    }

    fn lanes(&self) -> Reply<'_, Vec<LaneView>> {
        self.step(|tables, _| tables.lanes.values().cloned().collect())
    }

    fn depths(&self) -> Reply<'_, Vec<Depth>> {
        self.step(|tables, _| {
            let mut depths: BTreeMap<(&Lane, TaskState), u64> = BTreeMap::new();
            let undone = tables.rows.values().filter(|row| row.view.state != TaskState::Done);
            for row in undone {
                *depths.entry((&row.view.lane, row.view.state)).or_default() += 1;
            }
            let depths = depths.into_iter().map(|((lane, state), tasks)| Depth {
                lane: lane.clone(),
                state,
                tasks,
            });
            depths.collect()
        })
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        self.step(|_, now| now)
    }
}
