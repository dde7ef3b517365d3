//! Reading what a server says of an answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, StatusCode, header};
use serde_json::Value;

use crate::clock::{Clock as _, WallClock};
use crate::retry::{Code, Expiry, Heard, KeyWord, retry_after};

/// How much of an answer is searched for a problem's members; a refusal that is longer is content, not an explanation.
pub(super) const PROBLEM_BYTES_MAX: usize = 64 * 1024;

const STATUS: HeaderName = HeaderName::from_static("idempotency-status");
const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
const RETRYABLE: HeaderName = HeaderName::from_static("idempotency-retryable");
/// Stripe's words for the same things.
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");
/// Where services that answer with an envelope of their own may put their code.
const ERROR_CODES: [HeaderName; 2] = [
    HeaderName::from_static("error-code"),
    HeaderName::from_static("error_code"),
];

/// What an answer tells, and its code as it was written.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) heard: Heard,
    pub(super) code: Option<String>,
}

impl Told {
    /// Reads the head of an answer.
    pub(super) fn head(status: StatusCode, headers: &HeaderMap) -> Self {
        Self::at(
            status,
            headers,
            UNIX_EPOCH + Duration::from_millis(WallClock.now().as_millis()),
        )
    }

    fn at(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Self {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let date = text(&header::DATE);
        let code = ERROR_CODES.iter().find_map(text).map(str::to_owned);
        let heard = Heard {
            status: status.as_u16(),
            code: code.as_deref().and_then(Code::of),
            retryable: text(&RETRYABLE)
                .and_then(truth)
                .or_else(|| text(&STRIPE_SHOULD_RETRY).and_then(truth)),
            key: text(&STATUS)
                .and_then(key_word)
                .or_else(|| (text(&IDEMPOTENT_REPLAYED).and_then(truth) == Some(true)).then_some(KeyWord::Replayed)),
            retry_after: text(&header::RETRY_AFTER).and_then(|value| retry_after(value, date, now)),
            expires: text(&EXPIRES).and_then(|value| expiry(value, date, now)),
        };
        Self { heard, code }
    }

    /// Whether the body may explain a refusal.
    pub(super) fn is_explained(&self, headers: &HeaderMap) -> bool {
        self.heard.status >= 300 && is_json(headers)
    }

    /// Takes in what the body says. A header that said it already has the last word.
    pub(super) fn explain(&mut self, body: &[u8]) {
        let Ok(Value::Object(problem)) = serde_json::from_slice(body) else {
            return;
        };
        if let Some(code) = problem.get("code").and_then(Value::as_str) {
            self.heard.code = Code::of(code);
            self.code = Some(code.to_owned());
        }
        let heard = &mut self.heard;
        heard.retryable = heard
            .retryable
            .or_else(|| problem.get("retryable").and_then(Value::as_bool));
        let after = || {
            problem
                .get("retryAfter")
                .and_then(Value::as_u64)
                .map(Duration::from_secs)
        };
        heard.retry_after = heard.retry_after.or_else(after);
    }
}

fn truth(text: &str) -> Option<bool> {
    text.trim().parse().ok()
}

fn key_word(text: &str) -> Option<KeyWord> {
    match text.trim() {
        "stored" => Some(KeyWord::Stored),
        "replayed" => Some(KeyWord::Replayed),
        "freed" => Some(KeyWord::Freed),
        "unknown" => Some(KeyWord::Unknown),
        _ => None,
    }
}

fn expiry(text: &str, date: Option<&str>, now: SystemTime) -> Option<Expiry> {
    if text.trim() == "never" {
        return Some(Expiry::Never);
    }
    // A bare number is a `Retry-After`, not a date.
    let is_date = text.contains(' ');
    let left = is_date.then(|| retry_after(text, date, now)).flatten()?;
    Some(Expiry::In(left))
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}
