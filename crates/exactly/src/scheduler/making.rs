//! From a plan to its ticks.
//!
//! Time is made up for in windows, and after each the position says how far it has come, so an outage of days with ticks by
//! the thousand is caught up over several passes, in little memory, while other plans have theirs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::halt::answered;
use super::{AHEAD, Plan, Scheduler, Tick, Timing, instant, tick, timestamp};
use crate::StoreError;
use crate::clock::Timestamp;
use crate::queue::{BATCH_MAX, Book, Enqueued, Task};
use crate::schedule::{Occurrence, Zone, ZoneError};

/// How long plans and audiences may take to say where there is somebody. Passes are as much less frequent.
pub(super) const ZONES_WITHIN: Duration = Duration::from_secs(10);

/// How long a plan may make ticks in one pass. What is left is for the next one.
const MAKE_WITHIN: Duration = Duration::from_secs(10);

/// How much time is made up for in one step.
const WINDOW: Duration = Duration::from_hours(1);

/// How far back occurrences are looked for that were missed for good, beyond what is caught up.
const MISSED_FOR_MAX: Duration = Duration::from_hours(7 * 24);

/// The most rows of missed occurrences per zone and pass: the last ones.
const MISSED_ROWS_MAX: usize = 1000;

/// The zones of an audience by the names that stand for them, or by what is not known.
type Zones = BTreeMap<String, Result<Zone, ZoneError>>;

/// The present instant as it was read, and when that was.
#[derive(Clone, Copy)]
struct Now {
    at: Timestamp,
    read: Instant,
}

impl Now {
    /// How long from here until an occurrence, also if making ticks takes a while.
    fn until(&self, occurrence: &Occurrence) -> Duration {
        timestamp(occurrence.instant).since(self.at.after(self.read.elapsed()))
    }
}

/// Tasks on their way into the queue, as many at a time as it takes.
struct Batch<'a, Q: ?Sized> {
    queue: &'a Q,
    tasks: Vec<Task>,
    new: usize,
}

impl<Q: Book + ?Sized> Batch<'_, Q> {
    async fn add(&mut self, task: Task) -> Result<(), StoreError> {
        self.tasks.push(task);
        if self.tasks.len() < BATCH_MAX {
            return Ok(());
        }
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        if !self.tasks.is_empty() {
            let enqueued = self.queue.enqueue(&self.tasks).await?;
            self.new += enqueued.iter().filter(|task| Enqueued::is_new(task)).count();
            self.tasks.clear();
        }
        Ok(())
    }
}

impl<Q: Book + ?Sized> Scheduler<Q> {
    /// Makes the ticks of a plan that are due, and says how many are new.
    pub(super) async fn see_to(&self, plan: &Plan) -> Result<usize, StoreError> {
        let name = plan.name();
        let position = match self.queue.read_schedule(name).await? {
            Some(entry) if entry.paused => {
                let now = self.queue.calendar().await?;
                self.queue.advance_schedule(name, now).await?;
                return Ok(0);
            }
            Some(entry) => entry.position,
            None => {
                if answered("read the plan", ZONES_WITHIN, self.plans.plan(name))
                    .await?
                    .is_none()
                {
                    // Withdrawn since it was read, and not to come back.
                    return Ok(0);
                }
                // Seen for the first time: what was before is none of its business.
                let (now, definition) = (self.queue.calendar().await?, Bytes::from(plan.to_string()));
                self.queue.write_schedule(name, &definition, None).await?;
                self.queue.advance_schedule(name, now).await?;
                Some(now)
            }
        };
        let zones = answered("read the zones", ZONES_WITHIN, plan.audience().zones()).await?;
        // Read after an audience has taken its time, because what is made ahead is due so long from now.
        let now = Now {
            at: self.queue.calendar().await?,
            read: Instant::now(),
        };
        let position = position.unwrap_or(now.at);
        let since = self.since(name, position, now.at);
        let (ticks, until) = self.make(plan, &read(zones), since, now).await?;
        let until = until.min(now.at);
        self.queue.advance_schedule(name, until).await?;
        if position > now.at {
            self.strayed().insert(name.into(), until);
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

    /// Ticks of everything after `since` up to a little ahead of `now`: how many are new, and up to when they are there.
    async fn make(
        &self,
        plan: &Plan,
        zones: &Zones,
        since: Timestamp,
        now: Now,
    ) -> Result<(usize, Timestamp), StoreError> {
        let mut batch = Batch {
            queue: &*self.queue,
            tasks: Vec::new(),
            new: 0,
        };
        for (name, zone) in zones {
            if let Err(error) = zone {
                batch.add(tick::unknown_zone(plan, name, error)?).await?;
            }
        }
        let zones: Vec<&Zone> = zones.values().flatten().collect();
        let end = now.at.after(AHEAD);
        let missed_until = before(now.at, plan.catch_up().saturating_add(Duration::from_millis(1)));
        let mut from = since;
        if from < missed_until {
            let since = from.max(before(missed_until, MISSED_FOR_MAX));
            for zone in &zones {
                for occurrence in missed(plan, zone, since, missed_until) {
                    let tick = Tick::new(plan, zone, &occurrence, Timing::Missed);
                    batch.add(tick.task(Duration::ZERO)?).await?;
                }
            }
            from = missed_until;
        }
        while from < end {
            let until = from.after(WINDOW).min(end);
            for zone in &zones {
                for occurrence in due(plan, zone, from, until) {
                    let late = instant(now.at).duration_since(occurrence.instant);
                    let tick = Tick::new(plan, zone, &occurrence, Timing::of(late, plan.catch_up()));
                    batch.add(tick.task(now.until(&occurrence))?).await?;
                }
            }
            batch.flush().await?;
            from = until;
            if from < now.at {
                self.queue.advance_schedule(plan.name(), from).await?;
                if now.read.elapsed() > MAKE_WITHIN {
                    break;
                }
            }
        }
        Ok((batch.new, from))
    }
}

/// What a plan has in a zone later than `after` and not later than `until`.
fn due<'a>(
    plan: &'a Plan,
    zone: &'a Zone,
    after: Timestamp,
    until: Timestamp,
) -> impl Iterator<Item = Occurrence> + use<'a> {
    let occurrences = plan.pattern().after(zone, instant(after));
    occurrences.take_while(move |occurrence| occurrence.instant <= instant(until))
}

/// The last of them.
fn missed(plan: &Plan, zone: &Zone, after: Timestamp, until: Timestamp) -> VecDeque<Occurrence> {
    let mut missed = VecDeque::new();
    for occurrence in due(plan, zone, after, until) {
        if missed.len() == MISSED_ROWS_MAX {
            missed.pop_front();
        }
        missed.push_back(occurrence);
    }
    missed
}

/// Several names of one zone are one zone.
fn read(names: Vec<String>) -> Zones {
    let zones = names.into_iter().map(|name| match name.parse::<Zone>() {
        Ok(zone) => (zone.name().to_owned(), Ok(zone)),
        Err(error) => (name, Err(error)),
    });
    zones.collect()
}

fn before(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_sub(crate::clock::millis(by)))
}
