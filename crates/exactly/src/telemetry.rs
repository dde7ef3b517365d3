//! The names under which people see what happens, for every recorder of the `metrics` crate.

#[cfg(feature = "client")]
use std::time::Duration;

#[cfg(feature = "client")]
use metrics::histogram;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};

use crate::queue::FailureKind;
#[cfg(feature = "client")]
use crate::retry::{Class, Ending, Stop};

/// A request with a key got past the layer's checks.
pub const KEYED_REQUESTS: &str = "idempotency_keyed_requests_total";
/// An outcome was stored for the first time.
pub const CREATED: &str = "idempotency_created_total";
/// A stored answer was sent again.
pub const REPLAYED: &str = "idempotency_replayed_total";
/// A finished call was asked for again, whether or not its answer could be sent.
pub const CACHE_HIT: &str = "idempotency_cache_hit";
/// A request was refused because its key is taken, by reason.
pub const CONFLICT: &str = "idempotency_conflict_total";
/// A key came again with another request.
pub const KEY_REUSE_CONFLICT: &str = "idempotency_key_reuse_conflict";
/// An effect ended without anybody knowing how.
pub const IN_DOUBT: &str = "idempotency_in_doubt_total";
/// A lease was lost while its effect still ran.
pub const LEASE_LOST: &str = "idempotency_lease_lost_total";
/// A key was freed because nothing happened.
pub const FREED: &str = "idempotency_freed_total";
/// A request was turned away because the store could not answer.
pub const STORE_UNAVAILABLE: &str = "idempotency_store_unavailable_total";
/// Effects under way in this process.
pub const RUNNING: &str = "idempotency_running";

/// An attempt at delivering an event has ended, by its result: `delivered` or `failed`.
pub const WEBHOOK_DELIVERY_SUCCESS: &str = "webhook_delivery_success";

/// The values of the label `reason` of [`CONFLICT`].
const REASONS: [&str; 3] = ["payload_mismatch", "in_progress", "in_doubt"];

/// Tells the recorder what each name means, and that nothing has happened yet. Call it once, after the recorder is
/// installed: a counter that only appears with its first event hides that event from whoever looks at its rate.
pub fn describe() {
    for (name, help) in [
        (KEYED_REQUESTS, "Requests with a key that got past the checks."),
        (CREATED, "Outcomes stored for the first time."),
        (REPLAYED, "Stored answers sent again."),
        (
            CACHE_HIT,
            "Finished calls asked for again, whether or not their answer could be sent.",
        ),
        (KEY_REUSE_CONFLICT, "Keys that came again with another request."),
        (IN_DOUBT, "Effects that ended without anybody knowing how."),
        (LEASE_LOST, "Leases lost while their effect still ran."),
        (FREED, "Keys freed because nothing happened."),
        (
            STORE_UNAVAILABLE,
            "Requests turned away because the store could not answer.",
        ),
    ] {
        describe_counter!(name, help);
        counter!(name).increment(0);
    }
    describe_counter!(CONFLICT, "Requests refused because their key is taken, by reason.");
    for reason in REASONS {
        counter!(CONFLICT, "reason" => reason).increment(0);
    }
    describe_counter!(
        WEBHOOK_DELIVERY_SUCCESS,
        "Attempts at delivering an event that have ended, by result."
    );
    for result in ["delivered", "failed"] {
        counter!(WEBHOOK_DELIVERY_SUCCESS, "result" => result).increment(0);
    }
    describe_gauge!(RUNNING, "Effects under way in this process.");
    gauge!(RUNNING).increment(0);
}

pub(crate) fn lease_lost() {
    counter!(LEASE_LOST).increment(1);
}

#[cfg(feature = "layer")]
pub(crate) fn count(name: &'static str) {
    counter!(name).increment(1);
}

#[cfg(feature = "layer")]
pub(crate) fn conflict(reason: &'static str) {
    debug_assert!(REASONS.contains(&reason), "{reason} is not announced");
    counter!(CONFLICT, "reason" => reason).increment(1);
}

/// Counts an effect as running until it is dropped.
#[derive(Debug)]
#[cfg(feature = "layer")]
pub(crate) struct Running;

#[cfg(feature = "layer")]
impl Running {
    pub(crate) fn start() -> Self {
        gauge!(RUNNING).increment(1);
        Self
    }
}

#[cfg(feature = "layer")]
impl Drop for Running {
    fn drop(&mut self) {
        gauge!(RUNNING).decrement(1);
    }
}

/// An occurrence of a schedule ended, by schedule and by how.
#[cfg(feature = "schedule")]
pub const OCCURRENCES: &str = "schedule_occurrences_total";
/// A subject had a task for its local date already, by schedule.
#[cfg(feature = "schedule")]
pub const JOB_CONFLICT: &str = "scheduler_job_conflict";

/// Tells the recorder what a scheduler's names mean.
#[cfg(feature = "schedule")]
pub fn describe_scheduler() {
    describe_counter!(
        OCCURRENCES,
        "Occurrences of schedules, by schedule and by how they ended."
    );
    describe_counter!(
        JOB_CONFLICT,
        "Subjects that had a task for their local date already, by schedule."
    );
}

/// The values of the label `ended` of [`OCCURRENCES`].
#[cfg(feature = "schedule")]
const OCCURRENCE_ENDS: [&str; 6] = ["fired", "shifted", "caught_up", "deduplicated", "missed", "withdrawn"];

/// Tells the recorder that nothing has happened yet to the schedule of this name, so that its first event is not hidden from
/// whoever looks at rates.
#[cfg(feature = "schedule")]
pub fn expect_schedule(name: &str) {
    counter!(JOB_CONFLICT, "schedule" => name.to_owned()).increment(0);
    for ended in OCCURRENCE_ENDS {
        counter!(OCCURRENCES, "schedule" => name.to_owned(), "ended" => ended).increment(0);
    }
}

#[cfg(feature = "schedule")]
pub(crate) fn occurrence(schedule: &str, ended: &'static str) {
    counter!(OCCURRENCES, "schedule" => schedule.to_owned(), "ended" => ended).increment(1);
}

#[cfg(feature = "schedule")]
pub(crate) fn job_conflicts(schedule: &str, conflicts: usize) {
    let conflicts = u64::try_from(conflicts).unwrap_or(u64::MAX);
    counter!(JOB_CONFLICT, "schedule" => schedule.to_owned()).increment(conflicts);
}

/// A call was over, by class and by what is known of it.
pub const RETRY_CALLS: &str = "retry_calls_total";
/// A call was attempted again, by class.
pub const RETRY_ATTEMPTS: &str = "retry_attempts_total";
/// A call ended for want of attempts, time or budget, by class and reason.
pub const RETRY_EXHAUSTED: &str = "retry_exhausted_total";
/// How long was waited before an attempt, by class.
pub const RETRY_DELAY: &str = "retry_delay_seconds";
/// How many retries a destination has left, by class and destination.
pub const RETRY_BUDGET: &str = "retry_budget_remaining";

/// Tells the recorder what the client's names mean; [`describe`] is for servers.
#[cfg(feature = "client")]
pub fn describe_client() {
    describe_counter!(RETRY_CALLS, "Calls that are over, by class and outcome.");
    describe_counter!(RETRY_ATTEMPTS, "Attempts after the first one, by class.");
    describe_counter!(
        RETRY_EXHAUSTED,
        "Calls that ended for want of attempts, time or budget, by class and reason."
    );
    describe_histogram!(
        RETRY_DELAY,
        metrics::Unit::Seconds,
        "Waits before attempts after the first one, by class."
    );
    describe_gauge!(
        RETRY_BUDGET,
        "Retries that a destination has left, by class and destination."
    );
    for class in Class::ALL.map(Class::as_str) {
        counter!(RETRY_ATTEMPTS, "class" => class).increment(0);
        for stop in Stop::EXHAUSTIONS {
            counter!(RETRY_EXHAUSTED, "class" => class, "reason" => stop.as_str()).increment(0);
        }
        for ending in [Ending::Applied, Ending::NotApplied, Ending::Unknown] {
            counter!(RETRY_CALLS, "class" => class, "outcome" => ending.as_str()).increment(0);
        }
    }
}

/// Counts a retry that is about to be made.
#[cfg(feature = "client")]
pub(crate) fn retry(class: Class, wait: Duration) {
    counter!(RETRY_ATTEMPTS, "class" => class.as_str()).increment(1);
    histogram!(RETRY_DELAY, "class" => class.as_str()).record(wait.as_secs_f64());
}

/// Tells what is left of a destination's budget.
#[cfg(feature = "client")]
pub(crate) fn budget(class: Class, destination: &str, left: u64) {
    let left = f64::from(u32::try_from(left).unwrap_or(u32::MAX));
    gauge!(RETRY_BUDGET, "class" => class.as_str(), "destination" => destination.to_owned()).set(left);
}

/// Counts a call that is over.
#[cfg(feature = "client")]
pub(crate) fn called(class: Class, ending: Ending, stop: Stop) {
    counter!(RETRY_CALLS, "class" => class.as_str(), "outcome" => ending.as_str()).increment(1);
    if stop.is_exhaustion() {
        counter!(RETRY_EXHAUSTED, "class" => class.as_str(), "reason" => stop.as_str()).increment(1);
    }
}

/// An attempt at a task has ended, by kind and end.
pub const JOBS: &str = "jobs_total";
/// How long a handler ran, by kind.
pub const JOB_DURATION: &str = "job_duration_seconds";
/// A lease was lost while its task was in hand.
pub const JOB_LEASE_LOST: &str = "job_lease_lost_total";
/// A task was buried, by kind and reason.
pub const JOBS_BURIED: &str = "jobs_buried_total";
/// A task was taken from a lease that had ended.
pub const JOBS_RESCUED: &str = "jobs_rescued_total";

/// The values of the label `end` of [`JOBS`].
pub(crate) const JOB_ENDS: [&str; 6] = ["done", "retried", "buried", "held", "released", "deferred"];

/// Tells the recorder what the workers' names mean; what a worker counts by kind is there when it
/// [starts](crate::worker::Builder::start).
pub fn describe_worker() {
    describe_counter!(JOBS, "Attempts at tasks that have ended, by kind and end.");
    describe_histogram!(JOB_DURATION, metrics::Unit::Seconds, "Runs of handlers, by kind.");
    describe_counter!(JOB_LEASE_LOST, "Leases lost while their task was in hand.");
    describe_counter!(JOBS_BURIED, "Tasks buried, by kind and reason.");
    describe_counter!(JOBS_RESCUED, "Tasks taken from leases that had ended.");
    counter!(JOB_LEASE_LOST).increment(0);
    counter!(JOBS_RESCUED).increment(0);
}

pub(crate) fn job_leases_lost(count: usize) {
    counter!(JOB_LEASE_LOST).increment(u64::try_from(count).unwrap_or(u64::MAX));
}

pub(crate) fn job_rescued() {
    counter!(JOBS_RESCUED).increment(1);
}

pub(crate) fn job_buried(kind: &str, reason: FailureKind) {
    counter!(JOBS_BURIED, "kind" => kind.to_owned(), "reason" => reason.as_str()).increment(1);
}
