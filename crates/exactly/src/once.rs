//! Making an effect happen once: wait for one's turn, keep the claim alive, settle it.
//!
//! [`Once`] is what the HTTP layer is made of, for effects that do not come from a request. It differs from calling a
//! [`Store`] by hand in what it does when things go wrong: duplicates wait for the outcome, leases are renewed, lost
//! replies are asked for again, and an outcome that cannot be stored at once is stored as soon as that works.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use exactly::once::{Ended, Ending, Once, Terms};
//! use exactly::{Call, Fingerprint, Key, MemoryStore, Scope};
//!
//! let once = Once::new(Arc::new(MemoryStore::new()));
//! for _ in 0..2 {
//!     let scope = Scope::new("customer-7", "mail.welcome");
//!     let call = Call::new(scope, Key::new("signup-1066").unwrap(), Fingerprint::of(b"ada@example.org"));
//!     let ended = once
//!         .run(&call, Terms::default(), async |_claim| {
//!             // Runs the first time only.
//!             Ending::Happened("250 queued".into())
//!         })
//!         .await?;
//!     assert!(matches!(ended, Ended::Happened { outcome, .. } if outcome == "250 queued"));
//! }
//! # Ok::<_, exactly::StoreError>(()) }).unwrap();
//! ```

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout, timeout_at};
use tokio_util::task::TaskTracker;

use crate::{Attempt, Call, Claim, Fenced, Keep, Replay, Store, StoreError, StoreErrorKind, Verdict, telemetry};

/// How an effect ended, as far as the one who made it can tell.
#[derive(Clone, Debug)]
pub enum Ending {
    /// It happened, and this is its answer.
    Happened(Bytes),
    /// It did not happen: the key is freed and the next caller runs it.
    DidNotHappen,
    /// It may or may not have happened.
    Unknown,
}

/// What became of a call.
#[derive(Debug)]
pub enum Ended {
    /// The effect happened, now or at an earlier call.
    Happened {
        /// What it answered.
        outcome: Bytes,
        /// Whether an earlier call made it happen.
        replayed: bool,
    },
    /// The effect did not happen; calling again runs it.
    DidNotHappen,
    /// Nobody knows; the key is held until someone settles it.
    Unknown(Claim),
    /// Another attempt is still under way.
    InFlight {
        /// When its lease ends if nobody renews it.
        retry_after: Duration,
    },
    /// The key was used before for something else.
    Mismatch,
}

/// What one call asks for.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long to wait for an attempt that is under way.
    pub wait: Duration,
    /// How long its outcome is kept.
    pub keep: Keep,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(10),
            keep: Keep::DAY,
        }
    }
}

/// The bounds on what a [`Once`] holds and how long it tries.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most callers that wait for an outcome at one time; further ones are told that it is in flight.
    pub waiters_max: usize,
    /// How long a waiter trusts wake-ups before it asks the store by itself.
    pub poll: Duration,
    /// How long one question to the store may take.
    pub store_patience: Duration,
    /// How long an outcome is offered to a store that cannot take it, before its caller is told "unknown".
    pub record_patience: Duration,
    /// How long it is offered behind the caller's back after that.
    pub late_patience: Duration,
    /// The most outcomes that are offered in that way at one time, and the most claims that are given back so.
    pub late_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiters_max: 10_000,
            poll: Duration::from_millis(500),
            store_patience: Duration::from_secs(5),
            record_patience: Duration::from_secs(10),
            late_patience: Duration::from_mins(10),
            late_max: 1024,
        }
    }
}

/// The bounds on [`Limits`].
const POLL: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_mins(1);
const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);

/// The longest wait for an attempt that is under way.
const WAIT_MAX: Duration = Duration::from_hours(24);

/// How long to let a store be that could not take an outcome.
const OFFER_PAUSE: RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(2);

/// The shortest nap between two questions, whatever a lease or a clock says.
const NAP_MIN: Duration = Duration::from_millis(1);

impl Limits {
    /// The times of these limits, by name, with what is accepted.
    fn times(&mut self) -> [(&'static str, &mut Duration, RangeInclusive<Duration>); 4] {
        [
            ("poll", &mut self.poll, POLL),
            ("store_patience", &mut self.store_patience, PATIENCE),
            ("record_patience", &mut self.record_patience, PATIENCE),
            ("late_patience", &mut self.late_patience, PATIENCE),
        ]
    }

    fn bounded(mut self) -> Self {
        for (_, time, accepted) in self.times() {
            *time = (*time).clamp(*accepted.start(), *accepted.end());
        }
        self
    }

    /// Each time that is out of bounds: its name, its value and what is accepted.
    #[cfg(feature = "layer")]
    pub(crate) fn faults(mut self) -> Vec<(&'static str, Duration, RangeInclusive<Duration>)> {
        let outside = self
            .times()
            .into_iter()
            .filter(|(_, time, accepted)| !accepted.contains(time));
        outside.map(|(name, time, accepted)| (name, *time, accepted)).collect()
    }
}

/// Runs effects once. Cheap to clone; clones share their limits.
#[derive(Clone, Debug)]
pub struct Once {
    store: Arc<dyn Store>,
    limits: Limits,
    waiting: Arc<Semaphore>,
    /// Places for outcomes that are offered late. Claims to give back have their own: while a store is down there are
    /// many of those, and each outcome is one that nobody else knows.
    late: Arc<Semaphore>,
    returned: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Once {
    /// Runs effects once by the records in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_limits(store, Limits::default())
    }

    /// The same with other limits. Times outside their bounds are brought inside.
    pub fn with_limits(store: Arc<dyn Store>, limits: Limits) -> Self {
        let permits = |max: usize| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        let limits = limits.bounded();
        Self {
            store,
            limits,
            waiting: permits(limits.waiters_max),
            late: permits(limits.late_max),
            returned: permits(limits.late_max),
            tasks: TaskTracker::new(),
        }
    }

    /// Waits until nothing is offered to the store behind a caller's back any more: for a shutdown that loses no outcome.
    /// While the store is down that can take [`Limits::late_patience`], so give it a deadline of your own.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// Where the records are.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Makes the effect happen unless it has happened already.
    ///
    /// If the returned future is dropped while the effect runs, the outcome is unknown: spawn it where callers may give
    /// up.
    pub async fn run<F, E>(&self, call: &Call, terms: Terms, effect: F) -> Result<Ended, StoreError>
    where
        F: FnOnce(Claim) -> E,
        E: Future<Output = Ending>,
    {
        // A claim of its own: if beginning fails, that claim is given back in the background, which must not hit a
        // caller who tries again.
        let call = &call.again();
        let claim = match self.turn(call, terms.wait).await? {
            Verdict::Run(claim) => claim,
            Verdict::Replay(Replay { outcome, .. }) => {
                return Ok(Ended::Happened {
                    outcome,
                    replayed: true,
                });
            }
            Verdict::InFlight { retry_after } => return Ok(Ended::InFlight { retry_after }),
            Verdict::Mismatch { .. } => return Ok(Ended::Mismatch),
            Verdict::InDoubt(claim) => return Ok(Ended::Unknown(claim)),
        };
        let ending = self.hold(&claim, call.lease(), effect(claim.clone())).await;
        let settled = self.settle(&claim, ending.clone(), terms.keep).await;
        Ok(match (ending, settled) {
            (Ending::Happened(outcome), Ok(Fenced::Applied)) => Ended::Happened {
                outcome,
                replayed: false,
            },
            (Ending::DidNotHappen, _) => Ended::DidNotHappen,
            (Ending::Happened(_) | Ending::Unknown, _) => Ended::Unknown(claim),
        })
    }

    /// Begins the call, waiting at most `wait` for an attempt that is under way. After an error the call is given back;
    /// do not begin it again.
    pub(crate) async fn turn(&self, call: &Call, wait: Duration) -> Result<Verdict, StoreError> {
        let verdict = self.begin(call).await?;
        if wait.is_zero() || !matches!(verdict, Verdict::InFlight { .. }) {
            return Ok(verdict);
        }
        let Some(_place) = self.place() else {
            return Ok(verdict);
        };
        let deadline = Instant::now() + wait.min(WAIT_MAX);
        let mut watch = self.store.watch(call.id());
        loop {
            // Asked again after the watch was taken, so that no change falls between the two.
            let verdict = self.begin(call).await?;
            let Verdict::InFlight { retry_after } = verdict else {
                return Ok(verdict);
            };
            if Instant::now() >= deadline {
                return Ok(verdict);
            }
            let nap = self.limits.poll.min(retry_after.max(NAP_MIN));
            let _ = timeout_at(deadline.min(Instant::now() + nap), watch.changed()).await;
        }
    }

    /// A place among those who wait; `None` if all are taken.
    pub(crate) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.waiting.try_acquire().ok()
    }

    /// Runs `effect` while its claim is kept alive. A claim that was lost does not stop the effect, which may be half
    /// way: the fence keeps its outcome out.
    pub(crate) async fn hold<T>(&self, claim: &Claim, lease: Duration, effect: impl Future<Output = T>) -> T {
        let mut effect = pin!(effect);
        tokio::select! {
            biased;
            ended = &mut effect => ended,
            () = self.renew_until_lost(claim, lease) => effect.await,
        }
    }

    /// Tells the store how the effect ended. Tries for [`Limits::record_patience`] and, if the store still cannot take
    /// it, goes on in the background.
    pub(crate) async fn settle(&self, claim: &Claim, ending: Ending, keep: Keep) -> Result<Fenced, StoreError> {
        let deadline = Instant::now() + self.limits.record_patience;
        match self.offer(claim, &ending, keep, deadline).await {
            Ok(fenced) => Ok(fenced),
            Err(error) => {
                // An unknown outcome needs no telling: the lease ends by itself.
                if !matches!(ending, Ending::Unknown) {
                    self.offer_late(&self.late, claim.clone(), ending, keep);
                }
                Err(error)
            }
        }
    }

    /// One bounded question to the store. After a failure the claim may have been made all the same, so it is given
    /// back: nobody acts on it.
    async fn begin(&self, call: &Call) -> Result<Verdict, StoreError> {
        let answer = self.ask("begin record", self.store.begin(call)).await;
        if answer.is_err() {
            let claim = call.claim(Attempt::FIRST);
            self.offer_late(&self.returned, claim, Ending::DidNotHappen, Keep::DAY);
        }
        answer
    }

    /// Asks without claiming.
    #[cfg(feature = "layer")]
    pub(crate) async fn peek(&self, call: &Call) -> Result<Option<Verdict>, StoreError> {
        self.ask("peek at record", self.store.peek(call)).await
    }

    async fn ask<T>(
        &self,
        attempted: &'static str,
        reply: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout(self.limits.store_patience, reply).await.unwrap_or_else(|_| {
            let context = format!("{attempted}: no answer within {:?}", self.limits.store_patience);
            Err(StoreError::new(StoreErrorKind::Unavailable, context))
        })
    }

    async fn renew_until_lost(&self, claim: &Claim, lease: Duration) {
        // Three chances per lease.
        let period = (lease / 3).max(NAP_MIN);
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.ask("renew lease", self.store.renew(claim, lease)).await {
                Ok(Fenced::Applied) => {}
                Ok(Fenced::Superseded) => {
                    telemetry::lease_lost();
                    tracing::warn!(call = %claim.id, attempt = %claim.attempt, "lease lost while the effect runs");
                    return;
                }
                Err(error) => {
                    tracing::warn!(call = %claim.id, attempt = %claim.attempt, %error, "lease not renewed");
                }
            }
        }
    }

    async fn offer(&self, claim: &Claim, ending: &Ending, keep: Keep, until: Instant) -> Result<Fenced, StoreError> {
        let mut pause = *OFFER_PAUSE.start();
        loop {
            let reply = match ending {
                Ending::Happened(outcome) => self.store.complete(claim, outcome, keep),
                Ending::DidNotHappen => self.store.abandon(claim),
                Ending::Unknown => self.store.lose(claim),
            };
            match self.ask("settle record", reply).await {
                Ok(fenced) => return Ok(fenced),
                Err(error) if Instant::now() + pause >= until => return Err(error),
                Err(error) => tracing::warn!(call = %claim.id, %error, "outcome not stored yet"),
            }
            sleep(pause).await;
            pause = (pause * 2).min(*OFFER_PAUSE.end());
        }
    }

    fn offer_late(&self, places: &Arc<Semaphore>, claim: Claim, ending: Ending, keep: Keep) {
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            tracing::error!(call = %claim.id, "too many outcomes wait for the store; this one ends with its lease");
            return;
        };
        let once = self.clone();
        self.tasks.spawn(async move {
            let until = Instant::now() + once.limits.late_patience;
            if let Err(error) = once.offer(&claim, &ending, keep, until).await {
                tracing::error!(call = %claim.id, %error, "outcome never stored");
            }
            drop(place);
        });
    }
}
