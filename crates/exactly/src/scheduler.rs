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

mod audience;
mod fan_out;
mod halt;
mod plan;
mod register;
mod tick;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp as Instant;

pub use self::audience::{Audience, Only, Shard, Subjects};
pub use self::plan::{InvalidPlan, Plan, Plans};
pub use self::tick::{FAN_OUT_KIND, TICK_KIND, Tick, Ticks, Timing};
use crate::StoreError;
use crate::clock::Timestamp;
use crate::queue::{BATCH_MAX, Book, Enqueued, Task};
use crate::schedule::Zone;
use crate::spread::Spread;

/// How far ahead ticks are made. They survive whoever made them, so a scheduler may be gone for so long unnoticed.
pub const AHEAD: Duration = Duration::from_mins(1);

/// How often occurrences become tasks, unless told otherwise.
pub const PASS_EVERY_DEFAULT: Duration = Duration::from_secs(15);

/// How far back occurrences are looked for that were missed for good, beyond what is caught up.
const MISSED_FOR_MAX: Duration = Duration::from_hours(7 * 24);

/// The most rows of missed occurrences per zone and pass: the last ones.
const MISSED_ROWS_MAX: usize = 1000;

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
        loop {
            match self.pass().await {
                Ok(pass) if pass.failed == 0 => {}
                Ok(pass) => tracing::warn!(failed = pass.failed, "some schedules are left for the next pass"),
                Err(error) => tracing::warn!(%error, "look for what is due; trying again"),
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Makes ticks of everything that is due up to [`AHEAD`] from now. One plan that fails does not stop another.
    pub async fn pass(&self) -> Result<Pass, StoreError> {
        let now = self.queue.calendar().await?;
        let mut pass = Pass::default();
        for plan in self.plans.plans().await? {
            match self.see_to(&plan, now).await {
                Ok(ticks) => pass.ticks += ticks,
                Err(error) => {
                    pass.failed += 1;
                    tracing::warn!(schedule = plan.name(), %error, "make the ticks of a schedule");
                }
            }
        }
        Ok(pass)
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

    async fn see_to(&self, plan: &Plan, now: Timestamp) -> Result<usize, StoreError> {
        let Some(entry) = self.queue.read_schedule(plan.name()).await? else {
            if self.plans.plan(plan.name()).await?.is_none() {
                // Withdrawn since it was read, and not to come back.
                return Ok(0);
            }
            // Seen for the first time: what was before is none of its business.
            let definition = Bytes::from(plan.to_string());
            self.queue.write_schedule(plan.name(), &definition, false).await?;
            self.queue.advance_schedule(plan.name(), now).await?;
            return self.make(plan, now, now).await;
        };
        let position = entry.position.unwrap_or(now);
        let ticks = if entry.paused {
            0
        } else {
            let since = self.since(plan.name(), position, now);
            self.make(plan, since, now).await?
        };
        self.queue.advance_schedule(plan.name(), now).await?;
        if position > now {
            self.strayed().insert(plan.name().into(), now);
        }
        Ok(ticks)
    }

    /// From when on occurrences have yet to become tasks. Positions never go back, so after a calendar that was ahead they
    /// are worth nothing until it is there again; meanwhile the last pass of this process says it.
    fn since(&self, name: &str, position: Timestamp, now: Timestamp) -> Timestamp {
        let mut strayed = self.strayed();
        if position <= now {
            strayed.remove(name);
            return position;
        }
        let seen = strayed.get(name).copied();
        if seen.is_none() && position > now.after(AHEAD) {
            let by = position.since(now);
            tracing::warn!(
                schedule = name,
                ?by,
                "the calendar has gone back; going on from where it is"
            );
        }
        seen.filter(|seen| *seen <= now).unwrap_or(now)
    }

    fn strayed(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Timestamp>> {
        self.strayed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ticks of everything after `since` up to a little ahead of `now`.
    async fn make(&self, plan: &Plan, since: Timestamp, now: Timestamp) -> Result<usize, StoreError> {
        let mut tasks = Vec::new();
        for (name, zone) in self.zones(plan).await? {
            match zone {
                Ok(zone) => Self::ticks(plan, &zone, since, now, &mut tasks)?,
                Err(error) => tasks.push(tick::unknown_zone(plan, &name, &error)?),
            }
        }
        let mut made = 0;
        for chunk in tasks.chunks(BATCH_MAX) {
            let enqueued = self.queue.enqueue(chunk).await?;
            made += enqueued.iter().filter(|task| task.is_new()).count();
        }
        Ok(made)
    }

    /// The zones of a plan's audience by the names that stand for them, or by what is not known.
    async fn zones(
        &self,
        plan: &Plan,
    ) -> Result<BTreeMap<String, Result<Zone, crate::schedule::ZoneError>>, StoreError> {
        let names = plan.audience().zones().await?;
        let zones = names.into_iter().map(|name| match name.parse::<Zone>() {
            Ok(zone) => (zone.name().to_owned(), Ok(zone)),
            Err(error) => (name, Err(error)),
        });
        Ok(zones.collect())
    }

    fn ticks(
        plan: &Plan,
        zone: &Zone,
        since: Timestamp,
        now: Timestamp,
        tasks: &mut Vec<Task>,
    ) -> Result<(), StoreError> {
        let caught_up_from = before(now, plan.catch_up());
        let since = since.max(before(caught_up_from, MISSED_FOR_MAX));
        let until = instant(now.after(AHEAD));
        let due = plan.pattern().after(zone, instant(since));
        let mut missed = VecDeque::new();
        for occurrence in due.take_while(|occurrence| occurrence.instant <= until) {
            let at = timestamp(occurrence.instant);
            if at < caught_up_from {
                missed.push_back(occurrence);
                if missed.len() > MISSED_ROWS_MAX {
                    missed.pop_front();
                }
                continue;
            }
            let late = instant(now).duration_since(occurrence.instant);
            let timing = Timing::of(late, plan.catch_up());
            tasks.push(Tick::new(plan, zone, &occurrence, timing).task(at.since(now))?);
        }
        for occurrence in missed {
            tasks.push(Tick::new(plan, zone, &occurrence, Timing::Missed).task(Duration::ZERO)?);
        }
        Ok(())
    }
}

fn before(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_sub(crate::clock::millis(by)))
}

/// A store's instant on the calendar.
fn instant(at: Timestamp) -> Instant {
    let ms = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    Instant::from_millisecond(ms).unwrap_or(Instant::MAX)
}

fn timestamp(at: Instant) -> Timestamp {
    Timestamp::from_millis(u64::try_from(at.as_millisecond()).unwrap_or(0))
}
