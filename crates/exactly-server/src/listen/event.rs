//! What came in, as it is printed.

use std::fmt::Write as _;

use exactly::webhook::Verified;
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::admin::input::rfc3339;
use crate::calls::plain;

/// A request, and what was answered.
#[derive(Debug, Serialize)]
pub(super) struct Heard<'a> {
    verified: bool,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    /// When it was signed, if the signature says.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_at: Option<String>,
    /// It came before.
    again: bool,
    /// What was answered.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
    /// The body, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_text: Option<String>,
}

impl<'a> Heard<'a> {
    pub(super) fn new(path: &'a str, verified: &'a Verified, body: &'a [u8], again: bool, status: StatusCode) -> Self {
        let json: Option<&RawValue> = serde_json::from_slice(body).ok();
        Self {
            verified: true,
            path,
            id: Some(&verified.event_id),
            event_type: json.and_then(type_of),
            signed_at: verified.timestamp.map(rfc3339),
            again,
            status: status.as_u16(),
            reason: None,
            body: json,
            body_text: json.is_none().then(|| String::from_utf8_lossy(body).into_owned()),
        }
    }

    /// Nothing of it is shown but why: it may be from anybody.
    pub(super) fn refused(path: &'a str, status: StatusCode, why: &'a str) -> Self {
        Self {
            verified: false,
            path,
            id: None,
            event_type: None,
            signed_at: None,
            again: false,
            status: status.as_u16(),
            reason: Some(why),
            body: None,
            body_text: None,
        }
    }

    /// One line of JSON, or some for people.
    pub(super) fn shown(&self, json: bool) -> String {
        if json {
            return serde_json::to_string(self).unwrap_or_default();
        }
        let mut text = match self.id {
            Some(id) => format!("{id}  {}", self.event_type.as_deref().unwrap_or("-")),
            None => "refused".to_owned(),
        };
        let again = if self.again { ", came before" } else { "" };
        let _ = write!(text, "  (answered {}{again})", self.status);
        let mut text = plain(&text);
        let body = self.body.map(RawValue::get).or(self.body_text.as_deref());
        for more in [self.reason, body].into_iter().flatten() {
            let _ = write!(text, "\n  {}", plain(more));
        }
        text
    }
}

/// What each of the three calls it; GitHub's is in a header, and its events have an `action` at most.
fn type_of(body: &RawValue) -> Option<String> {
    let body: serde_json::Value = serde_json::from_str(body.get()).ok()?;
    let found = ["eventType", "type", "action"]
        .iter()
        .find_map(|name| body.get(name)?.as_str());
    found.map(str::to_owned)
}
