//! Calls that are made again and again.

use tokio::time::Instant;

use super::backoff::Backoff;
use crate::StoreError;

/// One sort of them, of which one is under way at a time.
#[derive(Debug)]
pub(super) struct Round {
    next_at: Instant,
    under_way: bool,
    backoff: Backoff,
}

impl Round {
    pub(super) fn new(attempted: &'static str, first_at: Instant, now: Instant) -> Self {
        Self {
            next_at: first_at,
            under_way: false,
            backoff: Backoff::new(attempted, now),
        }
    }

    /// When the next call is to be made; `None` while one is under way.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.under_way).then_some(self.next_at)
    }

    /// There is nothing to call about before this.
    pub(super) fn skip(&mut self, next_at: Instant) {
        self.next_at = next_at;
    }

    /// A call is made, and the next one after it at `next_at`.
    pub(super) fn begin(&mut self, next_at: Instant) {
        self.under_way = true;
        self.next_at = next_at;
    }

    pub(super) fn worked(&mut self, now: Instant) {
        self.under_way = false;
        self.backoff.worked(now);
    }

    /// It failed, so the next one is made earlier, if that is earlier.
    pub(super) fn failed(&mut self, error: &StoreError, now: Instant, random: u64) {
        self.under_way = false;
        self.backoff.failed(error, now, random);
        self.next_at = self.next_at.min(self.backoff.until());
    }

    /// The next one is made no earlier than this.
    pub(super) fn put_off(&mut self, until: Instant) {
        self.next_at = self.next_at.max(until);
    }

    /// There is more to do, so the next one is made at once.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.next_at = now;
    }
}
