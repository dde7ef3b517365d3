//! One occurrence for each local date, and none for a date that does not exist.

use std::collections::BTreeSet;

use exactly::schedule::Zone;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

use super::random::Random;
use super::{pattern, zone};

const DAYS: i64 = 250;
/// No date that exists is shorter.
const STEP: SignedDuration = SignedDuration::from_hours(4);

#[test]
fn every_date_of_every_zone_has_exactly_one_daily_occurrence() {
    for (seed, name) in (1..).zip(Zone::names()) {
        let zone = zone(name);
        if zone.name() != name {
            continue;
        }
        let mut random = Random::new(seed);
        let begins = [
            Timestamp::from_second(random.between(0, 2_208_988_800)).unwrap(),
            // The year in which Samoa and Tokelau changed sides.
            "2011-06-01T12:00:00Z".parse().unwrap(),
        ];
        for begin in begins {
            let end = begin + SignedDuration::from_hours(24 * DAYS);
            let exist = dates(&zone, begin, end);
            let nightly = random.daily().pattern();
            for pattern in [pattern("daily 09:00"), nightly] {
                let found: Vec<Date> = pattern
                    .after(&zone, begin)
                    .take_while(|occurrence| occurrence.instant <= end)
                    .map(|occurrence| occurrence.local_date)
                    .collect();
                assert!(
                    found.windows(2).all(|two| two[0] < two[1]),
                    "{name} {pattern} has a date twice (seed {seed})"
                );
                // The first and the last date are not whole.
                let inner = |date: &Date| *date > *exist.first().unwrap() && *date < *exist.last().unwrap();
                let expected: Vec<Date> = exist.iter().copied().filter(inner).collect();
                let found: Vec<Date> = found.into_iter().filter(inner).collect();
                assert_eq!(found, expected, "{name} {pattern} from {begin} (seed {seed})");
            }
        }
    }
}

/// The dates that a calendar on the wall shows, looked at every few hours.
fn dates(zone: &Zone, begin: Timestamp, end: Timestamp) -> BTreeSet<Date> {
    let mut dates = BTreeSet::new();
    let mut instant = begin;
    while instant <= end {
        dates.insert(zone.time_zone().to_datetime(instant).date());
        instant += STEP;
    }
    dates
}
