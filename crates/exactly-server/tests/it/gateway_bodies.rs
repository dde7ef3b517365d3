//! Bodies on their way through the gateway.

use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::client::{get, post};
use crate::server::Server;
use crate::upstream::{Upstream, reply};
use crate::wire::Wire;

/// More than any buffer on the way holds.
const LARGE: usize = 200 * 1024 * 1024;
/// What the gateway may take for it, with everything else that it is made of.
const MEMORY_MAX: usize = 100 * 1024 * 1024;

/// Reads the body in pieces that it forgets, and says how long it was.
async fn swallow(wire: &mut Wire, length: usize) -> usize {
    let mut left = length;
    while left > 0 {
        let piece = left.min(256 * 1024);
        if wire.bytes(piece).await.is_none() {
            break;
        }
        left -= piece;
    }
    length - left
}

async fn pour(wire: &mut Wire, length: usize) {
    let piece = vec![b'x'; 256 * 1024];
    let mut left = length;
    while left > 0 {
        let now = left.min(piece.len());
        wire.stream.write_all(&piece[..now]).await.unwrap();
        left -= now;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_in_both_directions_in_little_memory() {
    let upstream = Upstream::scripted(|mut wire, _| async move {
        while let Some(head) = wire.head().await {
            let length = head
                .header("content-length")
                .map_or(0, |length| length.parse().unwrap());
            if head.method() == "POST" {
                let swallowed = swallow(&mut wire, length).await;
                wire.send(reply(200, &[], &swallowed.to_string())).await.unwrap();
            } else {
                let head = format!("HTTP/1.1 200 Said\r\ncontent-length: {LARGE}\r\n\r\n");
                wire.send(head).await.unwrap();
                pour(&mut wire, LARGE).await;
            }
        }
    })
    .await;
    let server = Server::start(upstream.address);
    let listen = server.listen;
    let up = tokio::spawn(async move {
        let mut wire = Wire::connect(listen).await;
        let head = format!("POST /up HTTP/1.1\r\nhost: a\r\ncontent-length: {LARGE}\r\n\r\n");
        wire.send(head).await.unwrap();
        pour(&mut wire, LARGE).await;
        assert_eq!(wire.answered().await.unwrap().text(), LARGE.to_string());
    });
    let mut wire = Wire::connect(listen).await;
    wire.send(get("/down").bytes()).await.unwrap();
    let head = wire.head().await.unwrap();
    assert_eq!(head.header("content-length"), Some(LARGE.to_string().as_str()));
    assert_eq!(swallow(&mut wire, LARGE).await, LARGE);
    up.await.unwrap();
    let memory = server.memory_max();
    assert!(memory < MEMORY_MAX, "{memory}");
}

#[tokio::test]
async fn the_first_byte_arrives_before_the_last_is_sent() {
    let upstream = Upstream::scripted(|mut wire, _| async move {
        let head = wire.head().await.unwrap();
        assert_eq!(head.header("transfer-encoding"), Some("chunked"));
        // Each side says something only after it has heard the other.
        wire.send("HTTP/1.1 200 Said\r\ntransfer-encoding: chunked\r\n\r\n")
            .await
            .unwrap();
        for _ in 0..5 {
            assert_eq!(wire.bytes(9).await.unwrap(), b"4\r\nping\r\n");
            wire.send("4\r\npong\r\n").await.unwrap();
        }
        assert_eq!(wire.bytes(5).await.unwrap(), b"0\r\n\r\n");
        wire.send("0\r\n\r\n").await.unwrap();
    })
    .await;
    let server = Server::start(upstream.address);
    let mut wire = Wire::connect(server.listen).await;
    let talk = async {
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        wire.send(head).await.unwrap();
        assert_eq!(wire.head().await.unwrap().status(), 200);
        for _ in 0..5 {
            wire.send("4\r\nping\r\n").await.unwrap();
            assert_eq!(wire.bytes(9).await.unwrap(), b"4\r\npong\r\n");
        }
        wire.send("0\r\n\r\n").await.unwrap();
        assert_eq!(wire.bytes(5).await.unwrap(), b"0\r\n\r\n");
    };
    timeout(PATIENCE, talk).await.unwrap();
}

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        while let Some(request) = wire.request().await {
            upstream.note(&request);
            let answer = "HTTP/1.1 200 Said\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                          3\r\none\r\n0\r\nx-sum: 7\r\n\r\n";
            wire.send(answer).await.unwrap();
        }
    })
    .await;
    let server = Server::start(upstream.address);
    let mut wire = Wire::connect(server.listen).await;
    let request = "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te\r\ntrailer: x-check\r\n\
                   transfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nx-check: 9\r\n\r\n";
    wire.send(request).await.unwrap();
    let answer = wire.answered().await.unwrap();
    assert_eq!(answer.text(), "one");
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert_eq!(answer.header("trailer"), Some("x-sum"));
    let request = upstream.request();
    assert_eq!(request.text(), "ab");
    assert_eq!(request.header("te"), Some("trailers"));
    assert_eq!(request.trailers, [("x-check".to_owned(), "9".to_owned())]);
    // Who did not ask for trailers gets the same answer without them, and the connection goes on.
    wire.send(get("/").bytes()).await.unwrap();
    let answer = wire.answered().await.unwrap();
    assert_eq!((answer.text().as_str(), answer.trailers.len()), ("one", 0));
    wire.send(get("/").bytes()).await.unwrap();
    assert_eq!(wire.answered().await.unwrap().text(), "one");
}

#[tokio::test]
async fn an_answer_that_tells_two_lengths_is_passed_on_with_the_one_that_it_has() {
    let upstream = Upstream::answering(|_| async {
        let answer = "HTTP/1.1 201 Said\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
                      4\r\ndone\r\n0\r\n\r\n";
        answer.as_bytes().to_vec()
    })
    .await;
    let server = Server::start(upstream.address);
    let mut wire = Wire::connect(server.listen).await;
    for n in 0..3 {
        for request in [
            get("/"),
            post("/").key(&format!("k{n}")),
            post("/").key(&format!("k{n}")),
        ] {
            wire.send(request.bytes()).await.unwrap();
            assert_eq!(wire.answered().await.unwrap().text(), "done");
        }
    }
}

#[tokio::test]
async fn a_client_that_waits_for_leave_to_send_its_body_gets_it_only_if_it_is_read() {
    let upstream = Upstream::counting().await;
    let server = Server::with(upstream.address, "[defaults]\nbody_max = 10\n");
    let expecting = |key: &str, length: usize| {
        format!("POST / HTTP/1.1\r\nhost: a\r\n{key}expect: 100-continue\r\ncontent-length: {length}\r\n\r\n")
    };
    for key in ["", "idempotency-key: k\r\n"] {
        let mut wire = Wire::connect(server.listen).await;
        wire.send(expecting(key, 5)).await.unwrap();
        assert_eq!(wire.answered().await.unwrap().status(), 100, "{key}");
        wire.send("hello").await.unwrap();
        assert_eq!(wire.answered().await.unwrap().status(), 201, "{key}");
        let seen = upstream.requests().pop().unwrap();
        assert_eq!((seen.text().as_str(), seen.header("expect")), ("hello", None));
    }
    let mut wire = Wire::connect(server.listen).await;
    wire.send(expecting("idempotency-key: l\r\n", 11)).await.unwrap();
    assert_eq!(wire.answered().await.unwrap().status(), 413);
    assert_eq!(upstream.effects(), 2);
}

#[tokio::test]
async fn an_answer_that_comes_before_the_body_was_sent_reaches_the_client() {
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        let Some(head) = wire.head().await else { return };
        upstream.note(&head);
        let answer = reply(413, &[("connection", "close")], "too long");
        wire.send(answer).await.unwrap();
    })
    .await;
    let server = Server::start(upstream.address);
    for _ in 0..10 {
        let mut wire = Wire::connect(server.listen).await;
        wire.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\nsome of it")
            .await
            .unwrap();
        let answer = wire.answered().await.unwrap();
        assert_eq!((answer.status(), answer.text().as_str()), (413, "too long"));
    }
    // And everybody else is served.
    assert_eq!(post("/").to(server.listen).await.status(), 413);
}

#[tokio::test]
async fn an_unkeyed_answer_that_breaks_off_is_seen_to_break_off() {
    let upstream = Upstream::scripted(|mut wire, _| async move {
        let Some(request) = wire.request().await else { return };
        let broken = match request.target() {
            "/length" => "HTTP/1.1 200 Said\r\ncontent-length: 10\r\n\r\nhalf",
            "/chunks" => "HTTP/1.1 200 Said\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            _ => "HTTP/1.1 200 Sa",
        };
        wire.send(broken).await.unwrap();
    })
    .await;
    let server = Server::start(upstream.address);
    assert_eq!(get("/length").try_to(server.listen).await, None);
    assert_eq!(get("/chunks").try_to(server.listen).await, None);
    let answer = post("/head").to(server.listen).await;
    assert_eq!((answer.status(), answer.code().as_str()), (502, "OUTCOME.unknown"));
}
