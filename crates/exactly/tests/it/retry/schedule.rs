//! The waits between attempts.

use std::borrow::Cow;
use std::time::Duration;

use exactly::retry::{Class, Jitter, Policy, Schedule};
use proptest::prelude::*;

use super::{MILLISECOND, oracle};

/// A number and how far through all numbers it is.
pub(super) const RANDOM: [(u64, f64); 3] = [(0, 0.0), (1 << 63, 0.5), (u64::MAX, 1.0)];

/// Moments of a call at which the waits of a class are of interest: fixed times are counted from its start.
pub(super) fn moments(class: Class) -> &'static [u64] {
    match class {
        Class::Webhook => &[0, 4000, 86_399_999, 86_400_000],
        _ => &[0],
    }
}

#[test]
fn every_class_waits_as_its_schedule_was_decided() {
    for class in Class::ALL {
        let policy = Policy::of(class);
        let (retries_max, total) = oracle::class(class.as_str());
        assert_eq!(policy.retries_max, retries_max, "{class}");
        assert_eq!(policy.total, Duration::from_millis(total), "{class}");
        for retry in (0..=40).chain([u32::MAX]) {
            for elapsed in moments(class).iter().map(|moment| Duration::from_millis(*moment)) {
                for (random, u) in RANDOM {
                    let found = policy.schedule.wait(retry, elapsed, policy.total, random);
                    let expected = (retry > 0)
                        .then(|| oracle::backoff(class.as_str(), retry, elapsed.as_secs_f64() * 1e3, u))
                        .flatten();
                    let found = found.map(|wait| wait.as_secs_f64() * 1e3);
                    let near = match (found, expected) {
                        (Some(found), Some(expected)) => (found - expected).abs() < 0.001,
                        (found, expected) => found == expected,
                    };
                    assert!(
                        near,
                        "{class}, retry {retry}, random {random}: {found:?}, not {expected:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_outage_of_twelve_hours_is_outlived_by_every_webhook() {
    let schedule = Schedule::WEBHOOK;
    let day = Duration::from_hours(24);
    for (random, _) in RANDOM {
        let last = schedule.wait(9, Duration::ZERO, day, random).unwrap();
        assert!(last >= Duration::from_hours(21) && last <= day, "{last:?}");
        let before = schedule.wait(8, Duration::ZERO, day, random).unwrap();
        assert!(before >= Duration::from_hours(10), "{before:?}");
    }
}

#[test]
fn a_wait_goes_on_doubling_until_its_cap_however_small_it_began() {
    let schedule = Schedule::Doubling {
        base: Duration::from_nanos(1),
        jitter: Jitter::UpTo(Duration::ZERO),
        cap: Duration::from_hours(1),
    };
    let wait = |retry| schedule.wait(retry, Duration::ZERO, Duration::MAX, 0);
    assert_eq!(wait(33), Some(Duration::from_nanos(1 << 32)));
    assert_eq!(wait(40), Some(Duration::from_nanos(1 << 39)));
    assert_eq!(wait(50), Some(Duration::from_hours(1)));
    assert_eq!(wait(u32::MAX), Some(Duration::from_hours(1)));
}

#[test]
fn there_are_no_more_retries_than_waits_and_none_before_the_first() {
    let none = Schedule::Delays(Cow::Borrowed(&[]));
    assert_eq!(none.wait(1, Duration::ZERO, Duration::MAX, 0), None);
    for class in Class::ALL {
        assert_eq!(
            Policy::of(class).schedule.wait(0, Duration::ZERO, Duration::MAX, 0),
            None
        );
    }
}

pub(super) fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (0_u64..100_000).prop_map(Duration::from_millis),
        (any::<u64>(), 0_u32..1_000_000_000).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)),
    ]
}

pub(super) fn schedules() -> impl Strategy<Value = Schedule> {
    let doubling = (durations(), proptest::option::of(durations()), durations());
    let times = || proptest::collection::vec(durations(), 0..6).prop_map(Cow::Owned);
    prop_oneof![
        doubling.prop_map(|(base, jitter, cap)| Schedule::Doubling {
            base,
            jitter: jitter.map_or(Jitter::Full, Jitter::UpTo),
            cap,
        }),
        times().prop_map(Schedule::Delays),
        times().prop_map(Schedule::Offsets),
    ]
}

/// The least and the most that a schedule may wait, to a tick of rounding.
pub(super) fn bounds(schedule: &Schedule, retry: u32, elapsed: Duration, total: Duration) -> (Duration, Duration) {
    let nth = |times: &[Duration]| times[usize::try_from(retry).unwrap() - 1];
    let around = |time: Duration| {
        let tenth = time / 10;
        (time.saturating_sub(tenth), time.saturating_add(tenth))
    };
    match schedule {
        Schedule::Doubling { base, jitter, cap } => {
            let doubled = (1..retry.min(200)).fold(*base, |wait, _| wait.saturating_mul(2));
            let most = match jitter {
                Jitter::Full => doubled,
                Jitter::UpTo(most) => *most,
            };
            (doubled.min(*cap), doubled.saturating_add(most).min(*cap))
        }
        Schedule::Delays(delays) => around(nth(delays)),
        Schedule::Offsets(offsets) => {
            let (least, most) = around(nth(offsets));
            let left = |time: Duration| time.min(total).saturating_sub(elapsed);
            (left(least), left(most))
        }
    }
}

proptest! {
    #[test]
    fn no_wait_is_outside_its_schedule(
        schedule in schedules(),
        retry in prop_oneof![0_u32..50, any::<u32>()],
        elapsed in durations(),
        total in durations(),
        random in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
    ) {
        if let Some(wait) = schedule.wait(retry, elapsed, total, random) {
            let (least, most) = bounds(&schedule, retry, elapsed, total);
            prop_assert!(least <= wait && wait <= most, "{wait:?} is not within {least:?} and {most:?}");
        }
    }

    #[test]
    fn a_wait_grows_with_the_random_number(
        retry in 1_u32..9,
        one in any::<u64>(),
        other in any::<u64>(),
    ) {
        for class in Class::ALL {
            let policy = Policy::of(class);
            let wait = |random| policy.schedule.wait(retry, MILLISECOND, policy.total, random);
            prop_assert!(wait(one.min(other)) <= wait(one.max(other)));
        }
    }
}
