//! Zones by name.

use std::collections::{HashMap, HashSet};

use exactly::schedule::{Zone, tzdb_version};
use jiff::tz::TimeZoneDatabase;
use jiff::{SignedDuration, Timestamp};

const LINKS: &str = include_str!("../../../src/schedule/links.txt");

/// Alias and target of every line.
fn links() -> HashMap<&'static str, &'static str> {
    let lines = LINKS.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.flat_map(|line| {
        let (target, aliases) = line.split_once(' ').unwrap();
        aliases.split(' ').map(move |alias| (alias, target))
    });
    pairs.collect()
}

#[test]
fn old_and_short_names_mean_the_one_that_stands() {
    for (given, name) in [
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("US/Eastern", "America/New_York"),
        ("us/eastern", "America/New_York"),
        ("AMERICA/NEW_YORK", "America/New_York"),
        ("Europe/Kiev", "Europe/Kyiv"),
        ("UTC", "Etc/UTC"),
        ("utc", "Etc/UTC"),
        ("Etc/UTC", "Etc/UTC"),
        ("Zulu", "Etc/UTC"),
        ("GMT", "Etc/GMT"),
        ("Iceland", "Atlantic/Reykjavik"),
        // A country's own name stands, though its clocks have agreed with another's since 1970.
        ("Europe/Oslo", "Europe/Oslo"),
        ("Atlantic/Reykjavik", "Atlantic/Reykjavik"),
    ] {
        let zone: Zone = given.parse().unwrap();
        assert_eq!(zone.name(), name, "{given}");
        assert_eq!(zone.to_string().parse::<Zone>().unwrap(), zone);
        assert_eq!(zone, name.parse().unwrap());
    }
}

#[test]
fn every_alias_shows_the_time_of_its_target() {
    let database = TimeZoneDatabase::bundled();
    let links = links();
    assert!(links.len() > 100, "{}", links.len());
    let begin: Timestamp = "1970-01-01T00:00:00Z".parse().unwrap();
    for (alias, target) in &links {
        let (one, other) = (database.get(alias).unwrap(), database.get(target).unwrap());
        // Every five days and some hours, up to 2040.
        for step in 0..4500 {
            let instant = begin + SignedDuration::from_hours(step * 137);
            assert_eq!(
                one.to_offset(instant),
                other.to_offset(instant),
                "{alias} {target} {instant}"
            );
        }
    }
}

#[test]
fn no_target_is_an_alias_itself() {
    let links = links();
    for (alias, target) in &links {
        assert!(
            !links.contains_key(target),
            "{alias} means {target}, which means another"
        );
        assert_eq!(alias.parse::<Zone>().unwrap().name(), *target);
    }
    let listed: HashSet<&str> = Zone::names().collect();
    for name in links.keys().chain(links.values()) {
        assert!(listed.contains(name), "{name} is not in the database");
    }
}

#[test]
fn the_links_come_from_the_release_that_is_compiled_in() {
    let version = tzdb_version();
    assert!(
        LINKS.contains(&format!("IANA tz {version},")),
        "the database is {version}: take its links"
    );
}

#[test]
fn changes_of_an_offset_are_days_apart() {
    // The engine looks at one change at a time, which is right as long as no local time is touched by two.
    let last: Timestamp = "2500-01-01T00:00:00Z".parse().unwrap();
    for name in Zone::names() {
        let zone: Zone = name.parse().unwrap();
        let changes: Vec<Timestamp> = zone
            .time_zone()
            .following(Timestamp::MIN)
            .map(|change| change.timestamp())
            .take_while(|change| *change < last)
            .collect();
        for two in changes.windows(2) {
            let apart = two[1].duration_since(two[0]);
            assert!(apart > SignedDuration::from_hours(3 * 26), "{name}: {two:?}");
        }
    }
}

#[test]
fn an_unknown_name_comes_with_the_one_that_was_meant() {
    for (given, nearest) in [
        ("Europe/Berln", Some("Europe/Berlin")),
        ("Kolkata", Some("Asia/Kolkata")),
        ("calcutta", Some("Asia/Kolkata")),
        ("New York", Some("America/New_York")),
        ("America/New York", Some("America/New_York")),
        ("america/new-york", Some("America/New_York")),
        ("Europe/Zürich", Some("Europe/Zurich")),
        ("", None),
        ("Mars/Olympus_Mons", None),
        ("+02:00", None),
        ("EST5EDT4,M3.2.0,M11.1.0", None),
        ("Etc/Unknown", None),
        ("../../etc/passwd", None),
    ] {
        let error = given.parse::<Zone>().unwrap_err();
        assert_eq!(error.nearest(), nearest, "{given}");
        let told = error.to_string();
        let fix = nearest.map_or("accepted are names such as".to_owned(), |name| {
            format!("did you mean {name}?")
        });
        assert!(told.contains(&fix) && told.contains(tzdb_version()), "{told}");
    }
    let long = "x".repeat(10_000).parse::<Zone>().unwrap_err();
    assert!(long.to_string().len() < 250, "{long}");
}
