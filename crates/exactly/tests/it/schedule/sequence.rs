//! One sequence, wherever one begins.

use exactly::schedule::{Occurrence, Zone};
use jiff::{SignedDuration, Timestamp};

use super::random::Random;
use super::{at, line, pattern, zone};

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

#[test]
fn a_restart_anywhere_goes_on_with_the_same_sequence() {
    for (seed, name) in (1..).zip(Zone::names()) {
        let mut random = Random::new(seed);
        let zone = zone(name);
        let meant = if random.one_in(3) {
            random.daily()
        } else {
            random.cron()
        };
        let pattern = meant.pattern();
        // Where the last known transition is, if there is one, and somewhere else.
        let somewhere = Timestamp::from_second(random.between(0, 2_208_988_800)).unwrap();
        let transition = zone
            .time_zone()
            .preceding(somewhere)
            .next()
            .map(|found| found.timestamp());
        let begin = transition.unwrap_or(somewhere) - SignedDuration::from_hours(30);
        let sequence: Vec<Occurrence> = pattern.after(&zone, begin).take(40).collect();
        assert_eq!(sequence.len(), 40, "{name} {}", meant.text);
        assert!(sequence[0].instant > begin);
        for two in sequence.windows(2) {
            let (earlier, later) = (two[0], two[1]);
            assert!(
                earlier.instant < later.instant,
                "{name} {}: {two:?} (seed {seed})",
                meant.text
            );
            let apart = later.instant.duration_since(earlier.instant).as_secs();
            let between = earlier.instant + SignedDuration::from_secs(random.between(0, apart));
            for restart in [earlier.instant, between, later.instant - NANOSECOND] {
                let next = pattern.next_after(&zone, restart).unwrap();
                assert_eq!(next, later, "{name} {} from {restart} (seed {seed})", meant.text);
            }
        }
    }
}

#[test]
fn rare_dates_are_found_without_walking_there() {
    let zone = zone("America/New_York");
    let leap = pattern("cron 0 0 29 2 *");
    let begin = at("2096-03-01T00:00:00Z");
    let found: Vec<String> = leap.after(&zone, begin).take(2).map(|found| line(&found)).collect();
    // 2100 is no leap year.
    assert_eq!(
        found,
        [
            "2104-02-29T05:00:00Z 2104-02-29 regular",
            "2108-02-29T05:00:00Z 2108-02-29 regular"
        ]
    );
    // Leap days on a Sunday, up to the end of time. Minute by minute this would be four billion steps.
    let rare = pattern("cron 0 12 */28 2 0");
    let sundays = rare.after(&zone, begin).filter(|found| found.local_date.day() == 29);
    assert_eq!(sundays.count(), 256);
}

#[test]
fn the_end_of_the_calendar_ends_the_sequence() {
    let begin = at("9999-12-28T00:00:00Z");
    for name in [
        "UTC",
        "America/New_York",
        "Pacific/Kiritimati",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
    ] {
        for text in [
            "daily 09:00",
            "cron 0 0 29 2 *",
            "cron */7 * * * *",
            "every 366d",
            "every 1h",
        ] {
            let (pattern, zone) = (pattern(text), zone(name));
            let mut left = pattern.after(&zone, begin);
            assert!(left.by_ref().count() < 2000, "{name} {text}");
            assert_eq!(left.next(), None);
        }
    }
    assert_eq!(pattern("daily 09:00").next_after(&zone("UTC"), Timestamp::MAX), None);
    let first = pattern("daily 09:00").next_after(&zone("Asia/Tokyo"), Timestamp::MIN);
    assert!(first.is_some());
}
