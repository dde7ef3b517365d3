//! Doing what a queue holds: leases tasks, runs their handlers, and says how each ended.
//!
//! A [`Worker`] is one per process, on any [`Queue`]. It differs from a loop around [`lease`](Queue::lease) and
//! [`settle`](Queue::settle) in what it does when things go wrong. Leases are renewed while handlers run, and a handler whose
//! lease is lost is stopped, because somebody else may be at it. A settlement that cannot be written is kept and tried again,
//! and nothing is begun meanwhile. A handler that panics, hangs or is missing costs its own task and no other. A worker that
//! is [drained](Running::drain) gives back what it has not begun; one that vanishes has its tasks rescued by the others when
//! their leases end.
//!
//! It leases and settles in large batches and holds no lock, so that the queue is the limit.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::sync::Arc;
//!
//! use exactly::queue::{End, MemoryQueue, Queue, Task};
//! use exactly::worker::{Ran, Worker, from_fn};
//!
//! let queue = Arc::new(MemoryQueue::new());
//! let running = Worker::builder(Arc::<MemoryQueue>::clone(&queue))
//!     .handle("greeting", from_fn(|task| Box::pin(async move {
//!         Ran::End(End::Done(format!("hello, {}", task.key).into()))
//!     })))
//!     .on_buried(|buried| eprintln!("somebody has to look at {}: {}", buried.id, buried.failure))
//!     .start()?;
//! let _ = queue.enqueue(&[Task::new("greeting", "ada", "")?]).await?;
//! # while !matches!(&queue.enqueue(&[Task::new("greeting", "ada", "")?]).await?[0],
//! #     exactly::queue::Enqueued::Found(found) if found.outcome.as_deref() == Some(b"hello, ada")) {
//! #     tokio::task::yield_now().await;
//! # }
//! // … when the process is told to end …
//! let drained = running.drain().await;
//! assert_eq!(drained.left, 0);
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # What is not promised
//!
//! A task is done once as far as the queue can tell: one outcome is stored, and a late one changes nothing. Its handler can
//! still run twice, if a process vanishes or hangs after the effect and before the settlement. An effect in the queue's own
//! database joins the settlement's transaction ([`Ran::Settled`]); an effect elsewhere needs the task's
//! [fence](crate::queue::Fence) or an idempotency key, for which the task's id is a good one.

mod appetite;
pub(crate) mod attempt;
mod backoff;
pub(crate) mod books;
mod builder;
mod calls;
mod hand;
mod kinds;
mod log;
mod round;
mod settler;
mod shift;
mod suspects;

use std::fmt;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::builder::{Builder, InvalidWorker};
use crate::queue::{End, Failure, Leased, Queue, TaskId, WorkerId};

/// What does tasks. There is none of this type: a [`Builder`] starts one, and a [`Running`] stands for it.
#[derive(Debug)]
pub enum Worker {}

impl Worker {
    /// A worker on this queue, to be set up and started.
    pub fn builder(queue: Arc<dyn Queue>) -> Builder {
        Builder::new(queue)
    }
}

/// Does tasks of one kind.
///
/// The returned future is dropped at any await if the task's lease is lost or the worker has to end. What it has begun
/// elsewhere may then be half done, as with a process that is killed.
pub trait Handler: Send + Sync + 'static {
    /// Does this task, and says how that ended.
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a>;
}

/// A handler at work.
pub type Run<'a> = Pin<Box<dyn Future<Output = Ran> + Send + 'a>>;

/// The handler that calls this function.
pub fn from_fn<F>(function: F) -> FromFn<F>
where
    F: for<'a> Fn(&'a Leased) -> Run<'a> + Send + Sync + 'static,
{
    FromFn(function)
}

/// A function as a handler, made by [`from_fn`].
#[derive(Clone, Copy)]
pub struct FromFn<F>(F);

impl<F> Handler for FromFn<F>
where
    F: for<'a> Fn(&'a Leased) -> Run<'a> + Send + Sync + 'static,
{
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        (self.0)(task)
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFn(…)")
    }
}

/// How a handler ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// So, and the worker is to settle it.
    End(End),
    /// It is done, and was settled in the transaction that its effect was committed in.
    Settled,
    /// It was found to be somebody else's by now, and nothing was changed.
    Superseded,
}

/// A task that is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Buried {
    /// Which one.
    pub id: TaskId,
    /// Its kind.
    pub kind: Box<str>,
    /// What it is known by, among its kind.
    pub key: Box<str>,
    /// Why.
    pub failure: Failure,
}

/// A worker at work. Dropping this stops it as a crash would: handlers are stopped where they are, and their tasks are
/// rescued when the leases have ended.
#[derive(Debug)]
#[must_use = "dropping it stops the worker"]
pub struct Running {
    id: WorkerId,
    stop: CancellationToken,
    work: JoinHandle<Drained>,
}

impl Running {
    /// Who it is to the queue.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Ends well: leases nothing more, gives back at once what was not begun, waits for handlers as long as
    /// [it was told](Builder::drain_for), stops the rest, and tells the queue how all of them ended. What was stopped is
    /// tried again at once, by another worker, and no retry is used up by it.
    pub async fn drain(mut self) -> Drained {
        self.stop.cancel();
        match (&mut self.work).await {
            Ok(drained) => drained,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is being shut down, and has ended it.
                Err(_) => Drained::default(),
            },
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// What came of [draining](Running::drain).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// How many tasks were given back without having been begun.
    pub released: usize,
    /// How many handlers were stopped because they took too long.
    pub stopped: usize,
    /// How many tasks the queue could not be told about. Their leases decide.
    pub left: usize,
}
