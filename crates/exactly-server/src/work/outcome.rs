//! What is kept of an answer.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exactly::client::Answer;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// How much of a body is kept. A job that comes to more keeps it elsewhere and answers with its address.
pub(super) const OUTCOME_BYTES_MAX: usize = 64 * 1024;

/// What of the head tells what became of the job.
const KEPT: [&str; 7] = [
    "content-type",
    "content-encoding",
    "location",
    "etag",
    "last-modified",
    "idempotency-status",
    "idempotency-expires",
];

/// The outcome of a job that was answered so.
pub(super) fn of(answer: &Answer) -> Vec<u8> {
    let headers: Map<String, Value> = KEPT
        .iter()
        .filter_map(|name| {
            let value = answer.headers().get(*name)?.to_str().ok()?;
            Some(((*name).to_owned(), Value::from(value)))
        })
        .collect();
    let mut outcome = json!({ "status": answer.status().as_u16(), "headers": headers });
    if answer.is_truncated() {
        outcome["cut"] = json!(true);
    }
    let mut text = outcome.to_string();
    if let Some((name, body)) = body(answer) {
        // As it was written, numbers and all.
        text.pop();
        let _ = write!(text, ",\"{name}\":{body}}}");
    }
    text.into_bytes()
}

/// The body as JSON text, and what it is called.
fn body(answer: &Answer) -> Option<(&'static str, String)> {
    let bytes = answer.bytes();
    if bytes.is_empty() {
        return None;
    }
    let text = match str::from_utf8(bytes) {
        Ok(text) => Some(text),
        // A letter was cut in two.
        Err(error) if answer.is_truncated() && error.error_len().is_none() => {
            str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let Some(text) = text else {
        return Some(("body_base64", Value::from(STANDARD.encode(bytes)).to_string()));
    };
    if is_json(answer) && !answer.is_truncated() && serde_json::from_str::<&RawValue>(text).is_ok() {
        return Some(("body", text.to_owned()));
    }
    Some(("body_text", Value::from(text).to_string()))
}

fn is_json(answer: &Answer) -> bool {
    let value = answer.headers().get(http::header::CONTENT_TYPE);
    let essence = value.and_then(|value| value.to_str().ok()?.split(';').next());
    essence.is_some_and(|essence| {
        let essence = essence.trim().to_ascii_lowercase();
        essence == "application/json" || essence.ends_with("+json")
    })
}
