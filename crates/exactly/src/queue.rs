//! Work that outlives the request: a ledger of tasks, each known by its key.
//!
//! A [`Queue`] keeps one row per task key. The row is made when the task is enqueued and stays when the task is done, so
//! enqueuing the same key again, a minute or a month later, finds the task and its stored outcome instead of running it
//! twice. Other queues delete what is done and check for duplicates among what waits; theirs is a window, this is a
//! ledger.
//!
//! ```text
//!              enqueue             lease                     settle: done
//!   (absent) ──────────▶ waiting ─────────▶ running ─────────────────────▶ done
//!                         ▲  ▲ ▲             │ │ │ │
//!                         │  │ └── release, ─┘ │ │ │       (an attempt is not used up)
//!                         │  │   defer after   │ │ │
//!                         │  ├── retry after ──┘ │ │       (an attempt is, unless its worker stopped it)
//!                         │  └── rescue: the ────┘ │
//!                         │      lease has ended   ├─ bury, or rescued too often ─▶ dead ─┐
//!                         │                        └─ hold ───────────────────────▶ held ─┤
//!                         └───────────────────────────── revive ──────────────────────────┘
//! ```
//!
//! Every change after [`lease`](Queue::lease) carries the lease's [`Fence`], which rises each time the task is leased or
//! taken away. A worker that was paused past its lease finds that its writes change nothing.
//!
//! Tasks lie in lanes. Leasing is fair over lanes, a lane can have a [cap](Queue::cap_lane) on how many of its tasks run
//! at once, and a [paused](Queue::pause_lane) lane keeps its tasks without holding up others.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use std::time::Duration;
//!
//! use exactly::queue::{Ask, End, Enqueued, MemoryQueue, Queue, Settlement, Task, WorkerId};
//!
//! let queue = MemoryQueue::new();
//! let offers = || Task::new("offers", "2026-02-19:user-7", "{}").unwrap();
//! assert!(queue.enqueue(&[offers()]).await?[0].is_new());
//!
//! let leased = queue.lease(&Ask::new(WorkerId::random(), 10)).await?;
//! // … the work is done here …
//! let done = Settlement::new(leased[0].lease, End::Done("three offers".into()));
//! let _ = queue.settle(&[done]).await?;
//!
//! let again = queue.enqueue(&[offers()]).await?;
//! assert!(matches!(&again[0], Enqueued::Found(found) if found.outcome.as_deref() == Some(b"three offers")));
//! # Ok::<_, exactly::StoreError>(()) }).unwrap();
//! ```

mod book;
mod failure;
mod inspect;
mod lease;
mod memory;
mod registry;
mod ruling;
mod task;
mod transactional;

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

pub use self::book::{Book, Entry};
pub use self::failure::{Failure, FailureKind};
pub use self::inspect::{AttemptView, Depth, InspectQueue, LaneView, TaskFilter, TaskPage, TaskView, Walk, Walked};
pub use self::lease::{
    Ask, End, Fence, LEASE_DEFAULT, Lanes, Lease, Leased, RESCUED_FOR_EVER, RESCUES_MAX_DEFAULT, Rescued, Settlement,
    Share, WorkerId, filled,
};
pub use self::memory::MemoryQueue;
pub use self::registry::{Card, Registry, Revision};
pub use self::ruling::Ruling;
pub use self::task::{Enqueued, Found, InvalidTask, Lane, Task, TaskId, TaskState};
pub use self::transactional::TransactionalQueue;
use crate::store::Reply;
use crate::{Fenced, StoreError, StoreErrorKind};

/// The most tasks, leases or settlements that one call takes.
pub const BATCH_MAX: usize = 10_000;

/// Refuses a call that takes more than [`BATCH_MAX`] of whatever it is about. For whoever makes a queue.
pub fn check_batch(count: usize, attempted: &str) -> Result<(), StoreError> {
    if count <= BATCH_MAX {
        return Ok(());
    }
    let context = format!("{attempted}: {count} at once, and {BATCH_MAX} are the most");
    Err(StoreError::new(StoreErrorKind::Refused, context))
}

/// Keeps tasks. Every method is one atomic step for each row that it names; rows do not fail each other.
pub trait Queue: Debug + Send + Sync + 'static {
    /// Adds tasks whose keys are new, and says of every other one what has become of it. An answer per task, in order.
    ///
    /// Repeatable: a task that was added by a call whose answer was lost is found.
    fn enqueue<'a>(&'a self, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>>;

    /// Waiting → running, for at most [`most`](Ask::most) tasks that are due, fairly over lanes. Within a lane the task
    /// that is due the longest comes first.
    fn lease<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Vec<Leased>>;

    /// Makes these leases end `lease` from now. Also revives one that has ended, while nobody rescued its task. Waits for no
    /// transaction that has a task locked: what is [busy](Ruling::Busy) keeps the lease that it has, and holds up no other.
    fn renew<'a>(&'a self, leases: &'a [Lease], lease: Duration) -> Reply<'a, Vec<Ruling>>;

    /// Running → whatever the settlement says. An answer per settlement, in order.
    ///
    /// Repeatable: settling again in the same way is `Applied`, so a lost reply is not a lost write. `Superseded`: the task
    /// was rescued or settled otherwise, and nothing was changed. `Busy`: a transaction elsewhere has the task locked, and did
    /// not end while it was waited for; those beside it are settled.
    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Reply<'a, Vec<Ruling>>;

    /// Takes at most `limit` tasks from leases that have ended: back to waiting, at their places in their lanes, or dead if
    /// that has happened `rescues_max` times before and its kind is not one that is [rescued for ever](RESCUED_FOR_EVER). Says
    /// which, so that whoever is to be alerted is.
    fn rescue(&self, rescues_max: u32, limit: u32) -> Reply<'_, Vec<Rescued>>;

    /// Dead or held → waiting, with its attempts to run anew and its history kept. An answer per id, in order: what the
    /// task was. Only dead and held ones were changed; repeating it therefore changes nothing.
    fn revive<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>>;

    /// Dead or held → done, by the word of somebody who found out that it happened. `seen` is the task and the fence that
    /// the word is about: one that was revived meanwhile is not concluded, it may be running.
    ///
    /// Repeatable: concluding again with the same outcome is `Applied`.
    fn conclude<'a>(&'a self, seen: Lease, outcome: &'a Bytes) -> Reply<'a, Fenced>;

    /// Makes tasks that wait due now. An answer per id, in order: what the task was. Only waiting ones that are due later were
    /// changed, and in nothing else; repeating it therefore changes nothing.
    fn hasten<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>>;

    /// Forgets at most `limit` tasks that have been in this state, which is done or dead, for longer than `age`. Their keys
    /// are then as if they had never been used.
    fn prune(&self, state: TaskState, age: Duration, limit: u32) -> Reply<'_, u32>;

    /// Forgets at most `limit` [marks](TransactionalQueue::raise_in) that nobody has raised for longer than `age`. Whatever number
    /// comes next under such a name is then the highest.
    fn prune_marks(&self, age: Duration, limit: u32) -> Reply<'_, u32>;

    /// Tasks of this lane stay where they are until it is resumed; running ones run on.
    fn pause_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()>;

    /// Takes back a pause.
    fn resume_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()>;

    /// At most `cap` tasks of this lane run at once, over all processes; `None` for no limit. With a cap of one they start in
    /// the order in which they are due.
    fn cap_lane<'a>(&'a self, lane: &'a Lane, cap: Option<u32>) -> Reply<'a, ()>;

    /// Changes when there may be something to lease. A hint: whoever waits for it also looks now and then.
    fn arrivals(&self) -> watch::Receiver<u64>;
}
