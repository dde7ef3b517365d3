//! The table of attempts.

use std::time::Duration;

use exactly::webhook::delivery::{Attempt, Course};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// In seconds, as the contract has them.
const OFFSETS: [u64; 10] = [0, 5, 30, 120, 600, 1800, 3600, 21_600, 43_200, 86_400];

/// An attempt that was made when it was due, and failed at once.
fn prompt(failures: u32, at: Duration) -> Attempt {
    Attempt {
        failures,
        due: at,
        begun: at,
        ended: at,
    }
}

/// When attempts are made that fail at once, of a delivery that nothing holds up, if each answer asks for this.
fn made(course: &Course, asked: impl Fn(u32) -> Option<Duration>) -> Vec<Duration> {
    let mut times = vec![Duration::ZERO];
    for failures in 0.. {
        let at = *times.last().unwrap();
        match course.next(&prompt(failures, at), asked(failures)) {
            Some(wait) => times.push(at + wait),
            None => break,
        }
    }
    times
}

#[test]
fn ten_attempts_are_made_at_their_times_after_the_event() {
    let course = Course::default();
    let offsets = OFFSETS.map(Duration::from_secs);
    assert_eq!(course.offsets(), offsets, "the contract names these");
    assert_eq!(made(&course, |_| None), offsets);
    for failures in [9, 10, u32::MAX] {
        assert_eq!(course.next(&prompt(failures, Duration::ZERO), None), None);
    }
}

#[test]
fn an_attempt_that_takes_long_does_not_move_the_table() {
    let course = Course::default();
    let slow = |failures, begun, took| Attempt {
        ended: Duration::from_secs(begun + took),
        ..prompt(failures, Duration::from_secs(begun))
    };
    assert_eq!(course.next(&slow(0, 0, 1), None), Some(4 * SECOND));
    // Past the second attempt's time, it is made as long after the first as it was to be.
    assert_eq!(course.next(&slow(0, 0, 15), None), Some(5 * SECOND));
    assert_eq!(course.next(&slow(1, 20, 15), None), Some(25 * SECOND));
    // And the fourth is on the table.
    assert_eq!(course.next(&slow(2, 60, 15), None), Some(45 * SECOND));
}

#[test]
fn a_delivery_that_was_held_up_has_the_attempts_that_it_has_left() {
    let course = Course::default();
    let held = |failures, due, begun| Attempt {
        begun,
        ended: begun,
        ..prompt(failures, due)
    };
    assert_eq!(course.next(&held(0, Duration::ZERO, 20 * HOUR), None), Some(5 * SECOND));
    assert_eq!(course.next(&held(6, HOUR, 3 * HOUR), None), Some(3 * HOUR));
    // Past the window's end too, with each as far from the one before as on the table.
    let mut attempt = held(0, Duration::ZERO, 30 * HOUR);
    let mut waits = Vec::new();
    while let Some(wait) = course.next(&attempt, None) {
        waits.push(wait.as_secs());
        attempt = prompt(attempt.failures + 1, attempt.ended + wait);
    }
    assert_eq!(
        waits,
        OFFSETS
            .array_windows()
            .map(|[one, next]| next - one)
            .collect::<Vec<_>>()
    );
    // Of what comes to the end with some left, one that was not held has had its last.
    assert_eq!(course.next(&prompt(5, DAY), None), None);
    assert_eq!(course.next(&held(5, DAY, 2 * DAY), None), None);
    assert_eq!(course.next(&held(5, 23 * HOUR, DAY), None), Some(HOUR / 2));
}

#[test]
fn who_asks_for_time_gets_it_within_the_window() {
    let course = Course::default();
    let first = prompt(0, SECOND);
    let next = |asked| course.next(&first, Some(asked));
    assert_eq!(next(SECOND), Some(4 * SECOND), "never earlier than the table");
    assert_eq!(next(100 * SECOND), Some(100 * SECOND));
    let rest = DAY.saturating_sub(SECOND);
    for asked in [rest, DAY, Duration::MAX] {
        assert_eq!(next(asked), Some(rest), "at the end of the window");
    }
}

/// An endpoint that always asks for an hour has ten attempts, and none after the window.
#[test]
fn asking_for_time_again_and_again_takes_no_attempt_away_and_adds_none() {
    let course = Course::default();
    let hours = |times: Vec<Duration>| times.iter().map(|at| at.as_secs() / 3600).collect::<Vec<_>>();
    let hourly = made(&course, |_| Some(HOUR));
    assert_eq!(hours(hourly), [0, 1, 2, 3, 4, 5, 6, 11, 12, 24]);
    // What it asks for next would be past the end, so there is one at the end, and no other.
    assert_eq!(hours(made(&course, |_| Some(5 * HOUR))), [0, 5, 10, 15, 20, 24]);
    assert_eq!(hours(made(&course, |_| Some(Duration::MAX))), [0, 24]);
    // One that asks once, and then fails.
    let late = made(&course, |failures| (failures == 0).then_some(23 * HOUR + HOUR / 2));
    assert_eq!(late.last(), Some(&DAY));
}

#[test]
fn tables_that_make_no_sense_are_refused() {
    let read = |seconds: &[u64]| {
        let offsets: Vec<_> = seconds.iter().map(|seconds| Duration::from_secs(*seconds)).collect();
        Course::new(offsets).map_err(|error| error.to_string())
    };
    let course = read(&[0, 1, 3]).unwrap();
    assert_eq!(course.next(&prompt(1, SECOND), None), Some(2 * SECOND));
    assert_eq!(course.window(), 3 * SECOND);
    assert_eq!(read(&[0]).unwrap().next(&prompt(0, Duration::ZERO), None), None);
    let hundred: Vec<u64> = (0..=100).collect();
    for (table, says) in [
        (&[][..], "0 attempts"),
        (&[1, 2], "make it 0"),
        (&[0, 2, 2], "later than the one before"),
        (&[0, 3, 2], "later than the one before"),
        (&[0, 31 * 86_400 + 1], "31 days at most"),
        (&hundred, "101 attempts"),
    ] {
        let error = read(table).unwrap_err();
        assert!(error.contains(says), "{table:?}: {error}");
    }
}

fn tables() -> impl Strategy<Value = Course> {
    let own = prop::collection::btree_set(1..200_000_u64, 0..12).prop_map(|seconds| {
        let offsets: Vec<_> = std::iter::once(0).chain(seconds).map(Duration::from_secs).collect();
        Course::new(offsets).unwrap()
    });
    prop_oneof![Just(Course::default()), own]
}

fn waits(days: u64) -> impl Strategy<Value = Option<Duration>> {
    prop_oneof![
        2 => Just(None),
        5 => (0..days * 86_400_000).prop_map(|ms| Some(Duration::from_millis(ms))),
        1 => Just(Some(Duration::MAX)),
    ]
}

fn millis(most: u64) -> impl Strategy<Value = Duration> {
    (0..most).prop_map(Duration::from_millis)
}

proptest! {
    /// From the first attempt on, whatever endpoints ask for and however long attempts take: while nothing is held, none is
    /// earlier than it was asked for or than the table has it, unless the window ends, and none is put off until after that.
    #[test]
    fn no_attempt_is_too_early_or_too_late(
        course in tables(),
        answers in prop::collection::vec((waits(1), millis(20_000)), 120),
    ) {
        let (mut attempt, window) = (Attempt::default(), course.window());
        for (asked, took) in answers {
            attempt.ended = attempt.begun + took;
            let Some(wait) = course.next(&attempt, asked) else { break };
            let at = attempt.ended + wait;
            if attempt.ended <= window {
                prop_assert!(at <= window);
            }
            if at < window {
                prop_assert!(wait >= asked.unwrap_or_default());
                prop_assert!(at >= course.offsets()[usize::try_from(attempt.failures).unwrap() + 1]);
                prop_assert!(wait > Duration::ZERO);
            }
            attempt = prompt(attempt.failures + 1, at);
        }
        prop_assert!(usize::try_from(attempt.failures).unwrap() < course.offsets().len());
    }

    /// However often and however long it is held: each attempt of the table is made, unless somebody asks for more time.
    #[test]
    fn what_is_held_past_the_window_has_every_attempt(
        course in tables(),
        held in millis(90_000_000),
        holds in prop::collection::vec(millis(90_000_000), 20),
    ) {
        let due = course.window() / 2;
        let mut attempt = Attempt { due, begun: course.window() + held, ..Attempt::default() };
        for held in holds.iter().cycle() {
            attempt.ended = attempt.begun;
            let Some(wait) = course.next(&attempt, None) else { break };
            let due = attempt.ended + wait;
            attempt = Attempt { failures: attempt.failures + 1, due, begun: due + *held, ended: due };
        }
        prop_assert_eq!(usize::try_from(attempt.failures).unwrap() + 1, course.offsets().len());
    }

    /// Asking for more time never brings an attempt forward.
    #[test]
    fn a_longer_wait_is_never_shorter(
        course in tables(),
        failures in 0..14_u32,
        at in millis(260_000_000),
        asked in waits(3),
        longer in millis(90_000_000),
    ) {
        let next = |asked| course.next(&prompt(failures, at), asked);
        let longer = asked.unwrap_or_default().saturating_add(longer);
        prop_assert!(next(Some(longer)) >= next(asked));
    }
}
