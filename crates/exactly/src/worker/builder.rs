//! Putting a worker together, with every mistake told at once.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::books::{Books, OnBuried};
use super::kinds::Kinds;
use super::shift::Shift;
use super::{Buried, Handler, Running};
use crate::queue::{LEASE_DEFAULT, Lanes, Queue, RESCUES_MAX_DEFAULT, WorkerId};

/// How many handlers run at once unless told otherwise.
const CONCURRENCY_DEFAULT: usize = 64;

const CONCURRENCY: RangeInclusive<usize> = 1..=10_000;
const PREFETCH: RangeInclusive<usize> = 0..=10_000;
const LEASE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_hours(24);
const HEARTBEAT_MIN: Duration = Duration::from_millis(10);
const EVERY: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(1);
const DRAIN_FOR: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24);

/// What a worker goes by.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) prefetch: usize,
    pub(super) lease: Duration,
    pub(super) heartbeat: Duration,
    pub(super) sweep_every: Duration,
    pub(super) poll_every: Duration,
    pub(super) rescues_max: u32,
    pub(super) lanes: Lanes,
    /// The most handlers of one lane.
    pub(super) lane_concurrency: usize,
    /// The most handlers of one lane that has a cap, if that is less.
    pub(super) capped_concurrency: usize,
    /// The most tasks of one lane that has a cap, running or leased ahead.
    pub(super) lane_share: Option<u32>,
    pub(super) drain_for: Duration,
}

/// Builds a worker.
#[must_use]
pub struct Builder {
    queue: Arc<dyn Queue>,
    handlers: Vec<(Box<str>, Box<dyn Handler>)>,
    otherwise: Option<Box<dyn Handler>>,
    on_buried: Option<OnBuried>,
    prefetch: Option<usize>,
    heartbeat: Option<Duration>,
    lane_concurrency: Option<usize>,
    lane_part: Option<usize>,
    settings: Settings,
}

impl Builder {
    pub(super) fn new(queue: Arc<dyn Queue>) -> Self {
        Self {
            queue,
            handlers: Vec::new(),
            otherwise: None,
            on_buried: None,
            prefetch: None,
            heartbeat: None,
            lane_concurrency: None,
            lane_part: None,
            settings: Settings {
                concurrency: CONCURRENCY_DEFAULT,
                prefetch: CONCURRENCY_DEFAULT,
                lease: LEASE_DEFAULT,
                heartbeat: LEASE_DEFAULT / 3,
                sweep_every: Duration::from_secs(5),
                poll_every: Duration::from_secs(1),
                rescues_max: RESCUES_MAX_DEFAULT,
                lanes: Lanes::All,
                lane_concurrency: CONCURRENCY_DEFAULT,
                capped_concurrency: CONCURRENCY_DEFAULT,
                lane_share: None,
                drain_for: Duration::from_secs(30),
            },
        }
    }

    /// Tasks of this kind are done by this handler. A task whose kind has none is buried, unless there is one for it
    /// [otherwise](Self::otherwise).
    pub fn handle(mut self, kind: impl Into<Box<str>>, handler: impl Handler) -> Self {
        self.handlers.push((kind.into(), Box::new(handler)));
        self
    }

    /// Tasks of every other kind are done by this handler, and counted together. For whoever lets others name kinds.
    pub fn otherwise(mut self, handler: impl Handler) -> Self {
        self.otherwise = Some(Box::new(handler));
        self
    }

    /// At most so many handlers run at once: 64 unless told otherwise, 10 000 at most.
    pub fn concurrency(mut self, most: usize) -> Self {
        self.settings.concurrency = most;
        self
    }

    /// At most so many tasks are leased ahead, so that no handler waits for the queue; as many as run unless told otherwise.
    /// Where tasks take long and there are other workers, fewer are better: what is leased ahead is nobody else's.
    pub fn prefetch(mut self, most: usize) -> Self {
        self.prefetch = Some(most);
        self
    }

    /// How long a lease lasts: 30 seconds unless told otherwise. So long after this process has vanished, its tasks are
    /// rescued.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How often leases are renewed: three times in a lease unless told otherwise.
    pub fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = Some(every);
        self
    }

    /// How often tasks are rescued from leases that have ended: about every 5 seconds unless told otherwise.
    pub fn sweep_every(mut self, every: Duration) -> Self {
        self.settings.sweep_every = every;
        self
    }

    /// How often an idle worker looks for tasks that it has not heard of, such as those whose retry is due: about every
    /// second unless told otherwise.
    pub fn poll_every(mut self, every: Duration) -> Self {
        self.settings.poll_every = every;
        self
    }

    /// How often a task may be rescued before it counts as what makes workers vanish, and is buried: 5 times unless told
    /// otherwise. Failures of its handler do not count here. Those that were rescued twice are run a few at a time, those that
    /// were more often one at a time, beside other tasks: so that only the one which is the cause is rescued on and on.
    pub fn rescues_max(mut self, most: u32) -> Self {
        self.settings.rescues_max = most;
        self
    }

    /// Works on these lanes only. Rescuing and alerting is for all.
    pub fn lanes(mut self, lanes: Lanes) -> Self {
        self.settings.lanes = lanes;
        self
    }

    /// At most so many handlers of one lane run at once: three quarters of [all](Self::concurrency) unless told otherwise. What is
    /// over is for other lanes, whose tasks so do not wait for those of a lane that take long; no more of a lane is leased ahead
    /// than [may be](Self::prefetch). With as many as run at all there is no limit: for a worker with one lane, or one whose
    /// tasks are all quick.
    pub fn lane_concurrency(mut self, most: usize) -> Self {
        self.lane_concurrency = Some(most);
        self
    }

    /// Of each lane that has a [cap](Queue::cap_lane), this worker has one part in `parts` of its places at most, and leases one part
    /// in as many ahead: so that tasks of one lane that take long leave room for those of others. Without a limit unless told
    /// otherwise; a worker that sends events to endpoints has it at 4.
    pub fn lane_part(mut self, parts: usize) -> Self {
        self.lane_part = Some(parts);
        self
    }

    /// The same, unless it was told otherwise.
    #[cfg(feature = "webhook-delivery")]
    pub(crate) fn lane_part_or(mut self, parts: usize) -> Self {
        self.lane_part.get_or_insert(parts);
        self
    }

    /// How long [draining](Running::drain) waits for handlers before it stops them: 30 seconds unless told otherwise.
    pub fn drain_for(mut self, time: Duration) -> Self {
        self.settings.drain_for = time;
        self
    }

    /// Calls this for each task that this worker buries, or rescues once too often: to alert somebody. It must not block.
    /// Should the process end right then, nobody is called; [the depth](crate::queue::InspectQueue::depths) of what is dead
    /// tells all the same.
    pub fn on_buried(mut self, callback: impl Fn(&Buried) + Send + Sync + 'static) -> Self {
        self.on_buried = Some(Box::new(callback));
        self
    }

    /// Starts to work, on the tokio runtime that this is called on.
    pub fn start(mut self) -> Result<Running, InvalidWorker> {
        let settings = &mut self.settings;
        settings.prefetch = self.prefetch.unwrap_or(settings.concurrency);
        settings.heartbeat = self.heartbeat.unwrap_or(settings.lease / 3);
        let lane_most = settings.concurrency - settings.concurrency / 4;
        settings.lane_concurrency = self.lane_concurrency.unwrap_or(lane_most).min(settings.concurrency);
        let part = |of: usize| self.lane_part.and_then(|parts| of.checked_div(parts));
        settings.capped_concurrency = part(settings.concurrency).map_or(settings.concurrency, |most| most.max(1));
        settings.lane_share = part(settings.prefetch).map(|ahead| {
            let most = settings.capped_concurrency + ahead;
            u32::try_from(most).unwrap_or(u32::MAX)
        });
        let mut faults = settings.faults();
        faults.append(&mut self.faults());
        if !faults.is_empty() {
            return Err(InvalidWorker(faults));
        }
        let id = WorkerId::random();
        let books = Books {
            kinds: Kinds::new(self.handlers, self.otherwise),
            on_buried: self.on_buried,
        };
        let stop = CancellationToken::new();
        let shift = Shift::new(id, self.queue, self.settings, books);
        let work = tokio::spawn(shift.work(stop.clone()));
        Ok(Running { id, stop, work })
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.lane_concurrency == Some(0) {
            faults.push("lane_concurrency is 0, and 1 or more is accepted".to_owned());
        }
        if self.lane_part == Some(0) {
            faults.push("lane_part is 0, and 1 or more is accepted".to_owned());
        }
        if self.handlers.is_empty() && self.otherwise.is_none() {
            faults.push("there is no handler, so every task would be buried; add one with handle".to_owned());
        }
        for (position, (kind, _)) in self.handlers.iter().enumerate() {
            if self.handlers[..position].iter().any(|(earlier, _)| earlier == kind) {
                faults.push(format!("there are two handlers for the kind {kind:?}; leave one out"));
            }
        }
        faults
    }
}

impl Settings {
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let counts = [
            ("concurrency", self.concurrency, CONCURRENCY),
            ("prefetch", self.prefetch, PREFETCH),
        ];
        for (name, value, accepted) in counts {
            if !accepted.contains(&value) {
                faults.push(format!("{name} is {value}, and {accepted:?} is accepted"));
            }
        }
        let times = [
            ("lease", self.lease, LEASE),
            // Renewed at least twice, so that one call may fail.
            ("heartbeat", self.heartbeat, HEARTBEAT_MIN..=self.lease / 2),
            ("sweep_every", self.sweep_every, EVERY),
            ("poll_every", self.poll_every, EVERY),
            ("drain_for", self.drain_for, DRAIN_FOR),
        ];
        for (name, value, accepted) in times {
            if !accepted.contains(&value) {
                faults.push(format!("{name} is {value:?}, and {accepted:?} is accepted"));
            }
        }
        faults
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<&str> = self.handlers.iter().map(|(kind, _)| &**kind).collect();
        f.debug_struct("Builder")
            .field("queue", &self.queue)
            .field("kinds", &kinds)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Why a worker was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidWorker(Vec<String>);

impl fmt::Display for InvalidWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start worker: {}", self.0.join("; "))
    }
}

impl std::error::Error for InvalidWorker {}
