//! What is asked about jobs.

use std::collections::BTreeMap;

use exactly::queue::TaskId;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::wire::JobState;
use crate::admin::input::{Count, FilterText, Instant, Limit, Reason, Whole};
use crate::work::errand::Errand;

/// The most jobs in one request.
pub(crate) const JOBS_MAX: usize = 1000;

/// Up to ten years.
pub(crate) type DelayMs = Whole<0, 315_360_000_000>;
pub(crate) type Version = Whole<0, { u32::MAX as u64 }>;
pub(crate) type Cap = Count<1_000_000>;

/// The id of a job: a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct JobIdText(TaskId);

impl JobIdText {
    pub(crate) fn id(self) -> TaskId {
        self.0
    }
}

impl TryFrom<String> for JobIdText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // One spelling, so that the same id is the same text everywhere.
        let id: TaskId = text
            .parse()
            .map_err(|_| "accepted is the id of a job, a UUID".to_owned())?;
        if id.to_string() == text.to_ascii_lowercase() {
            return Ok(Self(id));
        }
        Err("accepted is the id of a job, a UUID with its four hyphens".to_owned())
    }
}

impl From<JobIdText> for String {
    fn from(id: JobIdText) -> Self {
        id.0.to_string()
    }
}

impl PartialSchema for JobIdText {
    fn schema() -> RefOr<Schema> {
        let hex = "[0-9a-fA-F]";
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some(format!("^{hex}{{8}}(-{hex}{{4}}){{3}}-{hex}{{12}}$")))
            .into()
    }
}

impl ToSchema for JobIdText {}

/// Which jobs to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobsQuery {
    /// Only those in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub(crate) state: Option<JobState>,
    /// Only those of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = FilterText, required = false, inline)]
    pub(crate) kind: Option<FilterText>,
    /// Only those in this lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = crate::admin::input::PrincipalText, required = false, inline)]
    pub(crate) lane: Option<FilterText>,
    /// Only those of this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Version, required = false, inline)]
    pub(crate) version: Option<Version>,
    /// At most so many; 100 unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Limit, required = false, inline)]
    pub(crate) limit: Option<Limit>,
    /// Only those after the page that said so in `next`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = JobIdText, required = false, inline)]
    pub(crate) after: Option<JobIdText>,
}

/// A job to enqueue: a request, and what it is known by.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "key": "2026-02-19:user-7", "url": "https://offers.example/make", "body": {"user": "user-7"}
}))]
pub(crate) struct NewJob {
    /// What it is known by, among its kind. A key that was used before finds its job.
    #[schema(min_length = 1, max_length = 512)]
    pub(crate) key: String,
    /// Due so many milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) delay_ms: Option<DelayMs>,
    /// Due at this instant. Instead of `delay_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) run_at: Option<Instant>,
    /// Where it goes: an http or https address. Redirects are not followed.
    #[schema(max_length = 8192)]
    pub(crate) url: String,
    /// POST unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^(GET|POST|PUT|PATCH|DELETE)$")]
    pub(crate) method: Option<String>,
    /// What it carries beside what the job is known by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Its body, as JSON, sent as it is written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    pub(crate) body: Option<Box<RawValue>>,
    /// Its body, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) body_text: Option<String>,
    /// How long one attempt may take, in milliseconds; 5 minutes unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 86_400_000)]
    pub(crate) timeout_ms: Option<u64>,
    /// Whether it may be sent again when nobody knows what came of it. True unless told otherwise, because it carries a key.
    #[serde(default = "yes")]
    #[schema(default = true, required = false)]
    pub(crate) repeatable: bool,
    /// What kind of job it is; there is one of a kind with a key. `http` unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 128)]
    pub(crate) kind: Option<String>,
    /// The lane that it waits in; the one of its kind unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 255)]
    pub(crate) lane: Option<String>,
    /// The version of the algorithm that is to do it, kept with the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) version: Option<u32>,
}

impl NewJob {
    pub(crate) fn errand(&self) -> Errand {
        let this = self.clone();
        Errand {
            url: this.url,
            method: this.method,
            headers: this.headers,
            body: this.body,
            body_text: this.body_text,
            timeout_ms: this.timeout_ms,
            repeatable: this.repeatable,
            kind: this.kind,
            lane: this.lane,
            version: this.version,
        }
    }
}

/// Without what it sends, which is the sender's secret.
impl std::fmt::Debug for NewJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewJob")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Many jobs to enqueue.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewJobs {
    /// Each is read by itself: one that is wrong does not keep others out.
    #[schema(value_type = Vec<NewJob>, min_items = 1, max_items = 1000)]
    pub(crate) jobs: Vec<Box<RawValue>>,
}

/// One job, or many.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes what is read in two steps")]
pub(crate) enum NewJobsBody {
    One(Box<NewJob>),
    Many(NewJobs),
}

/// Why a job is requeued.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequeueOne {
    /// Whether to look only.
    #[serde(default)]
    #[schema(required = false)]
    pub(crate) dry_run: bool,
    /// Why, for the trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) reason: Option<Reason>,
}

/// What somebody found out about a job that is held or dead.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"outcome": {"invoice": 17}, "reason": "it is in the books"}))]
pub(crate) struct ResolveJob {
    /// What came of it, to be told to whoever asks for the job again; null if nobody knows more than that it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    pub(crate) outcome: Option<Box<RawValue>>,
    /// The attempt that this is about, as the job has it: one that was tried again since is left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<u64>,
    /// Why, for the trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) reason: Option<Reason>,
}

/// Which jobs to requeue: either `ids`, or `state` and what else they have in common.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"state": "dead", "kind": "http", "dry_run": true}))]
pub(crate) struct Requeue {
    /// These.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline, min_items = 1, max_items = 1000)]
    pub(crate) ids: Option<Vec<JobIdText>>,
    /// Those in this state, which is `dead` or `held`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) state: Option<JobState>,
    /// Of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) kind: Option<FilterText>,
    /// In this lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) lane: Option<FilterText>,
    /// Of this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) version: Option<Version>,
    /// At most so many; 1000 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) limit: Option<Limit>,
    /// Go on after the answer that said so in `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) after: Option<JobIdText>,
    /// Whether to look only.
    #[serde(default)]
    #[schema(required = false)]
    pub(crate) dry_run: bool,
    /// Why, for the trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) reason: Option<Reason>,
}

/// What to change about a lane.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaneChange {
    /// Whether its tasks stay where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) paused: Option<bool>,
    /// How many of its tasks run at once at most, over all processes; null for no limit.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    #[expect(
        clippy::option_option,
        reason = "a null that was written means no limit, and none no change"
    )]
    pub(crate) cap: Option<Option<Cap>>,
    /// Why, for the trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) reason: Option<Reason>,
}

fn yes() -> bool {
    true
}

/// Tells a null that was written from a field that was not.
pub(crate) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
