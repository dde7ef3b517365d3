//! Attempts that have ended and of which the queue is to be told.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use crate::queue::{End, Leased};

/// The most settlements in one call.
const BATCH_MAX: usize = 1000;

/// The most calls under way at one time. The second one is for what has piled up to a whole batch.
const CALLS_MAX: usize = 2;

/// From how many unwritten settlements on nothing more is leased.
const UNSETTLED_MAX: usize = 2 * BATCH_MAX;

#[derive(Debug)]
pub(super) struct Unsettled {
    pub(super) task: Box<Leased>,
    pub(super) end: End,
    /// When it ended.
    pub(super) since: Instant,
}

/// Takes whatever has piled up while the last call was under way: no timer, so one settlement alone goes at once.
#[derive(Debug)]
pub(super) struct Settler {
    waiting: VecDeque<Unsettled>,
    under_way: usize,
    calls: usize,
    /// How many go in one call. After a failure there are fewer, so that one that the queue cannot take ends up alone.
    most: usize,
    pub(super) backoff: Backoff,
}

impl Settler {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: 0,
            calls: 0,
            most: BATCH_MAX,
            backoff: Backoff::new("settle tasks", now),
        }
    }

    pub(super) fn push(&mut self, unsettled: Unsettled) {
        self.waiting.push_back(unsettled);
    }

    /// How many the queue does not know of yet.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.under_way
    }

    /// Whether what is to be told cannot be, or is so much that nothing more is to be begun.
    pub(super) fn is_stuck(&self) -> bool {
        let failing = self.backoff.is_failing() && self.len() > 0;
        failing || self.len() >= UNSETTLED_MAX
    }

    /// When the next call is to be made; `None` before something else happens.
    pub(super) fn due(&self) -> Option<Instant> {
        let wanted = match self.calls {
            0 => !self.waiting.is_empty(),
            calls if calls < CALLS_MAX => self.waiting.len() >= BATCH_MAX && !self.backoff.is_failing(),
            _ => false,
        };
        wanted.then(|| self.backoff.until())
    }

    /// What the next call tells.
    pub(super) fn batch(&mut self) -> Vec<Unsettled> {
        let count = self.waiting.len().min(self.most);
        self.calls += 1;
        self.under_way += count;
        self.waiting.drain(..count).collect()
    }

    /// The queue has answered.
    pub(super) fn taken(&mut self, count: usize, now: Instant) {
        self.calls -= 1;
        self.under_way -= count;
        self.most = (self.most * 2).min(BATCH_MAX);
        self.backoff.worked(now);
    }

    /// The queue has not answered, and may have written them all the same: settling is repeatable. Returns what is not told
    /// again: the queue does not take it alone, though it has answered other calls at `heard_at`, a whole lease later. None:
    /// the queue takes nothing at all, so nothing is given up.
    pub(super) fn refused(
        &mut self,
        mut batch: Vec<Unsettled>,
        lease: Duration,
        heard_at: Option<Instant>,
    ) -> Option<Unsettled> {
        self.calls -= 1;
        self.under_way -= batch.len();
        self.most = (batch.len() / 4).max(1);
        if batch.len() > 1 {
            for unsettled in batch.into_iter().rev() {
                self.waiting.push_front(unsettled);
            }
            return None;
        }
        let alone = batch.pop()?;
        if heard_at.is_some_and(|at| at > alone.since + lease) {
            return Some(alone);
        }
        // Others first.
        self.waiting.push_back(alone);
        None
    }
}
