//! A calendar on which a day takes seconds, over a queue whose own goes as always.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::queue::{
    Ask, AttemptView, Book, Depth, Enqueued, Entry, InspectQueue, Lane, LaneView, Lease, Leased, Queue, Rescued,
    Ruling, Settlement, Task, TaskFilter, TaskId, TaskPage, TaskState, TaskView, Walk, Walked,
};
use exactly::store::Reply;
use exactly::{Fenced, StoreError};
use fastrand::Rng;
use tokio::sync::watch;

/// How long a day takes.
const DAY: Duration = Duration::from_millis(2500);

/// How many days a round has.
const DAYS: u32 = 8;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// 2026-03-28T12:00:00Z. Then the clocks go forward in Europe over night, and back in Australia in the last night.
const BEGIN: Timestamp = Timestamp::from_millis(1_774_699_200_000);

/// How far a calendar that jumps can be wrong, either way.
const JUMP_MAX_MS: u64 = 30 * 60 * 60 * 1000;

/// The odds, one in so many looks, that such a calendar jumps.
const JUMPS_ONE_IN: u32 = 3;

/// How long the calendar of a round takes.
pub(super) const LASTS: Duration = DAY.saturating_mul(DAYS);

/// When it begins.
pub(super) const fn begin() -> Timestamp {
    BEGIN
}

/// Where it stops.
pub(super) fn end() -> Timestamp {
    BEGIN.after(Duration::from_millis(u64::from(DAYS) * DAY_MS))
}

/// A queue as schedulers see it. Everything is passed on but the date, which runs fast, and delays, which run as fast.
pub(super) struct Hurried<Q> {
    queue: Arc<Q>,
    /// When the round began, on the queue's own calendar.
    since: Timestamp,
    /// Draws where this scheduler's calendar jumps to, if it does.
    jumps: Option<Mutex<(Rng, i64)>>,
}

impl<Q> Hurried<Q> {
    pub(super) fn new(queue: Arc<Q>, since: Timestamp, jumps: Option<Rng>) -> Self {
        let jumps = jumps.map(|rng| Mutex::new((rng, 0)));
        Self { queue, since, jumps }
    }

    fn date(&self, real: Timestamp) -> Timestamp {
        let day = u64::try_from(DAY.as_millis()).unwrap_or(u64::MAX);
        let passed = real.since(self.since).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(DAY_MS / day);
        let date = BEGIN
            .as_millis()
            .saturating_add(passed)
            .saturating_add_signed(self.jump());
        Timestamp::from_millis(date).clamp(BEGIN, end())
    }

    /// How far this calendar is off.
    fn jump(&self) -> i64 {
        let Some(jumps) = &self.jumps else { return 0 };
        let mut jumps = jumps.lock().unwrap_or_else(PoisonError::into_inner);
        let (rng, off) = &mut *jumps;
        if rng.u32(..JUMPS_ONE_IN) == 0 {
            let most = i64::try_from(JUMP_MAX_MS).unwrap_or(i64::MAX);
            *off = rng.i64(-most..=most);
        }
        *off
    }
}

impl<Q> fmt::Debug for Hurried<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hurried")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

impl<Q: Queue> Queue for Hurried<Q> {
    fn enqueue<'a>(&'a self, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        Box::pin(async move {
            let speed = u32::try_from(DAY_MS).unwrap_or(u32::MAX) / u32::try_from(DAY.as_millis()).unwrap_or(1);
            let sooner = |task: &Task| task.clone().after(task.delay() / speed);
            let tasks: Vec<Task> = tasks.iter().map(sooner).collect();
            self.queue.enqueue(&tasks).await
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

impl<Q: InspectQueue> InspectQueue for Hurried<Q> {
    fn show(&self, id: TaskId) -> Reply<'_, Option<TaskView>> {
        self.queue.show(id)
    }

    fn attempts(&self, id: TaskId) -> Reply<'_, Vec<AttemptView>> {
        self.queue.attempts(id)
    }

    fn list<'a>(&'a self, filter: &'a TaskFilter, page: TaskPage) -> Reply<'a, Vec<TaskView>> {
        self.queue.list(filter, page)
    }

    fn walk<'a>(&'a self, walk: &'a Walk) -> Reply<'a, Walked> {
        self.queue.walk(walk)
    }

    fn lanes(&self) -> Reply<'_, Vec<LaneView>> {
        self.queue.lanes()
    }

    fn depths(&self) -> Reply<'_, Vec<Depth>> {
        self.queue.depths()
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        self.queue.now()
    }
}

impl<Q: Book> Book for Hurried<Q> {
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
        Box::pin(async move {
            let real: Result<Timestamp, StoreError> = self.queue.calendar().await;
            Ok(self.date(real?))
        })
    }
}
