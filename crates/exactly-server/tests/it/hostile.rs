//! Clients that mean harm, and stores that go away.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{get, post};
use crate::server::{Server, until};
use crate::servers::OwnRedis;
use crate::upstream::{Upstream, reply};
use crate::wire::{Message, Wire};
use crate::{PATIENCE, SHORT};

/// What the gateway may take while it is under attack, with everything that it is made of.
const MEMORY_MAX: usize = 150 * 1024 * 1024;

/// Sends bytes on a connection of their own, and waits for the first answer; `None` if the connection ends without one.
async fn throw(server: SocketAddr, bytes: impl AsRef<[u8]>) -> Option<Message> {
    let mut wire = Wire::connect(server).await;
    // Who is refused early may find the door closed.
    let _ = wire.send(bytes).await;
    wire.answered().await
}

/// The gateway still does what it is for.
async fn serves(server: &mut Server, upstream: &Upstream) {
    assert!(server.is_running());
    let before = upstream.effects();
    let key = format!("still-{before}-{}", fastrand::u64(..));
    assert_eq!(
        post("/still").key(&key).to(server.listen).await.key_status(),
        Some("stored")
    );
    assert_eq!(
        post("/still").key(&key).to(server.listen).await.key_status(),
        Some("replayed")
    );
    assert_eq!(upstream.effects(), before + 1);
}

#[tokio::test]
async fn a_request_with_two_readings_is_refused_before_the_upstream_sees_it() {
    let upstream = Upstream::counting().await;
    let mut server = Server::start(upstream.address);
    let hidden = "GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n";
    for headers in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        "Content-Length: 5\r\nTRANSFER-ENCODING: chunked\r\n",
        "content-length: 5\r\ncontent-length: 5\r\n",
        "content-length: 5\r\ncontent-length: 44\r\n",
        "content-length: 5, 5\r\n",
        "content-length: 5 5\r\n",
        "content-length: +5\r\n",
        "content-length: -5\r\n",
        "content-length: 0x5\r\n",
        "content-length: 5;\r\n",
        "content-length:\r\n",
        "content-length: 99999999999999999999\r\n",
        "content-length: 18446744073709551616\r\n",
        "content-length : 5\r\n",
        "content-length: 5\r\n content-length: 6\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked x\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked, gzip\r\n",
        "transfer-encoding: \"chunked\"\r\n",
        "transfer-encoding: ,chunked\r\n",
        "transfer-encoding: chunked,\r\n",
        "transfer-encoding : chunked\r\n",
        "transfer-encoding:\u{b}chunked\r\n",
        "transfer-encoding: chunked\u{0}\r\n",
        "transfer-encoding:\r\n chunked\r\n",
        "transfer-encoding\r\n: chunked\r\n",
        "\u{0}transfer-encoding: chunked\r\n",
        "x: y\rtransfer-encoding: chunked\r\n",
        "x: y\rcontent-length: 5\r\n",
    ] {
        for key in ["", "idempotency-key: k\r\n"] {
            let request = format!("POST / HTTP/1.1\r\nhost: a\r\n{key}{headers}\r\n0\r\n\r\n{hidden}");
            let answer = throw(server.listen, &request).await;
            assert!(answer.is_some_and(|answer| answer.status() == 400), "{request:?}");
        }
    }
    let old = format!("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}");
    assert_eq!(throw(server.listen, old).await.unwrap().status(), 400);
    assert_eq!(upstream.requests(), []);
    serves(&mut server, &upstream).await;
}

#[tokio::test]
async fn a_body_with_two_readings_ends_the_connection() {
    let upstream = Upstream::counting().await;
    let mut server = Server::with(upstream.address, "[timeouts]\nheader = \"500ms\"\n");
    let hidden = "GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n";
    for chunks in [
        "5\nhello\n0\n\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello!!0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        ";x\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5;x\nhello\r\n0\r\n\r\n",
        "5;\u{0}\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "0\r\nx y: z\r\n\r\n",
        "0\r\n x: y\r\n\r\n",
        // A trailer, up to the end of what is hidden in it.
        "0\r\nx: y\n\r\n",
    ] {
        for key in ["", "idempotency-key: k\r\n"] {
            let request =
                format!("POST / HTTP/1.1\r\nhost: a\r\n{key}transfer-encoding: chunked\r\n\r\n{chunks}{hidden}");
            let mut wire = Wire::connect(server.listen).await;
            wire.send(&request).await.unwrap();
            let answered = timeout(PATIENCE, wire.rest()).await.unwrap().unwrap_or_default();
            let answered = String::from_utf8_lossy(&answered).into_owned();
            // Whatever the first request was taken for, what is hidden in it is no second one.
            assert!(answered.matches("HTTP/1.1 ").count() <= 1, "{chunks:?} {answered}");
        }
    }
    assert_eq!(
        upstream.effects_of(|_| true),
        upstream.requests().len(),
        "what was hidden came out"
    );
    serves(&mut server, &upstream).await;
}

#[tokio::test]
async fn what_is_no_http_is_refused() {
    let upstream = Upstream::counting().await;
    let mut server = Server::start(upstream.address);
    for bytes in [
        "GET /\r\n\r\n",
        "GET / HTTP/0.9\r\n\r\n",
        "GET / HTTP/3.0\r\nhost: a\r\n\r\n",
        "GET / http/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1 x\r\nhost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /a\u{0}b HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /\u{7f} HTTP/1.1\r\nhost: a\r\n\r\n",
        "G\u{0}T / HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET/ HTTP/1.1\r\nhost: a\r\n\r\n",
        " GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost a\r\n\r\n",
        "GET / HTTP/1.1\r\n: a\r\n\r\n",
        "GET / HTTP/1.1\r\nho st: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\u{0}b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\n folded\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}\r\n\r\n",
        "\0\0\0\0\0\0\0\0\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    ] {
        let answer = throw(server.listen, bytes).await;
        let refused = answer
            .as_ref()
            .is_none_or(|answer| (400..500).contains(&answer.status()));
        assert!(refused, "{bytes:?} {answer:?}");
    }
    assert_eq!(upstream.requests(), []);
    serves(&mut server, &upstream).await;
}

#[tokio::test]
async fn targets_that_name_no_path_of_the_upstream_are_refused() {
    let upstream = Upstream::counting().await;
    let mut server = Server::start(upstream.address);
    for (request, status) in [
        (
            "CONNECT elsewhere.example:443 HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n",
            405,
        ),
        ("CONNECT / HTTP/1.1\r\nhost: a\r\n\r\n", 405),
        ("GET elsewhere.example:80 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("POST a HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\n\r\n", 400),
        ("GET ?x HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    ] {
        let answer = throw(server.listen, request).await.unwrap();
        assert_eq!(answer.status(), status, "{request:?}");
    }
    assert_eq!(upstream.requests(), []);
    // A target elsewhere leads to the upstream all the same; about the server as a whole, its root is asked.
    throw(
        server.listen,
        "GET http://elsewhere.example/x HTTP/1.1\r\nhost: a\r\n\r\n",
    )
    .await;
    throw(server.listen, "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let targets: Vec<_> = upstream
        .requests()
        .iter()
        .map(|request| request.start.clone())
        .collect();
    assert_eq!(targets, ["GET /x HTTP/1.1", "OPTIONS / HTTP/1.1"]);
    serves(&mut server, &upstream).await;
}

#[tokio::test]
async fn heads_have_limits() {
    let upstream = Upstream::counting().await;
    let mut server = Server::start(upstream.address);
    let many = |count: usize| "x: y\r\n".repeat(count);
    for (request, fits) in [
        (format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", many(90)), true),
        (format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", many(110)), false),
        (format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", many(5_000)), false),
        (
            format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(50_000)),
            true,
        ),
        (
            format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(5_000_000)),
            false,
        ),
        (
            format!("GET / HTTP/1.1\r\nhost: a\r\n{}: y\r\n\r\n", "x".repeat(100_000)),
            false,
        ),
        (format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(8_000)), true),
        (
            format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(100_000)),
            false,
        ),
        (format!("{} / HTTP/1.1\r\nhost: a\r\n\r\n", "Y".repeat(100_000)), false),
    ] {
        let before = upstream.requests().len();
        let answer = throw(server.listen, &request).await;
        let status = answer.map(|answer| answer.status());
        if fits {
            assert_eq!(status, Some(201), "{request:.40}");
        } else {
            assert!(
                status.is_none_or(|status| (400..500).contains(&status)),
                "{status:?} {request:.40}"
            );
        }
        assert_eq!(upstream.requests().len() - before, usize::from(fits), "{request:.40}");
    }
    serves(&mut server, &upstream).await;
}

#[tokio::test]
async fn floods_are_met_in_bounded_memory() {
    let upstream = Upstream::counting().await;
    let mut server = Server::with(upstream.address, "connections_max = 300\n");
    // Heads that never end, on many connections.
    let mut flood = Vec::new();
    for _ in 0..200 {
        let mut wire = Wire::connect(server.listen).await;
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "y".repeat(60_000));
        wire.send(head).await.unwrap();
        flood.push(wire);
    }
    // Bodies that are far too long, by what they say and by what they are.
    for framing in ["content-length: 1099511627776", "transfer-encoding: chunked"] {
        let mut wire = Wire::connect(server.listen).await;
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\n{framing}\r\n\r\n");
        wire.send(head).await.unwrap();
        let chunk = format!("100000\r\n{}\r\n", "z".repeat(0x10_0000));
        let (mut reader, mut writer) = wire.stream.into_split();
        let pouring = tokio::spawn(async move {
            for _ in 0..64 {
                if writer.write_all(chunk.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let mut answer = Vec::new();
        let read = tokio::io::AsyncReadExt::read_buf(&mut reader, &mut answer);
        timeout(PATIENCE, read).await.unwrap().unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 413 "), "{framing}");
        pouring.abort();
    }
    // Headers of HTTP/2 that never end.
    let mut wire = Wire::connect(server.listen).await;
    let _ = endless_headers(&mut wire).await;
    assert!(server.memory_max() < MEMORY_MAX, "{}", server.memory_max());
    drop(flood);
    serves(&mut server, &upstream).await;
}

#[tokio::test]
async fn many_large_bodies_at_once_are_met_in_bounded_memory() {
    const BODY: usize = 1024 * 1024;
    const BODIES: usize = 300;
    let upstream = Upstream::counting().await;
    let mut server = Server::with(upstream.address, "held_max = \"16MiB\"\n");
    // Each lacks its last byte, so that it is held and never carried out.
    let mut flood = JoinSet::new();
    for number in 0..BODIES {
        let listen = server.listen;
        flood.spawn(async move {
            let mut wire = Wire::connect(listen).await;
            let head =
                format!("POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k{number}\r\ncontent-length: {BODY}\r\n\r\n");
            wire.send(head).await.unwrap();
            // Whoever is refused may find the connection closed.
            let _ = wire.send("x".repeat(BODY - 1)).await;
            wire
        });
    }
    let mut flood = flood.join_all().await;
    let (mut held, mut told) = (0, 0);
    for wire in &mut flood {
        match timeout(SHORT, wire.answered()).await {
            Ok(Some(answer)) => {
                assert_eq!((answer.status(), answer.code().as_str()), (503, "TRANSIENT.overloaded"));
                told += 1;
            }
            // The connection was closed while it still sent.
            Ok(None) => {}
            Err(_) => held += 1,
        }
    }
    assert!((1..=16).contains(&held), "{held}");
    assert!(told > 0);
    // Beside what is held, every connection has buffers of its own.
    assert!(server.memory_max() < BODIES * BODY * 3 / 4, "{}", server.memory_max());
    drop(flood);
    serves(&mut server, &upstream).await;
    assert_eq!(upstream.requests().len(), 1);
}

/// A stream whose headers go on and on, until the other side has had enough.
async fn endless_headers(wire: &mut Wire) -> io::Result<()> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
    };
    wire.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    wire.send(frame(4, 0, 0, &[])).await?;
    wire.send(frame(1, 0, 1, &[0x82, 0x84, 0x86])).await?;
    // A literal header without indexing: x: yyy…
    let literal = [&[0x00, 1, b'x', 0x7f, 0x81, 0x7e][..], &[b'y'; 16_256]].concat();
    for _ in 0..20_000 {
        wire.send(frame(9, 0, 1, &literal[..16_000])).await?;
    }
    panic!("300 MB of headers were taken");
}

#[tokio::test]
async fn whoever_dawdles_loses_its_place() {
    let upstream = Upstream::counting().await;
    let settings = "connections_max = 4\n[timeouts]\nheader = \"300ms\"\nbody = \"300ms\"\n";
    let mut server = Server::with(upstream.address, settings);
    // More than there are places, in front of everybody else.
    let openings = [
        "",
        "P",
        "PRI * HT",
        "POST / HTTP/1.1\r\nhost: a\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: 10\r\n\r\nhalf",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf",
        "POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhe",
    ];
    let mut idle = Vec::new();
    for opening in openings.iter().cycle().take(21) {
        let mut wire = Wire::connect(server.listen).await;
        wire.send(opening).await.unwrap();
        idle.push(wire);
    }
    let answer = timeout(PATIENCE, get("/").to(server.listen)).await.unwrap();
    assert_eq!(answer.status(), 201);
    for mut wire in idle {
        let said = timeout(PATIENCE, wire.rest()).await.unwrap().unwrap_or_default();
        assert!(
            said.is_empty() || said.starts_with(b"HTTP/1.1 4"),
            "{}",
            String::from_utf8_lossy(&said)
        );
    }
    assert_eq!(upstream.effects(), 0);
    serves(&mut server, &upstream).await;
}

#[tokio::test]
async fn whoever_takes_no_answers_or_asks_for_nothing_loses_its_place() {
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        while let Some(request) = wire.request().await {
            upstream.note(&request);
            let answer = match request.target() {
                "/long" => reply(200, &[], &"x".repeat(50_000_000)),
                _ => reply(201, &[], "short"),
            };
            if wire.send(answer).await.is_err() {
                upstream.note(&Message {
                    start: "GET given-up".to_owned(),
                    ..Message::default()
                });
                return;
            }
        }
    })
    .await;
    let settings = "connections_max = 4\n[timeouts]\nbody = \"300ms\"\n";
    let mut server = Server::with(upstream.address, settings);
    let mut idle = Vec::new();
    for opening in [
        get("/long").bytes(),
        get("/long").bytes(),
        // HTTP/2 up to its settings, and not even so far.
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
    ] {
        let mut wire = Wire::connect(server.listen).await;
        wire.send(opening).await.unwrap();
        idle.push(wire);
    }
    sleep(SHORT).await;
    let answer = timeout(PATIENCE, get("/").to(server.listen)).await.unwrap();
    assert_eq!(answer.text(), "short");
    // All of them are closed, and so are the upstream's ends.
    let (multiplexed, long) = (idle.split_off(2), idle);
    for mut wire in multiplexed {
        let _ = timeout(PATIENCE, wire.rest()).await.unwrap();
    }
    let given_up = || {
        upstream
            .requests()
            .iter()
            .filter(|request| request.target() == "given-up")
            .count()
    };
    let ended = until(async || (given_up() == 2).then_some(()));
    timeout(PATIENCE, ended).await.unwrap();
    for mut wire in long {
        let taken = timeout(PATIENCE, wire.rest()).await.unwrap().unwrap_or_default();
        assert!(taken.len() < 50_000_000, "{}", taken.len());
    }
    serves(&mut server, &upstream).await;
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_closed_on_time_and_costs_nobody_else() {
    let upstream = Upstream::counting().await;
    let mut server = Server::with(upstream.address, "[timeouts]\nheader = \"500ms\"\n");
    let listen = server.listen;
    let dripping: Vec<_> = (0..20)
        .map(|_| {
            tokio::spawn(async move {
                let mut wire = Wire::connect(listen).await;
                wire.send("GET / HTTP/1.1\r\nhost: a\r\nx: ").await.unwrap();
                while wire.send("y").await.is_ok() {
                    sleep(Duration::from_millis(1)).await;
                }
            })
        })
        .collect();
    serves(&mut server, &upstream).await;
    let all = join_all(dripping);
    assert!(
        timeout(PATIENCE, all).await.is_ok(),
        "they are closed although they never pause"
    );
}

#[tokio::test]
async fn a_body_with_a_key_that_drips_is_refused_in_time_and_costs_nobody_else() {
    let upstream = Upstream::counting().await;
    let settings = "connections_max = 4\n[timeouts]\nrequest = \"300ms\"\n";
    let mut server = Server::with(upstream.address, settings);
    let listen = server.listen;
    let framings = [
        ("content-length: 1000000", "x"),
        ("transfer-encoding: chunked", "1\r\nx\r\n"),
    ];
    let dripping = framings.into_iter().cycle().take(8).map(|(framing, piece)| {
        tokio::spawn(async move {
            let mut wire = Wire::connect(listen).await;
            let head = format!("POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\n{framing}\r\n\r\n");
            wire.send(head).await.unwrap();
            let (mut reader, mut writer) = wire.stream.into_split();
            let pouring = tokio::spawn(async move {
                while writer.write_all(piece.as_bytes()).await.is_ok() {
                    sleep(Duration::from_millis(10)).await;
                }
            });
            let mut answer = Vec::new();
            while let Ok(1..) = tokio::io::AsyncReadExt::read_buf(&mut reader, &mut answer).await {}
            pouring.abort();
            String::from_utf8_lossy(&answer).into_owned()
        })
    });
    let dripping: Vec<_> = dripping.collect();
    // All places are taken, and given back.
    serves(&mut server, &upstream).await;
    for dripped in timeout(PATIENCE, join_all(dripping)).await.unwrap() {
        let told = dripped.unwrap();
        assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
        assert!(told.contains("VALIDATION.body_unreadable"), "{told}");
    }
    assert_eq!(upstream.effects(), 1, "only what was sent to see whether it serves");
}

#[tokio::test]
async fn a_thousand_idle_connections_shut_nobody_out_for_long() {
    let upstream = Upstream::counting().await;
    let settings = "connections_max = 100\n[timeouts]\nheader = \"200ms\"\n";
    let mut server = Server::with(upstream.address, settings);
    // Those for which there was no room are tried again by the system, after one second and after three.
    let connecting = (0..1000).map(|_| timeout(Duration::from_secs(5), TcpStream::connect(server.listen)));
    let idle: Vec<_> = join_all(connecting).await.into_iter().flatten().collect();
    assert!(idle.len() > 200, "{}", idle.len());
    serves(&mut server, &upstream).await;
    assert!(server.memory_max() < MEMORY_MAX, "{}", server.memory_max());
    // Operators have places of their own, however many clients there are.
    assert_eq!(get("/healthz").to(server.admin).await.status(), 200);
}

#[tokio::test]
async fn half_a_goodbye_cancels_nothing_that_has_a_key() {
    let upstream = Upstream::answering(|_| async {
        sleep(SHORT).await;
        reply(201, &[], "done")
    })
    .await;
    let mut server = Server::start(upstream.address);
    let request = post("/refunds").key("k");
    let mut wire = Wire::connect(server.listen).await;
    wire.send(request.bytes()).await.unwrap();
    wire.stream.shutdown().await.unwrap();
    let _ = timeout(PATIENCE, wire.rest()).await.unwrap();
    // It went on, or it was never begun.
    assert_eq!(request.to(server.listen).await.text(), "done");
    assert_eq!(upstream.effects(), 1);
    serves(&mut server, &upstream).await;
}

#[tokio::test]
async fn a_body_that_ends_early_is_no_request() {
    let upstream = Upstream::counting().await;
    let mut server = Server::start(upstream.address);
    for body in [
        "content-length: 10\r\n\r\nhalf",
        "transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        for resets in [false, true] {
            let mut wire = Wire::connect(server.listen).await;
            let request = format!("POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\n{body}");
            wire.send(request).await.unwrap();
            sleep(SHORT / 5).await;
            if resets {
                wire.stream.set_zero_linger().unwrap();
            } else {
                wire.stream.shutdown().await.unwrap();
                let _ = timeout(PATIENCE, wire.rest()).await.unwrap();
            }
        }
    }
    assert_eq!(upstream.requests(), []);
    assert_eq!(post("/").key("k").to(server.listen).await.key_status(), Some("stored"));
    serves(&mut server, &upstream).await;
}

#[tokio::test]
async fn a_store_that_is_lost_stops_what_has_a_key_and_nothing_else() {
    let upstream = Upstream::counting().await;
    let mut redis = OwnRedis::start().await;
    let mut server = Server::with(upstream.address, &format!("store = \"{}\"\n", redis.url()));
    let known = post("/refunds").key("known");
    assert_eq!(known.to(server.listen).await.key_status(), Some("stored"));
    redis.kill();
    for request in [&known, &post("/refunds").key("new")] {
        let answer = request.to(server.listen).await;
        assert_eq!(
            (answer.status(), answer.code().as_str()),
            (503, "DEPENDENCY.unavailable")
        );
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(upstream.effects(), 1);
    assert_eq!(post("/refunds").to(server.listen).await.status(), 201);
    assert_eq!(get("/readyz").to(server.admin).await.status(), 503);
    redis.restart().await;
    let back = until(async || (known.to(server.listen).await.key_status() == Some("replayed")).then_some(()));
    timeout(PATIENCE, back).await.unwrap();
    serves(&mut server, &upstream).await;
}
