//! Applied, not applied, unknown: never wrong.

use std::time::Duration;

use exactly::client::{Client, Outcome};
use exactly::retry::{Ended, Stop};

use super::scripted::{Act, Scripted, answer};
use super::{hasty, refused_address};

const STORED: &str = "idempotency-status: stored\r\n";
const REPLAYED: &str = "idempotency-status: replayed\r\n";

/// What the server did, as the client must not contradict it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Truth {
    Done,
    NotDone,
}

/// The outcome against the truth: *applied* and *not applied* are never wrong.
fn check(outcome: &Outcome, truth: Truth, case: &str) {
    match outcome {
        Outcome::Applied(_) => assert_eq!(truth, Truth::Done, "{case}: {outcome:?}"),
        Outcome::NotApplied(_) => assert_eq!(truth, Truth::NotDone, "{case}: {outcome:?}"),
        Outcome::Unknown(_) => {}
    }
}

async fn once(server: &Scripted, client: &Client) -> Outcome {
    client
        .post(server.url("/refunds"))
        .key("k")
        .json("ten")
        .retries(0)
        .send()
        .await
}

/// How many bytes the client's request has.
async fn request_bytes() -> usize {
    let server = Scripted::start([Act::Answer(answer("200 OK", "", ""))]).await;
    let outcome = once(&server, &hasty()).await;
    assert!(matches!(outcome, Outcome::Applied(_)));
    let request = &server.arrived()[0];
    request.head.len() + request.body.len()
}

#[tokio::test]
async fn a_connection_cut_at_every_byte_of_the_request_is_unknown_and_then_settled() {
    let bytes = request_bytes().await;
    for cut in 0..=bytes {
        let client = hasty();
        // Behind the last byte the request is whole: the server acts on it, and the answer is lost.
        let (act, truth) = match cut {
            _ if cut < bytes => (Act::CutRequest(cut), Truth::NotDone),
            _ => (Act::CutAnswer(String::new(), 0), Truth::Done),
        };
        let server = Scripted::start([act]).await;
        let outcome = once(&server, &client).await;
        check(&outcome, truth, &format!("cut at {cut}"));
        let unknown = match outcome {
            Outcome::Unknown(unknown) => unknown,
            // The connection was closed before anything was written to it, and that is known here.
            Outcome::NotApplied(_) if cut == 0 => continue,
            outcome => panic!("cut at {cut} of {bytes}: what became of what left cannot be known: {outcome:?}"),
        };
        server.then(Act::Answer(answer("201 Created", STORED, "rf_1")));
        let settled = unknown.resolve().await;
        assert!(matches!(settled, Outcome::Applied(_)), "cut at {cut}: {settled:?}");
    }
}

#[tokio::test]
async fn a_connection_cut_at_every_byte_of_the_answer_never_ends_as_not_applied() {
    for headers in [STORED, ""] {
        let whole = answer("201 Created", headers, "{\"id\":\"rf_1\"}");
        let head = whole.find("\r\n\r\n").unwrap() + 4;
        for cut in 0..=whole.len() {
            let server = Scripted::start([Act::CutAnswer(whole.clone(), cut)]).await;
            let outcome = once(&server, &hasty()).await;
            check(&outcome, Truth::Done, &format!("cut at {cut}"));
            // An answer that is kept is known by its head; any other has to be whole.
            let is_known = if headers.is_empty() {
                cut == whole.len()
            } else {
                cut >= head
            };
            assert_eq!(
                matches!(outcome, Outcome::Applied(_)),
                is_known,
                "cut at {cut}: {outcome:?}"
            );
            if let Outcome::Applied(applied) = &outcome {
                assert_eq!(applied.answer().is_truncated(), cut < whole.len(), "cut at {cut}");
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_cut_at_every_byte_is_not_applied_only_when_it_is_whole() {
    for headers in [STORED, ""] {
        let whole = answer("422 Unprocessable Content", headers, "{\"code\":\"VALIDATION.amount\"}");
        for cut in 0..=whole.len() {
            let server = Scripted::start([Act::CutAnswer(whole.clone(), cut)]).await;
            let outcome = once(&server, &hasty()).await;
            check(&outcome, Truth::NotDone, &format!("cut at {cut}"));
            // What is missing may have said that it had been done before.
            let is_whole = cut == whole.len();
            assert_eq!(
                matches!(outcome, Outcome::NotApplied(_)),
                is_whole,
                "cut at {cut}: {outcome:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_refused_duplicate_cut_at_every_byte_never_ends_as_not_applied() {
    // What looks like a refusal says at its end that it was done before.
    let headers = format!("content-type: application/problem+json\r\n{STORED}");
    let whole = answer("409 Conflict", &headers, "{\"code\":\"PROVIDER.duplicate\"}");
    for cut in 0..=whole.len() {
        let server = Scripted::start([Act::CutAnswer(whole.clone(), cut)]).await;
        let outcome = once(&server, &hasty()).await;
        check(&outcome, Truth::Done, &format!("cut at {cut}"));
        assert_eq!(
            matches!(outcome, Outcome::Applied(_)),
            cut == whole.len(),
            "cut at {cut}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn what_is_known_to_have_happened_stays_so_if_the_rest_of_its_answer_cannot_be_had() {
    let whole = answer("201 Created", STORED, "rf_1");
    let cut = Act::CutAnswer(whole.clone(), whole.len() - 2);
    let server = Scripted::start([cut, Act::Answer(answer("401 Unauthorized", "", "who are you?"))]).await;
    let outcome = hasty().post(server.url("/refunds")).json("ten").send().await;
    let Outcome::Applied(applied) = &outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        (applied.answer().text().as_ref(), applied.answer().is_truncated()),
        ("rf", true)
    );
}

#[tokio::test]
async fn with_retries_every_cut_ends_as_applied_with_one_key() {
    let bytes = request_bytes().await;
    let replayed = answer("201 Created", REPLAYED, "rf_1");
    let cuts = (0..bytes).map(Act::CutRequest);
    let cuts = cuts.chain((0..replayed.len()).map(|cut| Act::CutAnswer(replayed.clone(), cut)));
    let calls: Vec<_> = cuts
        .map(|act| tokio::spawn(cut_and_repeated(act, replayed.clone())))
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}

async fn cut_and_repeated(act: Act, replayed: String) {
    let case = format!("{act:?}");
    let server = Scripted::start([act, Act::Answer(replayed)]).await;
    let outcome = hasty().post(server.url("/refunds")).json("ten").send().await;
    let Outcome::Applied(applied) = &outcome else {
        panic!("{case}: {outcome:?}")
    };
    assert_eq!(applied.answer().text(), "rf_1", "{case}");
    assert_eq!(outcome.account().attempts().len(), 2, "{case}");
    let key = outcome.account().key().unwrap().as_str();
    for request in server.arrived() {
        assert_eq!(request.header("idempotency-key"), Some(key), "{case}");
        assert_eq!(request.body, b"\"ten\"", "{case}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_not_applied() {
    let outcome = hasty()
        .post(format!("http://{}/refunds", refused_address()))
        .send()
        .await;
    let Outcome::NotApplied(not) = &outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(not.account().attempts().len(), 4);
    assert!(
        not.account()
            .attempts()
            .iter()
            .all(|attempt| attempt.ended == Ended::NotSent)
    );
    assert_eq!(not.account().stop(), Some(Stop::Attempts));
}

#[tokio::test]
async fn a_host_that_never_connects_is_not_applied_when_the_time_is_up() {
    // A full backlog: connections are neither accepted nor refused.
    let listener = super::full_backlog();
    let url = format!("http://{}/refunds", listener.address);
    let outcome = hasty()
        .post(url)
        .json("ten")
        .within(Duration::from_millis(300))
        .send()
        .await;
    let Outcome::NotApplied(not) = &outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(not.account().attempts()[0].ended, Ended::NotSent);
}

#[tokio::test]
async fn the_deadline_ends_the_attempt_in_flight() {
    let server = Scripted::start([Act::Silence]).await;
    let call = hasty()
        .post(server.url("/refunds"))
        .json("ten")
        .within(Duration::from_millis(300));
    let outcome = tokio::time::timeout(Duration::from_secs(5), call.send())
        .await
        .expect("it ends by itself");
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(outcome.account().took() < Duration::from_secs(4));
    assert!(matches!(outcome.account().stop(), Some(Stop::Deadline { .. })));
}

#[tokio::test]
async fn the_deadline_covers_the_body_of_the_answer() {
    let whole = answer("201 Created", "", "0123456789");
    let server = Scripted::start([Act::Drip(whole)]).await;
    let call = hasty()
        .post(server.url("/refunds"))
        .json("ten")
        .within(Duration::from_millis(300));
    let outcome = call.send().await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(outcome.answer().unwrap().is_truncated());
}

#[tokio::test]
async fn a_late_refusal_does_not_hide_an_early_doubt() {
    let refusal = answer("401 Unauthorized", "", "");
    let server = Scripted::start([Act::CutAnswer(String::new(), 0), Act::Answer(refusal)]).await;
    let outcome = hasty().post(server.url("/refunds")).json("ten").send().await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!(outcome.account().stop(), Some(Stop::Final));
}

#[tokio::test]
async fn a_refusal_that_the_key_keeps_settles_an_early_doubt() {
    let refusal = answer("422 Unprocessable Content", STORED, "");
    let server = Scripted::start([Act::CutRequest(5), Act::Answer(refusal)]).await;
    let outcome = hasty().post(server.url("/refunds")).json("ten").send().await;
    assert!(matches!(outcome, Outcome::NotApplied(_)), "{outcome:?}");
}

#[tokio::test]
async fn what_is_in_doubt_on_the_server_is_unknown_and_not_sent_again() {
    let doubt = r#"{"code":"OUTCOME.unknown","retryable":false}"#;
    let doubt = answer("409 Conflict", "content-type: application/problem+json\r\n", doubt);
    let server = Scripted::start([Act::Answer(doubt)]).await;
    let outcome = hasty().post(server.url("/refunds")).json("ten").send().await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!(outcome.account().attempts().len(), 1);
    assert_eq!(outcome.answer().unwrap().code(), Some("OUTCOME.unknown"));
}

#[tokio::test]
async fn asking_settles_a_doubt_without_repeating_the_call() {
    for (status, ending) in [
        ("200 OK", "applied"),
        ("404 Not Found", "not_applied"),
        ("403 Forbidden", "unknown"),
    ] {
        let server = Scripted::start([Act::CutAnswer(String::new(), 0)]).await;
        let Outcome::Unknown(unknown) = once(&server, &hasty()).await else {
            panic!("the answer was lost");
        };
        // What is not there is asked for again: it may still be under way.
        for _ in 0..2 {
            server.then(Act::Answer(answer(status, "", "rf_1")));
        }
        let outcome = unknown.ask(&server.url("/refunds/by-key/k")).await;
        assert_eq!(outcome.as_str(), ending, "{outcome:?}");
        assert!(server.arrived()[1].line().starts_with("GET /refunds/by-key/k "));
    }
}

#[tokio::test]
async fn what_is_unknown_is_not_resolved_past_the_life_of_its_key() {
    let dates = "date: Mon, 16 Nov 2026 08:00:00 GMT\r\nidempotency-expires: Mon, 16 Nov 2026 08:00:01 GMT\r\n";
    let whole = answer("201 Created", dates, "rf_1");
    let server = Scripted::start([Act::CutAnswer(whole.clone(), whole.len() - 1)]).await;
    let Outcome::Unknown(unknown) = once(&server, &hasty()).await else {
        panic!("the answer was lost");
    };
    server.then(Act::Answer(answer("201 Created", "", "a second one")));
    let outcome = unknown.resolve().await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!(outcome.account().stop(), Some(Stop::Expired));
    assert_eq!(server.arrived().len(), 1);
}

#[tokio::test]
async fn a_key_without_a_life_is_not_sent_at_all() {
    let client = Client::builder().key_lifetime(Duration::ZERO).build().unwrap();
    let server = Scripted::start([]).await;
    let outcome = once(&server, &client).await;
    assert!(matches!(outcome, Outcome::NotApplied(_)), "{outcome:?}");
    assert_eq!(outcome.account().stop(), Some(Stop::Expired));
}

#[tokio::test]
async fn a_server_that_says_nothing_does_not_use_up_the_time_of_all_attempts() {
    let done = Act::Answer(answer("201 Created", STORED, "rf_1"));
    let server = Scripted::start([Act::Silence, done]).await;
    let call = hasty().post(server.url("/refunds")).json("ten");
    let outcome = call.attempt_within(Duration::from_millis(200)).send().await;
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    assert_eq!(outcome.account().attempts()[0].ended, Ended::Sent);
}

#[tokio::test]
async fn a_refusal_that_is_too_long_to_be_understood_tells_nothing() {
    let padding = "x".repeat(70_000);
    let problem = format!("{{\"padding\":\"{padding}\",\"code\":\"PROVIDER.duplicate\"}}");
    let long = answer("409 Conflict", "content-type: application/json\r\n", &problem);
    let server = Scripted::start([Act::Answer(long)]).await;
    let outcome = once(&server, &hasty()).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "it had happened");
}

#[tokio::test]
async fn a_refusal_in_a_coding_that_nobody_asked_for_tells_nothing() {
    let headers = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
    let server = Scripted::start([Act::Answer(answer("409 Conflict", headers, "not to be read"))]).await;
    let outcome = once(&server, &hasty()).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
}

#[tokio::test]
async fn whoever_is_asked_has_to_answer_itself() {
    let server = Scripted::start([Act::CutAnswer(String::new(), 0)]).await;
    let Outcome::Unknown(unknown) = once(&server, &hasty()).await else {
        panic!("the answer was lost");
    };
    server.then(Act::Answer(answer("302 Found", "location: /login\r\n", "")));
    server.then(Act::Answer(answer("200 OK", "", "please sign in")));
    let outcome = unknown.ask(&server.url("/by-key")).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_known_code_in_a_header_has_the_last_word() {
    let headers = "content-type: application/json\r\nerror-code: PROVIDER.duplicate\r\n";
    let server = Scripted::start([Act::Answer(answer("409 Conflict", headers, "{\"code\":\"E1042\"}"))]).await;
    let outcome = once(&server, &hasty()).await;
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_mistake_in_a_call_that_was_sent_before_does_not_make_it_undone() {
    let client = hasty();
    let resumed = client.post("http://shop.example/").resume("k").bearer("line\nbreak");
    let named = client.post("not a url").operation("refund-17");
    for call in [resumed, named] {
        let outcome = call.send().await;
        assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
        // There is nothing that could be sent.
        let Outcome::Unknown(unknown) = outcome else {
            unreachable!()
        };
        assert!(matches!(unknown.resolve().await, Outcome::Unknown(_)));
    }
}
