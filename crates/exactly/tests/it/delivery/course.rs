//! The table of attempts.

use std::time::Duration;

use exactly::webhook::delivery::Course;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// In seconds, as the contract has them.
const OFFSETS: [u64; 10] = [0, 5, 30, 120, 600, 1800, 3600, 21_600, 43_200, 86_400];

#[test]
fn ten_attempts_are_made_at_their_times_after_the_event() {
    let course = Course::default();
    assert_eq!(
        course.offsets(),
        OFFSETS.map(Duration::from_secs),
        "the contract names these"
    );
    for (failed, offset) in OFFSETS.iter().enumerate().skip(1) {
        let failed = u32::try_from(failed).unwrap();
        // Each attempt fails as soon as it begins.
        let began = Duration::from_secs(OFFSETS[usize::try_from(failed).unwrap() - 1]);
        let wait = course.next(failed, began, None).unwrap();
        assert_eq!(began + wait, Duration::from_secs(*offset), "after {failed} failures");
    }
    assert_eq!(course.next(10, DAY, None), None);
    assert_eq!(course.next(10, Duration::ZERO, None), None);
    assert_eq!(course.next(u32::MAX, Duration::ZERO, None), None);
}

#[test]
fn an_attempt_that_takes_long_does_not_move_the_table() {
    let course = Course::default();
    assert_eq!(course.next(1, SECOND, None), Some(4 * SECOND));
    // Past the second attempt's time, the third's is next.
    assert_eq!(course.next(1, 15 * SECOND, None), Some(15 * SECOND));
    assert_eq!(course.next(1, 5 * SECOND, None), Some(25 * SECOND));
}

#[test]
fn a_delivery_that_was_held_up_goes_on_where_the_table_stands() {
    let course = Course::default();
    assert_eq!(
        course.next(1, 20 * Duration::from_hours(1), None),
        Some(Duration::from_hours(4))
    );
    assert_eq!(course.next(1, DAY, None), None);
    assert_eq!(course.next(1, 2 * DAY, None), None);
}

#[test]
fn who_asks_for_time_gets_it_within_the_window() {
    let course = Course::default();
    assert_eq!(
        course.next(1, SECOND, Some(SECOND)),
        Some(4 * SECOND),
        "never earlier than the table"
    );
    assert_eq!(course.next(1, SECOND, Some(100 * SECOND)), Some(100 * SECOND));
    assert_eq!(
        course.next(1, HOUR, Some(23 * HOUR)),
        Some(23 * HOUR),
        "at the end of the window"
    );
    for asked in [DAY, Duration::MAX] {
        assert_eq!(
            course.next(1, SECOND, Some(asked)),
            None,
            "not earlier than asked, nor after the window"
        );
    }
}

#[test]
fn tables_that_make_no_sense_are_refused() {
    let read = |seconds: &[u64]| {
        let offsets: Vec<_> = seconds.iter().map(|seconds| Duration::from_secs(*seconds)).collect();
        Course::new(offsets).map_err(|error| error.to_string())
    };
    let course = read(&[0, 1, 3]).unwrap();
    assert_eq!(course.next(2, SECOND, None), Some(2 * SECOND));
    assert_eq!(course.window(), 3 * SECOND);
    assert_eq!(read(&[0]).unwrap().next(1, Duration::ZERO, None), None);
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

proptest! {
    #[test]
    fn no_attempt_is_too_early_or_too_late(
        course in tables(),
        failed in 0..14_u32,
        since in (0..260_000_000_u64).prop_map(Duration::from_millis),
        asked in waits(3),
    ) {
        if let Some(wait) = course.next(failed, since, asked) {
            prop_assert!(wait >= asked.unwrap_or_default());
            prop_assert!(since + wait <= course.window());
            prop_assert!(since + wait >= course.offsets()[usize::try_from(failed).unwrap()]);
            prop_assert!(wait > Duration::ZERO);
        }
    }

    /// More failures, a later time or a longer wait never bring an attempt forward.
    #[test]
    fn what_is_worse_is_never_earlier(
        course in tables(),
        failed in 0..14_u32,
        since in (0..260_000_000_u64).prop_map(Duration::from_millis),
        asked in waits(3),
        more in 0..3_u32,
        later in (0..90_000_000_u64).prop_map(Duration::from_millis),
        longer in (0..90_000_000_u64).prop_map(Duration::from_millis),
    ) {
        let at = |failed: u32, since: Duration, asked: Option<Duration>| {
            course.next(failed, since, asked).map_or(Duration::MAX, |wait| since + wait)
        };
        let now = at(failed, since, asked);
        prop_assert!(at(failed + more, since, asked) >= now);
        prop_assert!(at(failed, since + later, asked) >= now);
        prop_assert!(at(failed, since, Some(asked.unwrap_or_default().saturating_add(longer))) >= now);
    }

    /// From the first attempt on, whatever endpoints ask for and however long attempts take.
    #[test]
    fn there_are_never_more_attempts_than_the_table_has(
        course in tables(),
        held in (0..90_000_000_u64).prop_map(Duration::from_millis),
        answers in prop::collection::vec((waits(1), 0..20_000_u64), 200),
    ) {
        let (mut at, mut failed) = (held, 0);
        for (asked, took) in answers {
            at += Duration::from_millis(took);
            failed += 1;
            let Some(wait) = course.next(failed, at, asked) else { break };
            at += wait;
        }
        prop_assert!(usize::try_from(failed).unwrap() <= course.offsets().len());
    }
}
