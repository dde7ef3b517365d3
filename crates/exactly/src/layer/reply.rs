//! What the layer adds to an answer.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::header::ACCESS_CONTROL_EXPOSE_HEADERS;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::answer::{self, Stored};
use super::body::Body;
use super::exchange::Answer;
use super::policy::Policy;
use super::problem::Refusal;
use super::{Shared, log};
use crate::clock::{Clock, WallClock};
use crate::{Call, CallId, Keep, Replay, StoreError, Verdict, telemetry};

/// Says what became of the key: `stored`, `replayed`, `freed` (nothing happened, a retry runs) or `unknown`.
pub const IDEMPOTENCY_STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// Says until when the key stands for this operation, as an HTTP date, or `never`. Past it, the same key is a new
/// operation.
pub const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// `false` on a stored failure: repeating the request gives the same answer for as long as the key is kept.
pub const IDEMPOTENCY_RETRYABLE: HeaderName = HeaderName::from_static("idempotency-retryable");

/// Put into a response's extensions, says that the handler did nothing: the key is freed, whatever the status is.
///
/// With the `axum` feature, return it as a part of the response: `(NothingHappened, StatusCode::CONFLICT)`.
#[derive(Clone, Copy, Debug)]
pub struct NothingHappened;

/// Put into a response's extensions, says that nobody knows what the handler did, whatever the status is: the key is held
/// in doubt, and the client is told so instead of being shown the response.
///
/// For handlers that pass the work on, and whose connection broke before the answer came.
#[derive(Clone, Copy, Debug)]
pub struct OutcomeUnknown;

/// What became of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyStatus {
    Stored,
    Replayed,
    Freed,
    Unknown,
}

impl KeyStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Replayed => "replayed",
            Self::Freed => "freed",
            Self::Unknown => "unknown",
        }
    }
}

/// Adds what every keyed answer tells; `keep` is how long the key stands from now on, if it does.
pub(super) fn label(mut response: Response<Body>, status: KeyStatus, keep: Option<Keep>) -> Response<Body> {
    let failed = response.status().is_server_error();
    let headers = response.headers_mut();
    headers.insert(IDEMPOTENCY_STATUS, HeaderValue::from_static(status.as_str()));
    if failed && matches!(status, KeyStatus::Stored | KeyStatus::Replayed) {
        headers.insert(IDEMPOTENCY_RETRYABLE, HeaderValue::from_static("false"));
    }
    if let Some(keep) = keep {
        headers.insert(IDEMPOTENCY_EXPIRES, expires(keep));
    }
    response
}

/// Lets scripts in browsers read what the layer adds.
pub(super) fn expose(mut response: Response<Body>) -> Response<Body> {
    const EXPOSED: HeaderValue =
        HeaderValue::from_static("idempotency-status, idempotency-expires, idempotency-retryable, retry-after, link");
    response.headers_mut().append(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    response
}

fn expires(keep: Keep) -> HeaderValue {
    // The last second that an HTTP date can name.
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    let Keep::For(keep) = keep else {
        return HeaderValue::from_static("never");
    };
    let at = Duration::from_millis(WallClock.now().after(keep).as_millis()).min(LAST);
    HeaderValue::from_str(&httpdate::fmt_http_date(UNIX_EPOCH + at)).expect("an HTTP date is visible ASCII")
}

impl Shared {
    /// The answer to a call that is not to run.
    pub(super) fn told(&self, policy: &Policy, call: &Call, verdict: Verdict) -> Response<Body> {
        let (refusal, keep) = match verdict {
            Verdict::Replay(replay) => return self.replay(policy, call, replay),
            Verdict::Run(_) => unreachable!("a call that is to run is not told about"),
            Verdict::Mismatch { expires_in } => {
                telemetry::count(telemetry::KEY_REUSE_CONFLICT);
                telemetry::conflict("payload_mismatch");
                (Refusal::Mismatch, expires_in.map(Keep::For))
            }
            Verdict::InFlight { retry_after } => {
                telemetry::conflict("in_progress");
                (Refusal::InProgress { retry_after }, None)
            }
            Verdict::InDoubt(_) => {
                telemetry::conflict("in_doubt");
                let settle = self.settle_link(call.id());
                (Refusal::InDoubt { id: call.id(), settle }, None)
            }
        };
        // Retention starts when the outcome is stored, so it cannot end sooner than this.
        self.refuse_keyed(policy, call, refusal, Some(keep.unwrap_or(policy.keep)))
    }

    pub(super) fn refuse(&self, policy: &Policy, refusal: Refusal<'_>) -> Response<Body> {
        let problem = refusal.problem(policy);
        log::refused_without_call(&problem);
        self.render.render(&problem)
    }

    pub(super) fn refuse_keyed(
        &self,
        policy: &Policy,
        call: &Call,
        refusal: Refusal<'_>,
        keep: Option<Keep>,
    ) -> Response<Body> {
        let problem = refusal.problem(policy);
        log::refused(call, &problem);
        let mut response = self.render.render(&problem);
        if let Some(keep) = keep {
            response.headers_mut().insert(IDEMPOTENCY_EXPIRES, expires(keep));
        }
        response
    }

    /// The answer to a call whose outcome could not be stored.
    pub(super) fn unknown(&self, policy: &Policy, call: &Call) -> Response<Body> {
        telemetry::count(telemetry::IN_DOUBT);
        let (id, settle) = (call.id(), self.settle_link(call.id()));
        self.refuse_keyed(policy, call, Refusal::Unknown { id, settle }, Some(policy.keep))
    }

    /// Where the call is settled, if anywhere.
    pub(super) fn settle_link(&self, id: &CallId) -> Option<String> {
        self.settle_link.as_deref().map(|prefix| format!("{prefix}{id}"))
    }

    pub(super) fn unavailable(&self, policy: &Policy, call: &Call, error: &StoreError) -> Response<Body> {
        telemetry::count(telemetry::STORE_UNAVAILABLE);
        let operation = call.scope().operation();
        tracing::error!(key = %call.key().digest(), operation, call = %call.id(), %error, "call turned away");
        self.refuse_keyed(policy, call, Refusal::StoreUnavailable, None)
    }

    fn replay(&self, policy: &Policy, call: &Call, replay: Replay) -> Response<Body> {
        telemetry::count(telemetry::CACHE_HIT);
        let keep = replay.expires_in.map_or(Keep::Forever, Keep::For);
        match stored(policy, call, replay.outcome) {
            Ok(response) => {
                telemetry::count(telemetry::REPLAYED);
                log::replayed(call, response.status());
                label(response, KeyStatus::Replayed, Some(keep))
            }
            Err(status) => self.refuse_keyed(policy, call, Refusal::ReplayUnavailable { status }, Some(keep)),
        }
    }

    /// The answer to the request whose upstream has stored an answer itself. `came` is what the upstream sent, if that
    /// came through.
    pub(super) fn stored_by_upstream(
        &self,
        policy: &Policy,
        call: &Call,
        replay: Replay,
        came: Option<Answer>,
    ) -> Response<Body> {
        telemetry::count(telemetry::CREATED);
        let keep = replay.expires_in.map_or(Keep::Forever, Keep::For);
        match (stored(policy, call, replay.outcome), came) {
            (Ok(response), _) => label(response, KeyStatus::Stored, Some(keep)),
            // Of an answer that is not kept the first caller has the only copy.
            (Err(Some(status)), Some(answer)) if answer.parts.status == status => {
                label(answer.into_response(), KeyStatus::Stored, Some(keep))
            }
            (Err(status), _) => self.refuse_keyed(policy, call, Refusal::ReplayUnavailable { status }, Some(keep)),
        }
    }
}

/// The answer that was stored, or at least its status.
fn stored(policy: &Policy, call: &Call, outcome: Bytes) -> Result<Response<Body>, Option<StatusCode>> {
    match answer::decode(policy, call.id(), outcome) {
        Ok(Stored::Whole(response)) => Ok(response),
        Ok(Stored::NotKept(status)) => Err(Some(status)),
        Err(answer::Unreadable) => {
            let operation = call.scope().operation();
            tracing::error!(key = %call.key().digest(), operation, call = %call.id(), "stored answer cannot be read");
            Err(None)
        }
    }
}
