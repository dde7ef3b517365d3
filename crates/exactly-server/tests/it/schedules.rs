//! `exactly schedules`.

use serde_json::json;

use crate::binary::{Ran, exactly};

fn next(arguments: &[&str]) -> Ran {
    exactly(&[&["schedules", "next"], arguments].concat())
}

#[test]
fn the_next_occurrences_are_told_to_programs() {
    let nightly = ["--daily", "02:30", "--zone", "us/eastern", "--json"];
    let spring = next(&[&nightly[..], &["--after", "2027-03-13T12:00:00Z", "--count", "2"]].concat()).json();
    let tzdb = spring[0]["tzdb"].clone();
    assert!(tzdb.as_str().unwrap().starts_with("20"), "{tzdb}");
    assert_eq!(
        spring,
        json!([
            {
                "instant": "2027-03-14T07:00:00Z",
                "local": "2027-03-14T03:00:00-04:00",
                "local_date": "2027-03-14",
                "kind": "shifted",
                "zone": "America/New_York",
                "tzdb": tzdb,
            },
            {
                "instant": "2027-03-15T06:30:00Z",
                "local": "2027-03-15T02:30:00-04:00",
                "local_date": "2027-03-15",
                "kind": "regular",
                "zone": "America/New_York",
                "tzdb": tzdb,
            },
        ])
    );
    let cron = ["--cron", "30 1 * * SUN", "--zone", "America/New_York", "--json"];
    let autumn = next(&[&cron[..], &["--after", "2027-11-06T12:00:00Z", "--count", "1"]].concat()).json();
    assert_eq!(autumn[0]["kind"], "first_of_two");
    assert_eq!(autumn[0]["instant"], "2027-11-07T05:30:00Z");
}

#[test]
fn people_read_what_happens_at_a_transition() {
    let spring = next(&[
        "--daily",
        "02:30",
        "--zone",
        "America/New_York",
        "--after",
        "2027-03-13T00:00:00Z",
        "--count",
        "2",
    ])
    .ok();
    let lines: Vec<&str> = spring.lines().collect();
    assert!(
        lines[0].starts_with("daily 02:30 in America/New_York, tz database 20"),
        "{spring}"
    );
    assert_eq!(
        lines[1..],
        [
            "",
            "LOCAL TIME               UTC                   LOCAL DATE  KIND     NOTE",
            "2027-03-13 02:30 -05:00  2027-03-13T07:30:00Z  2027-03-13  regular",
            "2027-03-14 03:00 -04:00  2027-03-14T07:00:00Z  2027-03-14  shifted  \
             02:30 does not exist on 2027-03-14: fires at 03:00 -04:00",
        ]
    );
    let autumn = [
        "--daily",
        "01:30",
        "--zone",
        "America/New_York",
        "--after",
        "2027-11-06T12:00:00Z",
    ];
    let autumn = next(&autumn).ok();
    assert!(
        autumn.contains("first_of_two  01:30 comes twice: fires the first time\n"),
        "{autumn}"
    );
    assert_eq!(autumn.lines().count(), 13, "ten, under a heading: {autumn}");
    let monrovia = [
        "--daily",
        "00:00",
        "--zone",
        "Africa/Monrovia",
        "--after",
        "1972-01-05T12:00:00Z",
    ];
    let monrovia = next(&monrovia).ok();
    assert!(
        monrovia.contains("1972-01-06 00:00 -00:44:30  1972-01-06T00:44:30Z"),
        "{monrovia}"
    );
    assert!(
        monrovia.contains("00:00 does not exist on 1972-01-07: fires at 00:44:30 +00:00"),
        "{monrovia}"
    );
}

#[test]
fn an_interval_needs_no_zone() {
    let every = [
        "--every",
        "6h",
        "--after",
        "2027-01-01T00:00:00Z",
        "--count",
        "2",
        "--json",
    ];
    let found = next(&every).json();
    assert_eq!(found[0]["instant"], "2027-01-01T06:00:00Z");
    assert_eq!(found[1]["local"], "2027-01-01T12:00:00+00:00");
    assert_eq!(found[1]["zone"], "Etc/UTC");
    let anchored = next(
        &[
            &every[..],
            &["--anchor", "2027-01-01T01:30:00Z", "--zone", "Asia/Tokyo"],
        ]
        .concat(),
    )
    .json();
    assert_eq!(anchored[1]["instant"], "2027-01-01T07:30:00Z");
    assert_eq!(anchored[1]["local"], "2027-01-01T16:30:00+09:00");
}

#[test]
fn without_an_instant_it_begins_now() {
    let soon = next(&["--every", "1s", "--count", "1", "--json"]).json();
    let instant: jiff::Timestamp = soon[0]["instant"].as_str().unwrap().parse().unwrap();
    let away = jiff::Timestamp::now().duration_since(instant).abs();
    assert!(away < jiff::SignedDuration::from_mins(1), "{instant} is not now");
}

#[test]
fn the_end_of_the_calendar_is_told() {
    let leap = [
        "--cron",
        "0 0 29 2 *",
        "--zone",
        "UTC",
        "--after",
        "9997-01-01T00:00:00Z",
    ];
    assert!(next(&leap).ok().contains("no occurrence before the calendar ends"));
    assert_eq!(next(&[&leap[..], &["--json"]].concat()).json(), json!([]));
}

#[test]
fn what_was_told_wrongly_comes_with_what_is_accepted() {
    let daily = ["--daily", "09:00", "--zone", "UTC"];
    for (arguments, why) in [
        (
            vec!["--zone", "UTC"],
            "<--daily <HH:MM>|--cron <EXPR>|--every <DURATION>>",
        ),
        (vec!["--daily", "09:00"], "--zone <ZONE>"),
        ([&daily[..], &["--every", "1h"]].concat(), "cannot be used with"),
        (
            [&daily[..], &["--anchor", "2027-01-01T00:00:00Z"]].concat(),
            "cannot be used with",
        ),
        ([&daily[..], &["--count", "0"]].concat(), "1..=100000"),
        ([&daily[..], &["--count", "100001"]].concat(), "1..=100000"),
        (
            [&daily[..], &["--after", "tomorrow"]].concat(),
            "an instant such as 2027-03-14T07:00:00Z",
        ),
        (
            vec!["--daily", "9:00", "--zone", "UTC"],
            "accepted is HH:MM from 00:00 to 23:59",
        ),
        (
            vec!["--daily", "09:00", "--zone", "Europe/Berln"],
            "did you mean Europe/Berlin?",
        ),
        (vec!["--cron", "0 0 30 2 *", "--zone", "UTC"], "never fires"),
        (
            vec!["--cron", "0 0 9 * * *", "--zone", "UTC"],
            "seconds and years are not accepted",
        ),
        (
            vec!["--cron", "61 * * * *", "--zone", "UTC"],
            "cron field minute: \"61\" is out of range",
        ),
        (vec!["--every", "500ms"], "accepted are 1s to 366d"),
        (
            vec!["--every", "1h from 2027-01-01T00:00:00Z"],
            "--anchor says from when on",
        ),
        (
            vec!["--every", "1h", "--anchor", "2027-01-01T00:00:00.5Z"],
            "leave out the fraction",
        ),
    ] {
        next(&arguments).refused(2, why);
    }
}

#[test]
fn the_page_about_schedules_shows_what_the_command_prints() {
    let page = include_str!("../../../../docs/schedules.md");
    let shown: Vec<&str> = page
        .split("```console\n$ exactly ")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert_eq!(shown.len(), 4, "every block is compared");
    for block in shown {
        let (command, output) = block.split_once('\n').unwrap();
        // Quotes hold an expression together, and nothing else is quoted.
        let quoted = command.split('\'').enumerate();
        let arguments: Vec<&str> = quoted
            .flat_map(|(part, text)| match part % 2 {
                0 => text.split_whitespace().collect(),
                _ => vec![text],
            })
            .collect();
        assert_eq!(exactly(&arguments).ok(), output, "{command}");
    }
}
