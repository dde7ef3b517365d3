//! Schedules become tasks: one per occurrence, and one per subject of it.
//!
//! Any number of schedulers can run beside each other, and each can be killed at any point: everything that they make is a
//! task with a key that follows from what it is for, so whatever two of them make, or one makes twice, is there once.
//! There is no leader, no lock and no timer to lose. The queue's calendar decides what is due.
//!
//! ```text
//!   plan ──▶ tick: one row per occurrence and zone, made up to a minute ahead and leased when it is due
//!               │
//!               └──▶ fan-out: a chain of chunks with a cursor, one per shard
//!                       │
//!                       └──▶ the tasks themselves: one per subject and local date
//! ```
//!
//! A tick's row stays and says what became of it: `fired`, `shifted`, `caught_up`, `deduplicated`, `missed` or `withdrawn`.
//! Occurrences that passed while nobody was there are caught up within the plan's bound; older ones leave a row that says
//! that they were missed. A zone that is not known is buried alone, with its name.
//!
//! A subject has one task per local date, also if it changes its zone: the date and the subject are its key, and the zone
//! is not. [`Scheduler::admit`] sees to it that a subject that moved is not left out either.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::sync::Arc;
//!
//! use exactly::queue::{End, MemoryQueue, Task};
//! use exactly::scheduler::{Only, PASS_EVERY_DEFAULT, Plan, Scheduler};
//! use exactly::worker::{Ran, Worker, from_fn};
//!
//! let queue = Arc::new(MemoryQueue::new());
//! let oslo = "Europe/Oslo".parse()?;
//! let report = Only::new(&oslo, |tick, subject| Task::new("report", tick.key(subject), ""));
//! let plans = vec![Plan::new("report", "daily 09:00".parse()?, report)?];
//! let scheduler = Scheduler::new(Arc::clone(&queue), Arc::new(plans));
//!
//! let running = Worker::builder(queue)
//!     .schedule(&scheduler)
//!     .handle("report", from_fn(|_| Box::pin(async { Ran::End(End::Done("sent".into())) })))
//!     .start()?;
//! let scheduling = scheduler.run(PASS_EVERY_DEFAULT);
//! # let _ = tokio::time::timeout(std::time::Duration::from_millis(10), scheduling).await;
//! # running.drain().await;
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

mod audience;
mod fan_out;
mod halt;
mod making;
mod plan;
mod register;
mod tick;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp as Instant;
use tokio::sync::Notify;
use tokio::time::timeout;

pub use self::audience::{Audience, Only, Shard, Subjects};
use self::halt::answered;
use self::making::ZONES_WITHIN;
pub use self::plan::{InvalidPlan, Plan, Plans};
pub use self::tick::{FAN_OUT_KIND, TICK_KIND, Tick, Ticks, Timing};
use crate::StoreError;
use crate::clock::Timestamp;
use crate::queue::{Book, Enqueued};
use crate::schedule::Zone;
use crate::spread::Spread;
use crate::worker::attempt::contained;

/// How far ahead ticks are made. They survive whoever made them, so a scheduler may be gone for so long unnoticed.
pub const AHEAD: Duration = Duration::from_mins(1);

/// How often occurrences become tasks, unless told otherwise.
pub const PASS_EVERY_DEFAULT: Duration = Duration::from_secs(15);

/// How many plans are seen to at one time, so that an audience that does not answer holds up few others.
const PLANS_AT_ONCE: usize = 16;

/// Makes tasks of schedules.
#[derive(Debug)]
pub struct Scheduler<Q: ?Sized> {
    queue: Arc<Q>,
    plans: Arc<dyn Plans>,
    /// Up to when this process has made the ticks of schedules whose position is in the future.
    strayed: Mutex<BTreeMap<Box<str>, Timestamp>>,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// How many ticks it made.
    pub ticks: usize,
    /// How many plans it could not see to. They are tried again in the next pass.
    pub failed: usize,
}

impl<Q: Book + ?Sized> Scheduler<Q> {
    /// A scheduler that keeps its ticks in `queue`, which holds the tasks too.
    pub fn new(queue: Arc<Q>, plans: Arc<dyn Plans>) -> Self {
        Self {
            queue,
            plans,
            strayed: Mutex::default(),
        }
    }

    /// What a worker does with ticks that are due and with what they fan out to. A
    /// [worker](crate::worker::Builder::schedule) registers it for both kinds.
    pub fn ticks_handler(&self) -> Ticks<Q> {
        Ticks {
            queue: Arc::clone(&self.queue),
            plans: Arc::clone(&self.plans),
            spread: Arc::new(Spread::new()),
        }
    }

    /// Makes ticks for as long as it is polled, in a pass every so often.
    pub async fn run(&self, every: Duration) {
        self.run_nudged(every, &Notify::new()).await;
    }

    /// The same with a pass whenever it is nudged too: for whoever knows when plans have changed.
    pub async fn run_nudged(&self, every: Duration, nudge: &Notify) {
        loop {
            match self.pass().await {
                Ok(pass) if pass.failed == 0 => {}
                Ok(pass) => tracing::warn!(failed = pass.failed, "some schedules are left for the next pass"),
                Err(error) => tracing::warn!(%error, "look for what is due; trying again"),
            }
            let _ = timeout(every, nudge.notified()).await;
        }
    }

    /// Makes ticks of everything that is due up to [`AHEAD`] from now, for several plans at a time. One that fails, panics
    /// or does not answer stops no other.
    pub async fn pass(&self) -> Result<Pass, StoreError> {
        let plans = answered("read the plans", ZONES_WITHIN, self.plans.plans()).await?;
        let passes: Vec<_> = plans.iter().map(|plan| self.see_to_alone(plan)).collect();
        let mut passes = stream::iter(passes).buffer_unordered(PLANS_AT_ONCE);
        let mut pass = Pass::default();
        while let Some(ticks) = passes.next().await {
            match ticks {
                Some(ticks) => pass.ticks += ticks,
                None => pass.failed += 1,
            }
        }
        Ok(pass)
    }

    /// How many ticks of a plan are new; `None` if something went wrong with it.
    async fn see_to_alone(&self, plan: &Plan) -> Option<usize> {
        let why = match contained(self.see_to(plan)).await {
            Ok(Ok(ticks)) => return Some(ticks),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic,
        };
        tracing::warn!(schedule = plan.name(), %why, "make the ticks of a schedule");
        None
    }

    /// Gives a subject that is new in a zone the task of the last occurrence there, unless it has one for that local date.
    /// For a subject that moved to where today's hour has passed: the tick that it belonged to will not come.
    pub async fn admit(&self, plan: &Plan, subject: &str, zone: &Zone) -> Result<Option<Enqueued>, StoreError> {
        let now = self.queue.calendar().await?;
        let since =
            instant(now) - jiff::SignedDuration::try_from(plan.catch_up()).unwrap_or(jiff::SignedDuration::ZERO);
        let passed = plan.pattern().after(zone, since);
        let last = passed
            .take_while(|occurrence| occurrence.instant <= instant(now))
            .last();
        let Some(occurrence) = last else { return Ok(None) };
        let tick = Tick::new(plan, zone, &occurrence, Timing::CaughtUp);
        let task = plan.audience().task(&tick, subject)?;
        let enqueued = self.queue.enqueue(std::slice::from_ref(&task)).await?;
        Ok(enqueued.into_iter().next())
    }
}

/// A store's instant on the calendar.
fn instant(at: Timestamp) -> Instant {
    let ms = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    Instant::from_millisecond(ms).unwrap_or(Instant::MAX)
}

fn timestamp(at: Instant) -> Timestamp {
    Timestamp::from_millis(u64::try_from(at.as_millisecond()).unwrap_or(0))
}
