//! What logs are told about a call.
//!
//! Operators find a call by its key's digest, its payload's hash or its id, and never see the key. Nothing is made into text
//! unless somebody listens.

use http::StatusCode;

use super::problem::Problem;
use crate::digest::Hex;
use crate::{Attempt, Call};

/// A record went from one state to another; `status` is its answer's, if there is one.
pub(super) fn moved(call: &Call, attempt: Attempt, from: &'static str, to: &'static str, status: Option<StatusCode>) {
    tracing::debug!(
        key = %call.key().digest(),
        operation = call.scope().operation(),
        payload = %Hex(call.fingerprint().as_bytes()),
        call = %call.id(),
        attempt = attempt.get(),
        from,
        to,
        status = status.map(|status| status.as_u16()),
        "call moved"
    );
}

/// An attempt holds the lease.
pub(super) fn begun(call: &Call, attempt: Attempt) {
    let from = if attempt == Attempt::FIRST { "absent" } else { "lost" };
    moved(call, attempt, from, "in flight", None);
}

/// A finished call was asked for again and its answer is sent.
pub(super) fn replayed(call: &Call, status: StatusCode) {
    tracing::debug!(
        key = %call.key().digest(),
        operation = call.scope().operation(),
        payload = %Hex(call.fingerprint().as_bytes()),
        call = %call.id(),
        status = status.as_u16(),
        "call replayed"
    );
}

/// A request with a key is not carried out, or its outcome cannot be shown.
pub(super) fn refused(call: &Call, problem: &Problem) {
    tracing::debug!(
        key = %call.key().digest(),
        operation = call.scope().operation(),
        payload = %Hex(call.fingerprint().as_bytes()),
        call = %call.id(),
        status = problem.status.as_u16(),
        code = problem.code,
        "call refused"
    );
}

/// The same without a key, or with one that is none.
pub(super) fn refused_without_call(problem: &Problem) {
    tracing::debug!(status = problem.status.as_u16(), code = problem.code, "request refused");
}
