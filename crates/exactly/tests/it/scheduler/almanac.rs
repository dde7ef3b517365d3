//! A queue whose calendar can be wrong while the clock that judges leases goes on, and whose answers can take their time.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use exactly::Fenced;
use exactly::clock::Timestamp;
use exactly::queue::{
    Ask, Book, Enqueued, Entry, Lane, Lease, Leased, MemoryQueue, Queue, Rescued, Ruling, Settlement, Task, TaskId,
    TaskState,
};
use exactly::store::Reply;
use tokio::sync::watch;

/// A [`MemoryQueue`] as schedulers see it.
#[derive(Debug)]
pub(super) struct Almanac {
    pub(super) queue: Arc<MemoryQueue>,
    off_ms: AtomicI64,
    slow_ms: AtomicU64,
    /// How many tasks each call brought.
    pub(super) batches: Mutex<Vec<usize>>,
}

impl Almanac {
    pub(super) fn new(queue: MemoryQueue) -> Self {
        Self {
            queue: Arc::new(queue),
            off_ms: AtomicI64::new(0),
            slow_ms: AtomicU64::new(0),
            batches: Mutex::default(),
        }
    }

    /// From now on the calendar is ahead by so much; behind, if it is negative.
    pub(super) fn jump(&self, seconds: i64) {
        self.off_ms.store(seconds * 1000, Ordering::SeqCst);
    }

    /// Every call that adds tasks takes so long.
    pub(super) fn slow_down(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap();
        self.slow_ms.store(ms, Ordering::SeqCst);
    }
}

impl Queue for Almanac {
    fn enqueue<'a>(&'a self, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        Box::pin(async move {
            self.batches.lock().unwrap().push(tasks.len());
            tokio::time::sleep(Duration::from_millis(self.slow_ms.load(Ordering::SeqCst))).await;
            self.queue.enqueue(tasks).await
        })
    }

    fn lease<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Vec<Leased>> {
        self.queue.lease(ask)
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], lease: Duration) -> Reply<'a, Vec<Ruling>> {
        self.queue.renew(leases, lease)
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Reply<'a, Vec<Ruling>> {
        self.queue.settle(settlements)
    }

    fn rescue(&self, rescues_max: u32, limit: u32) -> Reply<'_, Vec<Rescued>> {
        self.queue.rescue(rescues_max, limit)
    }

    fn revive<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        self.queue.revive(ids)
    }

    fn conclude<'a>(&'a self, seen: Lease, outcome: &'a Bytes) -> Reply<'a, Fenced> {
        self.queue.conclude(seen, outcome)
    }

    fn hasten<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        self.queue.hasten(ids)
    }

    fn prune(&self, state: TaskState, age: Duration, limit: u32) -> Reply<'_, u32> {
        self.queue.prune(state, age, limit)
    }

    fn prune_marks(&self, age: Duration, limit: u32) -> Reply<'_, u32> {
        self.queue.prune_marks(age, limit)
    }

    fn pause_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()> {
        self.queue.pause_lane(lane)
    }

    fn resume_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()> {
        self.queue.resume_lane(lane)
    }

    fn cap_lane<'a>(&'a self, lane: &'a Lane, cap: Option<u32>) -> Reply<'a, ()> {
        self.queue.cap_lane(lane, cap)
    }

    fn arrivals(&self) -> watch::Receiver<u64> {
        self.queue.arrivals()
    }
}

impl Book for Almanac {
    fn write_schedule<'a>(&'a self, name: &'a str, definition: &'a Bytes, paused: Option<bool>) -> Reply<'a, ()> {
        self.queue.write_schedule(name, definition, paused)
    }

    fn pause_schedule<'a>(&'a self, name: &'a str, paused: bool) -> Reply<'a, bool> {
        self.queue.pause_schedule(name, paused)
    }

    fn read_schedule<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Entry>> {
        self.queue.read_schedule(name)
    }

    fn schedules(&self) -> Reply<'_, Vec<Entry>> {
        self.queue.schedules()
    }

    fn erase_schedule<'a>(&'a self, name: &'a str) -> Reply<'a, bool> {
        self.queue.erase_schedule(name)
    }

    fn advance_schedule<'a>(&'a self, name: &'a str, position: Timestamp) -> Reply<'a, ()> {
        self.queue.advance_schedule(name, position)
    }

    fn calendar(&self) -> Reply<'_, Timestamp> {
        Box::pin(async {
            let right = self.queue.calendar().await?.as_millis();
            Ok(Timestamp::from_millis(
                right.saturating_add_signed(self.off_ms.load(Ordering::SeqCst)),
            ))
        })
    }
}
