//! Durations and sizes as they stand in the file.

use super::*;

#[test]
fn durations_have_a_unit() {
    for (text, expected) in [
        ("250ms", Some(Duration::from_millis(250))),
        ("10s", Some(Duration::from_secs(10))),
        ("5 m", Some(Duration::from_mins(5))),
        ("24h", Some(Duration::from_hours(24))),
        ("7d", Some(Duration::from_hours(7 * 24))),
        ("10", None),
        ("s", None),
        ("-1s", None),
        ("1.5h", None),
        ("1 fortnight", None),
        ("99999999999999999999s", None),
        ("9999999999999999999d", None),
    ] {
        assert_eq!(duration(text), expected, "{text}");
    }
}

#[test]
fn sizes_have_a_unit_of_two() {
    for (text, expected) in [
        ("64KiB", Some(65536)),
        ("1 MiB", Some(1 << 20)),
        ("1GiB", Some(1 << 30)),
        ("1MB", None),
        ("KiB", None),
        ("99999999999999GiB", None),
    ] {
        assert_eq!(bytes(text), expected, "{text}");
    }
}
