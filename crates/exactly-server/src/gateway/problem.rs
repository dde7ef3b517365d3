//! What the gateway itself has to say.

use exactly::layer::{Body, NothingHappened, OutcomeUnknown, Problem};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};

use super::correlation;
use crate::config::Upstream;

/// How soon to try again when an upstream cannot be reached.
const RETRY_AFTER_SECONDS: u64 = 1;

/// The refusal of a request that no gateway to a fixed upstream can carry out, or that it and the upstream could
/// understand in different ways.
pub(super) fn unsupported<B>(request: &Request<B>) -> Option<Response<Body>> {
    if request.method() == Method::CONNECT {
        let mut problem = problem(
            StatusCode::METHOD_NOT_ALLOWED,
            "urn:exactly:problem:method-not-allowed",
            "VALIDATION.method",
            "This gateway is no tunnel",
        );
        "CONNECT is not passed on; the upstream is fixed".clone_into(&mut problem.detail);
        return Some(problem.to_response());
    }
    if request.headers().get_all(header::HOST).iter().count() > 1 {
        return Some(ambiguous("it names more than one host"));
    }
    let has_path = request.uri().path_and_query().is_some();
    (!has_path).then(|| ambiguous("its target is a host without a path"))
}

fn ambiguous(why: &str) -> Response<Body> {
    let mut problem = problem(
        StatusCode::BAD_REQUEST,
        "urn:exactly:problem:request-ambiguous",
        "VALIDATION.request",
        "The request can be understood in more than one way",
    );
    why.clone_into(&mut problem.detail);
    problem.to_response()
}

/// No byte was sent: nothing happened.
pub(super) fn unreached(upstream: &Upstream, cause: &str, id: Option<&HeaderValue>) -> Response<Body> {
    let mut problem = problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "urn:exactly:problem:upstream-unavailable",
        "DEPENDENCY.unavailable",
        "The service behind the gateway cannot be reached",
    );
    let correlation_id = id.map(correlation::shown);
    tracing::warn!(%upstream, cause, code = problem.code, correlation_id, "upstream not reached; nothing was sent");
    "nothing was sent to it; repeat the request later".clone_into(&mut problem.detail);
    problem.retryable = true;
    problem.retry_after = Some(RETRY_AFTER_SECONDS);
    let mut response = problem.to_response();
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    response.extensions_mut().insert(NothingHappened);
    response
}

/// The client's body broke off on its way through. No request with a key gets here, because its body was read before.
pub(super) fn body_broken(cause: &str, sent: bool) -> Response<Body> {
    tracing::debug!(cause, "body of a request broke off");
    let mut problem = problem(
        StatusCode::BAD_REQUEST,
        "urn:exactly:problem:body-unreadable",
        "VALIDATION.body_unreadable",
        "The request body ended early",
    );
    let detail = if sent {
        "the body could not be read to its end, and some of it was passed on"
    } else {
        "the body could not be read to its end; nothing was done"
    };
    detail.clone_into(&mut problem.detail);
    problem.retryable = !sent;
    problem.to_response()
}

/// Something was sent, and no whole answer came. With a key the layer holds the call in doubt; without one, this is all
/// that the client will ever learn.
pub(super) fn broken(upstream: &Upstream, cause: &str, timed_out: bool, id: Option<&HeaderValue>) -> Response<Body> {
    let mut problem = if timed_out {
        problem(
            StatusCode::GATEWAY_TIMEOUT,
            "urn:exactly:problem:upstream-timeout",
            "DEPENDENCY.timeout",
            "The service behind the gateway did not answer in time",
        )
    } else {
        problem(
            StatusCode::BAD_GATEWAY,
            "urn:exactly:problem:upstream-broken",
            "OUTCOME.unknown",
            "The service behind the gateway broke off",
        )
    };
    let (code, correlation_id) = (problem.code, id.map(correlation::shown));
    tracing::warn!(%upstream, cause, code, correlation_id, "no answer from upstream after bytes were sent");
    "it may have carried the request out; find out before you repeat one that has no key"
        .clone_into(&mut problem.detail);
    let mut response = problem.to_response();
    response.extensions_mut().insert(OutcomeUnknown);
    response
}

fn problem(status: StatusCode, kind: &'static str, code: &'static str, title: &'static str) -> Problem {
    Problem {
        kind,
        title,
        status,
        code,
        detail: String::new(),
        retryable: false,
        retry_after: None,
        call: None,
        settle: None,
        answered_status: None,
    }
}
