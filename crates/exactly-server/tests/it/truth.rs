//! What clients are told, beside what the upstream did.
//!
//! *Freed* must mean that nothing happened, *stored* that the whole answer came, and everything else is unknown and never
//! sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use crate::PATIENCE;
use crate::client::{get, post};
use crate::server::{Server, until};
use crate::upstream::{Gate, Upstream, chunked, reply};
use crate::wire::{Message, Wire};

/// What became of a key, as its client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Stored,
    Freed,
    Unknown,
}

fn told(answer: &Message) -> Told {
    match (answer.status(), answer.key_status(), answer.code().as_str()) {
        (201, Some("stored" | "replayed"), _) => Told::Stored,
        (503, Some("freed"), "DEPENDENCY.unavailable") => {
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
            Told::Freed
        }
        (409, None, "OUTCOME.unknown") => {
            assert!(
                answer.header("link").is_some_and(|link| link.contains("/v1/calls/")),
                "{answer:?}"
            );
            Told::Unknown
        }
        _ => panic!("neither stored nor freed nor unknown: {answer:#?}"),
    }
}

#[tokio::test]
async fn a_request_cut_off_at_any_byte_is_called_undone_only_if_no_byte_was_read() {
    let cut_at = Arc::new(AtomicUsize::new(usize::MAX));
    let (cut, whole) = (Arc::clone(&cut_at), Arc::new(AtomicUsize::new(0)));
    let length = Arc::clone(&whole);
    // Reads so many bytes and goes away; carries out what it has read to its end.
    let upstream = Upstream::scripted(move |mut wire, upstream| {
        let (cut, length) = (cut.load(Ordering::SeqCst), Arc::clone(&length));
        async move {
            let mut read = Vec::new();
            let mut byte = [0];
            while read.len() < cut && wire.stream.read_exact(&mut byte).await.is_ok() {
                read.push(byte[0]);
                if read.ends_with(b"{\"amount\":7}") {
                    length.store(read.len(), Ordering::SeqCst);
                    upstream.note(&Message {
                        start: "POST".to_owned(),
                        ..Message::default()
                    });
                    break;
                }
            }
        }
    })
    .await;
    let server = Server::start(upstream.address);
    let first = post("/refunds").key("key-0000").to(server.listen).await;
    assert_eq!((told(&first), upstream.effects()), (Told::Unknown, 1));
    let whole = whole.load(Ordering::SeqCst);
    assert!(whole > 200, "{whole}");
    for at in 0..=whole {
        let (request, before) = (post("/refunds").key(&format!("key-1{at:03}")), upstream.effects());
        cut_at.store(at, Ordering::SeqCst);
        let answer = request.to(server.listen).await;
        let connections = upstream.connections();
        match told(&answer) {
            Told::Unknown => {
                assert_eq!(told(&request.to(server.listen).await), Told::Unknown, "at {at}");
                assert_eq!(upstream.connections(), connections, "sent again at {at}");
            }
            told => assert!(told == Told::Freed && at == 0, "{told:?} at {at}"),
        }
        assert_eq!(upstream.effects() - before, usize::from(at == whole), "at {at}");
    }
}

/// Carries out everything, and sends so many bytes of `answer` before it goes away.
async fn cutting(answer: Vec<u8>, cut_at: &Arc<AtomicUsize>, resets: bool) -> Upstream {
    let cut_at = Arc::clone(cut_at);
    Upstream::scripted(move |mut wire, upstream| {
        let (answer, at) = (answer.clone(), cut_at.load(Ordering::SeqCst));
        async move {
            let request = wire.request().await.unwrap();
            upstream.note(&request);
            let _ = wire.send(&answer[..at.min(answer.len())]).await;
            if resets {
                wire.stream.set_zero_linger().unwrap();
            }
        }
    })
    .await
}

async fn is_stored_only_if_whole(answer: Vec<u8>, resets: bool) {
    let cut_at = Arc::new(AtomicUsize::new(0));
    let length = answer.len();
    let upstream = cutting(answer, &cut_at, resets).await;
    let server = Server::start(upstream.address);
    for at in 0..=length {
        cut_at.store(at, Ordering::SeqCst);
        let request = post("/refunds").key(&format!("key-{at}"));
        let first = request.to(server.listen).await;
        if at == length && !resets {
            assert_eq!(told(&first), Told::Stored, "at {at}");
        }
        // A reset may overtake the last bytes.
        if at == length && told(&first) == Told::Stored {
            assert_eq!(first.text(), "one refund");
        } else {
            assert_eq!(told(&first), Told::Unknown, "at {at}");
        }
        let again = request.to(server.listen).await;
        assert_eq!(told(&again), told(&first), "at {at}");
        assert_eq!(upstream.effects(), at + 1, "at {at}");
    }
}

#[tokio::test]
async fn an_answer_cut_off_at_any_byte_is_stored_only_if_it_was_whole() {
    let answer = reply(201, &[("x-a", "b")], "one refund");
    tokio::join!(
        is_stored_only_if_whole(answer.clone(), false),
        is_stored_only_if_whole(answer, true)
    );
}

#[tokio::test]
async fn an_answer_in_chunks_cut_off_at_any_byte_is_stored_only_if_it_was_whole() {
    let answer = chunked(201, &["one ", "refund"]);
    tokio::join!(
        is_stored_only_if_whole(answer.clone(), false),
        is_stored_only_if_whole(answer, true)
    );
}

#[tokio::test]
async fn a_refused_connection_is_a_request_that_did_not_happen() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // Bound and not listening: refused, and nobody else can take the port.
    let address = socket.local_addr().unwrap();
    let server = Server::start(address);
    for _ in 0..3 {
        let answer = post("/refunds").key("k").to(server.listen).await;
        assert_eq!(told(&answer), Told::Freed);
        let answer = post("/refunds").to(server.listen).await;
        assert_eq!(
            (answer.status(), answer.code().as_str()),
            (503, "DEPENDENCY.unavailable")
        );
        assert_eq!(answer.key_status(), None);
    }
    let listener = socket.listen(8).unwrap();
    tokio::spawn(async move {
        let mut wire = Wire::new(listener.accept().await.unwrap().0);
        wire.request().await.unwrap();
        wire.send(reply(201, &[], "done")).await.unwrap();
    });
    let answer = post("/refunds").key("k").to(server.listen).await;
    assert_eq!((told(&answer), answer.text().as_str()), (Told::Stored, "done"));
}

#[tokio::test]
async fn a_connection_that_is_never_made_is_a_request_that_did_not_happen() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Nobody accepts, so the queue fills up, and after that nobody even answers.
    let mut queue = Vec::new();
    while let Ok(connected) = timeout(crate::SHORT, TcpStream::connect(address)).await {
        queue.push(connected.unwrap());
        assert!(queue.len() < 100);
    }
    let server = Server::with(address, "[timeouts]\nconnect = \"200ms\"\nresponse = \"10s\"\n");
    let answer = post("/refunds").key("k").to(server.listen).await;
    assert_eq!(told(&answer), Told::Freed);
    let answer = get("/").to(server.listen).await;
    assert_eq!(
        (answer.status(), answer.code().as_str()),
        (503, "DEPENDENCY.unavailable")
    );
}

#[tokio::test]
async fn a_kept_connection_that_the_upstream_closed_costs_nothing() {
    // It answers once on each connection and closes it without a word.
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        if let Some(request) = wire.request().await {
            upstream.note(&request);
            let _ = wire.send(reply(201, &[], "done")).await;
        }
    })
    .await;
    let server = Server::start(upstream.address);
    for n in 0..20 {
        let answer = post("/refunds").key(&format!("k{n}")).to(server.listen).await;
        assert_eq!(told(&answer), Told::Stored, "{n}");
        assert_eq!(get("/").to(server.listen).await.status(), 201, "{n}");
        // The gateway can know of the end of a connection once it has reached its host.
        until(async || (upstream.open() == 0).then_some(())).await;
    }
    assert_eq!(upstream.effects(), 20);
}

#[tokio::test]
async fn a_kept_connection_that_is_closed_under_a_request_leaves_it_unknown_and_unsent() {
    // It closes the connection at the first byte of the second request.
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        if let Some(request) = wire.request().await {
            upstream.note(&request);
            let _ = wire.send(reply(201, &[], "done")).await;
            let _ = wire.bytes(1).await;
        }
    })
    .await;
    let server = Server::start(upstream.address);
    // One client, because each thread of the gateway has connections of its own.
    let mut wire = Wire::connect(server.listen).await;
    for n in 0..20 {
        for (key, expected) in [("a", Told::Stored), ("b", Told::Unknown), ("b", Told::Unknown)] {
            let request = post("/refunds").key(&format!("{key}{n}"));
            wire.send(request.bytes()).await.unwrap();
            assert_eq!(told(&wire.answered().await.unwrap()), expected, "{key}{n}");
        }
        assert_eq!((upstream.effects(), upstream.connections()), (n + 1, n + 1));
    }
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_unknown_with_a_key_and_a_timeout_without() {
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        let request = wire.request().await.unwrap();
        upstream.note(&request);
        let begun = match request.target() {
            "/silent" => "",
            "/head" => "HTTP/1.1 201 Sa",
            "/early" => "HTTP/1.1 103 Said\r\n\r\n",
            _ => "HTTP/1.1 201 Said\r\ncontent-length: 10\r\n\r\nhalf",
        };
        let _ = wire.send(begun).await;
        // Until the gateway gives up.
        wire.is_ended().await;
    })
    .await;
    let settings = "[timeouts]\nconnect = \"200ms\"\nresponse = \"300ms\"\n";
    let server = Server::with(upstream.address, settings);
    for (n, path) in ["/silent", "/head", "/early", "/body"].into_iter().enumerate() {
        let request = post(path).key(path);
        for _ in 0..2 {
            assert_eq!(told(&request.to(server.listen).await), Told::Unknown, "{path}");
        }
        match post(path).try_to(server.listen).await {
            Some(answer) => {
                assert_eq!(
                    (answer.status(), answer.code().as_str()),
                    (504, "DEPENDENCY.timeout"),
                    "{path}"
                );
                assert_ne!(path, "/body");
            }
            None => assert_eq!(path, "/body", "its head had been passed on"),
        }
        assert_eq!(upstream.effects(), 2 * (n + 1), "{path}");
    }
}

#[tokio::test]
async fn an_answer_that_drips_is_unknown_with_a_key_and_comes_as_it_comes_without() {
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        while let Some(request) = wire.request().await {
            upstream.note(&request);
            wire.send("HTTP/1.1 201 Said\r\ncontent-length: 50\r\n\r\n")
                .await
                .unwrap();
            for _ in 0..50 {
                if wire.send("x").await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    })
    .await;
    let server = Server::with(upstream.address, "[timeouts]\nresponse = \"30s\"\nanswer = \"300ms\"\n");
    let request = post("/refunds").key("k");
    for _ in 0..2 {
        assert_eq!(told(&request.to(server.listen).await), Told::Unknown);
    }
    assert_eq!(upstream.effects(), 1);
    assert_eq!(post("/refunds").to(server.listen).await.body.len(), 50);
}

#[tokio::test]
async fn a_long_upload_is_no_silence_and_silence_after_it_is() {
    let upstream = Upstream::scripted(|mut wire, _| async move {
        let request = wire.request().await.unwrap();
        match request.target() {
            "/silent" => _ = wire.is_ended().await,
            _ => wire.send(reply(201, &[], &request.text())).await.unwrap(),
        }
    })
    .await;
    let settings = "[timeouts]\nconnect = \"1s\"\nresponse = \"1s\"\n";
    let server = Server::with(upstream.address, settings);
    let upload = async |path: &str| {
        let mut wire = Wire::connect(server.listen).await;
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n");
        wire.send(head).await.unwrap();
        for _ in 0..10 {
            sleep(Duration::from_millis(150)).await;
            wire.send("x").await.unwrap();
        }
        let sent = Instant::now();
        (wire.answered().await.unwrap(), sent.elapsed())
    };
    let ((answer, _), (silent, after)) = tokio::join!(upload("/"), upload("/silent"));
    assert_eq!((answer.status(), answer.text().as_str()), (201, "xxxxxxxxxx"));
    assert_eq!(silent.status(), 504);
    assert!(after > Duration::from_millis(900), "{after:?}");
    // What has been sent at once is waited for as long, and not for longer.
    let sent = Instant::now();
    assert_eq!(told(&post("/silent").key("k").to(server.listen).await), Told::Unknown);
    assert!(sent.elapsed() < Duration::from_millis(1900), "{:?}", sent.elapsed());
}

#[tokio::test]
async fn what_the_upstream_says_about_itself_decides() {
    let upstream = Upstream::answering(|request: Message| async move {
        let status = request.target().trim_start_matches('/').parse().unwrap();
        reply(status, &[], "said")
    })
    .await;
    let server = Server::start(upstream.address);
    for (status, first, again, sent) in [
        (200, "stored", "replayed", 1),
        (302, "stored", "replayed", 1),
        (404, "stored", "replayed", 1),
        (422, "stored", "replayed", 1),
        (500, "stored", "replayed", 1),
        (408, "freed", "freed", 2),
        (425, "freed", "freed", 2),
        (429, "freed", "freed", 2),
        (503, "freed", "freed", 2),
    ] {
        let request = post(&format!("/{status}")).key("k").bearer(&status.to_string());
        let before = upstream.effects();
        for expected in [first, again] {
            let answer = request.to(server.listen).await;
            assert_eq!((answer.status(), answer.text().as_str()), (status, "said"));
            assert_eq!(answer.key_status(), Some(expected), "{status}");
        }
        assert_eq!(upstream.effects() - before, sent, "{status}");
    }
    for status in [502, 504] {
        let request = post(&format!("/{status}")).key("k").bearer(&status.to_string());
        let answer = request.to(server.listen).await;
        assert_eq!((answer.status(), answer.key_status()), (status, Some("unknown")));
        let before = upstream.effects();
        assert_eq!(told(&request.to(server.listen).await), Told::Unknown);
        assert_eq!(upstream.effects(), before);
    }
}

#[tokio::test]
async fn a_rerunnable_request_is_sent_again_as_the_next_attempt() {
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        while let Some(request) = wire.request().await {
            upstream.note(&request);
            match request.header("idempotency-attempt") {
                Some("1") => return,
                Some("2") => {
                    let _ = wire.send("HTTP/1.1 201 Said\r\ncontent-length: 10\r\n\r\nhalf").await;
                    return;
                }
                _ => wire.send(reply(201, &[], "done")).await.unwrap(),
            }
        }
    })
    .await;
    let route = "[[routes]]\nmethod = \"POST\"\npath = \"/refunds\"\nguarantee = \"rerunnable\"\n";
    let server = Server::with(upstream.address, route);
    let request = post("/refunds").key("k");
    for _ in 0..2 {
        let answer = request.to(server.listen).await;
        assert_eq!(
            (answer.status(), answer.code().as_str()),
            (500, "TRANSIENT.handler_failed")
        );
        assert!(answer.text().contains("\"retryable\":true"), "{answer:?}");
    }
    for _ in 0..2 {
        assert_eq!(told(&request.to(server.listen).await), Told::Stored);
    }
    let requests = upstream.requests();
    let attempts: Vec<_> = requests
        .iter()
        .map(|request| request.header("idempotency-attempt"))
        .collect();
    assert_eq!(attempts, [Some("1"), Some("2"), Some("3")]);
    let calls: Vec<_> = requests.iter().map(|request| request.header("exactly-call")).collect();
    assert_eq!(calls, [calls[0]; 3], "all of them are one call");
}

#[tokio::test]
async fn a_gateway_killed_under_a_request_leaves_it_unknown_and_done_once() {
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        let request = wire.request().await.unwrap();
        upstream.note(&request);
        // At work until the gateway is dead.
        wire.is_ended().await;
    })
    .await;
    let route = "[[routes]]\nmethod = \"POST\"\npath = \"/refunds\"\nlease = \"1s\"\nwait = \"0s\"\n";
    let mut server = Server::with(upstream.address, route);
    let request = post("/refunds").key("k");
    let mut wire = Wire::connect(server.listen).await;
    wire.send(request.bytes()).await.unwrap();
    until(async || (upstream.effects() == 1).then_some(())).await;
    server.restart();
    assert!(wire.is_ended().await);
    let told = until(async || {
        let answer = request.to(server.listen).await;
        // Its lease outlives the gateway that held it, since nobody can know how it is.
        (answer.code() != "CONFLICT.idempotency.in_progress").then(|| told(&answer))
    });
    assert_eq!(timeout(PATIENCE, told).await.unwrap(), Told::Unknown);
    assert_eq!((upstream.effects(), upstream.connections()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_concurrent_requests_one_is_sent_and_all_get_its_answer() {
    let gate = Gate::default();
    let passed = gate.clone();
    let upstream = Upstream::answering(move |request: Message| {
        let passed = passed.clone();
        async move {
            if request.target() == "/held" {
                passed.passed().await;
            }
            reply(201, &[("x-a", "b")], "done")
        }
    })
    .await;
    let server = Server::with(upstream.address, "[defaults]\nwait = \"30s\"\n");
    let mut clients = Vec::new();
    for _ in 0..1000 {
        let mut wire = Wire::connect(server.listen).await;
        wire.send(post("/held").key("k").bytes()).await.unwrap();
        clients.push(wire);
    }
    until(async || (upstream.effects() == 1).then_some(())).await;
    // Whoever waits stands in nobody's way.
    for n in 0..20 {
        let answer = post("/other").key(&format!("other-{n}")).to(server.listen).await;
        assert_eq!(told(&answer), Told::Stored);
    }
    gate.open();
    let mut stored = 0;
    for mut wire in clients {
        let answer = wire.answered().await.unwrap();
        assert_eq!((answer.status(), answer.text().as_str()), (201, "done"));
        assert_eq!(answer.header("x-a"), Some("b"));
        stored += usize::from(answer.key_status() == Some("stored"));
    }
    assert_eq!(stored, 1);
    assert_eq!(upstream.effects_of(|request| request.target() == "/held"), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_nothing() {
    let gate = Gate::default();
    let upstream = Upstream::held(&gate).await;
    let server = Server::start(upstream.address);
    let request = post("/refunds").key("k");
    for resets in [false, true] {
        let mut wire = Wire::connect(server.listen).await;
        wire.send(request.bytes()).await.unwrap();
        until(async || (upstream.effects() == 1).then_some(())).await;
        if resets {
            wire.stream.set_zero_linger().unwrap();
        }
    }
    // The gateway learns of the hang-ups before it learns of the answer.
    sleep(crate::SHORT).await;
    gate.open();
    let answer = request.to(server.listen).await;
    assert_eq!((told(&answer), answer.key_status()), (Told::Stored, Some("replayed")));
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test]
async fn gateways_that_share_a_store_send_a_request_once() {
    let upstream = Upstream::counting().await;
    let first = Server::start(upstream.address);
    let store = format!("store = \"sqlite:{}\"\n", first.file("exactly.db").display());
    let second = Server::with(upstream.address, &store);
    for n in 0..10 {
        let request = post("/refunds").key(&format!("k{n}"));
        let (one, other) = tokio::join!(request.to(first.listen), request.to(second.listen));
        assert_eq!((told(&one), told(&other)), (Told::Stored, Told::Stored));
        assert_eq!(one.text(), other.text());
        assert_eq!(one.header("x-number"), other.header("x-number"));
    }
    assert_eq!(upstream.effects(), 10);
}

#[tokio::test]
async fn an_upstream_that_comes_later_is_no_reason_not_to_start() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let server = Server::start(address);
    assert_eq!(get("/").to(server.listen).await.status(), 503);
}
