//! One occurrence of a schedule in one zone.

use std::sync::Arc;
use std::time::Duration;

use jiff::civil::{Date, Time};
use jiff::{SignedDuration, Timestamp as Instant};
use serde::{Deserialize, Serialize};

use super::audience::refused;
use super::halt::{Halt, answered};
use super::{Plan, Plans, Shard, fan_out, instant};
use crate::StoreError;
use crate::queue::{Book, End, Failure, FailureKind, Lane, Leased, Task};
use crate::schedule::{Kind, Occurrence, Pattern, Zone, ZoneError, tzdb_version};
use crate::spread::Spread;
use crate::worker::{Handler, Ran, Run};

/// The kind of the task that stands for an occurrence.
pub const TICK_KIND: &str = "exactly.tick";

/// The kind of the tasks that make those of its subjects.
pub const FAN_OUT_KIND: &str = "exactly.fan-out";

/// What is so much later than it was due was caught up.
const LATE: Duration = Duration::from_mins(1);

/// How long plans and audiences may take to answer. A tick has time, but not for ever: a worker runs so many at once.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_mins(1);

/// A tick fires that much early: where the clock that judges leases is not the calendar, they differ by a little.
const EARLY_MAX: SignedDuration = SignedDuration::from_secs(1);

/// One occurrence of a schedule in one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tick {
    /// The schedule's name.
    pub schedule: String,
    /// The zone's name in the database.
    pub zone: String,
    /// When it is due.
    pub instant: Instant,
    /// The local date that it stands for.
    pub local_date: Date,
    /// What the clocks do there.
    pub kind: Kind,
    /// Whether it is in time.
    pub timing: Timing,
    /// The release of the time-zone database that it was computed with.
    pub tzdb: String,
    /// Whether its date is what it is known by, because there is one of it per date.
    pub daily: bool,
    /// The local time that was meant; none of an interval, which means instants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_time: Option<Time>,
}

/// Whether a tick is in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// It was.
    OnTime,
    /// It is made up for, because nobody was there when it was due.
    CaughtUp,
    /// It is too late to be made up for.
    Missed,
}

impl Timing {
    /// That of what is so late, if as much as `catch_up` is made up for.
    pub(super) fn of(late: SignedDuration, catch_up: Duration) -> Self {
        let late = Duration::try_from(late).unwrap_or_default();
        if late > catch_up {
            Self::Missed
        } else if late > LATE {
            Self::CaughtUp
        } else {
            Self::OnTime
        }
    }
}

impl Tick {
    pub(super) fn new(plan: &Plan, zone: &Zone, occurrence: &Occurrence, timing: Timing) -> Self {
        Self {
            schedule: plan.name().to_owned(),
            zone: zone.name().to_owned(),
            instant: occurrence.instant,
            local_date: occurrence.local_date,
            kind: occurrence.kind,
            timing,
            tzdb: tzdb_version().to_owned(),
            daily: matches!(plan.pattern(), Pattern::Daily(_)),
            local_time: match plan.pattern() {
                Pattern::Daily(_) | Pattern::Cron(_) => Some(occurrence.local_time),
                Pattern::Every(_) => None,
            },
        }
    }

    /// What a subject's task is known by: the subject, and the local date of a daily schedule, the local date and time of
    /// a cron pattern, the instant of an interval. The zone is not in it, so a subject that moves to where the same date or
    /// time comes again gets no second one.
    pub fn key(&self, subject: &str) -> String {
        match self.local_time {
            _ if self.daily => format!("{}:{subject}", self.local_date),
            Some(time) => format!("{}T{}:{subject}", self.local_date, time.strftime("%H:%M")),
            None => format!("{}:{subject}", self.instant),
        }
    }

    /// What it is known by itself: the instant, so that a tick that was withdrawn uses up no date. A row that says that an
    /// occurrence was missed never stands in for the tick.
    pub(super) fn own_key(&self) -> String {
        let missed = if self.timing == Timing::Missed { ":missed" } else { "" };
        format!("{}:{}:{}{missed}", self.schedule, self.zone, self.instant)
    }

    pub(super) fn task(&self, delay: Duration) -> Result<Task, StoreError> {
        let payload = serde_json::to_vec(self).expect("a tick is made of texts");
        let task = Task::new(TICK_KIND, self.own_key(), payload).map_err(refused)?;
        Ok(task.in_lane(lane(&self.schedule)).after(delay))
    }

    /// How its row says that it fired.
    fn fired(&self) -> &'static str {
        match (self.timing, self.kind) {
            (Timing::Missed, _) => "missed",
            (Timing::CaughtUp, _) => "caught_up",
            (Timing::OnTime, Kind::Shifted) => "shifted",
            (Timing::OnTime, _) => "fired",
        }
    }
}

/// One schedule's ticks wait for no other's.
pub(super) fn lane(schedule: &str) -> Lane {
    Lane::new(format!("exactly.schedule.{schedule}")).expect("a schedule's name is short and has no control characters")
}

/// A tick for a zone that nobody knows, which ends in the dead letter by itself.
pub(super) fn unknown_zone(plan: &Plan, name: &str, error: &ZoneError) -> Result<Task, StoreError> {
    let key: String = format!("{}:unknown-zone:{}", plan.name(), name.escape_default());
    let cut = key.floor_char_boundary(Task::KEY_BYTES_MAX);
    let payload = serde_json::json!({ "schedule": plan.name(), "unknown_zone": name, "error": error.to_string() });
    let task = Task::new(TICK_KIND, &key[..cut], payload.to_string()).map_err(refused)?;
    Ok(task.in_lane(lane(plan.name())))
}

/// Turns ticks that are due into the tasks of their subjects.
#[derive(Debug)]
pub struct Ticks<Q: ?Sized> {
    pub(super) queue: Arc<Q>,
    pub(super) plans: Arc<dyn Plans>,
    pub(super) spread: Arc<Spread>,
}

impl<Q: Book + ?Sized> Handler for Ticks<Q> {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move {
            let end = if *task.kind == *FAN_OUT_KIND {
                self.fan_out(task).await
            } else {
                self.fire(task).await
            };
            Ran::End(end)
        })
    }
}

impl<Q: ?Sized> Clone for Ticks<Q> {
    fn clone(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            plans: Arc::clone(&self.plans),
            spread: Arc::clone(&self.spread),
        }
    }
}

/// What a tick's payload is if its zone is not known.
#[derive(Deserialize)]
struct UnknownZone {
    unknown_zone: String,
    error: String,
}

impl<Q: Book + ?Sized> Ticks<Q> {
    /// Ends the attempt at a tick.
    pub(super) async fn fire(&self, task: &Leased) -> End {
        if let Ok(unknown) = serde_json::from_slice::<UnknownZone>(&task.payload) {
            let message = format!("time zone {:?}: {}", unknown.unknown_zone, unknown.error);
            return End::Bury(Failure::new(FailureKind::Logic, message));
        }
        let tick: Tick = match serde_json::from_slice(&task.payload) {
            Ok(tick) => tick,
            Err(error) => return unreadable(&error),
        };
        let is_first = task.failures == 0 && task.rescues == 0;
        match self.fire_tick(tick, is_first).await {
            Ok(outcome) => End::Done(outcome.to_string().into()),
            Err(halt) => halt.end(task, self.spread.next()),
        }
    }

    /// A first attempt that finds all its subjects' tasks there was forestalled; a later one finds its own.
    async fn fire_tick(&self, mut tick: Tick, is_first: bool) -> Result<serde_json::Value, Halt> {
        let late = self.late(&tick).await?;
        if tick.timing == Timing::Missed {
            // If it is yet to come, whoever missed it had a calendar that was wrong.
            let said = if late.is_negative() { "withdrawn" } else { "missed" };
            return Ok(ended(&tick, said, 0));
        }
        let entry = self.queue.read_schedule(&tick.schedule).await?;
        if entry.is_none_or(|entry| entry.paused) {
            return Ok(ended(&tick, "withdrawn", 0));
        }
        let Some(plan) = self.plan(&tick).await? else {
            return Err(Halt::Unknown(tick.schedule));
        };
        if !still_due(&plan, &tick) {
            return Ok(ended(&tick, "withdrawn", 0));
        }
        if late < -EARLY_MAX {
            return Err(Halt::Early(late.unsigned_abs()));
        }
        tick.timing = Timing::of(late, plan.catch_up());
        if tick.timing == Timing::Missed {
            return Ok(ended(&tick, "missed", 0));
        }
        let shards = plan.audience().shards().max(1);
        if shards == 1 {
            let done = self.run_chunk(fan_out::first(&tick, Shard::WHOLE)).await?;
            let forestalled = is_first && done.new == 0 && done.found > 0;
            let fired = if forestalled { "deduplicated" } else { tick.fired() };
            return Ok(ended(&tick, fired, shards));
        }
        let parts = (0..shards).map(|index| fan_out::task(&fan_out::first(&tick, Shard { index, of: shards })));
        let parts: Vec<Task> = parts.collect::<Result<_, _>>()?;
        let _ = self.queue.enqueue(&parts).await?;
        Ok(ended(&tick, tick.fired(), shards))
    }

    /// The plan that a tick is of, if it is known here.
    pub(super) async fn plan(&self, tick: &Tick) -> Result<Option<Plan>, StoreError> {
        answered("read the plan", ANSWER_WITHIN, self.plans.plan(&tick.schedule)).await
    }

    /// How late a tick is by the calendar; negative, if it is early.
    async fn late(&self, tick: &Tick) -> Result<SignedDuration, StoreError> {
        let now = instant(self.queue.calendar().await?);
        Ok(now.duration_since(tick.instant))
    }
}

fn ended(tick: &Tick, ended: &'static str, shards: u32) -> serde_json::Value {
    crate::telemetry::occurrence(&tick.schedule, ended);
    serde_json::json!({ "ended": ended, "shards": shards, "tzdb": tick.tzdb })
}

/// Whether the plan, which may have been changed since, still means this occurrence.
fn still_due(plan: &Plan, tick: &Tick) -> bool {
    let Ok(zone) = tick.zone.parse::<Zone>() else {
        return false;
    };
    let just_before = tick.instant - jiff::SignedDuration::from_millis(1);
    let next = plan.pattern().next_after(&zone, just_before);
    next.is_some_and(|next| next.instant == tick.instant && next.local_date == tick.local_date)
}

pub(super) fn unreadable(error: &serde_json::Error) -> End {
    End::Bury(Failure::new(FailureKind::Unreadable, error.to_string()))
}
