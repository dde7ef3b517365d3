//! Intervals, times of day, and patterns as texts.

use std::time::Duration;

use exactly::schedule::{Interval, Pattern, TimeOfDay};

use super::{at, line, pattern, zone};

#[test]
fn an_interval_counts_from_its_anchor_whatever_the_clocks_do() {
    let quarter = pattern("every 12h from 2027-03-13T12:00:00Z");
    let zone = zone("America/New_York");
    let take = |after: &str| -> Vec<String> {
        quarter
            .after(&zone, at(after))
            .take(3)
            .map(|found| line(&found))
            .collect()
    };
    let expected = [
        "2027-03-13T12:00:00Z 2027-03-13 regular",
        "2027-03-14T00:00:00Z 2027-03-13 regular",
        "2027-03-14T12:00:00Z 2027-03-14 regular",
    ];
    assert_eq!(take("2020-01-01T00:00:00Z"), expected, "nothing is before the anchor");
    assert_eq!(take("2027-03-13T11:59:59.999999999Z"), expected);
    assert_eq!(take("2027-03-13T12:00:00Z")[..2], expected[1..]);
    assert_eq!(take("2027-03-13T12:00:00.000000001Z")[..2], expected[1..]);
    assert_eq!(take("2027-03-13T23:59:59.5Z")[..2], expected[1..]);
}

#[test]
fn an_interval_without_an_anchor_counts_from_1970() {
    let zone = zone("UTC");
    let found = pattern("every 7d")
        .next_after(&zone, at("2027-01-01T00:00:00Z"))
        .unwrap();
    // A Thursday, as the first day was.
    assert_eq!(line(&found), "2027-01-07T00:00:00Z 2027-01-07 regular");
}

#[test]
fn intervals_have_limits() {
    for accepted in [Interval::MIN, Duration::from_secs(90), Interval::MAX] {
        assert_eq!(Interval::new(accepted).unwrap().length(), accepted);
    }
    for refused in [
        Duration::ZERO,
        Duration::from_millis(1500),
        Interval::MAX + Duration::from_secs(1),
        Duration::MAX,
    ] {
        let told = Interval::new(refused).unwrap_err().to_string();
        assert!(told.ends_with("accepted are whole seconds from 1s to 366d"), "{told}");
    }
    let told = Interval::new(Interval::MIN)
        .unwrap()
        .anchored(at("2027-01-01T00:00:00.5Z"));
    assert!(told.unwrap_err().to_string().contains("leave out the fraction"));
}

#[test]
fn patterns_are_written_as_they_are_read() {
    for text in [
        "daily 00:00",
        "daily 23:59",
        "cron 0 9 * * MON-FRI",
        "cron @weekly",
        "every 1s",
        "every 90s",
        "every 15m",
        "every 36h",
        "every 366d",
        "every 15m from 2027-01-01T00:00:00Z",
    ] {
        assert_eq!(pattern(text).to_string(), text);
        assert_eq!(pattern(&format!("  {text} ")), pattern(text));
    }
    assert_eq!(pattern("every 3600s").to_string(), "every 1h");
    assert_eq!(pattern("every 24h"), pattern("every 1d"));
    assert_eq!(
        pattern("every 1h from 2027-01-01T01:00:00+01:00").to_string(),
        "every 1h from 2027-01-01T00:00:00Z"
    );
}

#[test]
fn what_is_no_pattern_is_told() {
    for (text, why) in [
        ("", "accepted are `daily HH:MM`, `cron EXPRESSION` and `every DURATION`"),
        ("hourly", "pattern \"hourly\""),
        ("daily", "accepted is HH:MM"),
        (
            "daily 9:00",
            "time \"9:00\": accepted is HH:MM from 00:00 to 23:59, such as 09:00",
        ),
        ("daily 24:00", "accepted are 00:00 to 23:59"),
        ("daily 09:60", "accepted are 00:00 to 23:59"),
        ("daily 09:00:00", "accepted is HH:MM"),
        ("daily +9:00", "accepted is HH:MM"),
        ("daily ٠٩:٠٠", "accepted is HH:MM"),
        ("every 15", "accepted are 1s to 366d, such as 90s, 15m, 6h or 7d"),
        ("every 0s", "accepted are 1s to 366d"),
        ("every 367d", "accepted are 1s to 366d"),
        ("every 1w", "accepted are 1s to 366d"),
        ("every -1h", "accepted are 1s to 366d"),
        ("every 18446744073709551615d", "accepted are 1s to 366d"),
        ("every 1h since noon", "accepted is DURATION, or DURATION from INSTANT"),
        ("every 1h from", "accepted is DURATION, or DURATION from INSTANT"),
        ("every 1h from noon", "anchor \"noon\": accepted is an instant such as"),
        ("every 1h from 2027-01-01T00:00:00.5Z", "leave out the fraction"),
        ("every 1h from 2027-01-01T00:00:00Z please", "DURATION from INSTANT"),
    ] {
        let told = text.parse::<Pattern>().unwrap_err().to_string();
        assert!(told.contains(why), "{text:?}: {told}");
    }
    let long = "x".repeat(1000).parse::<Pattern>().unwrap_err().to_string();
    assert!(long.len() < 200, "{long}");
    assert_eq!(TimeOfDay::new(9, 5).unwrap().to_string(), "09:05");
    assert!(TimeOfDay::new(24, 0).is_err() && TimeOfDay::new(0, 60).is_err());
}
