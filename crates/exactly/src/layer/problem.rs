//! Refusals, as problem details (RFC 9457).
//!
//! Only this module and the policies' presets pick the status codes of the layer. Every problem has a stable `type`, a
//! stable `code` for programs, and says whether repeating the request can help.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::{Serialize, Serializer};

use super::body::Body;
use super::policy::Policy;
use crate::CallId;
use crate::key::InvalidKey;

/// How a refusal looks on the wire. The default is `application/problem+json`; give the layer another function to wrap
/// it in an envelope of your own.
pub type Renderer = dyn Fn(&Problem) -> Response<Body> + Send + Sync;

/// Why a request was not carried out, or its answer cannot be shown.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// A stable name of the kind of problem.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The same in words.
    pub title: &'static str,
    /// The status it is answered with.
    #[serde(serialize_with = "as_number")]
    pub status: StatusCode,
    /// What programs decide by.
    pub code: &'static str,
    /// What happened to this request, and what to do.
    pub detail: String,
    /// Whether the same request with the same key may be answered otherwise later.
    pub retryable: bool,
    /// When to try again, in seconds.
    #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The call that it is about, where a person may have to settle it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Where it is settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle: Option<String>,
    /// The status of an answer that was not kept.
    #[serde(rename = "answeredStatus", skip_serializing_if = "Option::is_none")]
    pub answered_status: Option<u16>,
}

/// What the layer refuses, before it is put into words.
#[derive(Debug)]
pub(super) enum Refusal<'a> {
    KeyMissing,
    KeyInvalid(InvalidKey),
    Mismatch,
    InProgress {
        retry_after: Duration,
    },
    InDoubt {
        id: &'a CallId,
        settle: Option<String>,
    },
    /// The effect ended in a way that nobody saw; the store may learn it yet.
    Unknown {
        id: &'a CallId,
        settle: Option<String>,
    },
    /// The same without a key, so that nobody will ever learn it.
    CommitUnknown,
    ReplayUnavailable {
        status: Option<StatusCode>,
    },
    StoreUnavailable,
    BodyTooLarge {
        max: usize,
    },
    BodyUnreadable,
    BodyLate {
        within: Duration,
    },
    /// Too much is held for others.
    Overloaded,
    NoPrincipal,
    /// The handler panicked, and nobody knows what it did.
    HandlerFailed {
        id: &'a CallId,
        settle: Option<String>,
    },
    /// The same, and it was undone.
    RolledBack,
    /// No answer came, and none of what was done can be committed any more.
    FencedOut,
    /// The handler failed, and may be run again.
    Rerunnable,
    /// The record knows what came of it, and cannot be asked.
    Unsettled,
    TransactionWithheld,
}

/// How soon to try again when nothing better is known.
pub(super) const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// A kind of problem, in words.
struct Kind {
    urn: &'static str,
    code: &'static str,
    title: &'static str,
    detail: &'static str,
}

const KEY_REQUIRED: Kind = Kind {
    urn: "urn:exactly:problem:key-required",
    code: "IDEMPOTENCY_KEY_REQUIRED",
    title: "An idempotency key is required",
    detail: "send an Idempotency-Key header that is unique to this operation, and keep it on retries",
};
const KEY_INVALID: Kind = Kind {
    urn: "urn:exactly:problem:key-invalid",
    code: "IDEMPOTENCY_KEY_INVALID",
    title: "The idempotency key is malformed",
    detail: "",
};
const PAYLOAD_MISMATCH: Kind = Kind {
    urn: "urn:exactly:problem:payload-mismatch",
    code: "CONFLICT.idempotency.payload_mismatch",
    title: "The idempotency key was used for another request",
    detail: "this key belongs to a request with other content; use a new key for a new operation",
};
const IN_PROGRESS: Kind = Kind {
    urn: "urn:exactly:problem:in-progress",
    code: "CONFLICT.idempotency.in_progress",
    title: "The first request with this key is still running",
    detail: "repeat the request later to get its answer",
};
const IN_DOUBT: Kind = Kind {
    urn: "urn:exactly:problem:outcome-unknown",
    code: "OUTCOME.unknown",
    title: "It is not known whether this operation happened",
    detail: "an attempt was lost on the way; it is not run again until its outcome is known or someone settles the call",
};
const UNKNOWN: Kind = Kind {
    detail: "its outcome could not be stored; repeat the request with the same key to learn it",
    ..IN_DOUBT
};
const COMMIT_UNKNOWN: Kind = Kind {
    detail: "the database did not say whether it committed; find out before you repeat a request that has no key",
    ..IN_DOUBT
};
const REPLAY_UNAVAILABLE: Kind = Kind {
    urn: "urn:exactly:problem:replay-unavailable",
    code: "OUTCOME.replay_unavailable",
    title: "The operation happened, but its answer cannot be shown again",
    detail: "the answer was too large or too secret to keep; the operation is not run again",
};
const STORE_UNAVAILABLE: Kind = Kind {
    urn: "urn:exactly:problem:store-unavailable",
    code: "DEPENDENCY.unavailable",
    title: "The idempotency store cannot answer",
    detail: "nothing was done; repeat the request later",
};
const BODY_TOO_LARGE: Kind = Kind {
    urn: "urn:exactly:problem:body-too-large",
    code: "VALIDATION.body_too_large",
    title: "The request body is too large",
    detail: "",
};
const BODY_UNREADABLE: Kind = Kind {
    urn: "urn:exactly:problem:body-unreadable",
    code: "VALIDATION.body_unreadable",
    title: "The request body ended early",
    detail: "the body could not be read to its end; nothing was done",
};
const BODY_LATE: Kind = Kind {
    title: "The request body took too long",
    ..BODY_UNREADABLE
};
const NO_PRINCIPAL: Kind = Kind {
    urn: "urn:exactly:problem:no-principal",
    code: "AUTH.principal_missing",
    title: "The caller is not known",
    detail: "a key belongs to an authenticated caller, and this request has none",
};
const HANDLER_FAILED: Kind = Kind {
    urn: "urn:exactly:problem:handler-failed",
    code: "OUTCOME.unknown",
    title: "The handler failed without an answer",
    detail: "whether the operation happened is not known",
};
const ROLLED_BACK: Kind = Kind {
    code: "TRANSIENT.handler_failed",
    detail: "nothing happened; a repetition runs it again",
    ..HANDLER_FAILED
};
const RERUNNABLE: Kind = Kind {
    detail: "whether the operation happened is not known; a repetition runs it again",
    ..ROLLED_BACK
};
const UNSETTLED: Kind = Kind {
    detail: "what came of the operation could not be read; repeat the request with the same key to learn it",
    ..IN_DOUBT
};
const OVERLOADED: Kind = Kind {
    urn: "urn:exactly:problem:overloaded",
    code: "TRANSIENT.overloaded",
    title: "Too many large requests at once",
    detail: "nothing was done: repeat the request with the same key",
};
const TRANSACTION_WITHHELD: Kind = Kind {
    urn: "urn:exactly:problem:transaction-withheld",
    code: "TRANSIENT.transaction_withheld",
    title: "The handler did not give its transaction back",
    detail: "nothing was committed; a handler must drop its transaction before it answers",
};

impl Refusal<'_> {
    pub(super) fn problem(self, policy: &Policy) -> Problem {
        const FAILED: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
        match self {
            Self::KeyMissing => KEY_REQUIRED.at(policy.statuses.key_missing),
            Self::KeyInvalid(invalid) => KEY_INVALID.at(policy.statuses.key_invalid).detail(invalid.to_string()),
            Self::Mismatch => PAYLOAD_MISMATCH.at(policy.statuses.mismatch),
            Self::InProgress { retry_after } => IN_PROGRESS.at(StatusCode::CONFLICT).retry(Some(retry_after)),
            Self::InDoubt { id, settle } => IN_DOUBT.at(StatusCode::CONFLICT).about(id, settle),
            Self::Unknown { id, settle } => {
                let problem = UNKNOWN.at(StatusCode::CONFLICT).about(id, settle);
                problem.retry(Some(RETRY_AFTER_DEFAULT))
            }
            Self::CommitUnknown => COMMIT_UNKNOWN.at(StatusCode::CONFLICT),
            Self::ReplayUnavailable { status } => {
                let answered_status = status.map(|status| status.as_u16());
                Problem {
                    answered_status,
                    ..REPLAY_UNAVAILABLE.at(StatusCode::CONFLICT)
                }
            }
            Self::StoreUnavailable => STORE_UNAVAILABLE
                .at(StatusCode::SERVICE_UNAVAILABLE)
                .retry(Some(RETRY_AFTER_DEFAULT)),
            Self::BodyTooLarge { max } => BODY_TOO_LARGE.at(StatusCode::PAYLOAD_TOO_LARGE).detail(format!(
                "a request with an idempotency key may have at most {max} bytes"
            )),
            Self::BodyUnreadable => BODY_UNREADABLE.at(StatusCode::BAD_REQUEST).retry(None),
            Self::BodyLate { within } => BODY_LATE
                .at(StatusCode::REQUEST_TIMEOUT)
                .detail(format!("the body did not come within {within:?}; nothing was done"))
                .retry(None),
            Self::Overloaded => OVERLOADED
                .at(StatusCode::SERVICE_UNAVAILABLE)
                .retry(Some(RETRY_AFTER_DEFAULT)),
            Self::NoPrincipal => NO_PRINCIPAL.at(StatusCode::UNAUTHORIZED),
            Self::HandlerFailed { id, settle } => HANDLER_FAILED.at(FAILED).about(id, settle),
            Self::RolledBack => ROLLED_BACK.at(FAILED).retry(None),
            Self::FencedOut => ROLLED_BACK
                .at(StatusCode::SERVICE_UNAVAILABLE)
                .retry(Some(RETRY_AFTER_DEFAULT)),
            Self::Rerunnable => RERUNNABLE.at(FAILED).retry(None),
            Self::Unsettled => UNSETTLED
                .at(StatusCode::SERVICE_UNAVAILABLE)
                .retry(Some(RETRY_AFTER_DEFAULT)),
            Self::TransactionWithheld => TRANSACTION_WITHHELD.at(FAILED),
        }
    }
}

impl Kind {
    fn at(&self, status: StatusCode) -> Problem {
        Problem {
            kind: self.urn,
            title: self.title,
            status,
            code: self.code,
            detail: self.detail.to_owned(),
            retryable: false,
            retry_after: None,
            call: None,
            settle: None,
            answered_status: None,
        }
    }
}

impl Problem {
    fn detail(mut self, detail: String) -> Self {
        self.detail = detail;
        self
    }

    fn about(mut self, id: &CallId, settle: Option<String>) -> Self {
        self.call = Some(id.to_string());
        self.settle = settle;
        self
    }

    fn retry(mut self, after: Option<Duration>) -> Self {
        self.retryable = true;
        self.retry_after = after.map(whole_seconds);
        self
    }

    /// The problem as `application/problem+json`.
    pub fn to_response(&self) -> Response<Body> {
        let json = serde_json::to_vec(self).expect("a struct of strings and numbers is always JSON");
        let mut response = Response::new(Body::from(Bytes::from(json)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response
    }
}

/// The renderer in force.
#[derive(Clone)]
pub(super) struct Render(Arc<Renderer>);

impl Render {
    pub(super) fn new(renderer: Arc<Renderer>) -> Self {
        Self(renderer)
    }

    pub(super) fn render(&self, problem: &Problem) -> Response<Body> {
        let mut response = (self.0)(problem);
        if let Some(seconds) = problem.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(settle) = problem.settle.as_deref().and_then(link_header) {
            response.headers_mut().append(header::LINK, settle);
        }
        response
    }
}

impl Default for Render {
    fn default() -> Self {
        Self(Arc::new(Problem::to_response))
    }
}

impl fmt::Debug for Render {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Render(…)")
    }
}

/// The `Link` to where a call is settled.
pub(super) fn link_header(link: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("<{link}>; rel=\"settle\"")).ok()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn as_number<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

/// Never earlier than asked, and never "now".
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0 || duration.is_zero())
}
