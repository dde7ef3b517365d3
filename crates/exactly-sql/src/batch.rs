//! Group commit: calls that arrive while a commit is under way go into the next one together.
//!
//! There is no timer. A lone call is taken at once; under load the batch is whatever arrived during the last flush, so
//! the cost per call falls as the load rises. Every step can be repeated (see [`exactly::Store`]), so a batch whose
//! reply was lost is simply sent again.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::gate::{Gate, Passage};
use exactly::{Call, CallId, Claim, Fenced, Keep, StoreError, StoreErrorKind, Token, Verdict};
use tokio::sync::{Mutex, mpsc, oneshot};

/// The most steps in one batch.
pub(crate) const BATCH_MAX: usize = 512;

/// The most steps that wait for a batch; further callers wait for a place, which bounds memory.
const QUEUE_MAX: usize = 16 * 1024;

/// One step of one caller, with the way back to it.
#[derive(Debug)]
pub(crate) enum Step {
    Begin {
        call: Call,
        reply: oneshot::Sender<Result<Verdict, StoreError>>,
        turn: Turn,
    },
    Peek {
        call: Call,
        reply: oneshot::Sender<Result<Option<Verdict>, StoreError>>,
    },
    Write {
        write: Write,
        reply: oneshot::Sender<Result<Fenced, StoreError>>,
        /// Held if the write gives back what a begin claimed.
        #[expect(dead_code, reason = "it is held until the write is done, and never looked at")]
        turn: Option<Turn>,
    },
}

/// Held from a begin until its claim was heard of or given back. A begin of the same call value waits for that: it would
/// find the claim by its token, and then lose it to the giving back.
pub(crate) type Turn = Arc<Passage<Token>>;

/// A fenced write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Renew { claim: Claim, lease: Duration },
    Complete { claim: Claim, outcome: Bytes, keep: Keep },
    Abandon { claim: Claim },
    Lose { claim: Claim },
}

impl Write {
    pub(crate) fn claim(&self) -> &Claim {
        match self {
            Self::Renew { claim, .. }
            | Self::Complete { claim, .. }
            | Self::Abandon { claim }
            | Self::Lose { claim } => claim,
        }
    }
}

impl Step {
    /// Frees a claim that nobody heard of, so nobody acted on it.
    pub(crate) fn give_back(claim: Claim, turn: Option<Turn>) -> Self {
        Self::Write {
            write: Write::Abandon { claim },
            reply: oneshot::channel().0,
            turn,
        }
    }

    pub(crate) fn id(&self) -> &CallId {
        match self {
            Self::Begin { call, .. } | Self::Peek { call, .. } => call.id(),
            Self::Write { write, .. } => &write.claim().id,
        }
    }
}

/// Carries out batches. Answers every step, whatever happens.
pub(crate) trait Flush: Send + Sync + 'static {
    fn flush(&self, steps: Vec<Step>) -> impl Future<Output = ()> + Send;
}

/// The queue in front of a [`Flush`].
#[derive(Clone, Debug)]
pub(crate) struct Batcher {
    queue: mpsc::Sender<Step>,
    turns: Gate<Token>,
}

impl Batcher {
    /// Starts `flushers` tasks that share one queue. They end once every clone of the batcher is dropped and what was
    /// queued is carried out.
    pub(crate) fn start(flush: impl Flush, flushers: usize, batch_max: usize) -> Self {
        let (queue, steps) = mpsc::channel(QUEUE_MAX);
        let steps = Arc::new(Mutex::new(steps));
        let flush = Arc::new(flush);
        for _ in 0..flushers {
            tokio::spawn(run(Arc::clone(&flush), Arc::clone(&steps), batch_max));
        }
        Self {
            queue,
            turns: Gate::default(),
        }
    }

    pub(crate) async fn begin(&self, call: &Call) -> Result<Verdict, StoreError> {
        let turn = Arc::new(self.turns.enter(&call.token()).await);
        let (reply, answer) = oneshot::channel();
        let mut begun = Begun {
            answer,
            queue: &self.queue,
            turn: Arc::clone(&turn),
        };
        let call = call.clone();
        self.queue
            .send(Step::Begin { call, reply, turn })
            .await
            .map_err(|_| gone())?;
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
        self.ask(|reply| Step::Write {
            write,
            reply,
            turn: None,
        })
        .await
    }

    async fn ask<T>(&self, step: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Step) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.queue.send(step(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// A begin's way back. If its caller goes away after the answer was sent and before it was read, nobody has acted on
/// the claim, so it is given back.
struct Begun<'q> {
    answer: oneshot::Receiver<Result<Verdict, StoreError>>,
    queue: &'q mpsc::Sender<Step>,
    turn: Turn,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.answer.close();
        let Ok(Ok(Verdict::Run(claim))) = self.answer.try_recv() else {
            return;
        };
        let step = Step::give_back(claim, Some(Arc::clone(&self.turn)));
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

async fn run(flush: Arc<impl Flush>, steps: Arc<Mutex<mpsc::Receiver<Step>>>, batch_max: usize) {
    loop {
        let mut batch = Vec::new();
        if steps.lock().await.recv_many(&mut batch, batch_max).await == 0 {
            return;
        }
        flush.flush(batch).await;
    }
}
