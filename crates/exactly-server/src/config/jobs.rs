//! How jobs are run.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use exactly::queue::LEASE_DEFAULT;
use exactly::webhook::EventType;

use super::fault::Faults;
use super::table::{Table, duration};
use super::{TIMEOUT, set};

/// From what a busy database keeps up with to a day.
const LEASE: RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_hours(24);
/// Longer than the occurrences of a schedule can be made up for, so that none is made twice.
const KEEP_DONE: RangeInclusive<Duration> = Duration::from_hours(15 * 24)..=Duration::from_hours(36_500 * 24);
/// How many handlers the worker accepts.
const CONCURRENCY_MAX: usize = 10_000;
/// The most retries that a table has.
const RETRIES_MAX: usize = 20;
const RETRY_AFTER_MAX: Duration = Duration::from_hours(7 * 24);

/// What a server that runs jobs and schedules goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Jobs {
    /// Whether there are any here. Without them nothing is opened, run or answered.
    pub(crate) enabled: bool,
    /// How many run at once.
    pub(crate) concurrency: usize,
    /// How many are leased ahead.
    pub(crate) prefetch: usize,
    /// So long after this process has vanished, its jobs are run by another.
    pub(crate) lease: Duration,
    /// How long one attempt may take, unless the job says otherwise.
    pub(crate) time_limit: Duration,
    /// How long to wait before each retry; after the last, a job is dead.
    pub(crate) retries: Vec<Duration>,
    /// How long a job that is done is remembered, with its key. One that is dead is until somebody sees to it.
    pub(crate) keep_done: Duration,
    /// The type of the event that is published when a job is dead; none is, if it is not said.
    pub(crate) dead_event: Option<EventType>,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            enabled: true,
            // They wait for the answers of others, and little else.
            concurrency: 256,
            // A request may take minutes, and what is leased ahead is nobody else's.
            prefetch: 16,
            lease: LEASE_DEFAULT,
            time_limit: Duration::from_mins(5),
            retries: vec![Duration::from_secs(30), Duration::from_mins(2), Duration::from_mins(5)],
            keep_done: Duration::from_hours(90 * 24),
            dead_event: None,
        }
    }
}

/// A wait as it stands in a list.
struct Wait(Duration);

impl FromStr for Wait {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        duration(text)
            .filter(|wait| *wait <= RETRY_AFTER_MAX)
            .map(Self)
            .ok_or(())
    }
}

impl Jobs {
    /// How many of one lane run at once, so that it takes four lanes that hang before others wait.
    pub(crate) fn lane_concurrency(&self) -> usize {
        (self.concurrency / 4).max(1)
    }

    pub(super) fn of_table(mut table: Table<'_>, faults: &mut Faults<'_>) -> Self {
        let mut jobs = Self::default();
        set(&mut jobs.enabled, table.flag("enabled", faults));
        set(&mut jobs.concurrency, table.count("concurrency", faults));
        set(&mut jobs.prefetch, table.count("prefetch", faults));
        set(&mut jobs.lease, table.duration("lease", &LEASE, faults));
        set(&mut jobs.time_limit, table.duration("time_limit", &TIMEOUT, faults));
        set(&mut jobs.keep_done, table.duration("keep_done", &KEEP_DONE, faults));
        jobs.dead_event = table.parsed("dead_event", "an event type such as \"job.dead\"", faults);
        let retries = table.list::<Wait>("retries", "waits up to 7d, such as [\"30s\", \"2m\", \"5m\"]", faults);
        set(
            &mut jobs.retries,
            retries.map(|waits| waits.into_iter().map(|wait| wait.0).collect()),
        );
        for (key, count, most) in [
            ("concurrency", jobs.concurrency, CONCURRENCY_MAX),
            ("prefetch", jobs.prefetch, CONCURRENCY_MAX),
            ("retries", jobs.retries.len(), RETRIES_MAX),
        ] {
            if count > most {
                table.refuse_key(key, &format!("at most {most}"), faults);
            }
        }
        table.finish(faults);
        jobs
    }
}
