//! The hard days, by name. The instants were worked out by hand from the rules of each place, and checked against another
//! implementation of the same database.

use super::{at, line, pattern, zone};

/// The first occurrences after an instant are these.
#[track_caller]
fn check(name: &str, text: &str, after: &str, expected: &[&str]) {
    let (pattern, zone) = (pattern(text), zone(name));
    let found = pattern.after(&zone, at(after)).take(expected.len());
    let found: Vec<String> = found.map(|occurrence| line(&occurrence)).collect();
    assert_eq!(found, expected, "{name} {text}");
}

#[test]
fn new_york_skips_an_hour_and_has_one_twice() {
    let name = "America/New_York";
    check(
        name,
        "daily 02:30",
        "2027-03-13T00:00:00Z",
        &[
            "2027-03-13T07:30:00Z 2027-03-13 regular",
            "2027-03-14T07:00:00Z 2027-03-14 shifted",
            "2027-03-15T06:30:00Z 2027-03-15 regular",
        ],
    );
    check(
        name,
        "daily 01:30",
        "2027-11-06T12:00:00Z",
        &[
            "2027-11-07T05:30:00Z 2027-11-07 first_of_two",
            "2027-11-08T06:30:00Z 2027-11-08 regular",
        ],
    );
    // Asked in the second hour of the two, it has been.
    check(
        name,
        "daily 01:30",
        "2027-11-07T06:10:00Z",
        &["2027-11-08T06:30:00Z 2027-11-08 regular"],
    );
    check(
        name,
        "cron 30 * * * *",
        "2027-03-14T06:00:00Z",
        &[
            "2027-03-14T06:30:00Z 2027-03-14 regular",
            "2027-03-14T07:00:00Z 2027-03-14 shifted",
            "2027-03-14T07:30:00Z 2027-03-14 regular",
        ],
    );
    check(
        name,
        "cron 0 * * * *",
        "2027-11-07T04:30:00Z",
        &[
            "2027-11-07T05:00:00Z 2027-11-07 first_of_two",
            "2027-11-07T07:00:00Z 2027-11-07 regular",
        ],
    );
}

#[test]
fn what_one_gap_skips_fires_once() {
    check(
        "America/New_York",
        "cron 5,20,35 2 * * *",
        "2027-03-14T00:00:00Z",
        &[
            "2027-03-14T07:00:00Z 2027-03-14 shifted",
            "2027-03-15T06:05:00Z 2027-03-15 regular",
        ],
    );
    // 03:00 is one of its own times.
    check(
        "America/New_York",
        "cron */20 2,3 * * *",
        "2027-03-14T00:00:00Z",
        &[
            "2027-03-14T07:00:00Z 2027-03-14 regular",
            "2027-03-14T07:20:00Z 2027-03-14 regular",
        ],
    );
}

#[test]
fn london_and_dublin_change_at_one_in_utc() {
    // Irish summer time is the standard time there, and winter is what is saved; the clocks know nothing of it.
    for name in ["Europe/London", "Europe/Dublin"] {
        check(
            name,
            "daily 01:30",
            "2027-03-27T12:00:00Z",
            &[
                "2027-03-28T01:00:00Z 2027-03-28 shifted",
                "2027-03-29T00:30:00Z 2027-03-29 regular",
            ],
        );
        check(
            name,
            "daily 01:00",
            "2027-10-30T12:00:00Z",
            &[
                "2027-10-31T00:00:00Z 2027-10-31 first_of_two",
                "2027-11-01T01:00:00Z 2027-11-01 regular",
            ],
        );
        // The end of the hour that comes twice does not.
        check(
            name,
            "daily 02:00",
            "2027-10-30T12:00:00Z",
            &["2027-10-31T02:00:00Z 2027-10-31 regular"],
        );
    }
}

#[test]
fn cairo_and_beirut_have_days_that_do_not_begin_at_midnight() {
    for (name, eve, shifted, next) in [
        (
            "Africa/Cairo",
            "2027-04-29T12:00:00Z",
            "2027-04-29T22:00:00Z 2027-04-30 shifted",
            "2027-04-30T21:00:00Z 2027-05-01 regular",
        ),
        (
            "Asia/Beirut",
            "2027-03-27T12:00:00Z",
            "2027-03-27T22:00:00Z 2027-03-28 shifted",
            "2027-03-28T21:00:00Z 2027-03-29 regular",
        ),
    ] {
        check(name, "daily 00:00", eve, &[shifted, next]);
    }
    // In autumn the last hour of the day comes twice, and the next day begins once.
    check(
        "Africa/Cairo",
        "daily 23:30",
        "2027-10-28T12:00:00Z",
        &[
            "2027-10-28T20:30:00Z 2027-10-28 first_of_two",
            "2027-10-29T21:30:00Z 2027-10-29 regular",
        ],
    );
    check(
        "Africa/Cairo",
        "daily 00:00",
        "2027-10-28T12:00:00Z",
        &["2027-10-28T22:00:00Z 2027-10-29 regular"],
    );
    check(
        "Asia/Beirut",
        "daily 23:15",
        "2027-10-30T12:00:00Z",
        &[
            "2027-10-30T20:15:00Z 2027-10-30 first_of_two",
            "2027-10-31T21:15:00Z 2027-10-31 regular",
        ],
    );
}

#[test]
fn santiago_changes_at_midnight_in_the_south() {
    check(
        "America/Santiago",
        "daily 00:00",
        "2027-09-04T12:00:00Z",
        &[
            "2027-09-05T04:00:00Z 2027-09-05 shifted",
            "2027-09-06T03:00:00Z 2027-09-06 regular",
        ],
    );
    check(
        "America/Santiago",
        "daily 23:30",
        "2027-04-03T12:00:00Z",
        &[
            "2027-04-04T02:30:00Z 2027-04-03 first_of_two",
            "2027-04-05T03:30:00Z 2027-04-04 regular",
        ],
    );
}

#[test]
fn lord_howe_changes_by_half_an_hour() {
    let name = "Australia/Lord_Howe";
    check(
        name,
        "daily 02:15",
        "2027-10-02T00:00:00Z",
        &[
            "2027-10-02T15:30:00Z 2027-10-03 shifted",
            "2027-10-03T15:15:00Z 2027-10-04 regular",
        ],
    );
    check(
        name,
        "daily 02:30",
        "2027-10-02T00:00:00Z",
        &["2027-10-02T15:30:00Z 2027-10-03 regular"],
    );
    check(
        name,
        "cron 15,45 1 * * *",
        "2027-04-03T12:00:00Z",
        &[
            "2027-04-03T14:15:00Z 2027-04-04 regular",
            "2027-04-03T14:45:00Z 2027-04-04 first_of_two",
            "2027-04-04T14:45:00Z 2027-04-05 regular",
        ],
    );
}

#[test]
fn casablanca_changes_for_ramadan() {
    check(
        "Africa/Casablanca",
        "daily 02:30",
        "2025-02-22T12:00:00Z",
        &[
            "2025-02-23T01:30:00Z 2025-02-23 first_of_two",
            "2025-02-24T02:30:00Z 2025-02-24 regular",
        ],
    );
    check(
        "Africa/Casablanca",
        "daily 02:30",
        "2025-04-05T12:00:00Z",
        &[
            "2025-04-06T02:00:00Z 2025-04-06 shifted",
            "2025-04-07T01:30:00Z 2025-04-07 regular",
        ],
    );
}

#[test]
fn a_date_that_does_not_exist_makes_no_occurrence() {
    // Samoa went from Thursday 29 to Saturday 31 December 2011.
    check(
        "Pacific/Apia",
        "daily 09:00",
        "2011-12-29T00:00:00Z",
        &[
            "2011-12-29T19:00:00Z 2011-12-29 regular",
            "2011-12-30T19:00:00Z 2011-12-31 regular",
        ],
    );
    check(
        "Pacific/Apia",
        "daily 00:00",
        "2011-12-29T00:00:00Z",
        &[
            "2011-12-29T10:00:00Z 2011-12-29 regular",
            "2011-12-30T10:00:00Z 2011-12-31 regular",
        ],
    );
    check(
        "Pacific/Apia",
        "cron 0 12 * * FRI",
        "2011-12-24T00:00:00Z",
        &["2012-01-05T22:00:00Z 2012-01-06 regular"],
    );
    // Kwajalein had no 21 August 1993.
    check(
        "Pacific/Kwajalein",
        "daily 09:00",
        "1993-08-20T12:00:00Z",
        &[
            "1993-08-20T21:00:00Z 1993-08-20 regular",
            "1993-08-21T21:00:00Z 1993-08-22 regular",
        ],
    );
}

#[test]
fn a_day_that_comes_almost_twice_has_one_of_each() {
    // Kwajalein went from the end of 30 September 1969 back to its first hour.
    check(
        "Pacific/Kwajalein",
        "daily 09:00",
        "1969-09-29T00:00:00Z",
        &[
            "1969-09-29T22:00:00Z 1969-09-30 first_of_two",
            "1969-10-01T21:00:00Z 1969-10-01 regular",
        ],
    );
    check(
        "Pacific/Kwajalein",
        "daily 00:30",
        "1969-09-29T00:00:00Z",
        &[
            "1969-09-29T13:30:00Z 1969-09-30 regular",
            "1969-10-01T12:30:00Z 1969-10-01 regular",
        ],
    );
}

#[test]
fn kolkata_kathmandu_and_chatham_are_not_on_the_hour() {
    check(
        "Asia/Kolkata",
        "daily 09:00",
        "2027-01-01T00:00:00Z",
        &["2027-01-01T03:30:00Z 2027-01-01 regular"],
    );
    check(
        "Asia/Kathmandu",
        "daily 09:00",
        "2027-01-01T00:00:00Z",
        &["2027-01-01T03:15:00Z 2027-01-01 regular"],
    );
    // Nepal began 1986 a quarter of an hour later.
    check(
        "Asia/Kathmandu",
        "daily 00:05",
        "1985-12-31T00:00:00Z",
        &[
            "1985-12-31T18:30:00Z 1986-01-01 shifted",
            "1986-01-01T18:20:00Z 1986-01-02 regular",
        ],
    );
    check(
        "Pacific/Chatham",
        "daily 03:00",
        "2027-09-25T00:00:00Z",
        &[
            "2027-09-25T14:00:00Z 2027-09-26 shifted",
            "2027-09-26T13:15:00Z 2027-09-27 regular",
        ],
    );
    check(
        "Pacific/Chatham",
        "daily 03:00",
        "2027-04-03T00:00:00Z",
        &[
            "2027-04-03T13:15:00Z 2027-04-04 first_of_two",
            "2027-04-04T14:15:00Z 2027-04-05 regular",
        ],
    );
}

#[test]
fn monrovia_had_an_offset_with_seconds() {
    check(
        "Africa/Monrovia",
        "daily 00:00",
        "1972-01-05T12:00:00Z",
        &[
            "1972-01-06T00:44:30Z 1972-01-06 regular",
            "1972-01-07T00:44:30Z 1972-01-07 shifted",
            "1972-01-08T00:00:00Z 1972-01-08 regular",
        ],
    );
    check(
        "Africa/Monrovia",
        "daily 00:45",
        "1972-01-06T12:00:00Z",
        &["1972-01-07T00:45:00Z 1972-01-07 regular"],
    );
}

#[test]
fn troll_and_casey_change_by_two_and_three_hours() {
    check(
        "Antarctica/Troll",
        "cron 30 1,2 * * *",
        "2027-03-27T12:00:00Z",
        &[
            "2027-03-28T01:00:00Z 2027-03-28 shifted",
            "2027-03-28T23:30:00Z 2027-03-29 regular",
            "2027-03-29T00:30:00Z 2027-03-29 regular",
        ],
    );
    check(
        "Antarctica/Troll",
        "daily 02:00",
        "2027-10-30T12:00:00Z",
        &[
            "2027-10-31T00:00:00Z 2027-10-31 first_of_two",
            "2027-11-01T02:00:00Z 2027-11-01 regular",
        ],
    );
    // At one minute past midnight.
    check(
        "Antarctica/Casey",
        "cron 0 0-3 * * *",
        "2020-10-03T12:00:00Z",
        &[
            "2020-10-03T16:00:00Z 2020-10-04 regular",
            "2020-10-03T16:01:00Z 2020-10-04 shifted",
            "2020-10-04T13:00:00Z 2020-10-05 regular",
        ],
    );
}

#[test]
fn a_gap_over_midnight_keeps_the_date_that_was_meant() {
    // Toronto put its clocks forward at 23:30 on 30 March 1919.
    check(
        "America/Toronto",
        "daily 23:45",
        "1919-03-30T12:00:00Z",
        &[
            "1919-03-31T04:30:00Z 1919-03-30 shifted",
            "1919-04-01T03:45:00Z 1919-03-31 regular",
        ],
    );
    check(
        "America/Toronto",
        "daily 00:15",
        "1919-03-30T12:00:00Z",
        &["1919-03-31T04:30:00Z 1919-03-31 shifted"],
    );
}

#[test]
fn what_was_meant_is_told_with_a_shifted_occurrence() {
    let (nightly, zone) = (pattern("daily 02:30"), zone("America/New_York"));
    let shifted = nightly.next_after(&zone, at("2027-03-14T00:00:00Z")).unwrap();
    assert_eq!(shifted.local_time, jiff::civil::time(2, 30, 0, 0));
}
