//! Enqueuing, row by row.

use std::collections::BTreeMap;
use std::time::Duration;

use exactly::clock::Timestamp;
use exactly::queue::{self, Task};
use serde_json::value::RawValue;

use super::ask::{JOBS_MAX, NewJob, NewJobs};
use super::desk::JobDesk;
use super::wire::{EnqueuedRow, EnqueuedRows, Result_, shown};
use crate::admin::desk::asked;
use crate::admin::extract::parse_json;
use crate::admin::problem::{Answer, Problem};
use crate::work::errand::Wrong;

/// What was asked for.
pub(super) enum Asking {
    One(Box<NewJob>),
    Many(Vec<Box<RawValue>>),
}

impl Asking {
    pub(super) fn read(body: &RawValue) -> Answer<Self> {
        let members: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(body.get()).ok();
        if !members.is_some_and(|members| members.contains_key("jobs")) {
            return parse_json(body.get().as_bytes()).map(|job| Self::One(Box::new(job)));
        }
        let NewJobs { jobs } = parse_json(body.get().as_bytes())?;
        if !(1..=JOBS_MAX).contains(&jobs.len()) {
            let why = format!("has {} of them, accepted are 1 to {JOBS_MAX}", jobs.len());
            return Err(Problem::invalid("jobs", why));
        }
        Ok(Self::Many(jobs))
    }
}

impl JobDesk {
    /// Enqueues one job, or says what is wrong with it.
    pub(super) async fn enqueue_one(&self, job: &NewJob) -> Answer<EnqueuedRow> {
        let now = self.now().await?;
        let task = task(job, now).map_err(|wrong| Problem::invalid(wrong.field, wrong.why))?;
        let enqueued = asked("enqueue the job", self.queue().enqueue(std::slice::from_ref(&task))).await?;
        match enqueued.first() {
            Some(enqueued) => Ok(row(enqueued, &task)),
            None => Err(Problem::failed("the queue did not say what became of the job")),
        }
    }

    /// Enqueues those that are right, in one step, and says of each what became of it.
    pub(crate) async fn enqueue(&self, rows: Vec<Box<RawValue>>) -> Answer<EnqueuedRows> {
        let now = self.now().await?;
        let read = rows.iter().map(|row| read_row(row, now));
        let read: Vec<Result<Task, EnqueuedRow>> = read.collect();
        let tasks: Vec<Task> = read.iter().filter_map(|row| row.as_ref().ok().cloned()).collect();
        let enqueued = asked("enqueue the jobs", self.queue().enqueue(&tasks)).await?;
        let mut enqueued = enqueued.iter();
        let rows = read.into_iter().map(|read| match read {
            Ok(task) => enqueued.next().map(|enqueued| row(enqueued, &task)),
            Err(invalid) => Some(invalid),
        });
        let Some(rows) = rows.collect::<Option<Vec<_>>>() else {
            return Err(Problem::failed("the queue did not say what became of every job"));
        };
        let count = |result| {
            let count = rows.iter().filter(|row| row.result == result).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        Ok(EnqueuedRows {
            new: count(Result_::New),
            found: count(Result_::Found),
            invalid: count(Result_::Invalid),
            rows,
        })
    }
}

fn read_row(raw: &RawValue, now: Timestamp) -> Result<Task, EnqueuedRow> {
    let job: NewJob = parse_json(raw.get().as_bytes()).map_err(|problem| {
        let field = problem.field.map(Into::into);
        invalid(None, field, problem.detail)
    })?;
    task(&job, now).map_err(|wrong| invalid(Some(job.key.clone()), Some(wrong.field), wrong.why))
}

fn invalid(key: Option<String>, field: Option<String>, reason: String) -> EnqueuedRow {
    EnqueuedRow {
        result: Result_::Invalid,
        id: None,
        key,
        state: None,
        outcome: None,
        differs: None,
        field,
        reason: Some(reason),
    }
}

fn task(job: &NewJob, now: Timestamp) -> Result<Task, Wrong> {
    let delay = match (job.delay_ms, job.run_at) {
        (Some(_), Some(_)) => {
            let why = "there is a delay_ms too; accepted is one of them";
            return Err(Wrong::new("run_at", why));
        }
        (Some(delay), None) => delay.duration(),
        // What is past is due at once.
        (None, Some(at)) => at.0.since(now),
        (None, None) => Duration::ZERO,
    };
    Ok(job.errand().task(&job.key)?.after(delay))
}

fn row(enqueued: &queue::Enqueued, task: &Task) -> EnqueuedRow {
    let (result, state, outcome, differs) = match enqueued {
        queue::Enqueued::New(_) => (Result_::New, queue::TaskState::Waiting, None, None),
        queue::Enqueued::Found(found) => (
            Result_::Found,
            found.state,
            found.outcome.as_deref().map(shown),
            Some(found.differs),
        ),
    };
    EnqueuedRow {
        result,
        id: Some(enqueued.id().to_string()),
        key: Some(task.key().to_owned()),
        state: Some(state.into()),
        outcome,
        differs,
        field: None,
        reason: None,
    }
}
