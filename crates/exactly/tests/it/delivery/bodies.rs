//! Answers whose body is an attack, or never ends.

use std::time::Duration;

use exactly::webhook::delivery::Answer;
use tokio::io::AsyncWriteExt as _;

use super::hostile::{Receiver, until_closed};
use super::{answered, local, send};

/// What a receiver gets rid of though little of it is read: it lies in the buffers of two sockets and of one connection.
const BUFFERED_BYTES_MAX: usize = 2 << 20;

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_whole_and_one_byte_more_is_cut() {
    for (length, cut) in [(Answer::BODY_BYTES_MAX, false), (Answer::BODY_BYTES_MAX + 1, true)] {
        let body = "x".repeat(length);
        let receiver = Receiver::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"));
        let answer = answered(&local().build().unwrap(), &receiver.url()).await;
        assert_eq!((answer.body.len(), answer.cut), (Answer::BODY_BYTES_MAX, cut));
    }
}

/// The answer is there with its head: who said 200 has the event, and who said 500 has not.
#[tokio::test]
async fn a_dripping_body_is_left_and_the_status_counts() {
    for status in [200, 500] {
        let receiver = Receiver::start(move |mut stream, seen| async move {
            if !seen.request(&mut stream).await {
                return;
            }
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 1000000\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
            let mut every = tokio::time::interval(Duration::from_millis(20));
            while stream.write_all(b"x").await.is_ok() {
                every.tick().await;
            }
        });
        let exchange = send(&local().build().unwrap(), &receiver.url()).await;
        let answer = exchange.answer.unwrap();
        assert_eq!(answer.status.as_u16(), status);
        assert!(answer.cut && !answer.body.is_empty(), "{answer:?}");
        // It would drip for hours.
        assert!(exchange.took < Duration::from_secs(15), "{:?}", exchange.took);
    }
}

/// The deadline is over the body too, even where less than the time for bodies is left.
#[tokio::test]
async fn the_deadline_covers_the_body() {
    let receiver = Receiver::start(|mut stream, seen| async move {
        if seen.request(&mut stream).await {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nx")
                .await;
            until_closed(&mut stream).await;
        }
    });
    let exchange = send(
        &local().deadline(Duration::from_millis(500)).build().unwrap(),
        &receiver.url(),
    )
    .await;
    let answer = exchange.answer.unwrap();
    assert!(answer.cut && answer.status == 200 && answer.body == "x", "{answer:?}");
    assert!(exchange.took < Answer::BODY_TIME_MAX, "{:?}", exchange.took);
}

/// How much a receiver gets rid of is how much was read, and what the sockets hold.
#[tokio::test]
async fn of_an_endless_body_little_is_read_by_many_at_once() {
    const SENDERS: usize = 32;
    let receiver = Receiver::start(|mut stream, seen| async move {
        if seen.request(&mut stream).await {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            seen.flood(&mut stream, &b"x".repeat(64 << 10), 1 << 30).await;
        }
    });
    let sender = local().build().unwrap();
    let url = receiver.url();
    let answers = futures_util::future::join_all((0..SENDERS).map(|_| answered(&sender, &url))).await;
    for answer in answers {
        assert!(answer.cut && answer.body.len() == Answer::BODY_BYTES_MAX, "{answer:?}");
    }
    assert_eq!(receiver.seen.posts(), SENDERS);
    let written = receiver.seen.written();
    assert!(
        written < SENDERS * BUFFERED_BYTES_MAX,
        "{written} bytes were taken, of {SENDERS} GiB"
    );
}

/// Of 64 KiB that were packed into a hundred bytes, a hundred bytes are read.
#[tokio::test]
async fn what_is_packed_stays_packed() {
    // 65536 zeros, as `gzip` packs them: most of that is zeros again.
    let begins = [
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xed, 0xc1, 0x01, 0x01, 0x00, 0x00, 0x00, 0x80,
        0x90, 0xfe, 0xaf, 0xee, 0x08, 0x0a,
    ];
    let ends = [0x6a, 0xeb, 0x8e, 0x97, 0xd7, 0x00, 0x00, 0x01, 0x00];
    let packed = [&begins[..], &[0; 63], &ends].concat();
    for coding in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let length = packed.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {length}\r\n\r\n");
        let receiver = Receiver::answering([head.as_bytes(), &packed].concat());
        let answer = answered(&local().build().unwrap(), &receiver.url()).await;
        assert_eq!(answer.body, packed, "{coding}");
    }
}

#[tokio::test]
async fn chunks_that_never_end_are_left() {
    let receiver = Receiver::start(|mut stream, seen| async move {
        if seen.request(&mut stream).await {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                .await;
            let piece = format!("400\r\n{}\r\n", "x".repeat(0x400)).repeat(64);
            seen.flood(&mut stream, piece.as_bytes(), 1 << 30).await;
        }
    });
    let answer = answered(&local().build().unwrap(), &receiver.url()).await;
    assert!(answer.cut && answer.body.len() == Answer::BODY_BYTES_MAX, "{answer:?}");
    assert!(
        receiver.seen.written() < BUFFERED_BYTES_MAX,
        "{}",
        receiver.seen.written()
    );
}

/// It would hold a place on both sides otherwise.
#[tokio::test]
async fn the_connection_of_an_unread_body_is_closed() {
    let (closed, mut told) = tokio::sync::mpsc::unbounded_channel();
    let receiver = Receiver::start(move |mut stream, seen| {
        let closed = closed.clone();
        async move {
            if seen.request(&mut stream).await {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nx")
                    .await;
                until_closed(&mut stream).await;
                let _ = closed.send(());
            }
        }
    });
    let sender = local().build().unwrap();
    assert!(answered(&sender, &receiver.url()).await.cut);
    let closed = tokio::time::timeout(Duration::from_secs(20), told.recv()).await;
    closed.expect("it is closed while the sender lives on").unwrap();
    drop(sender);
}
