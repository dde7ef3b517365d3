//! Letting a queue be that does not answer.

use std::time::Duration;

use tokio::time::Instant;

use crate::StoreError;
use crate::retry::{Jitter, Schedule};

/// How long to let it be: 100–200 ms, 200–400 ms, and so on, up to 5 s.
const PAUSES: Schedule = Schedule::Doubling {
    base: Duration::from_millis(100),
    jitter: Jitter::Full,
    cap: Duration::from_secs(5),
};

/// One kind of call that may fail for a while. It is logged when it begins to fail and when it works again, however often
/// it is tried between.
#[derive(Debug)]
pub(super) struct Backoff {
    attempted: &'static str,
    failures: u32,
    until: Instant,
}

impl Backoff {
    pub(super) fn new(attempted: &'static str, now: Instant) -> Self {
        Self {
            attempted,
            failures: 0,
            until: now,
        }
    }

    /// When to try next.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    pub(super) fn failed(&mut self, error: &StoreError, now: Instant, random: u64) {
        if self.failures == 0 {
            let attempted = self.attempted;
            tracing::warn!(attempted, %error, "the queue does not answer; tried again until it does");
        }
        self.failures = self.failures.saturating_add(1);
        let pause = PAUSES.wait(self.failures, Duration::ZERO, Duration::MAX, random);
        self.until = now + pause.unwrap_or_default();
    }

    pub(super) fn worked(&mut self, now: Instant) {
        if self.failures > 0 {
            let (attempted, failures) = (self.attempted, self.failures);
            tracing::info!(attempted, failures, "the queue answers again");
        }
        self.failures = 0;
        self.until = now;
    }
}
