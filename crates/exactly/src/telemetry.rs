//! The names under which people see what happens, for every recorder of the `metrics` crate.

use metrics::counter;

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

pub(crate) fn lease_lost() {
    counter!(LEASE_LOST).increment(1);
}

/// Tells a record's way from state to state to whoever listens: operators find a call by its key's digest, without
/// seeing the key.
#[cfg(feature = "layer")]
pub(crate) fn transition(call: &crate::Call, attempt: crate::Attempt, from: &'static str, to: &'static str) {
    tracing::debug!(
        key = %call.key().digest(),
        operation = call.scope().operation(),
        payload = ?call.fingerprint(),
        call = %call.id(),
        %attempt,
        from,
        to,
        "call moved"
    );
}

#[cfg(feature = "layer")]
pub(crate) fn count(name: &'static str) {
    counter!(name).increment(1);
}

#[cfg(feature = "layer")]
pub(crate) fn conflict(reason: &'static str) {
    counter!(CONFLICT, "reason" => reason).increment(1);
}

/// Counts an effect as running until it is dropped.
#[derive(Debug)]
#[cfg(feature = "layer")]
pub(crate) struct Running;

#[cfg(feature = "layer")]
impl Running {
    pub(crate) fn start() -> Self {
        metrics::gauge!(RUNNING).increment(1);
        Self
    }
}

#[cfg(feature = "layer")]
impl Drop for Running {
    fn drop(&mut self) {
        metrics::gauge!(RUNNING).decrement(1);
    }
}
