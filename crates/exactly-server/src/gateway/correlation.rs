//! What a request is called, in the logs here and on both sides of the gateway.
//!
//! A client's `X-Request-Id` is taken over, or else the trace that its `traceparent` names; a request without either gets an
//! id of its own. Trace headers pass through as they came: the gateway is no step of the trace.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use tracing::Span;
use tracing::field::Empty;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The longest id that is taken over: log lines repeat it.
const LENGTH_MAX: usize = 128;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Names the request, so that the upstream learns the name too.
pub(super) fn name<B>(request: &mut Request<B>) -> HeaderValue {
    let headers = request.headers_mut();
    if let Some(id) = sent(headers) {
        return id.clone();
    }
    let id = traced(headers).unwrap_or_else(made);
    headers.insert(X_REQUEST_ID, id.clone());
    id
}

/// The name of a request that has one.
pub(super) fn of<B>(request: &Request<B>) -> Option<HeaderValue> {
    request.headers().get(X_REQUEST_ID).cloned()
}

/// Tells the client. An answer that names itself keeps its name.
pub(super) fn tell(id: HeaderValue, headers: &mut HeaderMap) {
    headers.entry(X_REQUEST_ID).or_insert(id);
}

/// A span around everything that is done for the request. Off unless somebody listens at `info`, and then nothing is made.
pub(super) fn span<B>(request: &Request<B>, id: &HeaderValue) -> Span {
    tracing::info_span!(
        "request",
        correlation_id = shown(id),
        method = request.method().as_str(),
        path = request.uri().path(),
        status = Empty,
    )
}

/// Says in the logs how the request was answered.
pub(super) fn close(span: &Span, status: StatusCode, took: Duration) {
    span.record("status", status.as_u16());
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(parent: span, took_ms, "answered");
}

/// An id as logs show it.
pub(super) fn shown(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

/// The client's own id, if there is one and it fits a log line.
fn sent(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(X_REQUEST_ID).iter();
    let (id, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    let fits = (1..=LENGTH_MAX).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    fits.then_some(id)
}

/// The trace's id: the second part of `00-TRACE-PARENT-FLAGS` (W3C Trace Context).
fn traced(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lines = headers.get_all(TRACEPARENT).iter();
    let (line, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    let mut parts = line.as_bytes().split(|byte| *byte == b'-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // A later version may have more parts; this one has four.
    let complete = version != b"ff" && (version != b"00" || parts.next().is_none());
    let well_formed = is_hex(version, 2) && is_name(trace, 32) && is_name(parent, 16) && is_hex(flags, 2);
    (complete && well_formed).then(|| HeaderValue::from_bytes(trace).expect("hex digits are a header"))
}

fn is_hex(part: &[u8], len: usize) -> bool {
    part.len() == len && part.iter().all(|byte| HEX.contains(byte))
}

/// Zero is nobody's name.
fn is_name(part: &[u8], len: usize) -> bool {
    is_hex(part, len) && part.iter().any(|digit| *digit != b'0')
}

/// An id that nobody else has. It is no secret, so it need not be hard to guess.
fn made() -> HeaderValue {
    let mut digits = [0; 32];
    for (pair, byte) in digits
        .as_chunks_mut::<2>()
        .0
        .iter_mut()
        .zip(fastrand::u128(..).to_be_bytes())
    {
        *pair = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]];
    }
    HeaderValue::from_bytes(&digits).expect("hex digits are a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn named(headers: &[(&str, &str)]) -> (String, HeaderMap) {
        let request = headers.iter().fold(Request::get("/"), |request, (name, value)| {
            request.header(*name, *value)
        });
        let mut request = request.body(()).unwrap();
        let id = name(&mut request);
        assert_eq!(of(&request).as_ref(), Some(&id), "the upstream is told");
        assert_eq!(request.headers().get_all(X_REQUEST_ID).iter().count(), 1);
        (shown(&id).to_owned(), request.headers().clone())
    }

    #[track_caller]
    fn is_made(headers: &[(&str, &str)]) {
        let (id, _) = named(headers);
        assert!(id.len() == 32 && id.bytes().all(|byte| HEX.contains(&byte)), "{id}");
        assert!(!headers.iter().any(|(_, value)| value.contains(&id)), "{id}");
    }

    #[test]
    fn what_a_client_calls_its_request_is_kept() {
        let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        assert_eq!(named(&[("x-request-id", "req_1/a+b=")]).0, "req_1/a+b=");
        let (id, headers) = named(&[("traceparent", &traceparent)]);
        assert_eq!(id, TRACE);
        assert_eq!(headers[TRACEPARENT], traceparent);
        assert_eq!(named(&[("x-request-id", "r1"), ("traceparent", &traceparent)]).0, "r1");
        let later = format!("01-{TRACE}-00f067aa0ba902b7-01-more");
        assert_eq!(named(&[("traceparent", &later)]).0, TRACE);
    }

    #[test]
    fn a_request_that_is_not_named_or_badly_is_given_a_name() {
        is_made(&[]);
        is_made(&[("x-request-id", "")]);
        is_made(&[("x-request-id", "two words")]);
        is_made(&[("x-request-id", &"x".repeat(129))]);
        is_made(&[("x-request-id", "one"), ("x-request-id", "two")]);
        for malformed in [
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
        ] {
            is_made(&[("traceparent", &malformed)]);
        }
        assert_ne!(named(&[]).0, named(&[]).0);
    }

    #[test]
    fn an_answer_that_names_itself_keeps_its_name() {
        let mut headers = HeaderMap::new();
        tell(HeaderValue::from_static("ours"), &mut headers);
        assert_eq!(headers[X_REQUEST_ID], "ours");
        tell(HeaderValue::from_static("another"), &mut headers);
        assert_eq!(headers[X_REQUEST_ID], "ours");
    }
}
