//! Requests as clients send them, and the durations of the suites.

use std::sync::Arc;
use std::time::Duration;

use exactly::{Call, Fingerprint, Hex, Keep, Key, OnLost, Scope, Token};

/// The lease of every call here. Long, so that no real delay of a slow machine comes near it.
pub(crate) const LEASE: Duration = Duration::from_hours(1);

/// How long outcomes are kept here.
pub(crate) const KEPT: Duration = Duration::from_hours(24);

pub(crate) const KEEP: Keep = Keep::For(KEPT);

/// How much real time may pass during one test without changing its answers.
pub(crate) const SLACK: Duration = Duration::from_mins(5);

/// How long to wait for something that comes from elsewhere before it counts as never.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Past the end of a lease, and far from the end of any retention.
pub(crate) const LEASE_AND_A_BIT: Duration = Duration::from_secs(60 * 60 + 1);

/// What one client wants. Every [`call`](Self::call) is the same wish received once more, as after a retry.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) scope: Scope,
    pub(crate) key: Key,
    pub(crate) fingerprint: Fingerprint,
}

impl Request {
    /// One that nobody made before.
    pub(crate) fn fresh() -> Self {
        Self::with_key(&unique("key"))
    }

    pub(crate) fn with_key(key: &str) -> Self {
        Self::scoped(Scope::new("ann", "order.place"), key)
    }

    pub(crate) fn scoped(scope: Scope, key: &str) -> Self {
        let key = Key::new(key).expect("suites use valid keys");
        Self {
            scope,
            key,
            fingerprint: Fingerprint::of("two tickets"),
        }
    }

    /// The same key for something else.
    pub(crate) fn tampered(&self) -> Self {
        Self {
            fingerprint: Fingerprint::of("three tickets"),
            ..self.clone()
        }
    }

    /// The request as one server received it once.
    pub(crate) fn call(&self) -> Call {
        Call::new(self.scope.clone(), self.key.clone(), self.fingerprint).with_lease(LEASE)
    }

    /// The same, of an effect that may be repeated.
    pub(crate) fn rerunnable(&self) -> Call {
        self.call().with_on_lost(OnLost::Rerun)
    }
}

/// A text that starts with `prefix` and was never used before.
pub(crate) fn unique(prefix: &str) -> Arc<str> {
    format!("{prefix}-{}", Hex(Token::random().as_bytes())).into()
}

/// Holds `actual` to `expected`, give or take the real time that a test takes.
#[track_caller]
pub(crate) fn assert_about(actual: Duration, expected: Duration) {
    // Stores round to milliseconds in either direction.
    let most = expected + Duration::from_secs(1);
    assert!(
        actual <= most && actual + SLACK >= expected,
        "expected about {expected:?} left, the store says {actual:?}"
    );
}
