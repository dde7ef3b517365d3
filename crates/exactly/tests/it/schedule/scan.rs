//! The engine against the oracle, in every zone.

use exactly::schedule::Zone;
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::oracle::{Meant, Wall};
use super::random::Random;
use super::zone;

const HOUR: i64 = 3600;
/// 1970 and 2040, in seconds.
const FROM: i64 = 0;
const UNTIL: i64 = 2_208_988_800;
/// How many of a zone's transitions are looked at, and how many patterns at each.
const TRANSITIONS: i64 = 4;
const PATTERNS: u32 = 4;
/// The test is cut, so that its parts run side by side.
const PARTS: usize = 4;

#[test]
fn every_zone_agrees_with_a_clock_on_the_wall_part_1() {
    scan(0);
}

#[test]
fn every_zone_agrees_with_a_clock_on_the_wall_part_2() {
    scan(1);
}

#[test]
fn every_zone_agrees_with_a_clock_on_the_wall_part_3() {
    scan(2);
}

#[test]
fn every_zone_agrees_with_a_clock_on_the_wall_part_4() {
    scan(3);
}

fn scan(part: usize) {
    let mut compared = 0;
    for (seed, name) in (1..).zip(Zone::names()).skip(part).step_by(PARTS) {
        let mut random = Random::new(seed);
        // The data under the name as it is given, even if the engine takes it for another one.
        let wall_zone = TimeZoneDatabase::bundled().get(name).unwrap();
        let is_alias = zone(name).name() != name;
        for middle in middles(&wall_zone, is_alias, &mut random) {
            compared += compare(seed, name, &wall_zone, middle, &mut random);
        }
    }
    assert!(compared > 20_000, "only {compared} occurrences were compared");
}

/// Where to look: around transitions, and somewhere.
fn middles(zone: &TimeZone, is_alias: bool, random: &mut Random) -> Vec<i64> {
    let somewhere = random.between(FROM, UNTIL);
    let following = zone.following(Timestamp::from_second(FROM).unwrap());
    let transitions: Vec<i64> = following
        .map(|transition| transition.timestamp().as_second())
        .take_while(|transition| *transition < UNTIL)
        .collect();
    let count = i64::try_from(transitions.len()).unwrap();
    if count == 0 {
        return vec![somewhere];
    }
    let chosen = if is_alias { 1 } else { TRANSITIONS.min(count) };
    let picks = (0..chosen).map(|_| usize::try_from(random.between(0, count)).unwrap());
    let mut middles: Vec<i64> = picks.map(|pick| transitions[pick]).collect();
    if !is_alias {
        // Many zones have changed their rules for the last time in an odd way.
        middles.extend([transitions[0], transitions[transitions.len() - 1], somewhere]);
    }
    middles
}

fn compare(seed: u64, name: &str, wall_zone: &TimeZone, middle: i64, random: &mut Random) -> usize {
    let (from, until) = (
        middle - random.between(1, 20 * HOUR),
        middle + random.between(1, 20 * HOUR),
    );
    let wall = Wall::watch(wall_zone, from, until);
    let mut compared = 0;
    for number in 0..PATTERNS {
        let meant = if number == 0 { random.daily() } else { random.cron() };
        let expected = wall.occurrences(&meant);
        let found = found(name, &meant, from, until);
        assert_eq!(
            found, expected,
            "{name}, {}, from {from} to {until} (seed {seed})",
            meant.text
        );
        compared += found.len();
    }
    compared
}

/// What the engine says, in the words of the oracle.
fn found(name: &str, meant: &Meant, from: i64, until: i64) -> Vec<(i64, i64, &'static str)> {
    let epoch = jiff::civil::date(1970, 1, 1);
    let (pattern, zone) = (meant.pattern(), zone(name));
    // Strictly later than a nanosecond before.
    let after = Timestamp::new(from - 1, 999_999_999).unwrap();
    pattern
        .after(&zone, after)
        .map(|occurrence| {
            let days = epoch.until(occurrence.local_date).unwrap().get_days();
            (
                occurrence.instant.as_second(),
                i64::from(days),
                occurrence.kind.as_str(),
            )
        })
        .take_while(|(instant, ..)| *instant < until)
        .collect()
}
