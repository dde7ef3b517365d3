//! What a worker has leased, and what is being done about it.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::queue::{Lane, Lease, Leased};

/// Everything in hand. By lease and not by task: one that was lost and leased again is here twice while its first handler
/// is being stopped.
#[derive(Debug, Default)]
pub(super) struct Hand {
    held: HashMap<Lease, Held>,
    /// In the order in which they came. One that is no longer held is skipped when it comes up.
    waiting: VecDeque<Box<Leased>>,
    waits: usize,
    runs: usize,
}

#[derive(Debug)]
struct Held {
    place: Place,
    lane: Lane,
    /// Until then nobody can have rescued it, by this process's monotonic time.
    sure_until: Instant,
}

#[derive(Debug)]
enum Place {
    Waiting,
    /// Leaving this place stops the handler.
    Running {
        _handle: AbortOnDropHandle<()>,
    },
    /// It was told to stop, and has not yet.
    Stopping(Stop),
    /// The handler has ended, and the queue is to be told.
    Settling,
}

/// Why a handler is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The lease is somebody else's, or may be.
    Lost,
    /// The worker is shut down.
    Shutdown,
}

/// The task that is next.
#[derive(Debug)]
pub(super) enum Next {
    /// It may be started, and is counted as running.
    Start(Box<Leased>),
    /// Its lease may have ended meanwhile, so it is to be given back.
    Stale(Box<Leased>),
    /// Somebody else has it.
    Lost(Box<Leased>),
}

impl Hand {
    /// How many are leased and not started.
    pub(super) fn waits(&self) -> usize {
        self.waits
    }

    /// How many handlers run, those that are being stopped included.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// How many there are of each lane.
    pub(super) fn by_lane(&self) -> HashMap<Lane, u32> {
        let mut by_lane = HashMap::new();
        for held in self.held.values() {
            // Most are of a lane that was seen, whose name is then not copied.
            match by_lane.get_mut(&held.lane) {
                Some(count) => *count += 1,
                None => drop(by_lane.insert(held.lane.clone(), 1)),
            }
        }
        by_lane
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn take(&mut self, task: Leased, sure_until: Instant) {
        let (place, lane) = (Place::Waiting, task.lane.clone());
        let held = Held {
            place,
            lane,
            sure_until,
        };
        self.held.insert(task.lease, held);
        self.waiting.push_back(Box::new(task));
        self.waits += 1;
    }

    /// Takes out the task that waits the longest. One that may be started has to be [`started`](Self::started).
    pub(super) fn next(&mut self, now: Instant) -> Option<Next> {
        let task = self.waiting.pop_front()?;
        let Some(held) = self.held.get_mut(&task.lease) else {
            return Some(Next::Lost(task));
        };
        self.waits -= 1;
        if held.sure_until <= now {
            held.place = Place::Settling;
            return Some(Next::Stale(task));
        }
        self.runs += 1;
        Some(Next::Start(task))
    }

    pub(super) fn started(&mut self, lease: Lease, handle: AbortOnDropHandle<()>) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.place = Place::Running { _handle: handle };
        }
    }

    /// The next task is not started but settled at once.
    pub(super) fn skipped(&mut self, lease: Lease) {
        self.runs -= 1;
        if let Some(held) = self.held.get_mut(&lease) {
            held.place = Place::Settling;
        }
    }

    /// A handler has ended, and says why it was told to stop, if it was. It stays in hand until it is
    /// [let go](Self::let_go).
    pub(super) fn ended(&mut self, lease: Lease) -> Option<Stop> {
        self.runs -= 1;
        let held = self.held.get_mut(&lease)?;
        match std::mem::replace(&mut held.place, Place::Settling) {
            Place::Stopping(why) => Some(why),
            Place::Waiting | Place::Running { .. } | Place::Settling => None,
        }
    }

    pub(super) fn let_go(&mut self, lease: Lease) {
        self.held.remove(&lease);
    }

    /// What is to be renewed.
    pub(super) fn leases(&self) -> Vec<Lease> {
        let ours = |held: &Held| !matches!(held.place, Place::Stopping(Stop::Lost));
        let leases = self.held.iter().filter(|(_, held)| ours(held));
        leases.map(|(lease, _)| *lease).collect()
    }

    pub(super) fn renewed(&mut self, lease: Lease, sure_until: Instant) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.sure_until = held.sure_until.max(sure_until);
        }
    }

    /// Somebody else has the task. Whether one was lost by that: what is being settled may have been settled already, and
    /// what is no longer here was.
    pub(super) fn superseded(&mut self, lease: Lease) -> bool {
        let Some(held) = self.held.get_mut(&lease) else {
            return false;
        };
        match held.place {
            Place::Waiting => {
                self.held.remove(&lease);
                self.waits -= 1;
                true
            }
            Place::Running { .. } | Place::Stopping(Stop::Shutdown) => {
                held.place = Place::Stopping(Stop::Lost);
                true
            }
            Place::Stopping(Stop::Lost) | Place::Settling => false,
        }
    }

    /// When the first lease in hand may have ended.
    pub(super) fn sure_until(&self) -> Option<Instant> {
        let unsure = |held: &&Held| !matches!(held.place, Place::Stopping(Stop::Lost) | Place::Settling);
        self.held.values().filter(unsure).map(|held| held.sure_until).min()
    }

    /// Stops the handlers whose leases may have ended, and says how many.
    pub(super) fn stop_unsure(&mut self, now: Instant) -> usize {
        let mut stopped = 0;
        for held in self.held.values_mut().filter(|held| held.sure_until <= now) {
            if matches!(held.place, Place::Running { .. } | Place::Stopping(Stop::Shutdown)) {
                held.place = Place::Stopping(Stop::Lost);
                stopped += 1;
            }
        }
        stopped
    }

    /// Stops every handler, and says how many.
    pub(super) fn stop_all(&mut self) -> usize {
        let mut stopped = 0;
        for held in self.held.values_mut() {
            if matches!(held.place, Place::Running { .. }) {
                held.place = Place::Stopping(Stop::Shutdown);
                stopped += 1;
            }
        }
        stopped
    }

    /// Takes out what waits, to be settled: all of it, or with an instant that whose leases may have ended by then.
    pub(super) fn give_back(&mut self, unsure_at: Option<Instant>) -> VecDeque<Box<Leased>> {
        let mut back = VecDeque::new();
        let waiting = std::mem::take(&mut self.waiting);
        for task in waiting {
            match self.held.get_mut(&task.lease) {
                Some(held) if unsure_at.is_none_or(|at| held.sure_until <= at) => {
                    held.place = Place::Settling;
                    self.waits -= 1;
                    back.push_back(task);
                }
                _ => self.waiting.push_back(task),
            }
        }
        back
    }
}
