//! Attempts that have ended and of which the queue is to be told.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use crate::queue::{End, Leased};

/// The most settlements in one call. The more there are the less each costs, and this many are written in some hundredths of a
/// second.
const BATCH_MAX: usize = 2000;

/// How many are told at once at least while there is enough else to do, unless they would wait for longer than this: a call costs the
/// queue about as much for one as for many.
const BATCH_MIN: usize = 1000;
const GATHERED_FOR: Duration = Duration::from_millis(15);

/// The most calls under way at one time. The second one is for what has piled up to a whole batch.
const CALLS_MAX: usize = 2;

/// How long a task is let be that a transaction elsewhere had locked.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// From how many unwritten settlements on nothing more is leased.
const UNSETTLED_MAX: usize = 2 * BATCH_MAX;

#[derive(Debug)]
pub(super) struct Unsettled {
    pub(super) task: Box<Leased>,
    pub(super) end: End,
    /// When it ended.
    pub(super) since: Instant,
}

/// What one call tells.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) unsettled: Vec<Unsettled>,
    /// It is about tasks that were locked before. Nothing else is told with them, as the call may have to wait.
    aside: bool,
}

/// Takes whatever has piled up while the last call was under way. What is alone goes at once, unless there is enough else to do.
#[derive(Debug)]
pub(super) struct Settler {
    waiting: VecDeque<Unsettled>,
    /// Whether there is so much else to do that nobody waits for what is told.
    gathers: bool,
    /// Those whose tasks transactions elsewhere had locked.
    busy: VecDeque<Unsettled>,
    /// When to ask for them again; `None` while that is being done.
    busy_at: Option<Instant>,
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
            gathers: false,
            busy: VecDeque::new(),
            busy_at: Some(now),
            under_way: 0,
            calls: 0,
            most: BATCH_MAX,
            backoff: Backoff::new("settle tasks", now),
        }
    }

    pub(super) fn push(&mut self, unsettled: Unsettled) {
        self.waiting.push_back(unsettled);
    }

    /// Whether it may gather what it tells.
    pub(super) fn gather(&mut self, gathers: bool) {
        self.gathers = gathers;
    }

    /// How many the queue does not know of yet.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.busy.len() + self.under_way
    }

    /// Whether what is to be told cannot be, or is so much that nothing more is to be begun.
    pub(super) fn is_stuck(&self) -> bool {
        let failing = self.backoff.is_failing() && self.len() > 0;
        failing || self.len() >= UNSETTLED_MAX
    }

    /// When the next call is to be made; `None` before something else happens.
    pub(super) fn due(&self) -> Option<Instant> {
        let busy_at = self.busy_at.filter(|_| !self.busy.is_empty());
        let busy_at = busy_at.map(|at| at.max(self.backoff.until()));
        self.waiting_due().into_iter().chain(busy_at).min()
    }

    fn waiting_due(&self) -> Option<Instant> {
        let first = self.waiting.front()?;
        let wanted_at = match self.calls {
            0 if self.gathers && self.waiting.len() < BATCH_MIN => Some(first.since + GATHERED_FOR),
            0 => Some(first.since),
            calls if calls < CALLS_MAX && self.waiting.len() >= BATCH_MAX && !self.backoff.is_failing() => {
                Some(first.since)
            }
            _ => None,
        };
        wanted_at.map(|at| at.max(self.backoff.until()))
    }

    /// What the call tells that is due.
    pub(super) fn batch(&mut self, now: Instant) -> Batch {
        let aside = self.waiting_due().is_none_or(|due| due > now);
        let from = if aside {
            self.busy_at = None;
            &mut self.busy
        } else {
            self.calls += 1;
            &mut self.waiting
        };
        let count = from.len().min(self.most);
        self.under_way += count;
        let unsettled = from.drain(..count).collect();
        Batch { unsettled, aside }
    }

    /// The queue has answered, and this is what it was asked.
    pub(super) fn taken(&mut self, batch: Batch, now: Instant) -> Vec<Unsettled> {
        self.ended(&batch, now);
        if !batch.aside {
            self.most = (self.most * 2).min(BATCH_MAX);
        }
        self.backoff.worked(now);
        batch.unsettled
    }

    /// A call is over.
    fn ended(&mut self, batch: &Batch, now: Instant) {
        self.under_way -= batch.unsettled.len();
        if batch.aside {
            self.busy_at = Some(now);
        } else {
            self.calls -= 1;
        }
    }

    /// A transaction elsewhere has this one's task locked. Returns it if that goes on for longer than a lease: then the task
    /// is left to its lease.
    pub(super) fn busy(&mut self, unsettled: Unsettled, lease: Duration, now: Instant) -> Option<Unsettled> {
        if now > unsettled.since + lease {
            return Some(unsettled);
        }
        self.busy.push_back(unsettled);
        self.busy_at = self.busy_at.map(|at| at.max(now + BUSY_PAUSE));
        None
    }

    /// The queue has not answered, and may have written them all the same: settling is repeatable. Returns what is not told
    /// again: the queue does not take it alone, though it has answered other calls at `heard_at`, a whole lease later. None:
    /// the queue takes nothing at all, so nothing is given up.
    pub(super) fn refused(
        &mut self,
        batch: Batch,
        lease: Duration,
        heard_at: Option<Instant>,
        now: Instant,
    ) -> Option<Unsettled> {
        self.ended(&batch, now);
        let mut batch = batch.unsettled;
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
