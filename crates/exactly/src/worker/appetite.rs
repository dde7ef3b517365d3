//! When to lease, and how much.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use super::hand::Hand;
use crate::queue::BATCH_MAX;

/// How long a handler's place may stay empty while there is work, for the sake of leasing much at once.
const HUNGER_MAX: Duration = Duration::from_millis(5);

/// Leases much at once and seldom: a call costs the queue about as much for one task as for a hundred.
#[derive(Debug)]
pub(super) struct Appetite {
    concurrency: usize,
    /// How many are leased at most, running or not.
    capacity: usize,
    under_way: bool,
    /// The queue had less than was asked for, so it is not asked again before an arrival is heard or it is time to look.
    sated: bool,
    look_at: Instant,
    heard: bool,
    hungry_since: Option<Instant>,
    pub(super) backoff: Backoff,
}

impl Appetite {
    pub(super) fn new(concurrency: usize, prefetch: usize, now: Instant) -> Self {
        Self {
            concurrency,
            capacity: concurrency + prefetch,
            under_way: false,
            sated: false,
            look_at: now,
            heard: false,
            hungry_since: None,
            backoff: Backoff::new("lease tasks", now),
        }
    }

    /// There may be something.
    pub(super) fn hear(&mut self) {
        self.heard = true;
    }

    /// When to ask the queue; `None` before something else happens.
    pub(super) fn due(&mut self, hand: &Hand, now: Instant) -> Option<Instant> {
        let room = self.room(hand);
        let idle_places = hand.waits() == 0 && hand.runs() < self.concurrency;
        let hungry = room > 0 && idle_places;
        self.hungry_since = hungry.then(|| self.hungry_since.unwrap_or(now));
        if self.under_way || room == 0 {
            return None;
        }
        let much = room >= (self.capacity / 4).max(1) || hand.runs() + hand.waits() == 0;
        let ready = if much { now } else { self.hungry_since? + HUNGER_MAX };
        let wanted = if self.sated && !self.heard { self.look_at } else { now };
        Some(ready.max(wanted).max(self.backoff.until()))
    }

    /// The queue is asked for so many.
    pub(super) fn ask(&mut self, hand: &Hand) -> u32 {
        self.under_way = true;
        // Whatever arrives from here on may not be in the answer.
        self.heard = false;
        u32::try_from(self.room(hand)).unwrap_or(u32::MAX)
    }

    /// The queue gave `got` of `asked`; with less it is asked again at `look_at`.
    pub(super) fn fed(&mut self, asked: u32, got: usize, look_at: Instant, now: Instant) {
        self.under_way = false;
        self.sated = u32::try_from(got).is_ok_and(|got| got < asked);
        self.look_at = look_at;
        self.backoff.worked(now);
    }

    /// The queue did not answer.
    pub(super) fn refused(&mut self) {
        self.under_way = false;
        // What was heard before the call is still to be looked for.
        self.sated = false;
    }

    fn room(&self, hand: &Hand) -> usize {
        let taken = hand.runs() + hand.waits();
        self.capacity.saturating_sub(taken).min(BATCH_MAX)
    }
}
