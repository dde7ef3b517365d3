//! What goes over the wire about jobs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exactly::clock::Timestamp;
use exactly::queue::{AttemptView, Failure, TaskState, TaskView};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

use crate::admin::input::rfc3339;
use crate::work::errand::Errand;

/// Where a job is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum JobState {
    /// Until it is due and a worker has room for it.
    Waiting,
    /// A worker has leased it.
    Running,
    /// Nobody knows whether it happened, so it is taken out until somebody requeues it.
    Held,
    /// It happened, and its outcome is stored.
    Done,
    /// It failed for good, and stays with its history.
    Dead,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Job {
    /// What its kind and key come to: a UUID, which its requests carry as `Idempotency-Key`.
    #[schema(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) key: String,
    pub(crate) lane: String,
    pub(crate) state: JobState,
    pub(crate) version: u32,
    /// How many attempts have failed since it was enqueued or requeued.
    pub(crate) failures: u32,
    /// How often it was taken from a process that vanished, since then.
    pub(crate) rescues: u32,
    /// The number of its latest lease, which rises with each.
    pub(crate) fence: u64,
    /// The process that leased it last: a UUID, made anew at each start.
    #[schema(required)]
    pub(crate) worker: Option<String>,
    #[schema(format = DateTime)]
    pub(crate) enqueued_at: String,
    /// When it is due if it waits, and when its lease ends if it runs.
    #[schema(required, format = DateTime)]
    pub(crate) due_at: Option<String>,
    /// When its last attempt began.
    #[schema(required, format = DateTime)]
    pub(crate) started_at: Option<String>,
    /// When it was done, buried or held.
    #[schema(required, format = DateTime)]
    pub(crate) ended_at: Option<String>,
    /// Why its last attempt failed, if one did.
    #[schema(required)]
    pub(crate) failure: Option<JobFailure>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct JobFailure {
    /// `transient`, `timeout`, `logic`, `lost`, `unknown` and so on.
    pub(crate) kind: String,
    pub(crate) message: String,
}

/// One page of jobs, ordered by id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct JobPage {
    #[schema(max_items = 1000)]
    pub(crate) jobs: Vec<Job>,
    /// What to give as `after` for the next page; null after the last one.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// A job with everything that is known of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct JobDetail {
    pub(crate) job: Job,
    /// What it sends. Values of headers that open other doors are left out.
    #[schema(value_type = serde_json::Value)]
    pub(crate) request: Box<RawValue>,
    /// What came of it, if it is done: the status, some headers and the body of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    pub(crate) outcome: Option<Box<RawValue>>,
    /// Its attempts that ended without an outcome, oldest first, over all its lives.
    pub(crate) attempts: Vec<JobAttempt>,
}

/// An attempt that ended without an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct JobAttempt {
    pub(crate) fence: u64,
    /// The process that made it.
    #[schema(required)]
    pub(crate) worker: Option<String>,
    #[schema(format = DateTime)]
    pub(crate) started_at: String,
    #[schema(format = DateTime)]
    pub(crate) ended_at: String,
    /// What became of the job.
    pub(crate) then: JobState,
    pub(crate) failure: JobFailure,
}

/// What became of a job that was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = EnqueuedResult)]
pub(crate) enum Result_ {
    /// It waits.
    New,
    /// Its key was used before, and nothing was changed.
    Found,
    /// It is wrong, and was left out.
    Invalid,
}

/// What became of one job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EnqueuedRow {
    pub(crate) result: Result_,
    /// The job's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) key: Option<String>,
    /// Where it is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) state: Option<JobState>,
    /// What came of it, if it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    pub(crate) outcome: Option<Box<RawValue>>,
    /// Whether it was enqueued with another request than this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) differs: Option<bool>,
    /// The part of it that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) field: Option<String>,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) reason: Option<String>,
}

/// What became of each job, in the order in which they were given.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EnqueuedRows {
    pub(crate) new: u32,
    pub(crate) found: u32,
    pub(crate) invalid: u32,
    #[schema(max_items = 1000)]
    pub(crate) rows: Vec<EnqueuedRow>,
}

/// What became of one job, or of many.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Enqueued {
    One(Box<EnqueuedRow>),
    Many(EnqueuedRows),
}

/// What became of a job that was to be requeued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RequeuedRow {
    pub(crate) id: String,
    /// Whether it waits again because of this; in a dry run, whether it would.
    pub(crate) requeued: bool,
    /// What it was; null if there is no such job.
    #[schema(required)]
    pub(crate) was: Option<JobState>,
    /// Why it was left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) why: Option<String>,
}

/// What became of a job that somebody says has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ResolvedJob {
    pub(crate) id: String,
    /// Whether it is done, with this outcome.
    pub(crate) resolved: bool,
    /// What it was.
    pub(crate) was: JobState,
    /// Why it was left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) why: Option<String>,
}

/// What became of each job that was to be requeued.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Requeued {
    pub(crate) dry_run: bool,
    /// How many wait again; in a dry run, how many would.
    #[expect(clippy::struct_field_names, reason = "the name that the API has for it")]
    pub(crate) requeued: u32,
    #[schema(max_items = 1000)]
    pub(crate) rows: Vec<RequeuedRow>,
    /// What to give as `after` to go on; null when all were looked at.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// A lane, and how much is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LaneShown {
    pub(crate) lane: String,
    pub(crate) paused: bool,
    /// How many of its tasks run at once at most; null for no limit.
    #[schema(required)]
    pub(crate) cap: Option<u32>,
    pub(crate) waiting: u64,
    pub(crate) running: u64,
    pub(crate) held: u64,
    pub(crate) dead: u64,
}

/// All lanes, by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct LanesShown {
    pub(crate) lanes: Vec<LaneShown>,
}

impl From<TaskState> for JobState {
    fn from(state: TaskState) -> Self {
        match state {
            TaskState::Waiting => Self::Waiting,
            TaskState::Running => Self::Running,
            TaskState::Held => Self::Held,
            TaskState::Done => Self::Done,
            TaskState::Dead => Self::Dead,
        }
    }
}

impl From<JobState> for TaskState {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Waiting => Self::Waiting,
            JobState::Running => Self::Running,
            JobState::Held => Self::Held,
            JobState::Done => Self::Done,
            JobState::Dead => Self::Dead,
        }
    }
}

impl From<&Failure> for JobFailure {
    fn from(failure: &Failure) -> Self {
        Self {
            kind: failure.kind.to_string(),
            message: failure.message.clone(),
        }
    }
}

impl From<&TaskView> for Job {
    fn from(view: &TaskView) -> Self {
        let at = |at: Option<Timestamp>| at.map(rfc3339);
        Self {
            id: view.id.to_string(),
            kind: view.kind.to_string(),
            key: view.key.to_string(),
            lane: view.lane.to_string(),
            state: view.state.into(),
            version: view.version,
            failures: view.failures,
            rescues: view.rescues,
            fence: view.fence.get(),
            worker: view.worker.map(|worker| worker.to_string()),
            enqueued_at: rfc3339(view.enqueued_at),
            due_at: at(view.due_at),
            started_at: at(view.started_at),
            ended_at: at(view.ended_at),
            failure: view.failure.as_ref().map(Into::into),
        }
    }
}

impl From<&AttemptView> for JobAttempt {
    fn from(view: &AttemptView) -> Self {
        Self {
            fence: view.fence.get(),
            worker: view.worker.map(|worker| worker.to_string()),
            started_at: rfc3339(view.started_at),
            ended_at: rfc3339(view.ended_at),
            then: view.then.into(),
            failure: (&view.failure).into(),
        }
    }
}

impl JobDetail {
    pub(crate) fn of(view: &TaskView, attempts: &[AttemptView]) -> Self {
        let request = match serde_json::from_slice::<Errand>(&view.payload) {
            Ok(errand) => to_raw_value(&errand.without_secrets()).expect("texts are always JSON"),
            Err(_) => shown(&view.payload),
        };
        Self {
            job: view.into(),
            request,
            outcome: view.outcome.as_deref().map(shown),
            attempts: attempts.iter().map(Into::into).collect(),
        }
    }
}

/// JSON as it is; what is none, because another program wrote it, in base64.
pub(crate) fn shown(bytes: &[u8]) -> Box<RawValue> {
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let value = json!({ "base64": STANDARD.encode(bytes) });
        to_raw_value(&value).expect("a text is always JSON")
    })
}
