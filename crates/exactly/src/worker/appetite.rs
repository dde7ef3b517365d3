//! When to lease, and how much.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use super::builder::Settings;
use super::hand::Hand;
use crate::queue::{BATCH_MAX, Lane, Share, filled};

/// How long a handler's place may stay empty while there is work, for the sake of leasing much at once.
const HUNGER_MAX: Duration = Duration::from_millis(5);

/// How often the queue is asked at most for the sake of empty places while a lane has its share: there is much to hear of then,
/// and most of it is about that lane.
const BESIDE_EVERY: Duration = Duration::from_millis(50);

/// How many tasks for each handler's place are asked for first. So many are soon there, and keep the handlers busy until there are more.
const FIRST_PER_PLACE: usize = 8;

/// How many of the tasks that were deferred here are looked for in time; others are found when it is time to look.
const EXPECTED_MAX: usize = 1024;

/// Leases much at once and seldom: a call costs the queue about as much for one task as for a hundred.
#[derive(Debug)]
pub(super) struct Appetite {
    concurrency: usize,
    /// How many are leased at most, running or not.
    capacity: usize,
    /// For how many there is room when more are leased though there is enough to begin: what is leased and not settled may be in
    /// the way of the next lease.
    much: usize,
    /// The same for one lane.
    lane_max: usize,
    /// The same for one lane that has a cap, if that is less.
    capped_max: Option<u32>,
    /// Lanes that had their share when the queue had less than was asked for, so that they may have more.
    full: Vec<Lane>,
    /// The most that is asked for at once, half as many again as there were before: what is asked for is begun when all of it is there, so
    /// a worker that has nothing to do would wait for thousands of tasks to begin with the first. What there were is to last until then.
    reach: usize,
    asked_at: Instant,
    under_way: bool,
    /// The queue had less than was asked for, so it is not asked again before an arrival is heard or it is time to look.
    sated: bool,
    look_at: Instant,
    /// When tasks are due that were deferred here for less than it takes to look again by itself.
    expected: BTreeSet<Instant>,
    heard: bool,
    hungry_since: Option<Instant>,
    pub(super) backoff: Backoff,
}

impl Appetite {
    pub(super) fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            concurrency: settings.concurrency,
            capacity: settings.concurrency + settings.prefetch,
            much: ((settings.concurrency + settings.prefetch) / 4)
                .max(settings.prefetch / 2)
                .max(1),
            lane_max: settings.lane_concurrency + settings.prefetch,
            capped_max: settings.lane_share,
            full: Vec::new(),
            reach: settings.concurrency * FIRST_PER_PLACE,
            asked_at: now,
            under_way: false,
            sated: false,
            look_at: now,
            expected: BTreeSet::new(),
            heard: false,
            hungry_since: None,
            backoff: Backoff::new("lease tasks", now),
        }
    }

    /// There may be something.
    pub(super) fn hear(&mut self) {
        self.heard = true;
    }

    /// There is something at this time.
    pub(super) fn expect(&mut self, at: Instant) {
        self.expected.insert(at);
        if self.expected.len() > EXPECTED_MAX {
            self.expected.pop_last();
        }
    }

    /// When to ask the queue; `None` before something else happens.
    pub(super) fn due(&mut self, hand: &Hand, now: Instant) -> Option<Instant> {
        let room = self.room(hand);
        let idle_places = hand.ready() == 0 && hand.runs() < self.concurrency;
        let hungry = room > 0 && idle_places;
        self.hungry_since = hungry.then(|| self.hungry_since.unwrap_or(now));
        if self.under_way || room == 0 {
            return None;
        }
        let wanted = if self.sated && !self.heard {
            let expected = self.expected.first();
            expected.map_or(self.look_at, |at| self.look_at.min(*at))
        } else if self.sated && hand.ready() >= (self.concurrency / 2).max(1) {
            // There is enough to begin. With lanes that have caps, each end makes room for one more and could be asked for.
            self.asked_at + HUNGER_MAX
        } else {
            now
        };
        let much = room >= self.much || hand.runs() + hand.waits() == 0;
        let ready = if self.lane_wants_more(hand) {
            now
        } else if much {
            wanted
        } else {
            self.hungry_at()?.max(wanted)
        };
        Some(ready.max(self.backoff.until()))
    }

    /// Whether much has ended of a lane that had its share.
    fn lane_wants_more(&self, hand: &Hand) -> bool {
        let most = self.lane_max - (self.lane_max / 4).max(1);
        self.full.iter().any(|lane| hand.in_lane(lane) <= most)
    }

    fn hungry_at(&self) -> Option<Instant> {
        let hungry_at = self.hungry_since? + HUNGER_MAX;
        if self.full.is_empty() {
            return Some(hungry_at);
        }
        Some(hungry_at.max(self.asked_at + BESIDE_EVERY))
    }

    /// The queue is asked for so many, and for so many of one lane.
    pub(super) fn ask(&mut self, hand: &Hand, now: Instant) -> (u32, Option<Share>) {
        self.under_way = true;
        self.asked_at = now;
        // Whatever arrives from here on may not be in the answer.
        self.heard = false;
        self.expected = self.expected.split_off(&(now + Duration::from_nanos(1)));
        let room = self.room(hand).min(self.reach);
        // Most of the time no lane can come to its share, and the queue need not mind.
        let near = room > self.lane_max || hand.by_lane().any(|(_, count)| count + room > self.lane_max);
        let share = (near || self.capped_max.is_some()).then(|| Share {
            most: whole(self.lane_max),
            capped: self.capped_max,
            held: hand
                .by_lane()
                .map(|(lane, count)| (lane.clone(), whole(count)))
                .collect(),
        });
        (whole(room), share)
    }

    /// The queue gave `got` of `asked`, which are in hand; with less it is asked again at `look_at`.
    pub(super) fn fed(&mut self, asked: u32, got: usize, hand: &Hand, look_at: Instant, now: Instant) {
        self.under_way = false;
        self.sated = u32::try_from(got).is_ok_and(|got| got < filled(asked));
        let first = self.concurrency * FIRST_PER_PLACE;
        // One that was small for want of room says nothing about the queue.
        let least = if self.sated { first } else { self.reach };
        self.reach = least.max(got + got / 2);
        self.full.clear();
        if self.sated {
            let full = hand.by_lane().filter(|(_, count)| *count >= self.lane_max);
            self.full.extend(full.map(|(lane, _)| lane.clone()));
        }
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

fn whole(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
