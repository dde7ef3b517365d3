//! Jobs: tasks with a type, an outcome, and a table of what is tried again.
//!
//! A [`Job`] is known by its kind and its key, for good. Enqueuing it again finds it, with the outcome that it had: so a
//! scheduler may fire twice, a request may be repeated and an operator may run yesterday's batch once more, and each subject
//! still gets one. Unlike a unique index that a worker checks first, the row that says so is the one that the work is
//! settled in.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::sync::Arc;
//!
//! use exactly::job::{self, Job, JobEnqueued, JobError, Jobs};
//! use exactly::queue::MemoryQueue;
//! use exactly::worker::Worker;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Offers { date: String, user: String, zone: String }
//!
//! impl Job for Offers {
//!     const KIND: &'static str = "offers";
//!     type Outcome = Vec<String>;
//!
//!     fn key(&self) -> String {
//!         job::daily_key(&self.date, &self.user)
//!     }
//! }
//!
//! let queue = Arc::new(MemoryQueue::new());
//! let worker = Worker::builder(Arc::<MemoryQueue>::clone(&queue))
//!     .job(job::from_fn(|offers: Offers, cx| async move {
//!         if offers.zone.is_empty() {
//!             return Err(JobError::inconsistent("a user without a time zone"));
//!         }
//!         Ok(vec![format!("an offer for {}, by attempt {}", offers.user, cx.attempt())])
//!     }))
//!     .start()?;
//!
//! let jobs = Jobs::new(queue);
//! let today = Offers { date: "2026-02-19".into(), user: "ada".into(), zone: "Europe/London".into() };
//! let id = jobs.enqueue(&today).await?.id();
//! # while jobs.outcome::<Offers>(id).await?.is_none() { tokio::task::yield_now().await; }
//! // … and again, when it is done, even from another zone:
//! let again = Offers { zone: "Asia/Kathmandu".into(), ..today };
//! let found = jobs.enqueue(&again).await?;
//! assert!(matches!(found, JobEnqueued::Found { outcome: Some(offers), .. } if offers.len() == 1));
//! # worker.drain().await;
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Failures
//!
//! | what | then |
//! |---|---|
//! | [`transient`](JobError::transient), [`timeout`](JobError::timeout), or past the [time limit](Plain::time_limit) | again after about 30 s, 2 min and 5 min, then dead |
//! | [`logic`](JobError::logic), [`inconsistent`](JobError::inconsistent), a panic, a payload that cannot be read | dead at once |
//! | [`unknown`](JobError::unknown) | held until somebody has looked and revives it |
//! | its process vanishes | again when the lease has ended, five times at most, beside the other retries |
//!
//! Whatever is dead stays, with its history, until it is [revived](crate::queue::Queue::revive) or pruned.
//!
//! # Same inputs, same outputs
//!
//! A job may run more than once, so it should come to the same each time: ids from [`deterministic_id`] and not at random, and
//! candidates sorted by score *and* id, because rows of the same score come in any order and another order offers somebody
//! else. The version of the algorithm is stored with the job: see [`Job::VERSION`].
//!
//! An effect in the queue's database is made in [one transaction](transactional) with the settlement. An effect elsewhere
//! needs [the fence](Context::fence), or an idempotency key such as [the job's id](Context::id).

// The guide's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/jobs.md")]
struct Guide;

mod client;
mod context;
mod error;
mod names;
mod plain;
mod terms;
mod transactional;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::client::{JobEnqueued, Jobs, JobsError, Row, task};
pub use self::context::Context;
pub use self::error::JobError;
pub use self::names::{daily_key, deterministic_id};
pub use self::plain::{Plain, Work, from_fn, of};
#[cfg(feature = "webhook")]
pub(crate) use self::terms::Terms;
pub use self::transactional::{Transactional, Working, transactional};
#[cfg(feature = "webhook")]
pub(crate) use self::transactional::{conclude, roll_back};
use crate::queue::{Failure, FailureKind, Lane, Leased};
use crate::worker::{Builder, Handler};

/// Work that is known by its key. It is its own payload, as JSON.
pub trait Job: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its kind: which handler it is for. Stored with every job, so it cannot be changed later.
    const KIND: &'static str;

    /// The version of the algorithm that does it, stored when it is enqueued. A handler that knows several goes by
    /// [the one it finds](Context::version), so that a job which is run again comes to the same.
    const VERSION: u32 = 1;

    /// What comes of it, stored as JSON and given to whoever enqueues it again.
    type Outcome: Serialize + DeserializeOwned + Send;

    /// What it is known by, among its kind. The same key is the same job, until it is [pruned](crate::queue::Queue::prune).
    fn key(&self) -> String;

    /// The lane that it waits in; that of its kind if there is none.
    fn lane(&self) -> Option<Lane> {
        None
    }
}

/// A handler of jobs of one kind.
pub trait JobHandler: Handler {
    /// Which.
    const KIND: &'static str;
}

impl Builder {
    /// Jobs of its kind are done by this handler.
    pub fn job<H: JobHandler>(self, handler: H) -> Self {
        self.handle(H::KIND, handler)
    }
}

/// The job in a payload.
fn read<J: Job>(task: &Leased) -> Result<J, Failure> {
    serde_json::from_slice(&task.payload).map_err(|error| {
        let (kind, version) = (J::KIND, task.version);
        let message = format!("read a job of the kind {kind:?}, version {version}: {error}");
        Failure::new(FailureKind::Unreadable, message)
    })
}

/// The outcome as it is stored.
fn write<J: Job>(outcome: &J::Outcome) -> Result<Bytes, JobError> {
    match serde_json::to_vec(outcome) {
        Ok(bytes) => Ok(bytes.into()),
        // It would be the same again.
        Err(error) => Err(JobError::logic(format!(
            "write the outcome of a {:?}: {error}",
            J::KIND
        ))),
    }
}
