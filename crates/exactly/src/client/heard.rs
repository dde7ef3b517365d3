//! Reading what a server says of an answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::error::{Error, ErrorKind};
use crate::clock::{Clock as _, WallClock};
use crate::retry::{Code, Ended, Expiry, Heard, KeyWord, retry_after};

/// How much of an answer is searched for a problem's members; a refusal that is longer is content, not an explanation.
pub(super) const PROBLEM_BYTES_MAX: usize = 64 * 1024;

/// What some writers of UTF-8 begin with.
const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// The first line of each header that means something here, found in one pass: there are fewer headers in an answer than
/// names to look for.
#[derive(Default)]
struct Lines<'a> {
    status: Option<&'a str>,
    expires: Option<&'a str>,
    retryable: Option<&'a str>,
    /// Stripe's words for the same things.
    replayed: Option<&'a str>,
    should_retry: Option<&'a str>,
    /// All of them: a second one is never undercut for the sake of the first.
    retry_after: Vec<&'a str>,
    date: Option<&'a str>,
    /// Where services that answer with an envelope of their own may put their code.
    code: Option<&'a str>,
}

impl<'a> Lines<'a> {
    fn find(headers: &'a HeaderMap) -> Self {
        let mut lines = Self::default();
        for (name, value) in headers {
            let line = match name.as_str() {
                "idempotency-status" => &mut lines.status,
                "idempotency-expires" => &mut lines.expires,
                "idempotency-retryable" => &mut lines.retryable,
                "idempotent-replayed" => &mut lines.replayed,
                "stripe-should-retry" => &mut lines.should_retry,
                "retry-after" => {
                    lines.retry_after.extend(value.to_str());
                    continue;
                }
                "date" => &mut lines.date,
                "error-code" | "error_code" => &mut lines.code,
                _ => continue,
            };
            if line.is_none() {
                *line = value.to_str().ok();
            }
        }
        lines
    }
}

/// What an answer tells, and its code as it was written.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) heard: Heard,
    pub(super) code: Option<String>,
}

impl Told {
    /// Reads the head of an answer.
    /// Most answers tell nothing that takes a clock to understand, so `now` is asked only for those that do.
    pub(super) fn head(status: StatusCode, headers: &HeaderMap, now: impl Fn() -> SystemTime) -> Self {
        let lines = Lines::find(headers);
        let code = lines.code.map(str::trim);
        let heard = Heard {
            status: status.as_u16(),
            code: code.and_then(Code::of),
            retryable: lines
                .retryable
                .and_then(truth)
                .or_else(|| lines.should_retry.and_then(truth)),
            key: lines.status.and_then(key_word).or_else(|| {
                let is_replayed = lines.replayed.and_then(truth) == Some(true);
                is_replayed.then_some(KeyWord::Replayed)
            }),
            retry_after: lines
                .retry_after
                .iter()
                .filter_map(|value| retry_after(value, lines.date, now()))
                .max(),
            expires: lines.expires.and_then(|value| expiry(value, lines.date, now())),
        };
        Self {
            heard,
            code: code.map(str::to_owned),
        }
    }

    /// Whether the body may explain a refusal.
    pub(super) fn is_explained(&self, headers: &HeaderMap) -> bool {
        self.heard.status >= 300 && is_json(headers)
    }

    /// Whether a body that came whole can be understood: it is short enough, and not in a coding that nobody asked for.
    pub(super) fn is_legible(headers: &HeaderMap, bytes: usize) -> bool {
        let is_coded = headers
            .get_all(header::CONTENT_ENCODING)
            .iter()
            .any(|coding| coding != "identity");
        bytes <= PROBLEM_BYTES_MAX && !is_coded
    }

    /// How far an attempt with this answer came. What a refusal says in a part that was not understood may be that it had
    /// happened before.
    pub(super) fn ended(&self, is_understood: bool) -> Ended {
        let heard = self.heard.clone();
        if is_understood {
            Ended::Answered(heard)
        } else {
            Ended::CutOff(heard)
        }
    }

    /// Takes in what the body says. A header that said it already has the last word.
    pub(super) fn explain(&mut self, body: &[u8]) {
        let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        let Ok(Value::Object(problem)) = serde_json::from_slice(body) else {
            return;
        };
        if let Some(code) = problem.get("code").and_then(Value::as_str)
            && self.heard.code.is_none()
        {
            self.heard.code = Code::of(code);
            self.code = Some(code.to_owned());
        }
        let heard = &mut self.heard;
        heard.retryable = heard
            .retryable
            .or_else(|| problem.get("retryable").and_then(Value::as_bool));
        let after = || problem.get("retryAfter").and_then(Value::as_f64).and_then(seconds);
        heard.retry_after = heard.retry_after.or_else(after);
    }
}

/// The wall clock, for dates of servers that do not tell theirs.
pub(super) fn wall() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(WallClock.now().as_millis())
}

/// A refusal that cannot be read.
pub(super) fn illegible() -> Error {
    Error::new(
        ErrorKind::Broken,
        "the refusal is too long, or in a coding that nobody asked for",
    )
}

/// A wait that JSON gives, up to the next millisecond: never earlier than asked.
fn seconds(seconds: f64) -> Option<Duration> {
    if seconds < 0.0 {
        return None;
    }
    // More than can be counted is still a very long wait, not an absent one.
    let asked = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let whole = Duration::new(asked.as_secs(), asked.subsec_millis() * 1_000_000);
    Some(if whole < asked {
        whole.saturating_add(Duration::from_millis(1))
    } else {
        whole
    })
}

fn truth(text: &str) -> Option<bool> {
    text.trim().to_ascii_lowercase().parse().ok()
}

fn key_word(text: &str) -> Option<KeyWord> {
    match text.trim().to_ascii_lowercase().as_str() {
        "stored" => Some(KeyWord::Stored),
        "replayed" => Some(KeyWord::Replayed),
        "freed" => Some(KeyWord::Freed),
        "unknown" => Some(KeyWord::Unknown),
        _ => None,
    }
}

fn expiry(text: &str, date: Option<&str>, now: SystemTime) -> Option<Expiry> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("never") {
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

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use serde::Deserialize;

    use super::*;

    /// Waits from here on are written as a word, because no other language counts them.
    const FOREVER_MS: u128 = 1 << 53;

    #[derive(Deserialize)]
    struct Table {
        answers: Vec<Row>,
    }

    #[derive(Deserialize)]
    struct Row {
        what: String,
        status: u16,
        headers: Vec<(String, String)>,
        body: Option<String>,
        now: u64,
        heard: Value,
    }

    fn read(row: &Row) -> Value {
        let mut headers = HeaderMap::new();
        for (name, value) in &row.headers {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let status = StatusCode::from_u16(row.status).unwrap();
        let mut told = Told::head(status, &headers, || UNIX_EPOCH + Duration::from_secs(row.now));
        if let Some(body) = &row.body
            && told.is_explained(&headers)
        {
            told.explain(body.as_bytes());
        }
        let heard = told.heard;
        assert_eq!(heard.status, row.status);
        serde_json::json!({
            "code": told.code,
            "category": heard.code.map(|code| snake(&format!("{code:?}"))),
            "retryable": heard.retryable,
            "key": heard.key.map(|key| snake(&format!("{key:?}"))),
            "retry_after_ms": heard.retry_after.map(millis),
            "expires_ms": heard.expires.map(|expires| match expires {
                Expiry::In(left) => millis(left),
                Expiry::Never => Value::from("never"),
            }),
        })
    }

    fn millis(duration: Duration) -> Value {
        match duration.as_millis() {
            FOREVER_MS.. => Value::from("forever"),
            millis => Value::from(u64::try_from(millis).expect("it is below 2^53")),
        }
    }

    fn snake(name: &str) -> String {
        let mut snake = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.push(letter.to_ascii_lowercase());
        }
        snake
    }

    #[test]
    fn answers_are_read_as_the_table_of_all_clients_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/answers.json");
        let table: Table = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(table.answers.len() >= 100);
        let wrong: Vec<_> = table
            .answers
            .iter()
            .filter(|row| read(row) != row.heard)
            .map(|row| {
                format!(
                    "{}: {:?}: {} instead of {}",
                    row.what,
                    row.headers,
                    read(row),
                    row.heard
                )
            })
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
