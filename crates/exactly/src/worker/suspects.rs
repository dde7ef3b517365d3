//! Tasks that may be what makes workers vanish.
//!
//! A worker that vanishes leaves a rescue at everything that it had leased, and the next worker leases much of the same again. So
//! those that were there by chance would die together with the one that is the cause. Once is chance. What was rescued more often
//! is suspected, and suspects come a few at a time, then one at a time: beside other tasks, but not beside each other.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::queue::{Lease, Leased};

/// From so many rescues on a task is suspected.
pub(super) const SUSPECTED_FROM: u32 = 2;

/// How many suspects are leased at once. If one of them is the cause, so many at most come under closer suspicion; a cohort of a
/// hundred that was there by chance is through in a dozen rounds.
const SUSPECTS_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Those that are to be run.
    pub(super) waiting: VecDeque<Box<Leased>>,
    /// Those and the ones that run, until the queue knows how they ended, with how often each was rescued.
    together: HashMap<Lease, u32>,
    /// Those that are being released. None is started before the queue has them back: it would be a rescue for each.
    apart: HashSet<Lease>,
}

/// What is thought of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    None,
    /// It may be here.
    Some,
    /// It may not be here together with those that are.
    Apart,
}

impl Suspects {
    pub(super) fn is_empty(&self) -> bool {
        self.together.is_empty() && self.apart.is_empty()
    }

    pub(super) fn consider(&mut self, task: &Leased) -> Suspicion {
        if task.rescues < SUSPECTED_FROM {
            return Suspicion::None;
        }
        let worst = self.together.values().copied().max().unwrap_or(0).max(task.rescues);
        let most = if worst == SUSPECTED_FROM { SUSPECTS_MAX } else { 1 };
        if self.together.len() >= most {
            self.apart.insert(task.lease);
            return Suspicion::Apart;
        }
        self.together.insert(task.lease, task.rescues);
        Suspicion::Some
    }

    /// The next one that is to be run, of those that are `open` to it.
    pub(super) fn next(&mut self, open: impl Fn(&Leased) -> bool) -> Option<Box<Leased>> {
        if !self.apart.is_empty() {
            return None;
        }
        let position = self.waiting.iter().position(|task| open(task))?;
        self.waiting.remove(position)
    }

    /// This one is the worker's no longer.
    pub(super) fn let_go(&mut self, lease: &Lease) {
        self.together.remove(lease);
        self.apart.remove(lease);
    }
}
