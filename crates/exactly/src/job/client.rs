//! Enqueuing jobs, and asking what came of them.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::Job;
use crate::StoreError;
use crate::queue::{
    BATCH_MAX, Enqueued, Found, InspectQueue, InvalidTask, Queue, Task, TaskId, TaskState, TransactionalQueue,
};

/// Enqueues jobs. Cheap to clone.
#[derive(Debug)]
pub struct Jobs<Q: ?Sized> {
    queue: Arc<Q>,
}

impl<Q: ?Sized> Clone for Jobs<Q> {
    fn clone(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
        }
    }
}

/// What came of enqueuing a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a job that was found may have an outcome, or be dead"]
pub enum JobEnqueued<O> {
    /// It waits.
    New(TaskId),
    /// It was there before, and nothing was changed.
    Found {
        /// Which one.
        id: TaskId,
        /// Where it is on its way.
        state: TaskState,
        /// What came of it, if it is done.
        outcome: Option<O>,
        /// Whether it was enqueued with another content than this time.
        differs: bool,
    },
}

impl<O> JobEnqueued<O> {
    /// The job's id.
    pub fn id(&self) -> TaskId {
        match self {
            Self::New(id) | Self::Found { id, .. } => *id,
        }
    }

    /// Whether this call added it.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New(_))
    }
}

/// What came of a row of several.
pub type Row<J> = Result<JobEnqueued<<J as Job>::Outcome>, JobsError>;

/// The task that a job is, for whoever wants it [delayed](Task::after).
pub fn task<J: Job>(job: &J) -> Result<Task, JobsError> {
    let payload = serde_json::to_vec(job).map_err(|error| JobsError::Unwritable(error.into()))?;
    let task = Task::new(J::KIND, job.key(), payload).map_err(JobsError::Invalid)?;
    let task = task.with_version(J::VERSION);
    Ok(match job.lane() {
        Some(lane) => task.in_lane(lane),
        None => task,
    })
}

impl<Q: ?Sized> Jobs<Q> {
    /// Of this queue.
    pub fn new(queue: Arc<Q>) -> Self {
        Self { queue }
    }
}

impl<Q: Queue + ?Sized> Jobs<Q> {
    /// Adds the job, or says what has become of it.
    pub async fn enqueue<J: Job>(&self, job: &J) -> Row<J> {
        let enqueued = self.queue.enqueue(&[task(job)?]).await.map_err(JobsError::Store)?;
        first(enqueued)
    }

    /// The same for many, with an answer for each, in order: one that cannot be a job costs no other. If the queue fails half
    /// way, repeat it: what was added is found.
    pub async fn enqueue_all<J: Job>(&self, jobs: &[J]) -> Result<Vec<Row<J>>, StoreError> {
        let mut rows = Vec::with_capacity(jobs.len());
        for jobs in jobs.chunks(BATCH_MAX) {
            let (tasks, refused) = tasks(jobs);
            let enqueued = self.queue.enqueue(&tasks).await?;
            rows.append(&mut merge(enqueued, refused));
        }
        Ok(rows)
    }
}

impl<Q: TransactionalQueue> Jobs<Q> {
    /// As [`enqueue`](Self::enqueue), if the transaction commits.
    pub async fn enqueue_in<J: Job>(&self, tx: &mut Q::Tx, job: &J) -> Row<J> {
        let task = task(job)?;
        let enqueued = self.queue.enqueue_in(tx, &[task]).await.map_err(JobsError::Store)?;
        first(enqueued)
    }

    /// As [`enqueue_all`](Self::enqueue_all), if the transaction commits.
    pub async fn enqueue_all_in<J: Job>(&self, tx: &mut Q::Tx, jobs: &[J]) -> Result<Vec<Row<J>>, StoreError> {
        let mut rows = Vec::with_capacity(jobs.len());
        for jobs in jobs.chunks(BATCH_MAX) {
            let (tasks, refused) = tasks(jobs);
            let enqueued = self.queue.enqueue_in(tx, &tasks).await?;
            rows.append(&mut merge(enqueued, refused));
        }
        Ok(rows)
    }
}

impl<Q: InspectQueue + ?Sized> Jobs<Q> {
    /// What came of the job; `None` if it is not done, or not there.
    pub async fn outcome<J: Job>(&self, id: TaskId) -> Result<Option<J::Outcome>, JobsError> {
        let view = self.queue.show(id).await.map_err(JobsError::Store)?;
        let outcome = view.and_then(|view| view.outcome);
        outcome.map(|outcome| read(&outcome)).transpose()
    }
}

/// The tasks that these jobs are, and for each job why it is none, if it is none.
fn tasks<J: Job>(jobs: &[J]) -> (Vec<Task>, Vec<Option<JobsError>>) {
    let mut tasks = Vec::with_capacity(jobs.len());
    let mut refused = Vec::with_capacity(jobs.len());
    for job in jobs {
        match task(job) {
            Ok(task) => {
                tasks.push(task);
                refused.push(None);
            }
            Err(error) => refused.push(Some(error)),
        }
    }
    (tasks, refused)
}

fn merge<O: DeserializeOwned>(
    enqueued: Vec<Enqueued>,
    refused: Vec<Option<JobsError>>,
) -> Vec<Result<JobEnqueued<O>, JobsError>> {
    let mut enqueued = enqueued.into_iter();
    let row = |refused: Option<JobsError>| match refused {
        Some(error) => Err(error),
        None => typed(enqueued.next()),
    };
    refused.into_iter().map(row).collect()
}

fn first<O: DeserializeOwned>(enqueued: Vec<Enqueued>) -> Result<JobEnqueued<O>, JobsError> {
    typed(enqueued.into_iter().next())
}

fn typed<O: DeserializeOwned>(enqueued: Option<Enqueued>) -> Result<JobEnqueued<O>, JobsError> {
    match enqueued.expect("a queue answers for every task") {
        Enqueued::New(id) => Ok(JobEnqueued::New(id)),
        Enqueued::Found(Found {
            id,
            state,
            outcome,
            differs,
        }) => Ok(JobEnqueued::Found {
            id,
            state,
            outcome: outcome.map(|outcome| read(&outcome)).transpose()?,
            differs,
        }),
    }
}

fn read<O: DeserializeOwned>(outcome: &Bytes) -> Result<O, JobsError> {
    serde_json::from_slice(outcome).map_err(|error| JobsError::Unreadable(error.into()))
}

/// Why a job was not enqueued, or its outcome not told.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobsError {
    /// Its kind, its key or its content is none that a queue takes.
    Invalid(InvalidTask),
    /// It cannot be written as JSON.
    Unwritable(Box<dyn Error + Send + Sync>),
    /// It is done, and its stored outcome is not of the type that is asked for.
    Unreadable(Box<dyn Error + Send + Sync>),
    /// The queue could not answer.
    Store(StoreError),
}

impl fmt::Display for JobsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => error.fmt(f),
            Self::Unwritable(error) => write!(f, "write job: {error}"),
            Self::Unreadable(error) => write!(f, "read outcome of job: {error}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl Error for JobsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Invalid(_) => None,
            Self::Unwritable(error) | Self::Unreadable(error) => error.source(),
            Self::Store(error) => error.source(),
        }
    }
}
