//! Group commit: calls that arrive while a commit is under way go into the next one together.
//!
//! There is no timer. A lone call is taken at once; under load the batch is whatever arrived during the last commit, so
//! the cost per call falls as the load rises. Every step can be repeated (see [`exactly::Store`]), so a batch whose
//! reply was lost is simply sent again.

mod again;
mod reply;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::gate::{self, Gate};
use exactly::store::record::{self, Change, Record};
use exactly::{Call, CallId, Claim, Fenced, Keep, StoreError, StoreErrorKind, Token, Verdict};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

pub(crate) use self::again::Again;
use self::reply::Reply;
pub(crate) use self::reply::by_home;

/// The most steps in one batch.
pub(crate) const BATCH_MAX: usize = 512;

/// The most steps that wait for a batch; further callers wait for a place, which bounds memory.
const QUEUE_MAX: usize = 16 * 1024;

/// How long to try to give back a claim that nobody heard of. Past that its lease decides.
const GIVE_BACK_MAX: Duration = Duration::from_secs(30);

/// One step of one caller, with the way back to it.
#[derive(Debug)]
pub(crate) enum Step {
    Begin {
        call: Call,
        reply: Reply<Verdict>,
        passage: Passage,
        /// Set if nobody listens any more and an attempt failed that may have claimed all the same: begun once more, to
        /// find the claim and give it back.
        until: Option<Instant>,
    },
    Peek {
        call: Call,
        reply: Reply<Option<Verdict>>,
    },
    Write {
        write: Write,
        reply: Reply<Fenced>,
    },
    /// Frees a claim that nobody heard of, so nobody acted on it.
    GiveBack {
        abandon: Write,
        #[expect(dead_code, reason = "it is held until the claim is given back, and never looked at")]
        passage: Passage,
        until: Instant,
    },
}

/// Held from a begin until its claim was heard of or given back. A begin of the same call value waits for that: it would
/// find the claim by its token, and then lose it to the giving back.
pub(crate) type Passage = Arc<gate::Passage<Token>>;

/// A fenced write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Renew { claim: Claim, lease: Duration },
    Complete { claim: Claim, outcome: Bytes, keep: Keep },
    Abandon { claim: Claim },
    Lose { claim: Claim },
    Forget { claim: Claim },
}

impl Write {
    pub(crate) fn claim(&self) -> &Claim {
        match self {
            Self::Renew { claim, .. }
            | Self::Complete { claim, .. }
            | Self::Abandon { claim }
            | Self::Lose { claim }
            | Self::Forget { claim } => claim,
        }
    }

    /// What becomes of a record, by the state machine's word.
    pub(crate) fn transition(&self, found: Option<&Record>, now: Timestamp) -> (Change, Fenced) {
        match self {
            Self::Renew { claim, lease } => record::renew(found, claim, *lease, now),
            Self::Complete { claim, outcome, keep } => record::complete(found, claim, outcome, *keep, now),
            Self::Abandon { claim } => record::abandon(found, claim),
            Self::Lose { claim } => record::lose(found, claim, now),
            Self::Forget { claim } => record::forget(found, claim),
        }
    }

    fn attempted(&self) -> &'static str {
        match self {
            Self::Renew { .. } => "renew record",
            Self::Complete { .. } => "complete record",
            Self::Abandon { .. } => "abandon record",
            Self::Lose { .. } => "lose record",
            Self::Forget { .. } => "forget record",
        }
    }
}

impl Step {
    pub(crate) fn give_back(claim: Claim, passage: Passage) -> Self {
        Self::GiveBack {
            abandon: Write::Abandon { claim },
            passage,
            until: Instant::now() + GIVE_BACK_MAX,
        }
    }

    pub(crate) fn id(&self) -> &CallId {
        match self {
            Self::Begin { call, .. } | Self::Peek { call, .. } => call.id(),
            Self::Write { write, .. } | Self::GiveBack { abandon: write, .. } => &write.claim().id,
        }
    }

    /// The fenced write that it is, if it is one.
    pub(crate) fn write(&self) -> Option<&Write> {
        match self {
            Self::Write { write, .. } | Self::GiveBack { abandon: write, .. } => Some(write),
            Self::Begin { .. } | Self::Peek { .. } => None,
        }
    }

    /// Whether the caller has gone and nothing is lost by doing nothing. A write is carried out all the same: what its
    /// caller found out is true even if nobody listens to the answer.
    pub(crate) fn is_pointless(&self) -> bool {
        match self {
            Self::Begin { reply, until, .. } => until.is_none() && reply.is_closed(),
            Self::Peek { reply, .. } => reply.is_closed(),
            Self::Write { .. } | Self::GiveBack { .. } => false,
        }
    }

    /// The runtime that the caller waits in, if it still does.
    fn home(&self) -> Option<&Handle> {
        match self {
            Self::Begin { reply, .. } => reply.home(),
            Self::Peek { reply, .. } => reply.home(),
            Self::Write { reply, .. } => reply.home(),
            Self::GiveBack { .. } => None,
        }
    }

    /// Whether those who wait for the record may go on after this step.
    pub(crate) fn settles(&self) -> bool {
        self.write().is_some_and(|write| !matches!(write, Write::Renew { .. }))
    }

    /// What it attempted, for its error.
    pub(crate) fn attempted(&self) -> &'static str {
        match self {
            Self::Begin { .. } => "begin record",
            Self::Peek { .. } => "peek at record",
            Self::Write { write, .. } | Self::GiveBack { abandon: write, .. } => write.attempted(),
        }
    }

    /// Tells the caller of the verdict. Returns what gives back a claim whose caller has gone.
    pub(crate) fn begun(self, verdict: Verdict) -> Option<Self> {
        let Self::Begin { reply, passage, .. } = self else {
            unreachable!("{self:?} begins nothing")
        };
        match reply.send(Ok(verdict)) {
            Err(Ok(Verdict::Run(claim))) => Some(Self::give_back(claim, passage)),
            // Whoever no longer listens to any other verdict misses nothing.
            _ => None,
        }
    }

    /// Tells the caller of a look.
    pub(crate) fn peeked(self, verdict: Option<Verdict>) {
        let Self::Peek { reply, .. } = self else {
            unreachable!("{self:?} looks at nothing")
        };
        drop(reply.send(Ok(verdict)));
    }

    /// Tells the caller of a write.
    pub(crate) fn written(self, fenced: Fenced) {
        match self {
            Self::Write { reply, .. } => drop(reply.send(Ok(fenced))),
            Self::GiveBack { .. } => {}
            step => unreachable!("{step:?} writes nothing"),
        }
    }

    /// Tells the caller of an error that left everything as it was. Returns what has to be tried [again](Again), because
    /// a claim that nobody heard of is left behind.
    pub(crate) fn refuse(self, error: StoreError) -> Option<Self> {
        match self {
            Self::Begin { reply, until: None, .. } => {
                drop(reply.send(Err(error)));
                None
            }
            step => step.fail(error),
        }
    }

    /// Tells the caller of an error after which nobody knows whether the step was carried out. Returns what has to be
    /// tried [again](Again), because a claim that nobody heard of is or may be left behind.
    pub(crate) fn fail(self, error: StoreError) -> Option<Self> {
        match self {
            Self::Begin {
                call,
                reply,
                passage,
                until,
            } => {
                if reply.send(Err(error)).is_ok() {
                    return None;
                }
                let until = until.unwrap_or_else(|| Instant::now() + GIVE_BACK_MAX);
                let reply = Reply::to_nobody();
                in_time(until).then_some(Self::Begin {
                    call,
                    reply,
                    passage,
                    until: Some(until),
                })
            }
            Self::Peek { reply, .. } => {
                drop(reply.send(Err(error)));
                None
            }
            Self::Write { reply, .. } => {
                drop(reply.send(Err(error)));
                None
            }
            Self::GiveBack { until, .. } => {
                if in_time(until) {
                    return Some(self);
                }
                tracing::warn!(%error, "give back a claim whose caller has gone; its lease decides");
                None
            }
        }
    }
}

fn in_time(until: Instant) -> bool {
    Instant::now() < until
}

/// Carries out batches. Answers every step, whatever happens.
pub(crate) trait Flush: Send + Sync + 'static {
    fn flush(&self, steps: Vec<Step>) -> impl Future<Output = ()> + Send;
}

/// The queue in front of a [`Flush`].
#[derive(Clone, Debug)]
pub(crate) struct Batcher {
    queue: mpsc::Sender<Step>,
    passages: Gate<Token>,
}

/// What is in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    steps: Arc<Mutex<mpsc::Receiver<Step>>>,
    batch_max: usize,
}

impl Queued {
    /// The next batch, once there is one. It is empty if there will be none.
    async fn batch(&self) -> Vec<Step> {
        let mut batch = Vec::new();
        self.steps.lock().await.recv_many(&mut batch, self.batch_max).await;
        batch
    }

    /// The next batch, if there is one now.
    pub(crate) fn batch_now(&self) -> Option<Vec<Step>> {
        let mut steps = self.steps.try_lock().ok()?;
        let now = std::iter::from_fn(|| steps.try_recv().ok());
        let batch: Vec<_> = now.take(self.batch_max).collect();
        (!batch.is_empty()).then_some(batch)
    }
}

impl Batcher {
    /// Starts `flushers` tasks that share one queue. They end once every clone of the batcher is dropped and what was
    /// queued is carried out.
    pub(crate) fn start<F: Flush>(flush: impl FnOnce(Queued, Again) -> F, flushers: usize, batch_max: usize) -> Self {
        let (queue, steps) = mpsc::channel(QUEUE_MAX);
        let steps = Arc::new(Mutex::new(steps));
        let queued = Queued { steps, batch_max };
        let flush = Arc::new(flush(queued.clone(), Again::new(&queue, QUEUE_MAX)));
        for _ in 0..flushers {
            tokio::spawn(run(Arc::clone(&flush), queued.clone()));
        }
        Self {
            queue,
            passages: Gate::default(),
        }
    }

    pub(crate) async fn begin(&self, call: &Call) -> Result<Verdict, StoreError> {
        let passage = Arc::new(self.passages.enter(&call.token()).await);
        let (reply, answer) = Reply::here();
        let mut begun = Begun {
            answer,
            queue: &self.queue,
            passage: Arc::clone(&passage),
        };
        let step = Step::Begin {
            call: call.clone(),
            reply,
            passage,
            until: None,
        };
        self.queue.send(step).await.map_err(|_| gone())?;
        (&mut begun.answer).await.map_err(|_| gone())?
    }

    pub(crate) async fn peek(&self, call: &Call) -> Result<Option<Verdict>, StoreError> {
        self.ask(|reply| Step::Peek {
            call: call.clone(),
            reply,
        })
        .await
    }

    pub(crate) async fn write(&self, write: Write) -> Result<Fenced, StoreError> {
        self.ask(|reply| Step::Write { write, reply }).await
    }

    async fn ask<T>(&self, step: impl FnOnce(Reply<T>) -> Step) -> Result<T, StoreError> {
        let (reply, answer) = Reply::here();
        self.queue.send(step(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// A begin's way back. If its caller goes away after the answer was sent and before it was read, nobody has acted on
/// the claim, so it is given back.
struct Begun<'q> {
    answer: oneshot::Receiver<Result<Verdict, StoreError>>,
    queue: &'q mpsc::Sender<Step>,
    passage: Passage,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.answer.close();
        let Ok(Ok(Verdict::Run(claim))) = self.answer.try_recv() else {
            return;
        };
        let step = Step::give_back(claim, Arc::clone(&self.passage));
        if let Err(mpsc::error::TrySendError::Full(step)) = self.queue.try_send(step) {
            let queue = self.queue.clone();
            // Outside a runtime nothing is carried out any more, and the lease decides.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { queue.send(step).await });
            }
        }
    }
}

fn gone() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "reach the store: it was shut down")
}

async fn run(flush: Arc<impl Flush>, queued: Queued) {
    loop {
        let batch = queued.batch().await;
        if batch.is_empty() {
            return;
        }
        flush.flush(batch).await;
    }
}
