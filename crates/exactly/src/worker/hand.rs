//! What a worker has leased, and what is being done about it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;

use foldhash::fast::RandomState;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::suspects::{Suspects, Suspicion};
use crate::queue::{Lane, Lease, Leased};

/// Everything in hand. By lease and not by task: one that was lost and leased again is here twice while its first handler
/// is being stopped.
#[derive(Debug)]
pub(super) struct Hand {
    held: HashMap<Lease, Held, RandomState>,
    /// In the order in which they came.
    waiting: VecDeque<Box<Leased>>,
    /// What waits or runs of each lane of which anything does.
    lanes: HashMap<Lane, Load, RandomState>,
    /// Lanes in which a handler has ended while others waited for a place there.
    freed: VecDeque<Lane>,
    suspects: Suspects,
    places: Places,
    waits: usize,
    runs: usize,
}

/// The most handlers of one lane.
#[derive(Clone, Copy, Debug)]
struct Places {
    any: usize,
    /// Of one that has a cap.
    capped: usize,
}

impl Places {
    fn has_one(self, load: &Load) -> bool {
        let most = if load.is_capped {
            self.capped.min(self.any)
        } else {
            self.any
        };
        load.runs < most
    }
}

/// What there is of one lane.
#[derive(Debug, Default)]
struct Load {
    waits: usize,
    runs: usize,
    /// Whether the lane had a cap when something was last leased from it.
    is_capped: bool,
    /// Those whose turn has come while as many of the lane ran as may.
    aside: VecDeque<Box<Leased>>,
}

#[derive(Debug)]
struct Held {
    place: Place,
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
}

/// What somebody else has.
#[derive(Debug)]
pub(super) enum Lost {
    /// It had not been started.
    Waiting(Box<Leased>),
    /// Its handler is being stopped.
    Running,
}

impl Hand {
    /// With so many handlers of one lane at most, and so many of one that has a cap.
    pub(super) fn new(any: usize, capped: usize) -> Self {
        Self {
            held: HashMap::default(),
            waiting: VecDeque::new(),
            lanes: HashMap::default(),
            freed: VecDeque::new(),
            suspects: Suspects::default(),
            places: Places { any, capped },
            waits: 0,
            runs: 0,
        }
    }

    /// How many are leased and not started.
    pub(super) fn waits(&self) -> usize {
        self.waits
    }

    /// How many handlers run, those that are being stopped included.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// How many could be started if there were places. What waits for a place in its lane is not meant.
    pub(super) fn ready(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// How many wait or run of this lane.
    pub(super) fn in_lane(&self, lane: &Lane) -> usize {
        self.lanes.get(lane).map_or(0, Load::all)
    }

    /// How many wait or run of each lane.
    pub(super) fn by_lane(&self) -> impl Iterator<Item = (&Lane, usize)> {
        self.lanes.iter().map(|(lane, load)| (lane, load.all()))
    }

    /// Whether tasks that may be what makes workers vanish are in hand already, so that no more are to come.
    pub(super) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes in what was leased. Gives it back if it is not to be here together with what is: then it has to be released.
    pub(super) fn take(&mut self, task: Leased, sure_until: Instant) -> Option<Box<Leased>> {
        let task = Box::new(task);
        let suspicion = self.suspects.consider(&task);
        let place = match suspicion {
            Suspicion::Apart => Place::Settling,
            Suspicion::None | Suspicion::Some => Place::Waiting,
        };
        self.held.insert(task.lease, Held { place, sure_until });
        if suspicion == Suspicion::Apart {
            return Some(task);
        }
        self.waits += 1;
        // Most are of a lane that was seen, whose name is then not copied.
        let load = match self.lanes.get_mut(&task.lane) {
            Some(load) => load,
            None => self.lanes.entry(task.lane.clone()).or_default(),
        };
        load.waits += 1;
        if mem::replace(&mut load.is_capped, task.is_capped) && !task.is_capped {
            // There may be places for all of them now, and not only for one when another has ended.
            self.freed.extend(load.aside.iter().map(|_| task.lane.clone()));
        }
        match suspicion {
            Suspicion::Some => self.suspects.waiting.push_back(task),
            _ => self.waiting.push_back(task),
        }
        None
    }

    /// Takes out the task that waits the longest, of those whose lanes have places. One that may be started has to be
    /// [`started`](Self::started).
    pub(super) fn next(&mut self, now: Instant) -> Option<Next> {
        loop {
            let task = self.first()?;
            let Some(load) = self.lanes.get_mut(&task.lane) else {
                continue;
            };
            let Some(held) = self.held.get_mut(&task.lease) else {
                continue;
            };
            if held.sure_until <= now {
                held.place = Place::Settling;
                self.no_longer_waits(&task.lane);
                return Some(Next::Stale(task));
            }
            if !self.places.has_one(load) {
                load.aside.push_back(task);
                continue;
            }
            load.runs += 1;
            self.runs += 1;
            self.no_longer_waits(&task.lane);
            return Some(Next::Start(task));
        }
    }

    /// The next one whose turn it is. What was put aside comes before what came after it.
    fn first(&mut self) -> Option<Box<Leased>> {
        let (lanes, places) = (&mut self.lanes, self.places);
        let open = |task: &Leased| lanes.get(&task.lane).is_some_and(|load| places.has_one(load));
        if let Some(suspect) = self.suspects.next(open) {
            return Some(suspect);
        }
        while let Some(lane) = self.freed.pop_front() {
            let load = lanes.get_mut(&lane).filter(|load| places.has_one(load));
            if let Some(task) = load.and_then(|load| load.aside.pop_front()) {
                return Some(task);
            }
        }
        self.waiting.pop_front()
    }

    fn no_longer_waits(&mut self, lane: &Lane) {
        self.waits -= 1;
        self.change(lane, |load| load.waits -= 1);
    }

    fn no_longer_runs(&mut self, lane: &Lane) {
        self.runs -= 1;
        let others_wait = self.change(lane, |load| {
            load.runs -= 1;
            !load.aside.is_empty()
        });
        if others_wait == Some(true) {
            self.freed.push_back(lane.clone());
        }
    }

    /// Changes what is known of a lane, and forgets it with the last of its tasks.
    fn change<T>(&mut self, lane: &Lane, change: impl FnOnce(&mut Load) -> T) -> Option<T> {
        let load = self.lanes.get_mut(lane)?;
        let changed = change(load);
        if load.all() == 0 {
            self.lanes.remove(lane);
        }
        Some(changed)
    }

    pub(super) fn started(&mut self, lease: Lease, handle: AbortOnDropHandle<()>) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.place = Place::Running { _handle: handle };
        }
    }

    /// The next task is not started but settled at once.
    pub(super) fn skipped(&mut self, task: &Leased) {
        self.no_longer_runs(&task.lane);
        if let Some(held) = self.held.get_mut(&task.lease) {
            held.place = Place::Settling;
        }
    }

    /// A handler has ended, and says why it was told to stop, if it was. It stays in hand until it is
    /// [let go](Self::let_go).
    pub(super) fn ended(&mut self, task: &Leased) -> Option<Stop> {
        self.no_longer_runs(&task.lane);
        let held = self.held.get_mut(&task.lease)?;
        match std::mem::replace(&mut held.place, Place::Settling) {
            Place::Stopping(why) => Some(why),
            Place::Waiting | Place::Running { .. } | Place::Settling => None,
        }
    }

    pub(super) fn let_go(&mut self, lease: Lease) {
        self.held.remove(&lease);
        self.suspects.let_go(&lease);
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

    /// Somebody else has the task. `None` if nothing was lost by that: what is being settled may have been settled already,
    /// and what is no longer here was.
    pub(super) fn superseded(&mut self, lease: Lease) -> Option<Lost> {
        let held = self.held.get_mut(&lease)?;
        match held.place {
            Place::Waiting => {
                let task = self.take_out(|task| task.lease == lease).pop_front()?;
                self.let_go(lease);
                Some(Lost::Waiting(task))
            }
            Place::Running { .. } | Place::Stopping(Stop::Shutdown) => {
                held.place = Place::Stopping(Stop::Lost);
                Some(Lost::Running)
            }
            Place::Stopping(Stop::Lost) | Place::Settling => None,
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
        let unsure = |held: &Held| unsure_at.is_none_or(|at| held.sure_until <= at);
        let leases = self.held.iter().filter(|(_, held)| unsure(held));
        let leases: HashSet<Lease> = leases.map(|(lease, _)| *lease).collect();
        let back = self.take_out(|task| leases.contains(&task.lease));
        for task in &back {
            if let Some(held) = self.held.get_mut(&task.lease) {
                held.place = Place::Settling;
            }
        }
        back
    }

    /// Takes such tasks from among those that wait.
    fn take_out(&mut self, which: impl Fn(&Leased) -> bool) -> VecDeque<Box<Leased>> {
        let mut out = VecDeque::new();
        let asides = self.lanes.values_mut().map(|load| &mut load.aside);
        for tasks in asides.chain([&mut self.waiting, &mut self.suspects.waiting]) {
            let (taken, left): (VecDeque<_>, _) = std::mem::take(tasks).into_iter().partition(|task| which(task));
            *tasks = left;
            out.extend(taken);
        }
        for task in &out {
            self.no_longer_waits(&task.lane);
        }
        out
    }
}

impl Load {
    fn all(&self) -> usize {
        self.waits + self.runs
    }
}
