//! Jobs whose effects commit together with their outcome.

mod shared;

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use self::shared::Shared;
use super::terms::Terms;
use super::{Context, Job, JobError, JobHandler, read, write};
use crate::Fenced;
use crate::queue::{End, Leased, Settlement, TransactionalQueue};
use crate::retry::Schedule;
use crate::worker::{Handler, Ran, Run};

/// How long to wait for a transaction to be rolled back. What is not rolled back by then is when its connection is.
const ROLLBACK_PATIENCE: Duration = Duration::from_secs(5);

/// A function of a transaction at work on a job.
pub type Working<'a, J> = Pin<Box<dyn Future<Output = Result<<J as Job>::Outcome, JobError>> + Send + 'a>>;

/// The handler that calls this function for each job, with a transaction of the queue's database. The function makes its
/// effects in it and neither commits nor rolls back. Then the job is settled in the same transaction, and that is committed:
/// the effects are there if, and only if, the job is done.
///
/// An error or a panic rolls back. So does a job that turns out to be somebody else's by now. After a commit whose answer
/// was lost, settling the job as failed finds out what came of it: if the commit came through the job is done, and stays so.
///
/// ```
/// # use std::sync::Arc;
/// # use exactly::job::{self, Job, JobError};
/// # use exactly::queue::TransactionalQueue;
/// # use exactly::worker::{Builder, Worker};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Offers { user: String }
/// # impl Job for Offers {
/// #     const KIND: &'static str = "offers";
/// #     type Outcome = u32;
/// #     fn key(&self) -> String { self.user.clone() }
/// # }
/// # async fn insert_offers<Tx>(_: &mut Tx, _: &str) -> Result<u32, std::io::Error> { Ok(3) }
/// fn worker<Q: TransactionalQueue>(queue: Arc<Q>) -> Builder {
///     Worker::builder(Arc::<Q>::clone(&queue)).job(job::transactional(queue, |offers: Offers, tx, _cx| {
///         Box::pin(async move { insert_offers(tx, &offers.user).await.map_err(JobError::transient) })
///     }))
/// }
/// ```
pub fn transactional<J, Q, F>(queue: Arc<Q>, work: F) -> Transactional<J, Q, F>
where
    J: Job,
    Q: TransactionalQueue,
    F: for<'t> Fn(J, &'t mut Q::Tx, Context) -> Working<'t, J> + Send + Sync + 'static,
{
    Transactional {
        queue,
        work,
        terms: Terms::default(),
        shared: None,
        job: PhantomData,
    }
}

/// A handler of jobs, made by [`transactional`].
pub struct Transactional<J, Q, F> {
    queue: Arc<Q>,
    work: F,
    terms: Terms,
    shared: Option<Shared>,
    job: PhantomData<fn() -> J>,
}

impl<J, Q, F> Transactional<J, Q, F> {
    /// What may work later is tried again by this schedule, `most` times and no more than the schedule has: by default
    /// [three times](Schedule::SCHEDULED).
    #[must_use]
    pub fn retries(mut self, schedule: Schedule, most: u32) -> Self {
        self.terms.schedule = schedule;
        self.terms.retries_max = most;
        self
    }

    /// Jobs that are at hand together share transactions, `most` of them in each, and `at_once` transactions are open at
    /// most. For jobs that only write a few rows: the commit is most of what such a job costs.
    ///
    /// They run one after the other in the transaction, and commit together. If one of them fails, panics or is superseded,
    /// all of it is rolled back and each runs once more in a transaction of its own: so a function may be called twice for
    /// one attempt, and what it does elsewhere happens twice. They fill up if the worker's concurrency is `most` times
    /// `at_once`.
    #[must_use]
    pub fn sharing(mut self, most: usize, at_once: usize) -> Self {
        self.shared = (most > 1).then(|| Shared::new(most, at_once));
        self
    }

    /// How long an attempt may take before it is stopped and rolled back: 5 minutes unless told otherwise.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.terms.time_limit = limit;
        self
    }
}

impl<J, Q, F> Transactional<J, Q, F>
where
    J: Job,
    Q: TransactionalQueue,
    F: for<'t> Fn(J, &'t mut Q::Tx, Context) -> Working<'t, J> + Send + Sync + 'static,
{
    async fn run_alone(&self, task: &Leased) -> Ran {
        let job = match read::<J>(task) {
            Ok(job) => job,
            Err(unreadable) => return Ran::End(End::Bury(unreadable)),
        };
        let ran = self.attempt(task, job).await;
        ran.unwrap_or_else(|error| Ran::End(self.terms.failed(task, &error)))
    }

    async fn attempt(&self, task: &Leased, job: J) -> Result<Ran, JobError> {
        let mut tx = self.terms.bounded("open transaction", self.queue.open()).await?;
        let worked = self.work(task, job, &mut tx).await;
        conclude(&*self.queue, &self.terms, tx, task, worked).await
    }

    async fn work(&self, task: &Leased, job: J, tx: &mut Q::Tx) -> Result<Bytes, JobError> {
        let (cx, _running) = Context::of(task);
        let worked = timeout(self.terms.time_limit, (self.work)(job, tx, cx)).await;
        let outcome = worked.unwrap_or_else(|_| Err(self.terms.late()))?;
        write::<J>(&outcome)
    }
}

/// Settles a job in the transaction of its effect, and commits. What failed, or is somebody else's by now, is rolled back.
pub(crate) async fn conclude<Q: TransactionalQueue>(
    queue: &Q,
    terms: &Terms,
    mut tx: Q::Tx,
    task: &Leased,
    worked: Result<Bytes, JobError>,
) -> Result<Ran, JobError> {
    let outcome = match worked {
        Ok(outcome) => outcome,
        Err(error) => {
            roll_back(queue, tx).await;
            return Err(error);
        }
    };
    let settlement = Settlement::new(task.lease, End::Done(outcome));
    let settled = queue.settle_in(&mut tx, slice::from_ref(&settlement));
    match terms.bounded("settle job", settled).await {
        Ok(fenced) if fenced == [Fenced::Applied] => {}
        // Somebody else has the job, and makes its effect.
        Ok(_) => {
            roll_back(queue, tx).await;
            return Ok(Ran::Superseded);
        }
        Err(error) => {
            roll_back(queue, tx).await;
            return Err(error);
        }
    }
    // If this fails, it may have been committed all the same. Settling the job otherwise waits for the lost commit, and
    // changes nothing if it came through. Not by a release: a commit that can never work would be tried for ever.
    terms.bounded("commit job", queue.commit(tx)).await?;
    Ok(Ran::Settled)
}

pub(crate) async fn roll_back<Q: TransactionalQueue>(queue: &Q, tx: Q::Tx) {
    // Dropping it rolls back as well.
    let rolled_back = timeout(ROLLBACK_PATIENCE, queue.rollback(tx)).await;
    if let Ok(Err(error)) = rolled_back {
        tracing::debug!(%error, "transaction not rolled back by itself");
    }
}

impl<J, Q, F> Handler for Transactional<J, Q, F>
where
    J: Job,
    Q: TransactionalQueue,
    F: for<'t> Fn(J, &'t mut Q::Tx, Context) -> Working<'t, J> + Send + Sync + 'static,
{
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move {
            if let Some(shared) = &self.shared
                && let Some(ran) = self.run_shared(shared, task).await
            {
                return ran;
            }
            self.run_alone(task).await
        })
    }
}

impl<J, Q, F> JobHandler for Transactional<J, Q, F>
where
    J: Job,
    Q: TransactionalQueue,
    F: for<'t> Fn(J, &'t mut Q::Tx, Context) -> Working<'t, J> + Send + Sync + 'static,
{
    const KIND: &'static str = J::KIND;
}

impl<J, Q, F> fmt::Debug for Transactional<J, Q, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactional")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
