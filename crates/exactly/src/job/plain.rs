//! Jobs whose effects are elsewhere, or nowhere.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use tokio::time::timeout;

use super::terms::Terms;
use super::{Context, Job, JobError, JobHandler, read, write};
use crate::queue::{End, Leased};
use crate::retry::Schedule;
use crate::worker::{Handler, Ran, Run};

/// Does jobs of one type. Functions of a job and a [`Context`] do.
pub trait Work<J: Job>: Send + Sync + 'static {
    /// Does this one.
    fn run(&self, job: J, cx: Context) -> impl Future<Output = Result<J::Outcome, JobError>> + Send;
}

impl<J, F, Fut> Work<J> for F
where
    J: Job,
    F: Fn(J, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<J::Outcome, JobError>> + Send,
{
    fn run(&self, job: J, cx: Context) -> impl Future<Output = Result<J::Outcome, JobError>> + Send {
        self(job, cx)
    }
}

/// The handler that calls this function for each job.
pub fn from_fn<J, F, Fut>(work: F) -> Plain<J, F>
where
    J: Job,
    F: Fn(J, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<J::Outcome, JobError>> + Send,
{
    of(work)
}

/// The handler whose work is this: for types that implement [`Work`] themselves.
pub fn of<J: Job, W: Work<J>>(work: W) -> Plain<J, W> {
    Plain {
        work,
        terms: Terms::default(),
        job: PhantomData,
    }
}

/// A handler of jobs, made by [`from_fn`] or [`of`].
pub struct Plain<J, W> {
    work: W,
    terms: Terms,
    job: PhantomData<fn() -> J>,
}

impl<J, W> Plain<J, W> {
    /// What may work later is tried again by this schedule, `most` times and no more than the schedule has: by default
    /// [three times](Schedule::SCHEDULED).
    #[must_use]
    pub fn retries(mut self, schedule: Schedule, most: u32) -> Self {
        self.terms.schedule = schedule;
        self.terms.retries_max = most;
        self
    }

    /// How long an attempt may take before it is stopped: 5 minutes unless told otherwise.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.terms.time_limit = limit;
        self
    }
}

impl<J: Job, W: Work<J>> Handler for Plain<J, W> {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move {
            let job = match read::<J>(task) {
                Ok(job) => job,
                Err(unreadable) => return Ran::End(End::Bury(unreadable)),
            };
            let (cx, _running) = Context::of(task);
            let worked = timeout(self.terms.time_limit, self.work.run(job, cx)).await;
            let worked = worked.unwrap_or_else(|_| Err(self.terms.late()));
            Ran::End(match worked.and_then(|outcome| write::<J>(&outcome)) {
                Ok(outcome) => End::Done(outcome),
                Err(error) => self.terms.failed(task, &error),
            })
        })
    }
}

impl<J: Job, W: Work<J>> JobHandler for Plain<J, W> {
    const KIND: &'static str = J::KIND;
}

impl<J, W> fmt::Debug for Plain<J, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
