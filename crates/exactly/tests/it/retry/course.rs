//! One call, from its first attempt to its end.

use std::time::Duration;

use exactly::retry::{
    Class, Code, Course, Decision, Ended, Ending, Expiry, Fate, Heard, KeyWord, Policy, Schedule, Stop,
};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::schedule::{bounds, durations, schedules};
use super::table::STATUSES;

/// One attempt: how long it took, how it ended, and what chance and the budget said then.
#[derive(Clone, Debug)]
struct Attempt {
    took: Duration,
    ended: Ended,
    random: u64,
    granted: bool,
    /// Whether it was sent on to where the key does not count.
    left_key: bool,
}

fn heard() -> impl Strategy<Value = Heard> {
    let key = select(vec![
        KeyWord::Stored,
        KeyWord::Replayed,
        KeyWord::Freed,
        KeyWord::Unknown,
    ]);
    let asked = prop_oneof![4 => (0_u64..5000).prop_map(Duration::from_millis), 1 => durations()];
    let expires = prop_oneof![
        3 => (0_u64..100_000).prop_map(|left| Expiry::In(Duration::from_millis(left))),
        1 => durations().prop_map(Expiry::In),
        1 => Just(Expiry::Never),
    ];
    (
        select(STATUSES.to_vec()),
        option::weighted(0.3, select(Code::ALL.to_vec())),
        option::weighted(0.3, any::<bool>()),
        option::of(key),
        option::of(asked),
        option::weighted(0.2, expires),
    )
        .prop_map(|(status, code, retryable, key, retry_after, expires)| Heard {
            status,
            code,
            retryable,
            key,
            retry_after,
            expires,
        })
}

fn attempts() -> impl Strategy<Value = Vec<Attempt>> {
    let ended = prop_oneof![
        2 => Just(Ended::NotSent),
        2 => Just(Ended::Sent),
        2 => heard().prop_map(Ended::CutOff),
        4 => heard().prop_map(Ended::Answered),
    ];
    let took = prop_oneof![9 => (0_u64..1000).prop_map(Duration::from_millis), 1 => durations()];
    let attempt = (
        took,
        ended,
        any::<u64>(),
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.05),
    );
    let attempt = attempt.prop_map(|(took, ended, random, granted, left_key)| Attempt {
        took,
        ended,
        random,
        granted,
        left_key,
    });
    proptest::collection::vec(attempt, 1..14)
}

fn policies() -> impl Strategy<Value = Policy> {
    let retries = prop_oneof![0_u32..8, Just(u32::MAX)];
    prop_oneof![
        select(Class::ALL.map(Policy::of).to_vec()),
        (retries, durations(), schedules()).prop_map(|(retries, total, schedule)| {
            let policy = Policy::of(Class::Custom("of its own")).retries(retries);
            policy.within(total).schedule(schedule)
        }),
    ]
}

/// What an attempt alone tells, from the words of its phases.
fn fate(ended: &Ended) -> Fate {
    match ended {
        Ended::NotSent => Fate::DidNotHappen,
        Ended::Sent => Fate::Unknown,
        Ended::Answered(heard) => heard.fate(),
        Ended::CutOff(heard) => {
            let kept = matches!(heard.key, Some(KeyWord::Stored | KeyWord::Replayed));
            if kept && heard.fate() == Fate::Happened {
                Fate::Happened
            } else {
                Fate::Unknown
            }
        }
    }
}

/// What a wait must be, whatever led to it.
fn check_wait(
    wait: Duration,
    attempt: &Attempt,
    policy: &Policy,
    retry: u32,
    elapsed: Duration,
) -> Result<(), TestCaseError> {
    let asked = attempt.ended.heard().and_then(|heard| heard.retry_after);
    let asked = asked.unwrap_or_default();
    prop_assert!(wait >= asked, "earlier than asked");
    prop_assert!(
        elapsed.checked_add(wait).is_some_and(|then| then <= policy.total),
        "out of time"
    );
    prop_assert!(retry <= policy.retries_max, "one retry too many");
    let (least, most) = bounds(&policy.schedule, retry, elapsed, policy.total);
    prop_assert!(
        wait >= least && wait <= most.max(asked),
        "{wait:?} is not of the schedule"
    );
    prop_assert!(attempt.granted, "without the budget's leave");
    Ok(())
}

/// What may be known after these attempts, the last one included.
fn check_ending(ending: Ending, doubt: bool, ended: &[&Ended]) -> Result<(), TestCaseError> {
    let (last, before) = ended.split_last().expect("one attempt at least");
    let doubt = doubt || before.iter().any(|ended| fate(ended) == Fate::Unknown);
    let happened = before.iter().any(|ended| fate(ended) == Fate::Happened);
    let spoken = matches!(last, Ended::Answered(heard)
        if matches!(heard.key, Some(KeyWord::Stored | KeyWord::Replayed)));
    let expected = match fate(last) {
        _ if happened => Ending::Applied,
        Fate::Happened => Ending::Applied,
        Fate::DidNotHappen if !doubt || spoken => Ending::NotApplied,
        _ => Ending::Unknown,
    };
    prop_assert_eq!(ending, expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_course_of_events_breaks_a_limit_or_claims_what_is_not_known(
        policy in policies(),
        repeatable in prop::bool::weighted(0.8),
        doubt in prop::bool::weighted(0.2),
        expires_in in option::weighted(0.2, durations()),
        attempts in attempts(),
    ) {
        let mut course = Course::new(&policy, repeatable).expires_in(expires_in);
        if doubt {
            course = course.in_doubt();
        }
        let (mut elapsed, mut repeatable) = (Duration::ZERO, repeatable);
        // The server's word, of which the earliest counts, is better than what was thought.
        let (mut told, mut is_told) = (None::<Duration>, false);
        let mut ended = Vec::new();
        for (retry, attempt) in (1..).zip(&attempts) {
            elapsed = elapsed.saturating_add(attempt.took);
            if attempt.left_key {
                course.leave_key();
                repeatable = false;
            }
            ended.push(&attempt.ended);
            match attempt.ended.heard().and_then(|heard| heard.expires) {
                Some(Expiry::In(left)) => {
                    let then = elapsed.saturating_add(left);
                    told = Some(told.map_or(then, |told| told.min(then)));
                    is_told = true;
                }
                Some(Expiry::Never) => is_told = true,
                None => {}
            }
            let expires = if is_told { told } else { expires_in };
            prop_assert_eq!(expires, {
                let mut seen = course.clone();
                let _ = seen.after(&attempt.ended, elapsed, attempt.random, || attempt.granted);
                seen.expires()
            });
            let decision = course.after(&attempt.ended, elapsed, attempt.random, || attempt.granted);
            prop_assert_eq!(course.attempts(), retry);
            check_ending(course.ending(), doubt, &ended)?;
            match decision {
                Decision::Wait(wait) => {
                    check_wait(wait, attempt, &policy, retry, elapsed)?;
                    prop_assert!(repeatable || attempt.ended == Ended::NotSent, "sent twice without a key");
                    elapsed += wait;
                    prop_assert!(expires.is_none_or(|expires| elapsed < expires), "the key is gone by then");
                }
                Decision::Stop(Stop::Deadline { ready_in }) => {
                    prop_assert!(elapsed.checked_add(ready_in).is_none_or(|then| then > policy.total));
                    break;
                }
                Decision::Stop(_) => break,
            }
        }
    }
}

fn after(course: &mut Course<'_>, ended: &Ended) -> Decision {
    course.after(ended, Duration::ZERO, 0, || true)
}

fn kept(status: u16) -> Heard {
    Heard {
        key: Some(KeyWord::Stored),
        ..Heard::status(status)
    }
}

fn stop(decision: Decision) -> Option<Stop> {
    match decision {
        Decision::Wait(_) => None,
        Decision::Stop(stop) => Some(stop),
    }
}

#[test]
fn a_success_that_was_kept_but_cut_off_is_asked_for_again_and_is_applied_if_that_is_not_possible() {
    let policy = Policy::of(Class::UserFacing);
    let cut = Ended::CutOff(kept(201));
    let mut course = Course::new(&policy, true);
    assert_eq!(stop(after(&mut course, &cut)), None);
    assert_eq!(course.ending(), Ending::Applied);
    let mut course = Course::new(&policy, false);
    assert_eq!(stop(after(&mut course, &cut)), Some(Stop::Unrepeatable));
    assert_eq!(course.ending(), Ending::Applied);
}

#[test]
fn what_was_cut_off_as_a_success_has_happened_whatever_comes_after_it() {
    let policy = Policy::of(Class::UserFacing);
    for next in [
        Ended::NotSent,
        Ended::Answered(Heard::status(401)),
        Ended::Answered(Heard::status(503)),
        Ended::Answered(Heard {
            key: Some(KeyWord::Freed),
            ..Heard::status(503)
        }),
    ] {
        let mut course = Course::new(&policy, true);
        let _ = after(&mut course, &Ended::CutOff(kept(201)));
        let _ = after(&mut course, &next);
        assert_eq!(course.ending(), Ending::Applied, "{next:?}");
    }
}

#[test]
fn a_refusal_that_was_cut_off_may_be_of_a_duplicate_and_tells_nothing() {
    let policy = Policy::of(Class::UserFacing);
    let mut course = Course::new(&policy, true);
    let _ = after(&mut course, &Ended::CutOff(kept(409)));
    assert_eq!(course.ending(), Ending::Unknown);
    // The whole of it would have said so.
    let duplicate = Heard {
        code: Code::of("PROVIDER.duplicate"),
        ..kept(409)
    };
    let decision = after(&mut course, &Ended::Answered(duplicate));
    assert_eq!(stop(decision), Some(Stop::Done));
    assert_eq!(course.ending(), Ending::Applied);
}

#[test]
fn a_refusal_ends_an_earlier_doubt_only_if_it_is_what_the_key_keeps() {
    let policy = Policy::of(Class::UserFacing);
    for (answer, ending) in [
        (Heard::status(422), Ending::Unknown),
        (kept(422), Ending::NotApplied),
        (kept(200), Ending::Applied),
        (Heard::status(200), Ending::Applied),
    ] {
        let mut course = Course::new(&policy, true);
        let _ = after(&mut course, &Ended::Sent);
        // What was not sent neither adds to the doubt nor takes from it.
        let _ = after(&mut course, &Ended::NotSent);
        assert_eq!(course.ending(), Ending::Unknown);
        let _ = after(&mut course, &Ended::Answered(answer.clone()));
        assert_eq!(course.ending(), ending, "{answer:?}");
    }
}

#[test]
fn a_call_that_was_never_attempted_did_nothing_unless_somebody_attempted_it_before() {
    let policy = Policy::of(Class::Background);
    assert_eq!(Course::new(&policy, true).ending(), Ending::NotApplied);
    assert_eq!(Course::new(&policy, true).in_doubt().ending(), Ending::Unknown);
}

#[test]
fn the_expiry_of_a_key_that_was_heard_once_holds_for_every_attempt_behind_it() {
    let policy = Policy::of(Class::Background);
    let mut course = Course::new(&policy, true);
    let answer = |expires| {
        Ended::Answered(Heard {
            expires,
            ..Heard::status(503)
        })
    };
    let soon = Some(Expiry::In(Duration::from_millis(3500)));
    let decision = course.after(&answer(soon), Duration::ZERO, 0, || true);
    assert_eq!(decision, Decision::Wait(Duration::from_secs(1)));
    let decision = course.after(&answer(Some(Expiry::Never)), Duration::from_millis(1499), 0, || true);
    assert_eq!(decision, Decision::Wait(Duration::from_secs(2)));
    let decision = course.after(&Ended::Sent, Duration::from_millis(1500), 0, || true);
    assert_eq!(decision, Decision::Stop(Stop::Expired));
}

#[test]
fn a_policy_without_limits_goes_on_for_ever() {
    let policy = Policy::of(Class::Custom("stubborn"))
        .retries(u32::MAX)
        .within(Duration::MAX)
        .schedule(Schedule::SECONDS);
    let mut course = Course::new(&policy, true);
    for attempt in 1..=10_000 {
        let elapsed = Duration::from_hours(attempt);
        let decision = course.after(&Ended::Sent, elapsed, u64::MAX, || true);
        assert!(matches!(decision, Decision::Wait(wait) if wait <= Duration::from_secs(30)));
    }
    assert_eq!(course.attempts(), 10_000);
    // Only what is longer than there can be time does not fit.
    let asked = Ended::Answered(Heard {
        retry_after: Some(Duration::MAX),
        ..Heard::status(503)
    });
    let decision = course.after(&asked, Duration::from_nanos(1), u64::MAX, || true);
    let ready_in = Duration::MAX;
    assert_eq!(decision, Decision::Stop(Stop::Deadline { ready_in }));
}

#[test]
fn a_policy_without_retries_attempts_once() {
    let policy = Policy::of(Class::UserFacing).retries(0);
    let mut course = Course::new(&policy, true);
    assert_eq!(stop(after(&mut course, &Ended::NotSent)), Some(Stop::Attempts));
    assert_eq!(course.ending(), Ending::NotApplied);
}
