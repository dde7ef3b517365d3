//! What goes over the wire about deliveries.

use exactly::clock::Timestamp;
use exactly::queue::{AttemptView, TaskView};
use exactly::webhook::Enclosed;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::admin::input::rfc3339;
use crate::admin::jobs::wire::{JobFailure, JobState, shown};

/// An event on its way to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeliveryShown {
    #[schema(pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) endpoint: String,
    /// The replay that made it, if it is a copy; null for what the event itself has made.
    #[schema(required)]
    pub(crate) replay: Option<String>,
    /// The event's type; null if it cannot be read.
    #[serde(rename = "type")]
    #[schema(required)]
    pub(crate) event_type: Option<String>,
    /// The event that goes to this endpoint before it, if one does: this one is not sent before that one is done or dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) after: Option<String>,
    /// `done` once the endpoint has it; `dead` when there is no attempt left.
    pub(crate) state: JobState,
    /// How many attempts have failed since it was made or retried.
    pub(crate) failures: u32,
    #[schema(format = DateTime)]
    pub(crate) made_at: String,
    /// When the next attempt is due if it waits. While its endpoint is paused, disabled or parked, it waits on.
    #[schema(required, format = DateTime)]
    pub(crate) due_at: Option<String>,
    /// When its last attempt began.
    #[schema(required, format = DateTime)]
    pub(crate) started_at: Option<String>,
    /// When it was delivered or given up.
    #[schema(required, format = DateTime)]
    pub(crate) ended_at: Option<String>,
    /// Why its last attempt failed, if one did.
    #[schema(required)]
    pub(crate) failure: Option<JobFailure>,
}

/// One page of deliveries.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeliveryPage {
    #[schema(max_items = 1000)]
    pub(crate) deliveries: Vec<DeliveryShown>,
    /// What to give as `after` for the next page; null after the last one.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// A delivery with everything that is known of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeliveryDetail {
    pub(crate) delivery: DeliveryShown,
    /// What is sent, the same bytes at each attempt.
    #[schema(value_type = serde_json::Value)]
    pub(crate) body: Box<RawValue>,
    /// Its attempts that have ended, oldest first, over all its lives.
    pub(crate) attempts: Vec<DeliveryAttempt>,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AttemptResult {
    /// The endpoint has it.
    Delivered,
    /// The endpoint may not have it.
    Failed,
}

/// One attempt at a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeliveryAttempt {
    pub(crate) result: AttemptResult,
    /// Rises with each attempt.
    pub(crate) fence: u64,
    #[schema(required, format = DateTime)]
    pub(crate) started_at: Option<String>,
    #[schema(required, format = DateTime)]
    pub(crate) ended_at: Option<String>,
    /// What became of the delivery.
    pub(crate) then: JobState,
    /// The status of the answer, if it was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) status: Option<u16>,
    /// How long the exchange took, if it was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) took_ms: Option<u64>,
    /// The beginning of the answer, if it was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) response: Option<String>,
    /// Why it failed, if it did, with the beginning of the answer if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) failure: Option<JobFailure>,
}

/// What became of a delivery that was to be retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Retried {
    pub(crate) id: String,
    /// Whether its next attempt is due now because of this; in a dry run, whether it would be.
    #[expect(clippy::struct_field_names, reason = "the name that the API has for it")]
    pub(crate) retried: bool,
    /// What it was.
    pub(crate) was: JobState,
    /// Why it was left as it is, or why it waits all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) why: Option<String>,
}

/// What is kept of a delivery that was made.
#[derive(Deserialize)]
struct Delivered {
    status: u16,
    took_ms: u64,
    #[serde(default)]
    response: String,
}

/// What a delivery is known by, whether it can be read or not.
pub(super) struct Named<'a> {
    pub(super) event: &'a str,
    pub(super) endpoint: &'a str,
    pub(super) replay: Option<&'a str>,
}

impl<'a> Named<'a> {
    pub(super) fn of(view: &'a TaskView) -> Self {
        let mut words = view.key.split(' ');
        Self {
            event: words.next().unwrap_or_default(),
            endpoint: words.next().unwrap_or_default(),
            replay: words.next(),
        }
    }
}

impl DeliveryShown {
    pub(crate) fn of(view: &TaskView) -> Self {
        let at = |at: Option<Timestamp>| at.map(rfc3339);
        let Named {
            event,
            endpoint,
            replay,
        } = Named::of(view);
        let enclosed = Enclosed::read(&view.payload).ok();
        Self {
            id: view.id.to_string(),
            event: event.to_owned(),
            endpoint: endpoint.to_owned(),
            replay: replay.map(str::to_owned),
            event_type: enclosed
                .as_ref()
                .and_then(Enclosed::event_type)
                .map(|of| of.to_string()),
            after: enclosed
                .and_then(|enclosed| enclosed.turn?.after)
                .map(|after| after.to_string()),
            state: view.state.into(),
            failures: view.failures,
            made_at: rfc3339(view.enqueued_at),
            due_at: at(view.due_at),
            started_at: at(view.started_at),
            ended_at: at(view.ended_at),
            failure: view.failure.as_ref().map(Into::into),
        }
    }
}

impl DeliveryDetail {
    pub(super) fn of(view: &TaskView, attempts: &[AttemptView]) -> Self {
        let mut attempts: Vec<_> = attempts.iter().map(DeliveryAttempt::failed).collect();
        attempts.extend(DeliveryAttempt::delivered(view));
        let enclosed = Enclosed::read(&view.payload);
        Self {
            delivery: DeliveryShown::of(view),
            body: shown(&enclosed.map_or_else(|_| view.payload.clone(), |enclosed| enclosed.body)),
            attempts,
        }
    }
}

impl DeliveryAttempt {
    fn failed(view: &AttemptView) -> Self {
        Self {
            result: AttemptResult::Failed,
            fence: view.fence.get(),
            started_at: Some(rfc3339(view.started_at)),
            ended_at: Some(rfc3339(view.ended_at)),
            then: view.then.into(),
            status: None,
            took_ms: None,
            response: None,
            failure: Some((&view.failure).into()),
        }
    }

    /// The one that succeeded, which is the outcome of the task.
    fn delivered(view: &TaskView) -> Option<Self> {
        let told: Option<Delivered> = serde_json::from_slice(view.outcome.as_deref()?).ok();
        Some(Self {
            result: AttemptResult::Delivered,
            fence: view.fence.get(),
            started_at: view.started_at.map(rfc3339),
            ended_at: view.ended_at.map(rfc3339),
            then: view.state.into(),
            status: told.as_ref().map(|told| told.status),
            took_ms: told.as_ref().map(|told| told.took_ms),
            response: told.map(|told| told.response).filter(|response| !response.is_empty()),
            failure: None,
        })
    }
}
