//! The checker of histories, on histories written by hand.

use std::time::Duration;

use exactly::{Attempt, Call, Fenced, Fingerprint, Keep, Key, Replay, Scope, Verdict};
use exactly_conformance::history::check::check;
use exactly_conformance::history::{Answer, Event, Step};

const LEASE: Duration = Duration::from_hours(1);

fn call() -> Call {
    let key = Key::new("order-1066").unwrap();
    Call::new(Scope::global("order.place"), key, Fingerprint::of("two tickets")).with_lease(LEASE)
}

fn event(asked: u64, answered: u64, step: Step, answer: Answer) -> Event {
    Event {
        asked,
        answered: Some(answered),
        step,
        answer: Some(answer),
    }
}

fn runs(asked: u64, answered: u64, call: &Call) -> Event {
    event(
        asked,
        answered,
        Step::Begin(call.clone()),
        Answer::Verdict(Verdict::Run(call.claim(Attempt::FIRST))),
    )
}

fn waits(asked: u64, answered: u64, call: &Call) -> Event {
    event(
        asked,
        answered,
        Step::Begin(call.clone()),
        Answer::Verdict(Verdict::InFlight { retry_after: LEASE }),
    )
}

fn completes(asked: u64, answered: u64, call: &Call, fenced: Fenced) -> Event {
    let step = Step::Complete(call.claim(Attempt::FIRST), "done".into(), Keep::Forever);
    event(asked, answered, step, Answer::Fenced(fenced))
}

fn replays(asked: u64, answered: u64, call: &Call) -> Event {
    let replay = Replay {
        outcome: "done".into(),
        expires_in: None,
    };
    event(
        asked,
        answered,
        Step::Begin(call.clone()),
        Answer::Verdict(Verdict::Replay(replay)),
    )
}

#[test]
fn steps_that_overlap_may_take_either_order() {
    let (first, second) = (call(), call());
    check(&[waits(0, 3, &second), runs(1, 2, &first)]).unwrap();
    check(&[
        replays(1, 4, &second),
        runs(0, 1, &first),
        completes(2, 5, &first, Fenced::Applied),
    ])
    .unwrap();
}

#[test]
fn steps_that_do_not_overlap_keep_their_order() {
    let (first, second) = (call(), call());
    check(&[waits(0, 1, &second), runs(2, 3, &first)]).unwrap_err();
    check(&[
        runs(0, 1, &first),
        completes(2, 3, &first, Fenced::Applied),
        waits(4, 5, &second),
    ])
    .unwrap_err();
}

#[test]
fn two_runners_are_never_explained() {
    let (first, second) = (call(), call());
    let report = check(&[runs(0, 3, &first), runs(1, 2, &second)]).unwrap_err();
    assert!(report.contains("run") && report.contains('✓'), "{report}");
}

#[test]
fn a_step_that_was_given_up_happens_at_any_time_or_never() {
    let (first, second) = (call(), call());
    let given_up = || Event {
        asked: 2,
        answered: None,
        answer: None,
        ..completes(2, 0, &first, Fenced::Applied)
    };
    check(&[runs(0, 1, &first), given_up(), waits(3, 4, &second)]).unwrap();
    check(&[runs(0, 1, &first), given_up(), replays(3, 4, &second)]).unwrap();
    check(&[
        runs(0, 1, &first),
        given_up(),
        waits(3, 4, &second),
        replays(5, 6, &second),
    ])
    .unwrap();
    check(&[
        runs(0, 1, &first),
        given_up(),
        replays(3, 4, &second),
        waits(5, 6, &second),
    ])
    .unwrap_err();
}

#[test]
fn time_passes_for_the_model_too() {
    let (first, second) = (call(), call());
    let in_doubt = Answer::Verdict(Verdict::InDoubt(first.claim(Attempt::FIRST)));
    let elapsed = event(2, 3, Step::Elapse(2 * LEASE), Answer::Done);
    check(&[
        runs(0, 1, &first),
        elapsed,
        event(4, 5, Step::Begin(second.clone()), in_doubt),
    ])
    .unwrap();
    let elapsed = event(2, 3, Step::Elapse(2 * LEASE), Answer::Done);
    check(&[runs(0, 1, &first), elapsed, waits(4, 5, &second)]).unwrap_err();
}
