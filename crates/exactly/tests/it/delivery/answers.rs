//! What an endpoint's answer is taken for.

use std::time::Duration;

use exactly::webhook::delivery::{Fault, TroubleKind};

use super::hostile::{Receiver, until_closed};
use super::{answered, local, send};

#[tokio::test]
async fn an_answer_is_told_as_it_came() {
    for (status, phrase) in [
        (200, "OK"),
        (204, "No Content"),
        (299, "Fine"),
        (400, "Bad"),
        (410, "Gone"),
        (500, ""),
        (599, "?"),
    ] {
        let body = if status == 204 { "" } else { "a \0 body" };
        let length = body.len();
        let receiver = Receiver::answering(format!(
            "HTTP/1.1 {status} {phrase}\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
        let answer = answered(&local().build().unwrap(), &receiver.url()).await;
        assert_eq!(answer.status.as_u16(), status);
        assert_eq!(answer.body, body);
        assert!(!answer.cut && answer.retry_after.is_none(), "{answer:?}");
        assert_eq!(receiver.seen.posts(), 1);
    }
}

#[tokio::test]
async fn a_wait_is_read_in_both_forms_and_nonsense_is_none() {
    let days = |days: u64| Some(Duration::from_hours(24 * days));
    let sender = local().build().unwrap();
    for (lines, expected) in [
        ("retry-after: 120", Some(Duration::from_mins(2))),
        ("retry-after: 0", Some(Duration::ZERO)),
        ("retry-after:   7  ", Some(Duration::from_secs(7))),
        (
            "date: Wed, 21 Oct 2015 07:28:00 GMT\r\nretry-after: Wed, 21 Oct 2015 07:30:00 GMT",
            Some(Duration::from_mins(2)),
        ),
        (
            "date: Wed, 21 Oct 2015 07:28:00 GMT\r\nretry-after: Wed, 21 Oct 2015 07:00:00 GMT",
            Some(Duration::ZERO),
        ),
        // Without a date of its own it is on our clock.
        ("retry-after: Wed, 21 Oct 2015 07:28:00 GMT", Some(Duration::ZERO)),
        (
            "retry-after: 3\r\nretry-after: 90\r\nretry-after: 5",
            Some(Duration::from_secs(90)),
        ),
        ("retry-after: soon\r\nretry-after: 5", Some(Duration::from_secs(5))),
        ("retry-after: -1", None),
        ("retry-after: +1", None),
        ("retry-after: 1.5", None),
        ("retry-after: 1 2", None),
        ("retry-after: ", None),
        ("retry-after: soon", None),
        ("retry-after: \u{e9}", None),
        ("retry-after: Wed, 99 Oct 2015 07:28:00 GMT", None),
        ("retry-after: 18446744073709551615", days(62)),
        ("retry-after: 99999999999999999999999999999999", days(62)),
        (
            "date: Wed, 21 Oct 2015 07:28:00 GMT\r\nretry-after: Fri, 31 Dec 9999 23:59:59 GMT",
            days(62),
        ),
    ] {
        let receiver = Receiver::answering(format!("HTTP/1.1 503 Busy\r\n{lines}\r\ncontent-length: 0\r\n\r\n"));
        assert_eq!(
            answered(&sender, &receiver.url()).await.retry_after,
            expected,
            "{lines}"
        );
    }
}

#[tokio::test]
async fn what_is_said_before_the_answer_is_not_the_answer() {
    let before = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nretry-after: 9\r\n\r\n".repeat(50);
    let receiver = Receiver::answering(format!("{before}HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n"));
    let answer = answered(&local().build().unwrap(), &receiver.url()).await;
    assert_eq!((answer.status.as_u16(), answer.retry_after), (201, None));
}

#[tokio::test]
async fn who_only_ever_says_wait_is_left_at_the_deadline() {
    let receiver = Receiver::start(|mut stream, seen| async move {
        if seen.request(&mut stream).await {
            let piece = b"HTTP/1.1 102 Processing\r\n\r\n".repeat(100);
            seen.flood(&mut stream, &piece, usize::MAX).await;
        }
    });
    let sender = local().deadline(Duration::from_millis(400)).build().unwrap();
    let exchange = send(&sender, &receiver.url()).await;
    assert!(
        matches!(&exchange.answer, Err(Fault::Lost(trouble)) if trouble.kind == TroubleKind::Timeout),
        "{exchange:?}"
    );
    assert_eq!(receiver.seen.posts(), 1);
}

#[tokio::test]
async fn who_switches_protocols_has_not_taken_the_event() {
    let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let receiver = Receiver::answering(answer);
    let answer = answered(&local().build().unwrap(), &receiver.url()).await;
    assert_eq!(answer.status, 101);
    assert_eq!(receiver.seen.posts(), 1);
}

#[tokio::test]
async fn nonsense_is_no_answer_and_the_event_may_have_arrived() {
    let huge = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(4 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(10_000));
    for nonsense in [
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "",
        &huge,
        &many,
    ] {
        let receiver = Receiver::answering(nonsense);
        let exchange = send(&local().build().unwrap(), &receiver.url()).await;
        let shown = &nonsense[..nonsense.len().min(40)];
        assert!(
            matches!(&exchange.answer, Err(Fault::Lost(trouble)) if trouble.kind == TroubleKind::Broken),
            "{shown}: {exchange:?}"
        );
        assert_eq!(receiver.seen.posts(), 1, "{shown}");
    }
}

#[tokio::test]
async fn the_deadline_is_kept_where_nobody_answers() {
    let receiver = Receiver::start(|mut stream, seen| async move {
        seen.request(&mut stream).await;
        until_closed(&mut stream).await;
    });
    let deadline = Duration::from_millis(300);
    let exchange = send(&local().deadline(deadline).build().unwrap(), &receiver.url()).await;
    assert!(
        matches!(&exchange.answer, Err(Fault::Lost(trouble)) if trouble.kind == TroubleKind::Timeout),
        "{exchange:?}"
    );
    assert!(exchange.took >= deadline, "{exchange:?}");
    assert_eq!(receiver.seen.posts(), 1);
}

#[tokio::test]
async fn nothing_has_left_when_a_name_is_not_found_in_time() {
    let sender = local()
        .deadline(Duration::from_millis(200))
        .lookup(|_| Box::pin(std::future::pending()))
        .build()
        .unwrap();
    let exchange = send(&sender, "http://hooks.example/").await;
    assert!(
        matches!(&exchange.answer, Err(Fault::NotSent(trouble)) if trouble.kind == TroubleKind::Timeout),
        "{exchange:?}"
    );
}
