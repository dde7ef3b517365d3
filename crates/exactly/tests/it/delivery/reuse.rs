//! Connections that are used again, and one POST for each parcel all the same.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use exactly::webhook::delivery::{Fault, Parcel};
use http::HeaderMap;
use tokio::io::AsyncWriteExt as _;

use super::hostile::{Receiver, head, reset, until_closed};
use super::{answered, local, send, target};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[tokio::test]
async fn a_connection_is_used_again_while_its_receiver_keeps_it() {
    let receiver = Receiver::start(|mut stream, seen| async move {
        while seen.request(&mut stream).await {
            let _ = stream.write_all(OK).await;
        }
    });
    let sender = local().build().unwrap();
    for _ in 0..5 {
        assert_eq!(answered(&sender, &receiver.url()).await.status, 200);
    }
    assert_eq!((receiver.seen.connections(), receiver.seen.posts()), (1, 5));
}

/// A receiver that keeps its connections for longer than it is worth has them closed for it.
#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed() {
    let (closed, mut is_closed) = tokio::sync::mpsc::unbounded_channel();
    let receiver = Receiver::start(move |mut stream, seen| {
        let closed = closed.clone();
        async move {
            if seen.request(&mut stream).await {
                let _ = stream.write_all(OK).await;
            }
            until_closed(&mut stream).await;
            closed.send(()).unwrap();
        }
    });
    let sender = local().build().unwrap();
    assert_eq!(answered(&sender, &receiver.url()).await.status, 200);
    let closed = tokio::time::timeout(Duration::from_secs(20), is_closed.recv());
    assert_eq!(closed.await.expect("it is still open"), Some(()));
}

/// One that answers before it has read the request, and then reads no more, holds up nothing that is sent to it later.
#[tokio::test]
async fn a_connection_whose_request_is_not_read_is_not_used_again() {
    let receiver = Receiver::start(|mut stream, _| async move {
        if head(&mut stream).await.is_some() {
            let _ = stream.write_all(OK).await;
            std::future::pending::<()>().await;
        }
    });
    let sender = local().build().unwrap();
    let url = target(&receiver.url());
    for _ in 0..2 {
        let parcel = Parcel {
            url: &url,
            headers: HeaderMap::new(),
            body: vec![b' '; 16 << 20].into(),
        };
        let exchange = sender.send(parcel).await;
        assert!(exchange.is_delivered(), "{exchange:?}");
        assert!(exchange.took < Duration::from_secs(2), "{:?}", exchange.took);
    }
    assert_eq!(receiver.seen.connections(), 2);
}

#[test]
fn without_any_time_there_is_no_sender() {
    for (builder, named) in [
        (local().deadline(Duration::ZERO), "deadline"),
        (local().connect_timeout(Duration::ZERO), "connect_timeout"),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert_eq!(error, format!("set up sending: {named} is 0, and more is accepted"));
    }
}

/// A receiver that says it keeps connections, and closes them. What was handed to a connection that is gone, and has not left,
/// may go out on another; what has left is lost. In neither case are there two.
#[tokio::test]
async fn a_receiver_that_closes_kept_connections_never_sees_a_parcel_twice() {
    for hard in [false, true] {
        let receiver = Receiver::start(move |mut stream, seen| async move {
            if seen.request(&mut stream).await {
                let _ = stream.write_all(OK).await;
                if hard {
                    reset(stream);
                }
            }
        });
        let sender = local().build().unwrap();
        let mut answers = 0;
        for parcel in 0..200 {
            match send(&sender, &format!("{}/{parcel}", receiver.url())).await.answer {
                Ok(answer) => answers += usize::from(answer.status == 200),
                Err(fault) => assert!(matches!(fault, Fault::Lost(_)), "{fault:?}"),
            }
        }
        assert_eq!(sent_twice(&receiver), Vec::<String>::new());
        assert!(answers <= receiver.seen.posts());
        assert!(answers > 0);
    }
}

/// The second POST on a connection arrives whole and is answered by a hang-up: just what a client that repeats requests on
/// kept connections takes for a connection that was closed too early.
#[tokio::test]
async fn a_hang_up_on_a_kept_connection_is_not_answered_by_a_second_post() {
    for hard in [false, true] {
        let receiver = Receiver::start(move |mut stream, seen| async move {
            if seen.request(&mut stream).await {
                let _ = stream.write_all(OK).await;
            }
            let came = seen.request(&mut stream).await;
            if came && hard {
                reset(stream);
            }
        });
        let sender = local().build().unwrap();
        assert_eq!(answered(&sender, &receiver.url()).await.status, 200);
        let exchange = send(&sender, &receiver.url()).await;
        assert!(matches!(exchange.answer, Err(Fault::Lost(_))), "{exchange:?}");
        assert_eq!((receiver.seen.connections(), receiver.seen.posts()), (1, 2));
    }
}

/// Many at once, over connections that break at every turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parcels_at_once_are_each_seen_at_most_once() {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let receiver = Receiver::start(|mut stream, seen| async move {
        while seen.request(&mut stream).await {
            let turn = TURN.fetch_add(1, Ordering::SeqCst);
            if turn.is_multiple_of(3) {
                return;
            }
            let _ = stream.write_all(OK).await;
            if turn % 3 == 1 {
                return;
            }
        }
    });
    let sender = local().build().unwrap();
    let url = receiver.url();
    for round in 0..20 {
        let urls: Vec<_> = (0..20).map(|parcel| format!("{url}/{round}/{parcel}")).collect();
        futures_util::future::join_all(urls.iter().map(|url| send(&sender, url))).await;
    }
    assert!(receiver.seen.posts() > 100, "{}", receiver.seen.posts());
    assert_eq!(sent_twice(&receiver), Vec::<String>::new());
}

/// Who gives up waiting for a delivery has stopped it.
#[tokio::test]
async fn a_delivery_that_is_dropped_is_over() {
    let (closed, mut told) = tokio::sync::mpsc::unbounded_channel();
    let receiver = Receiver::start(move |mut stream, seen| {
        let closed = closed.clone();
        async move {
            seen.request(&mut stream).await;
            until_closed(&mut stream).await;
            let _ = closed.send(());
        }
    });
    let sender = local().build().unwrap();
    let url = receiver.url();
    let dropped = tokio::time::timeout(Duration::from_millis(300), send(&sender, &url)).await;
    assert!(dropped.is_err());
    tokio::time::timeout(Duration::from_secs(20), told.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(receiver.seen.connections(), 1);
}

/// The request lines that came more than once.
fn sent_twice(receiver: &Receiver) -> Vec<String> {
    let mut seen = HashSet::new();
    let heads = receiver.seen.heads();
    let lines = heads.iter().filter_map(|head| head.lines().next());
    let again = lines.filter(|line| !seen.insert(line.to_string()));
    again.map(ToOwned::to_owned).collect()
}
