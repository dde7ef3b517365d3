//! Callers that make a history.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exactly::store::Reply;
use exactly::{Attempt, Call, Claim, Fenced, Keep, OnLost, Store, Verdict};
use fastrand::Rng;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::Barrier;
use tokio::time::timeout;

use super::{Answer, End, Event, Sequence, Step};
use crate::StoreHarness;
use crate::answers::answered;
use crate::request::{LEASE, Request};

/// How a history is made.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Callers at work at the same time.
    pub callers: usize,
    /// Keys that they share.
    pub keys: usize,
    /// Steps of each caller.
    pub steps: usize,
    /// Whether callers give up on some of their steps.
    pub gives_up: bool,
}

/// Steps of time never add up to a lease or a retention, so that no answer depends on the milliseconds that a real
/// store takes.
const TICK: Duration = Duration::from_mins(35);

/// How long outcomes are kept.
pub(crate) const KEEP: Keep = Keep::For(Duration::from_mins(100));

impl Workload {
    /// Makes the history of `seed` on fresh keys, with transactions in it if there is a way to carry them out.
    pub async fn run<H: StoreHarness>(
        self,
        harness: &Arc<H>,
        seed: u64,
        transact: Option<Transact<H::Store>>,
    ) -> Vec<Event> {
        let shared = Arc::new(Shared {
            requests: (0..self.keys).map(|_| Request::fresh()).collect(),
            claims: Mutex::default(),
            calls: Mutex::default(),
            sequence: Sequence::default(),
            start: Barrier::new(self.callers),
        });
        let stores = [harness.open().await, harness.open().await];
        let callers = (0..self.callers).map(|n| {
            let caller = Caller {
                harness: Arc::clone(harness),
                store: Arc::clone(&stores[n % stores.len()]),
                shared: Arc::clone(&shared),
                random: Rng::with_seed(seed.wrapping_mul(1000).wrapping_add(n as u64)),
                gives_up: self.gives_up,
                transact,
                events: Vec::new(),
            };
            tokio::spawn(caller.work(self.steps))
        });
        let callers: Vec<_> = callers.collect();
        let histories = join_all(callers).await;
        histories
            .into_iter()
            .flat_map(|events| events.expect("a caller panicked"))
            .collect()
    }
}

/// Carries out a transaction.
pub type Transact<S> = for<'a> fn(&'a S, &'a Step) -> BoxFuture<'a, Answer>;

/// What callers have in common.
struct Shared {
    requests: Vec<Request>,
    /// Every claim that anybody ever got, so that callers act on stale ones and on each other's.
    // Std mutexes, since they are never held across an await.
    claims: Mutex<Vec<Claim>>,
    /// Every call that was begun and answered, so that some are begun again.
    calls: Mutex<Vec<Call>>,
    sequence: Sequence,
    start: Barrier,
}

struct Caller<H: StoreHarness> {
    harness: Arc<H>,
    store: Arc<H::Store>,
    shared: Arc<Shared>,
    random: Rng,
    gives_up: bool,
    transact: Option<Transact<H::Store>>,
    events: Vec<Event>,
}

impl<H: StoreHarness> Caller<H> {
    async fn work(mut self, steps: usize) -> Vec<Event> {
        self.shared.start.wait().await;
        for _ in 0..steps {
            let step = self.pick();
            self.take(step).await;
        }
        self.events
    }

    fn pick(&mut self) -> Step {
        let claim = {
            let claims = self.shared.claims.lock().unwrap_or_else(PoisonError::into_inner);
            // Mostly recent ones, which still own their record.
            let recent = claims.len().saturating_sub(4);
            let from = if self.random.u8(..4) == 0 { 0 } else { recent };
            (from < claims.len()).then(|| claims[self.random.usize(from..claims.len())].clone())
        };
        let outcome = Bytes::from(format!("outcome {}", self.random.u8(..3)));
        let end = if self.random.bool() { End::Commit } else { End::Rollback };
        match (self.random.u8(..24), claim) {
            (0..3, _) => Step::Peek(self.call()),
            (3..5, _) => Step::Elapse(TICK),
            (5, _) => Step::Sweep,
            (6..10, Some(claim)) => {
                Step::Complete(claim, outcome, if self.random.bool() { KEEP } else { Keep::Forever })
            }
            (10..12, Some(claim)) => Step::Abandon(claim),
            (12..14, Some(claim)) => Step::Renew(claim, LEASE),
            (14, Some(claim)) => Step::Lose(claim),
            (15..19, _) if self.transact.is_some() => Step::Transact(self.call(), outcome, end),
            (19, Some(claim)) if self.transact.is_some() => Step::CompleteIn(claim, outcome, end),
            _ => Step::Begin(self.call_or_repetition()),
        }
    }

    fn call_or_repetition(&mut self) -> Call {
        let begun = {
            let calls = self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
            self.random.choice(calls.iter()).cloned()
        };
        match begun {
            Some(call) if self.random.u8(..6) == 0 => call,
            _ => self.call(),
        }
    }

    fn call(&mut self) -> Call {
        let request = &self.shared.requests[self.random.usize(..self.shared.requests.len())];
        let request = if self.random.u8(..10) == 0 {
            request.tampered()
        } else {
            request.clone()
        };
        request.call().with_on_lost(if self.random.bool() {
            OnLost::Doubt
        } else {
            OnLost::Rerun
        })
    }

    async fn take(&mut self, step: Step) {
        let asked = self.shared.sequence.next();
        let answer = self.ask(&step).await;
        let answered = answer.is_some().then(|| self.shared.sequence.next());
        if let Some(Answer::Verdict(Verdict::Run(claim) | Verdict::InDoubt(claim))) = &answer {
            self.shared
                .claims
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(claim.clone());
        }
        match (&step, &answer) {
            (Step::Begin(call), None) => {
                // Whoever gave up on a begin gives back the claim, some time later.
                let step = Step::Abandon(call.claim(Attempt::FIRST));
                self.events.push(Event {
                    asked,
                    answered: None,
                    step,
                    answer: None,
                });
            }
            (Step::Begin(call), Some(_)) => {
                let mut calls = self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
                calls.push(call.clone());
            }
            _ => {}
        }
        self.events.push(Event {
            asked,
            answered,
            step,
            answer,
        });
    }

    async fn ask(&mut self, step: &Step) -> Option<Answer> {
        let store = Arc::clone(&self.store);
        match step {
            Step::Begin(call) => self.patiently(store.begin(call)).await.map(Answer::Verdict),
            Step::Peek(call) => self.patiently(store.peek(call)).await.map(Answer::Peeked),
            Step::Renew(claim, lease) => self.write(store.renew(claim, *lease)).await,
            Step::Complete(claim, outcome, keep) => self.write(store.complete(claim, outcome, *keep)).await,
            Step::Abandon(claim) => self.write(store.abandon(claim)).await,
            Step::Lose(claim) => self.write(store.lose(claim)).await,
            Step::Elapse(by) => {
                self.harness.elapse(*by).await;
                Some(Answer::Done)
            }
            Step::Sweep => {
                // Cleaning up may give way to others and fail; it must not disturb them.
                let _ = store.sweep(u32::MAX).await;
                Some(Answer::Done)
            }
            Step::Transact(..) | Step::CompleteIn(..) => {
                let transact = self.transact.expect("picked only where there are transactions");
                Some(transact(&store, step).await)
            }
        }
    }

    async fn write(&mut self, reply: Reply<'_, Fenced>) -> Option<Answer> {
        self.patiently(reply).await.map(Answer::Fenced)
    }

    /// Waits for the answer, or gives up on it soon.
    async fn patiently<T>(&mut self, reply: Reply<'_, T>) -> Option<T> {
        if self.gives_up && self.random.u8(..6) == 0 {
            let soon = Duration::from_millis(self.random.u64(..3));
            return timeout(soon, reply).await.ok().map(answered);
        }
        Some(answered(reply.await))
    }
}
