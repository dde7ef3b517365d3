//! Exchanges as they may be shown: without anybody's credentials.

use std::fmt;

use super::super::answer::Answer;
use super::super::request::{Line, Request};
use super::super::trial::{Came, Seen, told};

const REDACTED: &str = "[redacted]";
/// The longest body that is shown.
const BODY_SHOWN: usize = 2048;
/// A credential shorter than this is taken out of its header only: anywhere else it would be half of all words.
const SECRET_MIN: usize = 6;

/// Takes credentials out of what is shown.
#[derive(Clone, Default)]
pub(in super::super) struct Redact {
    secrets: Vec<String>,
}

/// A message, line by line.
#[derive(Debug)]
pub(super) struct Message {
    /// `POST /payments`, or `201`.
    pub(super) line: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Redact {
    /// Knows the credentials in these lines.
    pub(in super::super) fn new<'l>(lines: impl IntoIterator<Item = &'l Line>) -> Self {
        let mut secrets: Vec<String> = lines
            .into_iter()
            .flat_map(|line| {
                let value = String::from_utf8_lossy(&line.value).into_owned();
                // The token of `Bearer token` alone is as good.
                let token = value.rsplit(' ').next().unwrap_or_default().to_owned();
                [value, token]
            })
            .filter(|secret| secret.len() >= SECRET_MIN)
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self { secrets }
    }

    pub(super) fn request(&self, request: &Request) -> Message {
        let headers = request.lines().iter().map(|line| {
            let value = if line.is_secret {
                REDACTED.to_owned()
            } else {
                self.text(&line.value)
            };
            (line.name.clone(), value)
        });
        Message {
            line: format!("{} {}", request.method, self.text(request.target().as_bytes())),
            headers: headers.collect(),
            body: self.body(&request.body),
        }
    }

    pub(super) fn answer(&self, answer: &Answer) -> Message {
        let headers = answer.headers.iter().map(|(name, value)| {
            let value = match name.as_str() {
                "set-cookie" => cookie(&self.text(value)),
                _ => self.text(value),
            };
            (name.clone(), value)
        });
        let cut = if answer.is_whole { "" } else { " (broken off)" };
        Message {
            line: format!("{}{cut}", answer.status),
            headers: headers.collect(),
            body: self.body(&answer.body),
        }
    }

    /// An exchange on one line.
    pub(super) fn brief(&self, seen: &Seen) -> String {
        let request = self.request(&seen.request).line;
        match &seen.came {
            Came::Answer(answer) => format!("{request} → {}", told(answer)),
            Came::Lost(lost) => format!("{request} → {lost}"),
            Came::HungUp => format!("{request} → hung up"),
        }
    }

    pub(super) fn text(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let text = self
            .secrets
            .iter()
            .fold(text, |text, secret| text.replace(secret, REDACTED));
        text.chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect()
    }

    fn body(&self, bytes: &[u8]) -> String {
        let end = bytes.len().min(BODY_SHOWN);
        let text = self.text(&bytes[..end]);
        match bytes.len() - end {
            0 => text,
            more => format!("{text}… {more} more bytes"),
        }
    }
}

/// Its name tells enough.
fn cookie(text: &str) -> String {
    let name = text.split('=').next().unwrap_or_default();
    format!("{name}={REDACTED}")
}

impl fmt::Debug for Redact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redact(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_shown_nowhere() {
        let secret = Line {
            is_secret: true,
            ..Line::new("Authorization", "Bearer s3cr3t-token")
        };
        let redact = Redact::new([&secret]);
        let request = Request::new("POST", "/pay?access=s3cr3t-token", "t")
            .secrets(&[secret])
            .body("you are s3cr3t-token");
        let answer = Answer {
            status: 201,
            headers: vec![("set-cookie".to_owned(), b"session=abc; HttpOnly".to_vec())],
            body: "hello Bearer s3cr3t-token".into(),
            is_whole: true,
        };
        let shown = format!("{:?} {:?}", redact.request(&request), redact.answer(&answer));
        assert!(!shown.contains("s3cr3t"), "{shown}");
        assert!(!shown.contains("abc"), "{shown}");
        assert!(shown.contains("session=[redacted]"), "{shown}");
    }
}
