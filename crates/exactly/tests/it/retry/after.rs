//! `Retry-After`, as servers write it.

use std::time::{Duration, SystemTime};

use exactly::retry::retry_after;
use proptest::prelude::*;

/// Sun, 06 Nov 1994 08:49:37 GMT, in seconds.
pub(super) const NOW: u64 = 784_111_777;

/// Longer than anybody counts: more digits than there are milliseconds.
pub(super) const FOREVER: u64 = 1 << 53;

/// `Retry-After`, `Date`, and how many milliseconds that is at [`NOW`].
pub(super) const CASES: &[(&str, Option<&str>, Option<u64>)] = &[
    ("0", None, Some(0)),
    ("1", None, Some(1000)),
    ("120", None, Some(120_000)),
    (" 120 ", None, Some(120_000)),
    ("007", None, Some(7000)),
    ("120", Some("Sun, 06 Nov 1994 08:49:07 GMT"), Some(120_000)),
    ("4294967296", None, Some(4_294_967_296_000)),
    ("18446744073709551615", None, Some(FOREVER)),
    ("18446744073709551616", None, Some(FOREVER)),
    ("99999999999999999999999999999999999999999", None, Some(FOREVER)),
    ("", None, None),
    (" ", None, None),
    ("-1", None, None),
    ("-0", None, None),
    ("+1", None, None),
    ("1.5", None, None),
    ("1.0", None, None),
    (".5", None, None),
    ("1e3", None, None),
    ("0x10", None, None),
    ("1 2", None, None),
    ("1, 2", None, None),
    ("1_000", None, None),
    ("120s", None, None),
    ("soon", None, None),
    ("NaN", None, None),
    ("Infinity", None, None),
    ("\u{663}", None, None),
    ("Sun, 06 Nov 1994 08:50:37 GMT", None, Some(60_000)),
    ("Sunday, 06-Nov-94 08:50:37 GMT", None, Some(60_000)),
    ("Sun Nov  6 08:50:37 1994", None, Some(60_000)),
    (" Sun, 06 Nov 1994 08:50:37 GMT ", None, Some(60_000)),
    ("Mon, 07 Nov 1994 08:49:37 GMT", None, Some(86_400_000)),
    ("Sat, 06 Nov 2027 08:49:37 GMT", None, Some(1_041_379_200_000)),
    ("Saturday, 06-Nov-27 08:49:37 GMT", None, Some(1_041_379_200_000)),
    ("Fri, 31 Dec 9999 23:59:59 GMT", None, Some(252_618_189_022_000)),
    ("Sun, 06 Nov 1994 08:49:37 GMT", None, Some(0)),
    ("Sun, 06 Nov 1994 08:48:37 GMT", None, Some(0)),
    ("Thu, 01 Jan 1970 00:00:00 GMT", None, Some(0)),
    (
        "Sun, 06 Nov 1994 08:50:37 GMT",
        Some("Sun, 06 Nov 1994 08:50:07 GMT"),
        Some(30_000),
    ),
    (
        "Sun, 06 Nov 1994 08:50:37 GMT",
        Some("Sunday, 06-Nov-94 08:50:07 GMT"),
        Some(30_000),
    ),
    (
        "Sun, 06 Nov 1994 08:50:37 GMT",
        Some("Sun Nov  6 08:50:07 1994"),
        Some(30_000),
    ),
    // A server whose clock is ten years behind, or ahead.
    (
        "Mon, 06 Nov 1984 08:50:37 GMT",
        Some("Tue, 06 Nov 1984 08:49:37 GMT"),
        None,
    ),
    (
        "Tue, 06 Nov 1984 08:50:37 GMT",
        Some("Tue, 06 Nov 1984 08:49:37 GMT"),
        Some(60_000),
    ),
    (
        "Sat, 06 Nov 2004 08:50:37 GMT",
        Some("Sat, 06 Nov 2004 08:49:37 GMT"),
        Some(60_000),
    ),
    (
        "Sun, 06 Nov 1994 08:50:37 GMT",
        Some("Sun, 06 Nov 1994 08:51:37 GMT"),
        Some(0),
    ),
    ("Sun, 06 Nov 1994 08:50:37 GMT", Some("yesterday"), Some(60_000)),
    ("Sun, 06 Nov 1994 08:50:37 GMT", Some(""), Some(60_000)),
    ("Sun, 06 Nov 1994 08:50:37", None, None),
    ("Sun, 06 Nov 1994 08:50:37 CET", None, None),
    ("Sun, 06 Nov 1994 08:50:37 +0000", None, None),
    ("Sun, 6 Nov 1994 08:50:37 GMT", None, None),
    ("Mon, 06 Nov 1994 08:50:37 GMT", None, None),
    ("Sun, 06 Nov 1994 25:50:37 GMT", None, None),
    ("Sun, 06 Nov 1994 08:61:37 GMT", None, None),
    ("Thu, 31 Feb 1994 08:50:37 GMT", None, None),
    ("Sun, 06 Now 1994 08:50:37 GMT", None, None),
    ("sun, 06 nov 1994 08:50:37 gmt", None, None),
    ("06 Nov 1994 08:50:37 GMT", None, None),
    ("1994-11-06T08:50:37Z", None, None),
    ("Sun, 06 Nov 1994", None, None),
];

pub(super) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
}

/// Milliseconds, where more than [`FOREVER`] is the same.
pub(super) fn milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).map_or(FOREVER, |wait| wait.min(FOREVER))
}

#[test]
fn retry_after_is_seconds_or_a_date_by_the_servers_clock_and_anything_else_is_nothing() {
    for (value, date, expected) in CASES {
        let found = retry_after(value, *date, now()).map(milliseconds);
        assert_eq!(found, *expected, "Retry-After {value:?}, Date {date:?}");
    }
}

proptest! {
    #[test]
    fn a_retry_after_of_any_text_is_understood_or_ignored(value in ".{0,40}", date in proptest::option::of(".{0,40}")) {
        let found = retry_after(&value, date.as_deref(), now());
        let digits = !value.trim().is_empty() && value.trim().bytes().all(|byte| byte.is_ascii_digit());
        if digits {
            let seconds = value.trim().parse().unwrap_or(u64::MAX);
            prop_assert_eq!(found, Some(Duration::from_secs(seconds)));
        }
    }

    #[test]
    fn a_retry_after_date_is_as_far_as_the_answers_own_date_is_behind_it(at in 0_u32.., date in 0_u32.., now in 0_u32..) {
        let moment = |seconds: u32| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into());
        let written = |seconds| httpdate::fmt_http_date(moment(seconds));
        let far = |from: u32| Some(Duration::from_secs(at.saturating_sub(from).into()));
        prop_assert_eq!(retry_after(&written(at), Some(&written(date)), moment(now)), far(date));
        prop_assert_eq!(retry_after(&written(at), None, moment(now)), far(now));
    }
}
