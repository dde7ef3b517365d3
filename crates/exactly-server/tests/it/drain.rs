//! Stopping, asked for and not.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{get, post};
use crate::server::{Server, until};
use crate::upstream::{Gate, Upstream, reply};
use crate::wire::{Message, Wire};
use crate::{PATIENCE, SHORT};

/// Far less than any time-out that is on by default.
const PROMPT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn requests_under_way_get_their_answers_and_new_ones_are_refused() {
    let gate = Gate::default();
    let upstream = Upstream::held(&gate).await;
    let mut server = Server::start(upstream.address);
    let requests = [post("/refunds").key("k"), post("/refunds"), get("/")];
    let mut wires = Vec::new();
    for request in &requests {
        let mut wire = Wire::connect(server.listen).await;
        wire.send(request.bytes()).await.unwrap();
        wires.push(wire);
    }
    until(async || (upstream.requests().len() == 3).then_some(())).await;
    server.terminate();
    let refused = until(async || TcpStream::connect(server.listen).await.err());
    timeout(PATIENCE, refused).await.unwrap();
    gate.open();
    for mut wire in wires {
        assert_eq!(wire.answered().await.unwrap().text(), "done");
        assert!(wire.is_ended().await, "it is not kept alive");
    }
    assert_eq!(server.stopped().await.code(), Some(0));
    server.restart();
    assert_eq!(requests[0].to(server.listen).await.key_status(), Some("replayed"));
}

#[tokio::test]
async fn a_call_whose_client_has_gone_is_finished_and_recorded_before_the_end() {
    let gate = Gate::default();
    let upstream = Upstream::held(&gate).await;
    let mut server = Server::start(upstream.address);
    let request = post("/refunds").key("k");
    let mut wire = Wire::connect(server.listen).await;
    wire.send(request.bytes()).await.unwrap();
    until(async || (upstream.effects() == 1).then_some(())).await;
    drop(wire);
    server.terminate();
    sleep(SHORT).await;
    assert!(server.is_running(), "it waits for what is under way");
    gate.open();
    assert_eq!(server.stopped().await.code(), Some(0));
    server.restart();
    let answer = request.to(server.listen).await;
    assert_eq!(
        (answer.text().as_str(), answer.key_status()),
        ("done", Some("replayed"))
    );
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test]
async fn connections_on_which_nothing_is_under_way_hold_nothing_up() {
    let upstream = Upstream::counting().await;
    let mut server = Server::start(upstream.address);
    // One that never said anything, one that was answered, and one of HTTP/2.
    let silent = Wire::connect(server.listen).await;
    let mut answered = Wire::connect(server.listen).await;
    answered.send(get("/").bytes()).await.unwrap();
    answered.answered().await.unwrap();
    let stream = TcpStream::connect(server.listen).await.unwrap();
    let (multiplexed, connection) =
        hyper::client::conn::http2::handshake::<_, _, String>(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    sleep(SHORT).await;
    let asked = Instant::now();
    server.terminate();
    assert_eq!(server.stopped().await.code(), Some(0));
    assert!(asked.elapsed() < PROMPT, "{:?}", asked.elapsed());
    drop((silent, answered, multiplexed));
}

#[tokio::test]
async fn what_never_ends_holds_nothing_up_for_longer_than_it_may() {
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        let request = wire.request().await.unwrap();
        upstream.note(&request);
        let begun = match request.target() {
            "/stream" => "HTTP/1.1 200 Said\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n",
            "/upgrade" => "HTTP/1.1 101 Said\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\n",
            _ => "",
        };
        wire.send(begun).await.unwrap();
        wire.is_ended().await;
    })
    .await;
    let settings = "[timeouts]\ndrain = \"300ms\"\n[defaults]\nlease = \"1s\"\nwait = \"0s\"\n";
    let mut server = Server::with(upstream.address, settings);
    let request = post("/silent").key("k");
    let mut wires = Vec::new();
    let upgrade = get("/upgrade").header("connection", "upgrade").header("upgrade", "raw");
    for request in [&request, &get("/stream"), &get("/silent"), &upgrade] {
        let mut wire = Wire::connect(server.listen).await;
        wire.send(request.bytes()).await.unwrap();
        wires.push(wire);
    }
    until(async || (upstream.requests().len() == 4).then_some(())).await;
    let asked = Instant::now();
    server.terminate();
    assert_eq!(server.stopped().await.code(), Some(0));
    assert!(asked.elapsed() < PROMPT, "{:?}", asked.elapsed());
    server.restart();
    // It was cut off like by a crash, and is held like after one.
    let told = until(async || {
        let answer = request.to(server.listen).await;
        (answer.code() != "CONFLICT.idempotency.in_progress").then(|| answer.code())
    });
    assert_eq!(timeout(PATIENCE, told).await.unwrap(), "OUTCOME.unknown");
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test]
async fn asked_twice_it_stops_at_once() {
    let upstream = Upstream::held(&Gate::default()).await;
    let mut server = Server::start(upstream.address);
    let mut wire = Wire::connect(server.listen).await;
    wire.send(post("/refunds").key("k").bytes()).await.unwrap();
    until(async || (upstream.effects() == 1).then_some(())).await;
    server.terminate();
    until(async || TcpStream::connect(server.listen).await.err()).await;
    assert!(server.is_running());
    let asked = Instant::now();
    server.terminate();
    assert_eq!(server.stopped().await.code(), Some(130));
    assert!(asked.elapsed() < PROMPT, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_server_to_which_nobody_listens_serves_and_stops_all_the_same() {
    let upstream = Upstream::scripted(|mut wire, _| async move {
        wire.request().await;
    })
    .await;
    let mut server = Server::logging_to(upstream.address, Stdio::piped());
    server.stop_listening();
    // Each of these is worth a line in the log.
    for n in 0..3 {
        let answer = post("/refunds").key(&format!("k{n}")).to(server.listen).await;
        assert_eq!(answer.code(), "OUTCOME.unknown");
    }
    server.terminate();
    assert_eq!(server.stopped().await.code(), Some(0));
}

/// What clients were told of their keys.
#[derive(Default)]
struct Told {
    answers: Mutex<HashMap<String, String>>,
    /// Those that got none.
    open: Mutex<Vec<String>>,
}

impl Told {
    fn count(&self) -> usize {
        self.answers.lock().unwrap().len()
    }
}

/// Sends one request after the other, each until its outcome is known, to wherever the gateway is at the time.
async fn shop(number: usize, place: tokio::sync::watch::Receiver<std::net::SocketAddr>, told: Arc<Told>) {
    for n in 0_u32.. {
        let key = format!("client-{number}-{n}");
        let request = post("/refunds").key(&key);
        loop {
            let listen = *place.borrow();
            if listen.port() == 0 {
                return;
            }
            let Ok(stream) = TcpStream::connect(listen).await else {
                sleep(Duration::from_millis(1)).await;
                continue;
            };
            let mut wire = Wire::new(stream);
            if wire.send(request.bytes()).await.is_err() {
                continue;
            }
            let Ok(Some(answer)) = timeout(PATIENCE, wire.answer()).await else {
                continue;
            };
            match (answer.status(), answer.code().as_str()) {
                (201, _) => {
                    told.answers.lock().unwrap().insert(key, answer.text());
                    break;
                }
                // Nobody knows, or not before the dead gateway's lease is over: that is looked at in the end.
                (409, "OUTCOME.unknown" | "CONFLICT.idempotency.in_progress") => {
                    told.open.lock().unwrap().push(key);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_under_load_it_repeats_nothing_and_loses_nothing_that_it_told() {
    const KILLS: usize = 10;
    let upstream = Upstream::answering(|request: Message| async move {
        sleep(Duration::from_millis(fastrand::u64(0..10))).await;
        reply(
            201,
            &[],
            &format!("{} {}", request.header("idempotency-key").unwrap(), fastrand::u64(..)),
        )
    })
    .await;
    let mut server = Server::with(upstream.address, "[defaults]\nlease = \"1s\"\nwait = \"0s\"\n");
    let (moved, place) = tokio::sync::watch::channel(server.listen);
    let told = Arc::new(Told::default());
    let clients: Vec<_> = (0..8)
        .map(|number| tokio::spawn(shop(number, place.clone(), Arc::clone(&told))))
        .collect();
    for _ in 0..KILLS {
        let enough = told.count() + fastrand::usize(5..30);
        let busy = until(async || (told.count() >= enough).then_some(()));
        timeout(PATIENCE, busy).await.unwrap();
        server.restart();
        moved.send(server.listen).unwrap();
    }
    moved.send("127.0.0.1:0".parse().unwrap()).unwrap();
    for client in clients {
        timeout(PATIENCE, client).await.unwrap().unwrap();
    }
    let open = told.open.lock().unwrap().clone();
    assert!(!open.is_empty(), "no kill met a request");
    for key in open {
        let request = post("/refunds").key(&key);
        let known = until(async || {
            let answer = request.to(server.listen).await;
            (answer.code() != "CONFLICT.idempotency.in_progress").then_some(())
        });
        timeout(PATIENCE, known).await.unwrap();
    }
    let mut effects = HashMap::<String, usize>::new();
    for request in upstream.requests() {
        let key = request.header("idempotency-key").unwrap().to_owned();
        *effects.entry(key).or_default() += 1;
    }
    let answers = told.answers.lock().unwrap().clone();
    for (key, count) in &effects {
        assert_eq!(*count, 1, "{key}");
    }
    for (key, text) in answers {
        assert_eq!(effects.get(&key), Some(&1), "{key} was told and not done");
        let again = post("/refunds").key(&key).to(server.listen).await;
        assert_eq!((again.key_status(), again.text()), (Some("replayed"), text));
    }
}
