//! A queue in memory that can be told to fail, hang or lose its replies, and that remembers what it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::queue::{
    Ask, AttemptView, Card, Depth, Enqueued, InspectQueue, Lane, LaneView, Lease, Leased, MemoryQueue, Queue, Registry,
    Rescued, Revision, Ruling, Settlement, Task, TaskFilter, TaskId, TaskPage, TaskState, TaskView, Walk, Walked,
};
use exactly::store::Reply;
use exactly::{Fenced, StoreError, StoreErrorKind};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::app::PausedClock;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails, and nothing was changed.
    Refuses,
    /// It is applied, but the reply is lost.
    LosesReply,
    /// It is never answered, and nothing was changed.
    Hangs,
    /// It panics, and nothing was changed.
    Panics,
    /// It is applied, after a moment.
    Lingers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Lease,
    Renew,
    Settle,
    Rescue,
    Enqueue,
    Show,
    Cap,
    ReadCard,
    WriteCard,
}

#[derive(Debug)]
pub(crate) struct RiggedQueue {
    pub(crate) inner: MemoryQueue,
    broken: Mutex<BTreeMap<Verb, Fault>>,
    /// What becomes of the next calls, one after the other.
    script: Mutex<BTreeMap<Verb, VecDeque<Option<Fault>>>>,
    /// A task of which no settlement is taken.
    refused: Mutex<Option<TaskId>>,
    /// A task that a transaction elsewhere has locked.
    locked: Mutex<Option<TaskId>>,
    calls: Mutex<Vec<(Verb, usize)>>,
    /// Whether nobody hears of arrivals.
    is_deaf: bool,
}

impl RiggedQueue {
    pub(crate) fn new() -> Self {
        Self {
            inner: MemoryQueue::with_clock(PausedClock::new()),
            broken: Mutex::default(),
            script: Mutex::default(),
            refused: Mutex::default(),
            locked: Mutex::default(),
            calls: Mutex::default(),
            is_deaf: false,
        }
    }

    pub(crate) fn deaf() -> Self {
        Self {
            is_deaf: true,
            ..Self::new()
        }
    }

    pub(crate) fn break_with(&self, verb: Verb, fault: Fault) {
        self.broken.lock().unwrap().insert(verb, fault);
    }

    pub(crate) fn go_down(&self) {
        for verb in [Verb::Lease, Verb::Renew, Verb::Settle, Verb::Rescue] {
            self.break_with(verb, Fault::Refuses);
        }
    }

    pub(crate) fn mend(&self) {
        self.broken.lock().unwrap().clear();
    }

    pub(crate) fn script(&self, verb: Verb, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.script.lock().unwrap().insert(verb, faults.into_iter().collect());
    }

    /// Fails every call that settles this task.
    pub(crate) fn refuse(&self, id: TaskId) {
        *self.refused.lock().unwrap() = Some(id);
    }

    /// A transaction elsewhere locks this task, or lets go of the one that it has locked.
    pub(crate) fn lock(&self, id: Option<TaskId>) {
        *self.locked.lock().unwrap() = id;
    }

    /// The rulings for these leases, busy where a task is locked.
    fn ruled(&self, leases: impl Iterator<Item = Lease>, free: Vec<Ruling>) -> Vec<Ruling> {
        let (locked, mut free) = (*self.locked.lock().unwrap(), free.into_iter());
        let ruling = |lease: Lease| {
            if Some(lease.id) == locked {
                return Ruling::Busy;
            }
            free.next().unwrap()
        };
        leases.map(ruling).collect()
    }

    /// How large each call of this verb was.
    pub(crate) fn calls(&self, verb: Verb) -> Vec<usize> {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .filter(|(called, _)| *called == verb)
            .map(|(_, size)| *size)
            .collect()
    }

    fn fault(&self, verb: Verb) -> Option<Fault> {
        let scripted = self.script.lock().unwrap().get_mut(&verb).and_then(VecDeque::pop_front);
        scripted.unwrap_or_else(|| self.broken.lock().unwrap().get(&verb).copied())
    }

    fn rig<'a, T: Send + 'a>(&'a self, verb: Verb, size: usize, reply: Reply<'a, T>) -> Reply<'a, T> {
        self.calls.lock().unwrap().push((verb, size));
        let fault = self.fault(verb);
        Box::pin(async move {
            let down = || {
                Err(StoreError::new(
                    StoreErrorKind::Unavailable,
                    "rigged queue: connection refused",
                ))
            };
            match fault {
                None => reply.await,
                Some(Fault::Lingers) => {
                    sleep(Duration::from_millis(5)).await;
                    reply.await
                }
                Some(Fault::Refuses) => down(),
                Some(Fault::LosesReply) => {
                    reply.await?;
                    down()
                }
                Some(Fault::Hangs) => std::future::pending().await,
                Some(Fault::Panics) => panic!("rigged queue: panicked"),
            }
        })
    }
}

impl Queue for RiggedQueue {
    fn enqueue<'a>(&'a self, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        self.rig(Verb::Enqueue, tasks.len(), self.inner.enqueue(tasks))
    }

    fn lease<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Vec<Leased>> {
        self.rig(Verb::Lease, usize::try_from(ask.most).unwrap(), self.inner.lease(ask))
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], lease: Duration) -> Reply<'a, Vec<Ruling>> {
        let reply = Box::pin(async move {
            let locked = *self.locked.lock().unwrap();
            let free = leases.iter().filter(|lease| Some(lease.id) != locked);
            let free: Vec<Lease> = free.copied().collect();
            let renewed = self.inner.renew(&free, lease).await?;
            Ok(self.ruled(leases.iter().copied(), renewed))
        });
        self.rig(Verb::Renew, leases.len(), reply)
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Reply<'a, Vec<Ruling>> {
        let refused = *self.refused.lock().unwrap();
        let is_refused = |settlement: &Settlement| Some(settlement.lease.id) == refused;
        let is_refused = settlements.iter().any(is_refused);
        let reply = Box::pin(async move {
            if is_refused {
                return Err(StoreError::new(StoreErrorKind::Other, "rigged queue: not this one"));
            }
            let locked = *self.locked.lock().unwrap();
            let free = settlements.iter().filter(|own| Some(own.lease.id) != locked);
            let free: Vec<Settlement> = free.cloned().collect();
            let settled = self.inner.settle(&free).await?;
            Ok(self.ruled(settlements.iter().map(|own| own.lease), settled))
        });
        self.rig(Verb::Settle, settlements.len(), reply)
    }

    fn rescue(&self, rescues_max: u32, limit: u32) -> Reply<'_, Vec<Rescued>> {
        self.rig(Verb::Rescue, 0, self.inner.rescue(rescues_max, limit))
    }

    fn revive<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        self.inner.revive(ids)
    }

    fn conclude<'a>(&'a self, seen: Lease, outcome: &'a Bytes) -> Reply<'a, Fenced> {
        self.inner.conclude(seen, outcome)
    }

    fn hasten<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        self.inner.hasten(ids)
    }

    fn prune(&self, state: TaskState, age: Duration, limit: u32) -> Reply<'_, u32> {
        self.inner.prune(state, age, limit)
    }

    fn prune_marks(&self, age: Duration, limit: u32) -> Reply<'_, u32> {
        self.inner.prune_marks(age, limit)
    }

    fn pause_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()> {
        self.inner.pause_lane(lane)
    }

    fn resume_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()> {
        self.inner.resume_lane(lane)
    }

    fn cap_lane<'a>(&'a self, lane: &'a Lane, cap: Option<u32>) -> Reply<'a, ()> {
        self.rig(Verb::Cap, 1, self.inner.cap_lane(lane, cap))
    }

    fn arrivals(&self) -> watch::Receiver<u64> {
        if self.is_deaf {
            // The other end is gone.
            return watch::channel(0).1;
        }
        self.inner.arrivals()
    }
}

impl InspectQueue for RiggedQueue {
    fn show(&self, id: TaskId) -> Reply<'_, Option<TaskView>> {
        self.rig(Verb::Show, 1, self.inner.show(id))
    }

    fn attempts(&self, id: TaskId) -> Reply<'_, Vec<AttemptView>> {
        self.inner.attempts(id)
    }

    fn list<'a>(&'a self, filter: &'a TaskFilter, page: TaskPage) -> Reply<'a, Vec<TaskView>> {
        self.inner.list(filter, page)
    }

    fn walk<'a>(&'a self, walk: &'a Walk) -> Reply<'a, Walked> {
        self.inner.walk(walk)
    }

    fn lanes(&self) -> Reply<'_, Vec<LaneView>> {
        self.inner.lanes()
    }

    fn depths(&self) -> Reply<'_, Vec<Depth>> {
        self.inner.depths()
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        self.inner.now()
    }
}

impl Registry for RiggedQueue {
    fn write_card<'a>(
        &'a self,
        name: &'a str,
        value: &'a Bytes,
        over: Option<Revision>,
    ) -> Reply<'a, Option<Revision>> {
        self.rig(Verb::WriteCard, 1, self.inner.write_card(name, value, over))
    }

    fn read_card<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Card>> {
        self.rig(Verb::ReadCard, 1, self.inner.read_card(name))
    }

    fn cards<'a>(&'a self, prefix: &'a str, after: &'a str, limit: u32) -> Reply<'a, Vec<Card>> {
        self.inner.cards(prefix, after, limit)
    }

    fn erase_card<'a>(&'a self, name: &'a str, over: Revision) -> Reply<'a, Fenced> {
        self.inner.erase_card(name, over)
    }
}
