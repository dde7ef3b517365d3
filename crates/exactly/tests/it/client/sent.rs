//! What is sent, where to, and what is kept back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use exactly::client::{Client, ErrorKind, Outcome};
use exactly::retry::{BudgetLimits, Class, Stop};

use super::scripted::{Act, Scripted, answer};
use super::{hasty, refused_address};

fn ok() -> Act {
    Act::Answer(answer("200 OK", "", ""))
}

fn busy() -> Act {
    Act::Answer(answer("503 Service Unavailable", "", ""))
}

#[tokio::test]
async fn every_call_that_changes_something_has_a_key_of_its_own() {
    let server = Scripted::start([ok(), ok(), ok()]).await;
    let client = hasty();
    for _ in 0..2 {
        assert!(client.post(server.url("/")).send().await.applied().is_ok());
    }
    assert!(client.get(server.url("/")).send().await.applied().is_ok());
    let arrived = server.arrived();
    let keys: Vec<_> = arrived
        .iter()
        .map(|request| request.header("idempotency-key"))
        .collect();
    assert!(keys[0].is_some() && keys[1].is_some() && keys[0] != keys[1], "{keys:?}");
    assert_eq!(keys[2], None);
}

#[tokio::test]
async fn the_callers_key_is_respected_wherever_it_is_given() {
    let server = Scripted::start([ok(), ok(), ok()]).await;
    let client = hasty();
    let call = || client.post(server.url("/"));
    assert!(call().key("refund-17").send().await.applied().is_ok());
    assert!(
        call()
            .header("idempotency-key", "refund-17")
            .send()
            .await
            .applied()
            .is_ok()
    );
    assert!(call().key("two words, \"quoted\"").send().await.applied().is_ok());
    let sent: Vec<_> = server
        .arrived()
        .iter()
        .map(|request| request.header("idempotency-key").unwrap().to_owned())
        .collect();
    assert_eq!(sent, ["refund-17", "refund-17", "\"two words, \\\"quoted\\\"\""]);
}

#[tokio::test]
async fn the_same_key_with_other_bytes_is_refused_before_anything_is_sent() {
    let server = Scripted::start([ok(), ok(), ok()]).await;
    let client = hasty();
    let call = |content: &str| client.post(server.url("/refunds")).key("k").json(content);
    assert!(call("ten").send().await.applied().is_ok());
    let outcome = call("eleven").send().await;
    let Outcome::NotApplied(not) = &outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(not.error().unwrap().kind(), ErrorKind::KeyReused);
    assert!(call("ten").send().await.applied().is_ok());
    // Elsewhere the same text is another key.
    assert!(
        client
            .post(server.url("/orders"))
            .key("k")
            .json("x")
            .send()
            .await
            .applied()
            .is_ok()
    );
    assert_eq!(server.arrived().len(), 3);
}

#[tokio::test]
async fn the_time_left_travels_with_each_attempt_and_shrinks() {
    let server = Scripted::start([busy(), busy(), ok()]).await;
    assert!(hasty().post(server.url("/")).send().await.applied().is_ok());
    let left: Vec<u64> = server
        .arrived()
        .iter()
        .map(|request| request.header("x-request-timeout").unwrap().parse().unwrap())
        .collect();
    assert!(left[0] <= 10_000 && left[0] > 5_000, "{left:?}");
    assert!(left[1] + 100 <= left[0] && left[2] + 200 <= left[1], "{left:?}");
}

#[tokio::test]
async fn a_wait_that_does_not_fit_is_not_begun_and_says_when() {
    let later = answer("503 Service Unavailable", "retry-after: 3600\r\n", "");
    let server = Scripted::start([Act::Answer(later)]).await;
    let outcome = hasty().post(server.url("/")).send().await;
    assert!(matches!(outcome, Outcome::NotApplied(_)), "{outcome:?}");
    let ready_in = Duration::from_hours(1);
    assert_eq!(outcome.account().stop(), Some(Stop::Deadline { ready_in }));
}

#[tokio::test]
async fn nothing_is_repeated_past_the_end_of_its_key() {
    let expiring = "date: Mon, 16 Nov 2026 08:00:00 GMT\r\nidempotency-expires: Mon, 16 Nov 2026 08:00:01 GMT\r\nretry-after: 2\r\n";
    let server = Scripted::start([Act::Answer(answer("503 Service Unavailable", expiring, ""))]).await;
    let outcome = hasty().post(server.url("/")).send().await;
    assert_eq!(outcome.account().stop(), Some(Stop::Expired));
    assert_eq!(server.arrived().len(), 1);
}

#[tokio::test]
async fn a_streamed_body_is_sent_once_and_says_so() {
    for (act, ending) in [(busy(), "not_applied"), (Act::CutAnswer(String::new(), 0), "unknown")] {
        let server = Scripted::start([act]).await;
        let stream = reqwest::Body::wrap(http_body_util::Full::new(Bytes::from("a file")));
        let outcome = hasty().post(server.url("/")).stream(stream).send().await;
        assert_eq!(outcome.as_str(), ending);
        assert_eq!(outcome.account().stop(), Some(Stop::Unrepeatable));
        assert_eq!(server.arrived()[0].body, b"a file");
        assert_eq!(server.arrived().len(), 1);
    }
    let outcome = hasty()
        .post(format!("http://{}", refused_address()))
        .stream("a file")
        .send()
        .await;
    assert_eq!(outcome.account().stop(), Some(Stop::Unrepeatable));
    assert!(matches!(outcome, Outcome::NotApplied(_)));
}

fn redirect(status: &str, to: &str) -> Act {
    Act::Answer(answer(status, &format!("location: {to}\r\n"), ""))
}

#[tokio::test]
async fn a_redirect_within_the_origin_keeps_method_body_and_key() {
    for status in ["307 Temporary Redirect", "308 Permanent Redirect"] {
        let server = Scripted::start([redirect(status, "/v2/refunds"), ok()]).await;
        let call = hasty()
            .post(server.url("/refunds"))
            .key("k")
            .bearer("secret")
            .json("ten");
        assert!(call.send().await.applied().is_ok());
        let second = &server.arrived()[1];
        assert!(second.line().starts_with("POST /v2/refunds "));
        assert_eq!(second.header("idempotency-key"), Some("k"));
        assert_eq!(second.header("authorization"), Some("Bearer secret"));
        assert_eq!(second.body, b"\"ten\"");
    }
}

#[tokio::test]
async fn a_redirect_to_another_origin_leaves_key_and_credentials_behind() {
    let elsewhere = Scripted::start([Act::CutAnswer(String::new(), 0), ok()]).await;
    let server = Scripted::start([redirect("307 Temporary Redirect", &elsewhere.url("/refunds"))]).await;
    let call = hasty()
        .post(server.url("/refunds"))
        .key("k")
        .bearer("secret")
        .header("cookie", "a=b")
        .json("ten");
    let outcome = call.send().await;
    let request = &elsewhere.arrived()[0];
    for secret in ["idempotency-key", "authorization", "cookie"] {
        assert_eq!(request.header(secret), None);
    }
    assert_eq!(request.body, b"\"ten\"");
    // It was sent there without a key, so it is not sent again.
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!(outcome.account().stop(), Some(Stop::Unrepeatable));
    assert_eq!(elsewhere.arrived().len(), 1);
}

#[tokio::test]
async fn a_call_in_doubt_is_not_sent_where_its_key_must_not_go() {
    let elsewhere = Scripted::start([Act::CutAnswer(String::new(), 0), ok()]).await;
    let away = || redirect("307 Temporary Redirect", &elsewhere.url("/refunds"));
    let server = Scripted::start([away(), away(), away()]).await;
    let outcome = hasty().post(server.url("/refunds")).key("k").json("ten").send().await;
    let Outcome::Unknown(unknown) = outcome else {
        panic!("{outcome:?}")
    };
    let outcome = unknown.resolve().await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    // Nor by another process that goes on with the key.
    let outcome = hasty()
        .post(server.url("/refunds"))
        .resume("k")
        .json("ten")
        .send()
        .await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!((server.arrived().len(), elsewhere.arrived().len()), (3, 1));
}

#[tokio::test]
async fn neither_key_nor_credentials_nor_content_are_in_what_is_printed() {
    let server = Scripted::start([Act::CutAnswer(String::new(), 0)]).await;
    let call = hasty()
        .post(server.url("/refunds?token=hidden-query"))
        .key("hidden-key")
        .json("hidden-content");
    let call = call
        .header("authorization", "Basic hidden-password")
        .header("cookie", "hidden-cookie")
        .retries(0);
    assert!(!format!("{call:?}").contains("hidden"), "{call:?}");
    let outcome = call.send().await;
    assert!(matches!(outcome, Outcome::Unknown(_)));
    assert!(!format!("{outcome:?}").contains("hidden"), "{outcome:?}");
}

#[tokio::test]
async fn who_was_called_without_a_key_is_not_called_again_though_the_way_ended_further_on() {
    let dead = format!("http://{}/", refused_address());
    let elsewhere = Scripted::start([redirect("307 Temporary Redirect", &dead), ok()]).await;
    let away = || redirect("307 Temporary Redirect", &elsewhere.url("/refunds"));
    let server = Scripted::start([away(), away()]).await;
    let outcome = hasty().post(server.url("/refunds")).key("k").json("ten").send().await;
    assert_eq!(outcome.account().stop(), Some(Stop::Unrepeatable), "{outcome:?}");
    assert!(matches!(outcome, Outcome::NotApplied(_)), "{outcome:?}");
    assert_eq!(elsewhere.arrived().len(), 1);
}

#[tokio::test]
async fn of_two_waits_that_are_asked_for_the_longer_counts() {
    let server = Scripted::start([Act::Answer(answer(
        "503 Service Unavailable",
        "retry-after: 0\r\nretry-after: 60\r\n",
        "",
    ))])
    .await;
    let outcome = hasty().post(server.url("/")).send().await;
    let ready_in = Duration::from_mins(1);
    assert_eq!(outcome.account().stop(), Some(Stop::Deadline { ready_in }));
}

#[tokio::test]
async fn a_redirect_that_would_become_a_get_is_an_answer() {
    for (status, ending) in [("303 See Other", "applied"), ("302 Found", "unknown")] {
        let server = Scripted::start([redirect(status, "/receipt")]).await;
        let outcome = hasty().post(server.url("/refunds")).json("ten").send().await;
        assert_eq!(outcome.as_str(), ending, "{outcome:?}");
        assert_eq!(server.arrived().len(), 1);
    }
}

#[tokio::test]
async fn redirects_in_a_circle_end() {
    let server = Scripted::start((0..20).map(|_| redirect("307 Temporary Redirect", "/again"))).await;
    let outcome = hasty().post(server.url("/refunds")).json("ten").send().await;
    let Outcome::NotApplied(not) = &outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(not.error().unwrap().kind(), ErrorKind::Redirect);
    assert_eq!(server.arrived().len(), 6);
}

#[tokio::test]
async fn a_dead_host_gets_every_call_once_and_a_bounded_share_again() {
    let dead = format!("http://{}/", refused_address());
    let limits = BudgetLimits::default();
    let client = Client::builder().random(|| 0).budget(limits).build().unwrap();
    let made = Arc::new(Mutex::new(0));
    let calls: Vec<_> = (0..1000)
        .map(|_| {
            let (call, made) = (client.post(dead.clone()).json("ten"), Arc::clone(&made));
            tokio::spawn(async move {
                let outcome = call.send().await;
                assert!(matches!(outcome, Outcome::NotApplied(_)), "{outcome:?}");
                *made.lock().unwrap() += outcome.account().attempts().len();
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    let made = *made.lock().unwrap();
    assert!((1000..=1000 + 200 + 10).contains(&made), "{made}");
    assert!(made > 1100, "retries were granted: {made}");
    // A healthy host has a budget of its own.
    let server = Scripted::start([busy(), busy(), ok()]).await;
    let outcome = client.post(server.url("/")).send().await;
    assert_eq!(outcome.account().attempts().len(), 3, "{outcome:?}");
}

#[tokio::test]
async fn a_host_that_recovers_is_given_retries_again_within_the_window() {
    let limits = BudgetLimits {
        percent: 0,
        reserve: 2,
        window: Duration::from_millis(200),
    };
    let client = Client::builder().random(|| 0).budget(limits).build().unwrap();
    let server = Scripted::start((0..3).map(|_| busy())).await;
    let outcome = client.post(server.url("/")).send().await;
    assert_eq!(outcome.account().stop(), Some(Stop::Budget));
    server.then(ok());
    assert!(client.post(server.url("/")).send().await.applied().is_ok());
    tokio::time::sleep(limits.window).await;
    server.then(busy());
    server.then(busy());
    server.then(ok());
    let outcome = client.post(server.url("/")).send().await;
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
}

#[tokio::test]
async fn what_cannot_be_sent_is_told_and_not_applied() {
    let client = hasty();
    let calls = [
        client.post("not a url"),
        client.post("ftp://files.example/"),
        client.post("http://shop.example/").key(""),
        client.post("http://shop.example/").key("k".repeat(256)),
        client.post("http://shop.example/").key("schlüssel"),
        client.post("http://user:secret@shop.example/"),
        client
            .post("http://shop.example/")
            .body("hello")
            .header("content-length", "3"),
        client
            .post("http://shop.example/")
            .header("idempotency-key", "a")
            .header("idempotency-key", "b"),
        client.post("http://shop.example/").header("bad name", "x"),
        client.post("http://shop.example/").bearer("line\nbreak"),
    ];
    for call in calls {
        let outcome = call.send().await;
        let Outcome::NotApplied(not) = &outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(not.error().unwrap().kind(), ErrorKind::Invalid);
        assert!(not.account().attempts().is_empty());
        assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
    }
}

#[tokio::test]
async fn an_answer_longer_than_the_limit_is_cut_and_says_so() {
    let server = Scripted::start([Act::Answer(answer("200 OK", "", "0123456789"))]).await;
    let client = Client::builder().answer_bytes_max(4).build().unwrap();
    let outcome = client.post(server.url("/")).class(Class::Background).send().await;
    let Outcome::Applied(applied) = outcome else {
        panic!("it happened")
    };
    assert_eq!(
        (applied.answer().text().as_ref(), applied.answer().is_truncated()),
        ("0123", true)
    );
}
