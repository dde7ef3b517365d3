//! What an exchange means for its delivery.

use std::time::Duration;

use exactly::queue::{Failure, FailureKind};
use exactly::webhook::delivery::{Answer, Attempt, Course, Exchange, Fault, Trouble, TroubleKind, Verdict, verdict};
use http::StatusCode;

const SECOND: Duration = Duration::from_secs(1);

fn answer(status: u16) -> Answer {
    Answer {
        status: StatusCode::from_u16(status).unwrap(),
        retry_after: None,
        body: bytes::Bytes::new(),
        cut: false,
    }
}

fn judged(answer: Result<Answer, Fault>, failures: u32, since_event: Duration) -> Verdict {
    let exchange = Exchange { answer, took: SECOND };
    let attempt = Attempt {
        failures,
        due: since_event,
        begun: since_event,
        ended: since_event,
    };
    verdict(&exchange, &Course::default(), &attempt)
}

fn retried(answer: Result<Answer, Fault>) -> Failure {
    match judged(answer, 0, SECOND) {
        Verdict::Retry { after, failure } if after == 4 * SECOND => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_2xx_is_delivered_and_only_410_is_gone() {
    for status in 100..1000 {
        let judged = judged(Ok(answer(status)), 0, SECOND);
        match status {
            200..300 => assert_eq!(judged, Verdict::Delivered, "{status}"),
            410 => assert_eq!(judged, Verdict::Gone),
            _ => {
                let Verdict::Retry { after, failure } = judged else {
                    panic!("{status}: {judged:?}")
                };
                assert_eq!((after, failure.kind), (4 * SECOND, FailureKind::Transient), "{status}");
                assert!(failure.message.contains(&status.to_string()), "{failure}");
                assert_eq!(
                    failure.message.contains("redirects"),
                    (300..400).contains(&status),
                    "{failure}"
                );
            }
        }
    }
}

/// A body that was cut changes nothing.
#[test]
fn a_cut_answer_counts_by_its_status() {
    let cut = |status| Answer {
        cut: true,
        ..answer(status)
    };
    assert_eq!(judged(Ok(cut(200)), 0, SECOND), Verdict::Delivered);
    assert!(matches!(judged(Ok(cut(500)), 0, SECOND), Verdict::Retry { .. }));
}

#[test]
fn a_fault_is_tried_again_and_says_whether_it_left() {
    for (kind, expected) in [
        (TroubleKind::Refused, FailureKind::Transient),
        (TroubleKind::Unreachable, FailureKind::Transient),
        (TroubleKind::Timeout, FailureKind::Timeout),
        (TroubleKind::Broken, FailureKind::Transient),
    ] {
        let trouble = || Trouble {
            kind,
            message: "the cable was cut".into(),
        };
        let failure = retried(Err(Fault::NotSent(trouble())));
        assert_eq!(
            (failure.kind, &*failure.message),
            (expected, "not sent: the cable was cut")
        );
        let failure = retried(Err(Fault::Lost(trouble())));
        assert_eq!(
            (failure.kind, &*failure.message),
            (expected, "sent without an answer: the cable was cut")
        );
    }
}

#[test]
fn what_the_endpoint_says_is_told_in_one_short_line() {
    let failure = retried(Ok(Answer {
        body: "  line\n\u{1b}[31mtwo\0 \u{fffd}".into(),
        ..answer(400)
    }));
    assert_eq!(
        failure.message,
        "the endpoint answered 400 Bad Request: line\\n\\u{1b}[31mtwo\\0 \u{fffd}"
    );
    for body in [
        "x".repeat(16 << 10),
        "\u{1f980}".repeat(4 << 10),
        "\u{1b}".repeat(16 << 10),
    ] {
        let failure = retried(Ok(Answer {
            body: body.into(),
            ..answer(400)
        }));
        assert!(failure.message.len() < 2048, "{}", failure.message.len());
    }
    let failure = retried(Ok(Answer {
        body: vec![0xff, 0xfe].into(),
        ..answer(400)
    }));
    assert!(failure.message.ends_with("\u{fffd}\u{fffd}"), "{failure}");
}

#[test]
fn a_wait_that_is_asked_for_is_kept() {
    let busy = |seconds| Answer {
        retry_after: Some(Duration::from_secs(seconds)),
        ..answer(503)
    };
    let Verdict::Retry { after, .. } = judged(Ok(busy(100)), 0, SECOND) else {
        panic!()
    };
    assert_eq!(after, 100 * SECOND);
    // Until the last attempt, and that is told.
    let Verdict::Retry { after, failure } = judged(Ok(busy(90_000)), 0, SECOND) else {
        panic!()
    };
    assert_eq!(after + SECOND, Duration::from_hours(24));
    assert!(
        failure.message.contains("wait for 90000s") && failure.message.contains("503"),
        "{failure}"
    );
    // A success is one, whatever else it says.
    assert_eq!(
        judged(
            Ok(Answer {
                retry_after: Some(SECOND),
                ..answer(200)
            }),
            0,
            SECOND
        ),
        Verdict::Delivered
    );
}

#[test]
fn the_tenth_failure_is_the_last() {
    for (failures, is_last) in [(0, false), (8, false), (9, true), (10, true), (u32::MAX, true)] {
        let judged = judged(Ok(answer(500)), failures, SECOND);
        assert_eq!(matches!(judged, Verdict::Dead(_)), is_last, "{failures}: {judged:?}");
    }
    for (failures, why) in [
        (3, "the last attempt is 86400s after the event"),
        (9, "no attempt is left"),
    ] {
        let Verdict::Dead(failure) = judged(Ok(answer(500)), failures, Duration::from_hours(24)) else {
            panic!()
        };
        let said = "the endpoint answered 500 Internal Server Error";
        assert_eq!(failure.message, format!("{why}; {said}"));
    }
}
