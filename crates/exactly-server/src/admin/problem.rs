//! What the API refuses, as problem details (RFC 9457).
//!
//! Only this module picks the API's status codes of refusals. The members are those of the gateway's own problems, so a
//! client needs one reader for both.

mod kind;

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use exactly::queue::TaskId;
use exactly::webhook::DeliveryName;
use exactly::{CallId, StoreError, StoreErrorKind};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::kind::{
    BODY_LATE, BODY_TOO_LARGE, BUSY, DELIVERY_UNDER_WAY, ENDPOINT_CLOSED, ENDPOINT_TAKEN, FAILED, IN_FLIGHT, INVALID,
    Kind, MEDIA_TYPE, METHOD, NO_EVENTS, NO_JOBS, NO_SUCH_CALL, NO_SUCH_DELIVERY, NO_SUCH_ENDPOINT, NO_SUCH_EVENT,
    NO_SUCH_JOB, NO_SUCH_PATH, NO_SUCH_REPLAY, NO_SUCH_SCHEDULE, NO_SUCH_SOURCE, NOT_IN_DOUBT, OTHER_EVENT, OTHER_KIND,
    REPLAY_TAKEN, STORE_UNAVAILABLE, SUPERSEDED, UNAUTHORIZED, UNREADABLE,
};

/// How soon to try again when nothing better is known.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "type": "urn:exactly:problem:not-in-doubt",
    "title": "The call is not in doubt",
    "status": 409,
    "code": "CONFLICT.call.not_in_doubt",
    "detail": "the call is done: it happened and its outcome is stored",
    "retryable": false,
    "call": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
}))]
pub(crate) struct Problem {
    /// A stable name of the kind of problem.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub(crate) kind: Box<str>,
    /// The same in words.
    #[schema(value_type = String)]
    pub(crate) title: Box<str>,
    /// The status it is answered with.
    #[schema(minimum = 400, maximum = 599)]
    pub(crate) status: u16,
    /// What programs decide by.
    #[schema(value_type = String)]
    pub(crate) code: Box<str>,
    /// What happened to this request, and what to do.
    pub(crate) detail: String,
    /// Whether the same request may be answered otherwise later.
    pub(crate) retryable: bool,
    /// When to try again, in seconds.
    #[serde(rename = "retryAfter", default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) retry_after: Option<u32>,
    /// The call that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub(crate) call: Option<Box<str>>,
    /// The part of the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub(crate) field: Option<Box<str>>,
}

/// What a handler answers.
pub(crate) type Answer<T> = Result<T, Problem>;

impl Kind {
    fn with(&self, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("urn:exactly:problem:{}", self.name).into(),
            title: self.title.into(),
            status: self.status.as_u16(),
            code: self.code.into(),
            detail: detail.into(),
            retryable: false,
            retry_after: None,
            call: None,
            field: None,
        }
    }
}

impl Problem {
    pub(crate) fn unauthorized(detail: &str) -> Self {
        UNAUTHORIZED.with(detail)
    }

    pub(crate) fn no_such_path(path: &str) -> Self {
        NO_SUCH_PATH.with(format!("nothing is at {path:?}; /openapi.json names what there is"))
    }

    pub(crate) fn no_such_call(id: &CallId) -> Self {
        let detail = "no record has this id: it was never used, was freed, or its retention ended";
        NO_SUCH_CALL.with(detail).about(id)
    }

    pub(crate) fn no_such_job(id: TaskId) -> Self {
        NO_SUCH_JOB.with(format!(
            "no job has the id {id}: it was never enqueued, or was forgotten"
        ))
    }

    pub(crate) fn no_such_schedule(name: &str) -> Self {
        NO_SUCH_SCHEDULE.with(format!(
            "no schedule is called {name:?}; GET /v1/schedules names what there is"
        ))
    }

    pub(crate) fn no_jobs(why: &str) -> Self {
        NO_JOBS.with(why)
    }

    pub(crate) fn no_such_event(id: &str) -> Self {
        NO_SUCH_EVENT.with(format!(
            "no event has the id {id:?}: it was never published, or was forgotten"
        ))
    }

    pub(crate) fn no_such_endpoint(id: &str) -> Self {
        NO_SUCH_ENDPOINT.with(format!(
            "no endpoint has the id {id:?}; GET /v1/endpoints names what there is"
        ))
    }

    pub(crate) fn no_such_delivery(id: TaskId) -> Self {
        NO_SUCH_DELIVERY.with(format!(
            "no delivery has the id {id}: it was never made, or was forgotten"
        ))
    }

    /// Sent too, it would be sent twice.
    pub(crate) fn under_way(other: &DeliveryName) -> Self {
        let which = match &other.replay {
            Some(replay) => format!("the copy that replay {replay} made"),
            None => "the delivery that it is a copy of".to_owned(),
        };
        let id = other.task_id();
        DELIVERY_UNDER_WAY.with(format!(
            "{which}, {id}, waits or runs, so the endpoint gets the event anyway: retry that one, or wait until it has ended"
        ))
    }

    pub(crate) fn other_event(why: impl std::fmt::Display) -> Self {
        let mut problem = OTHER_EVENT.with(why.to_string());
        problem.field = Some("id".into());
        problem
    }

    pub(crate) fn endpoint_taken(why: impl std::fmt::Display) -> Self {
        let mut problem = ENDPOINT_TAKEN.with(why.to_string());
        problem.field = Some("id".into());
        problem
    }

    pub(crate) fn endpoint_closed(why: &str) -> Self {
        ENDPOINT_CLOSED.with(why)
    }

    pub(crate) fn no_such_source() -> Self {
        NO_SUCH_SOURCE.with("no events are taken under this name")
    }

    pub(crate) fn no_such_received(source: &str, id: &str) -> Self {
        NO_SUCH_EVENT.with(format!(
            "no event of {source:?} has the id {id:?}: it never came, or was forgotten"
        ))
    }

    pub(crate) fn no_such_replay(id: &str) -> Self {
        NO_SUCH_REPLAY.with(format!(
            "no replay has the id {id:?}; GET /v1/replays names what there is"
        ))
    }

    pub(crate) fn replay_taken(why: impl std::fmt::Display) -> Self {
        let mut problem = REPLAY_TAKEN.with(why.to_string());
        problem.field = Some("id".into());
        problem
    }

    pub(crate) fn no_events(why: &str) -> Self {
        NO_EVENTS.with(why)
    }

    /// Others got in between each time.
    pub(crate) fn contended(why: impl std::fmt::Display) -> Self {
        BUSY.with(why.to_string()).retry(Some(RETRY_AFTER))
    }

    pub(crate) fn method(method: &http::Method, path: &str) -> Self {
        METHOD.with(format!("{method} is not for {path:?}; the Allow header names what is"))
    }

    pub(crate) fn unreadable(detail: impl Into<String>) -> Self {
        UNREADABLE.with(detail)
    }

    pub(crate) fn body_late(patience: Duration) -> Self {
        let detail = format!(
            "the whole body has to arrive within {} s; nothing was done",
            patience.as_secs()
        );
        BODY_LATE.with(detail).retry(None)
    }

    pub(crate) fn body_too_large(bytes_max: usize) -> Self {
        BODY_TOO_LARGE.with(format!("a request may have at most {bytes_max} bytes"))
    }

    pub(crate) fn media_type() -> Self {
        MEDIA_TYPE.with("send JSON with content-type: application/json")
    }

    pub(crate) fn invalid(field: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let field = field.into();
        let mut problem = INVALID.with(format!("{field}: {why}"));
        problem.field = Some(field.into());
        problem
    }

    pub(crate) fn not_in_doubt(id: &CallId, detail: &str) -> Self {
        NOT_IN_DOUBT.with(detail).about(id)
    }

    pub(crate) fn other_kind(id: &CallId, field: &str, detail: &str) -> Self {
        let mut problem = OTHER_KIND.with(detail).about(id);
        problem.field = Some(field.into());
        problem
    }

    pub(crate) fn in_flight(id: &CallId, remaining: Duration) -> Self {
        let detail = "an attempt holds a lease on it; wait until the attempt ends, or until its lease does";
        IN_FLIGHT.with(detail).about(id).retry(Some(remaining))
    }

    pub(crate) fn superseded(id: &CallId, detail: &str) -> Self {
        SUPERSEDED.with(detail).about(id)
    }

    pub(crate) fn busy(max: usize) -> Self {
        BUSY.with(format!("{max} requests are under way; nothing was done"))
            .retry(Some(RETRY_AFTER))
    }

    /// The store was asked to do `what` and did not say in time.
    pub(crate) fn no_answer(what: &str, patience: Duration) -> Self {
        let detail = format!(
            "{what}: no answer within {} s; whether it was done is not known",
            patience.as_secs()
        );
        STORE_UNAVAILABLE.with(detail).retry(Some(RETRY_AFTER))
    }

    pub(crate) fn failed(detail: &str) -> Self {
        FAILED.with(detail)
    }

    fn about(mut self, id: &CallId) -> Self {
        self.call = Some(id.to_string().into());
        self
    }

    fn retry(mut self, after: Option<Duration>) -> Self {
        self.retryable = true;
        // Never earlier than asked, and never "now".
        self.retry_after = after.map(|after| {
            u32::try_from((after.as_secs() + u64::from(after.subsec_nanos() > 0)).max(1)).unwrap_or(u32::MAX)
        });
        self
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::Corrupt => FAILED.with(error.to_string()),
            _ => STORE_UNAVAILABLE.with(error.to_string()).retry(Some(RETRY_AFTER)),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self).expect("a struct of strings and numbers is always JSON");
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, json).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"exactly\""),
            );
        }
        response
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}
