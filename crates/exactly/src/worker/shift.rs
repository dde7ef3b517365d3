//! A worker at work, from its start until it has drained.
//!
//! One task keeps the books and decides; handlers and calls to the queue run in tasks of their own and report to it. So
//! nothing here is locked, and nothing waits for anything but the next event.

mod answers;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::appetite::Appetite;
use super::attempt::{self, Report};
use super::books::Books;
use super::builder::Settings;
use super::calls::Calls;
use super::hand::{Hand, Next, Stop};
use super::round::Round;
use super::settler::{Settler, Unsettled};
use super::suspects::SUSPECTED_FROM;
use super::{Drained, Ran, log};
use crate::queue::{Ask, End, Failure, FailureKind, Leased, Queue, RESCUED_FOR_EVER, TaskState, WorkerId};
use crate::spread::Spread;
use crate::{retry, telemetry};

/// What the kinds of tasks begin with that this crate makes itself: ticks, events, deliveries. Another worker of the queue knows
/// them, or a release that is on its way; none of them may be lost because this one was first.
const OWN_KINDS: &str = "exactly.";

/// How long such a task waits for the other one.
const UNKNOWN_OWN_AFTER: Duration = Duration::from_secs(5);

/// The most reports that are taken in before anything else is looked at.
const REPORTS_MAX: usize = 1024;

/// How long a worker whose time to drain is up goes on telling the queue how its tasks ended.
const FLUSH_FOR: Duration = Duration::from_secs(5);

/// The longest sleep of a worker that waits for nothing.
const SLEEP_MAX: Duration = Duration::from_hours(1);

#[derive(Debug)]
pub(super) struct Shift {
    id: WorkerId,
    settings: Settings,
    books: Books,
    hand: Hand,
    calls: Calls,
    settler: Settler,
    appetite: Appetite,
    inbox: UnboundedReceiver<Report>,
    reply_to: UnboundedSender<Report>,
    /// `None` once nothing can be heard any more.
    arrivals: Option<watch::Receiver<u64>>,
    heartbeat: Round,
    /// When the first lease in hand may have ended, unless it was renewed.
    unsure_at: Option<Instant>,
    sweep: Round,
    /// When the queue last answered anything.
    answered_at: Instant,
    closing: Option<Closing>,
    spread: Spread,
}

/// The worker was told to drain.
#[derive(Debug)]
struct Closing {
    /// When handlers are stopped.
    stop_at: Instant,
    /// When the rest is left to its leases.
    end_at: Instant,
    released: usize,
    stopped: usize,
}

impl Shift {
    pub(super) fn new(id: WorkerId, queue: Arc<dyn Queue>, settings: Settings, books: Books) -> Self {
        let now = Instant::now();
        let (reply_to, inbox) = mpsc::unbounded_channel();
        let spread = Spread::new();
        Self {
            id,
            books,
            hand: Hand::new(settings.lane_concurrency, settings.capped_concurrency),
            arrivals: Some(queue.arrivals()),
            calls: Calls::new(queue, settings.lease / 3),
            settler: Settler::new(now),
            appetite: Appetite::new(&settings, now),
            inbox,
            reply_to,
            heartbeat: Round::new("renew leases", now + settings.heartbeat, now),
            unsure_at: None,
            sweep: Round::new("rescue tasks", now + about(settings.sweep_every, &spread), now),
            answered_at: now,
            closing: None,
            spread,
            settings,
        }
    }

    /// Works until it is told to stop and has drained.
    pub(super) async fn work(mut self, stop: CancellationToken) -> Drained {
        let mut reports = Vec::with_capacity(REPORTS_MAX);
        let mut alarm = Box::pin(sleep_until(Instant::now()));
        loop {
            let now = Instant::now();
            self.act(now);
            if let Some(drained) = self.drained(now) {
                return drained;
            }
            let wake_at = self.wake_at(now);
            if alarm.deadline() != wake_at {
                alarm.as_mut().reset(wake_at);
            }
            tokio::select! {
                _ = self.inbox.recv_many(&mut reports, REPORTS_MAX) => {
                    reports.drain(..).for_each(|report| self.take_report(report));
                }
                Some(answer) = self.calls.next() => self.take_answer(answer),
                open = arrival(&mut self.arrivals) => {
                    self.appetite.hear();
                    if !open {
                        self.arrivals = None;
                    }
                }
                () = &mut alarm => {}
                () = stop.cancelled(), if self.closing.is_none() => self.close(),
            }
        }
    }

    /// Does all that is due. What has been done is not due any more, or else this would be called for ever.
    fn act(&mut self, now: Instant) {
        self.mind_leases(now);
        self.start_waiting(now);
        let enough = (self.settings.concurrency / 2).max(1);
        self.settler
            .gather(self.closing.is_none() && self.hand.ready() >= enough);
        while self.settler.due().is_some_and(|due| due <= now) {
            let batch = self.settler.batch(now);
            self.calls.settle(batch);
        }
        if self.heartbeat.due().is_some_and(|due| due <= now) {
            let (leases, next_at) = (self.hand.leases(), now + self.settings.heartbeat);
            if leases.is_empty() {
                self.heartbeat.skip(next_at);
            } else {
                self.heartbeat.begin(next_at);
                self.calls.renew(leases, self.settings.lease);
            }
        }
        if self.lease_due(now).is_some_and(|due| due <= now) {
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.mark_unchanged();
            }
            let (most, share) = self.appetite.ask(&self.hand, now);
            let ask = Ask::new(self.id, most).for_time(self.settings.lease).sharing(share);
            let ask = ask.rescued_below(self.hand.has_suspects().then_some(SUSPECTED_FROM));
            self.calls.lease(ask.from_lanes(self.settings.lanes.clone()));
        }
        if self.sweep_due().is_some_and(|due| due <= now) {
            self.sweep.begin(now + about(self.settings.sweep_every, &self.spread));
            self.calls.rescue(self.settings.rescues_max);
        }
    }

    fn wake_at(&mut self, now: Instant) -> Instant {
        let closing = self.closing.as_ref();
        let close = closing.map(|closing| {
            if closing.stop_at > now {
                closing.stop_at
            } else {
                closing.end_at
            }
        });
        let dues = [
            self.settler.due(),
            self.heartbeat.due(),
            self.lease_due(now),
            self.sweep_due(),
            self.unsure_at,
            close,
        ];
        dues.into_iter().flatten().min().unwrap_or(now + SLEEP_MAX)
    }

    fn lease_due(&mut self, now: Instant) -> Option<Instant> {
        if self.closing.is_some() || self.settler.is_stuck() {
            return None;
        }
        self.appetite.due(&self.hand, now)
    }

    fn sweep_due(&self) -> Option<Instant> {
        self.sweep.due().filter(|_| self.closing.is_none())
    }

    /// Stops what may be somebody else's by now, and at the end of the time to drain everything.
    fn mind_leases(&mut self, now: Instant) {
        if self.unsure_at.is_some_and(|at| at <= now) {
            telemetry::job_leases_lost(self.hand.stop_unsure(now));
            for task in self.hand.give_back(Some(now)) {
                self.settle(task, End::Release, now);
            }
            self.unsure_at = self.hand.sure_until();
        }
        if let Some(closing) = self.closing.as_mut().filter(|closing| closing.stop_at <= now) {
            closing.stopped += self.hand.stop_all();
        }
    }

    /// Starts what waits, as far as there are places. While the queue cannot be told of what has ended, nothing is begun.
    fn start_waiting(&mut self, now: Instant) {
        while self.hand.runs() < self.settings.concurrency && !self.settler.is_stuck() {
            match self.hand.next(now) {
                None => return,
                Some(Next::Stale(task)) => self.settle(task, End::Release, now),
                Some(Next::Start(task)) => self.start(task, now),
            }
        }
    }

    fn start(&mut self, task: Box<Leased>, now: Instant) {
        let lease = task.lease;
        let Some(kind) = self.books.kinds.get(&task.kind) else {
            self.hand.skipped(&task);
            let message = format!("no handler for tasks of the kind {:?}", task.kind);
            let failure = Failure::new(FailureKind::UnknownKind, message);
            let end = if task.kind.starts_with(OWN_KINDS) {
                End::Retry {
                    after: UNKNOWN_OWN_AFTER,
                    failure,
                }
            } else {
                End::Bury(failure)
            };
            self.settle(task, end, now);
            return;
        };
        log::moved(&task, TaskState::Waiting, TaskState::Running, None);
        let handle = attempt::start(Arc::clone(kind), task, self.reply_to.clone());
        self.hand.started(lease, handle);
    }

    fn settle(&mut self, task: Box<Leased>, end: End, since: Instant) {
        self.settler.push(Unsettled { task, end, since });
    }

    fn take_report(&mut self, report: Report) {
        let Report { task, ran, took } = report;
        let lease = task.lease;
        let is_given_back = matches!(&ran, Some(Ran::End(end)) if end.is_given_back());
        if !is_given_back {
            self.books.kinds.took(&task.kind, took);
        }
        let end = match (self.hand.ended(&task), ran) {
            (_, Some(Ran::Settled)) => {
                self.books.settled_itself(&task);
                // A capped lane has a place again, which not every queue tells of.
                self.appetite.hear();
                None
            }
            (Some(Stop::Lost), _) => {
                log::lost(&task, "its handler was stopped");
                None
            }
            (_, Some(Ran::Superseded)) => {
                telemetry::job_leases_lost(1);
                log::lost(&task, "its handler found it taken");
                None
            }
            (_, Some(Ran::End(end))) => Some(end),
            // One of ours leaves no trace, and keeps its place in its lane.
            (Some(Stop::Shutdown), None) if RESCUED_FOR_EVER.contains(&&*task.kind) => Some(End::Release),
            (Some(Stop::Shutdown), None) => Some(End::Retry {
                after: Duration::ZERO,
                failure: Failure::stopped(),
            }),
            // The runtime ends it: so the lease decides.
            (None, None) => None,
        };
        match end {
            Some(end) => self.settle(task, end, Instant::now()),
            None => self.hand.let_go(lease),
        }
    }

    fn close(&mut self) {
        let now = Instant::now();
        let stop_at = now + self.settings.drain_for;
        self.closing = Some(Closing {
            stop_at,
            end_at: stop_at + FLUSH_FOR,
            released: 0,
            stopped: 0,
        });
        self.release_waiting(now);
    }

    fn release_waiting(&mut self, now: Instant) {
        let waiting = self.hand.give_back(None);
        if let Some(closing) = &mut self.closing {
            closing.released += waiting.len();
        }
        for task in waiting {
            self.settle(task, End::Release, now);
        }
    }

    fn drained(&self, now: Instant) -> Option<Drained> {
        let closing = self.closing.as_ref()?;
        let is_over = (self.hand.is_empty() && self.calls.is_empty()) || closing.end_at <= now;
        is_over.then(|| Drained {
            released: closing.released,
            stopped: closing.stopped,
            left: self.hand.len(),
        })
    }
}

/// Waits for an arrival; false if there will be none.
async fn arrival(arrivals: &mut Option<watch::Receiver<u64>>) -> bool {
    match arrivals {
        Some(arrivals) => arrivals.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}

/// A tenth more or less, so that workers which were started together do not stay so.
fn about(time: Duration, spread: &Spread) -> Duration {
    retry::about(time, Duration::MAX, spread.next())
}
