//! The names under which people see what happens, for every recorder of the `metrics` crate.

use metrics::{counter, describe_counter, describe_gauge, gauge};

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
