//! Connections that break, at every point.

use std::sync::Arc;
use std::time::Duration;

use exactly::webhook::delivery::{Fault, Parcel, TroubleKind};
use http::HeaderMap;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::hostile::{Receiver, Seen, head, reset};
use super::{local, send, target};

#[tokio::test]
async fn where_nobody_listens_nothing_has_left() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let exchange = send(&local().build().unwrap(), &url).await;
    assert!(
        matches!(&exchange.answer, Err(Fault::NotSent(trouble)) if trouble.kind == TroubleKind::Unreachable),
        "{exchange:?}"
    );
}

/// Closed or reset after so many bytes of the request: whether the receiver understood it by then is not for us to know.
#[tokio::test]
async fn a_request_that_began_to_leave_is_lost_wherever_it_breaks() {
    for bytes in [1, 10, 22, 60, 150] {
        for hard in [false, true] {
            let receiver = Receiver::start(move |mut stream, _: Arc<Seen>| async move {
                let mut read = vec![0; bytes];
                let _ = stream.read_exact(&mut read).await;
                if hard {
                    reset(stream);
                }
            });
            let exchange = send(&local().build().unwrap(), &receiver.url()).await;
            assert!(
                matches!(&exchange.answer, Err(Fault::Lost(trouble)) if trouble.kind == TroubleKind::Broken),
                "after {bytes} bytes: {exchange:?}"
            );
            assert_eq!(receiver.seen.connections(), 1, "after {bytes} bytes");
        }
    }
}

/// Too large for the sockets, so that it breaks while it is being written.
#[tokio::test]
async fn a_body_that_breaks_half_way_is_lost() {
    let receiver = Receiver::start(|mut stream, _| async move {
        head(&mut stream).await;
        let _ = stream.read(&mut [0; 1024]).await;
        reset(stream);
    });
    let url = target(&receiver.url());
    let parcel = Parcel {
        url: &url,
        headers: HeaderMap::new(),
        body: vec![b'x'; 32 << 20].into(),
    };
    let exchange = local().build().unwrap().send(parcel).await;
    assert!(matches!(&exchange.answer, Err(Fault::Lost(_))), "{exchange:?}");
    assert_eq!(receiver.seen.connections(), 1);
}

/// Without a head there is no answer; with one there is, whatever becomes of the rest.
#[tokio::test]
async fn an_answer_counts_once_its_head_is_whole() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    let head_bytes = answer.len() - "hello".len();
    for bytes in [0, 1, 12, 17, head_bytes - 1, head_bytes, head_bytes + 3, answer.len()] {
        let receiver = Receiver::start(move |mut stream, seen| async move {
            if seen.request(&mut stream).await {
                let _ = stream.write_all(&answer.as_bytes()[..bytes]).await;
                let _ = stream.shutdown().await;
            }
        });
        let exchange = send(&local().build().unwrap(), &receiver.url()).await;
        match &exchange.answer {
            Ok(found) => {
                assert!(bytes >= head_bytes, "after {bytes} bytes: {found:?}");
                assert_eq!(found.status, 200);
                assert_eq!(found.body, answer.as_bytes()[head_bytes..bytes]);
                assert_eq!(found.cut, bytes < answer.len(), "after {bytes} bytes");
            }
            Err(fault) => {
                assert!(bytes < head_bytes, "after {bytes} bytes: {fault}");
                assert!(matches!(fault, Fault::Lost(_)), "after {bytes} bytes: {fault:?}");
            }
        }
        assert_eq!(receiver.seen.posts(), 1, "after {bytes} bytes");
    }
}

/// The system accepts for a listener that does not, so the request leaves into its buffer.
#[tokio::test]
async fn who_never_accepts_is_left_at_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let sender = local().deadline(Duration::from_millis(300)).build().unwrap();
    let exchange = send(&sender, &url).await;
    assert!(
        matches!(&exchange.answer, Err(Fault::Lost(trouble)) if trouble.kind == TroubleKind::Timeout),
        "{exchange:?}"
    );
}
