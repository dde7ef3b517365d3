//! A queue in memory with transactions: effects and settlements that are applied together or not at all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use exactly::queue::{
    Ask, End, Enqueued, InspectQueue, Lane, Lease, Leased, MemoryQueue, Queue, Rescued, Ruling, Settlement, Task,
    TaskId, TaskState, TransactionalQueue,
};
use exactly::store::Reply;
use exactly::{Fenced, StoreError, StoreErrorKind};
use tokio::sync::watch;

use crate::app::PausedClock;
use crate::worker::Fault;

/// Where a transaction can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Point {
    Open,
    Settle,
    Commit,
}

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) inner: MemoryQueue,
    /// What was committed.
    effects: Mutex<Vec<String>>,
    faults: Mutex<BTreeMap<Point, VecDeque<Fault>>>,
    rolled_back: Mutex<usize>,
}

/// What is applied at the commit.
#[derive(Debug, Default)]
pub(super) struct Tx {
    pub(super) effects: Vec<String>,
    tasks: Vec<Task>,
    settlements: Vec<Settlement>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            inner: MemoryQueue::with_clock(PausedClock::new()),
            effects: Mutex::default(),
            faults: Mutex::default(),
            rolled_back: Mutex::default(),
        }
    }

    /// What becomes of the next steps of this sort.
    pub(super) fn script(&self, point: Point, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().insert(point, faults.into_iter().collect());
    }

    pub(super) fn effects(&self) -> Vec<String> {
        self.effects.lock().unwrap().clone()
    }

    pub(super) fn rolled_back(&self) -> usize {
        *self.rolled_back.lock().unwrap()
    }

    async fn at(&self, point: Point) -> Result<Option<Fault>, StoreError> {
        let fault = self
            .faults
            .lock()
            .unwrap()
            .get_mut(&point)
            .and_then(VecDeque::pop_front);
        match fault {
            Some(Fault::Refuses) => Err(down()),
            Some(Fault::Hangs) => std::future::pending().await,
            fault => Ok(fault),
        }
    }
}

fn down() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "ledger: connection lost")
}

impl TransactionalQueue for Ledger {
    type Tx = Tx;

    fn open(&self) -> Reply<'_, Tx> {
        Box::pin(async {
            self.at(Point::Open).await?;
            Ok(Tx::default())
        })
    }

    fn enqueue_in<'a>(&'a self, tx: &'a mut Tx, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for task in tasks {
                assert!(
                    self.inner.show(task.id()).await?.is_none(),
                    "these tests add new ones only"
                );
                tx.tasks.push(task.clone());
                answers.push(Enqueued::New(task.id()));
            }
            Ok(answers)
        })
    }

    fn record_in<'a>(&'a self, _tx: &'a mut Tx, task: &'a Task, _end: &'a End) -> Reply<'a, Enqueued> {
        panic!("jobs are enqueued before they are done: {}", task.key())
    }

    fn settle_in<'a>(&'a self, tx: &'a mut Tx, settlements: &'a [Settlement]) -> Reply<'a, Vec<Fenced>> {
        Box::pin(async move {
            self.at(Point::Settle).await?;
            let mut fenced = Vec::new();
            for settlement in settlements {
                let view = self.inner.show(settlement.lease.id).await?.unwrap();
                let ours = view.state == TaskState::Running && view.fence == settlement.lease.fence;
                fenced.push(if ours { Fenced::Applied } else { Fenced::Superseded });
                tx.settlements.push(settlement.clone());
            }
            Ok(fenced)
        })
    }

    fn raise_in<'a>(&'a self, _tx: &'a mut Tx, name: &'a str, number: i64) -> Reply<'a, bool> {
        panic!("jobs come in any order: {name} {number}")
    }

    fn commit(&self, tx: Tx) -> Reply<'_, ()> {
        Box::pin(async move {
            let fault = self.at(Point::Commit).await?;
            let fenced = self.inner.settle(&tx.settlements).await?;
            assert!(
                fenced.iter().all(|fenced| *fenced == Fenced::Applied),
                "a database would have refused"
            );
            let _ = self.inner.enqueue(&tx.tasks).await?;
            self.effects.lock().unwrap().extend(tx.effects);
            if fault == Some(Fault::LosesReply) {
                Err(down())
            } else {
                Ok(())
            }
        })
    }

    fn rollback(&self, tx: Tx) -> Reply<'_, ()> {
        drop(tx);
        *self.rolled_back.lock().unwrap() += 1;
        Box::pin(async { Ok(()) })
    }
}

impl Queue for Ledger {
    fn enqueue<'a>(&'a self, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        self.inner.enqueue(tasks)
    }

    fn lease<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Vec<Leased>> {
        self.inner.lease(ask)
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], lease: Duration) -> Reply<'a, Vec<Ruling>> {
        self.inner.renew(leases, lease)
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Reply<'a, Vec<Ruling>> {
        self.inner.settle(settlements)
    }

    fn rescue(&self, rescues_max: u32, limit: u32) -> Reply<'_, Vec<Rescued>> {
        self.inner.rescue(rescues_max, limit)
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
        self.inner.cap_lane(lane, cap)
    }

    fn arrivals(&self) -> watch::Receiver<u64> {
        self.inner.arrivals()
    }
}
