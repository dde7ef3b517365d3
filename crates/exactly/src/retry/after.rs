//! `Retry-After`, in both its forms.

use std::time::{Duration, SystemTime};

/// How long to wait by a `Retry-After` value: whole seconds, or any of the three forms of an HTTP date.
///
/// A date is on the server's clock, so it is taken relative to `date`, the same answer's `Date`; without one, to `now`. A
/// date that has passed means no wait. `None`: the value is neither, and says nothing.
pub fn retry_after(value: &str, date: Option<&str>, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are still a very long wait, not an absent one.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    until(value, date, now)
}

/// How long until an HTTP date of an answer, by the clock that wrote it.
pub(super) fn until(value: &str, date: Option<&str>, now: SystemTime) -> Option<Duration> {
    let at = httpdate::parse_http_date(value.trim()).ok()?;
    let from = date
        .and_then(|date| httpdate::parse_http_date(date.trim()).ok())
        .unwrap_or(now);
    Some(at.duration_since(from).unwrap_or_default())
}
