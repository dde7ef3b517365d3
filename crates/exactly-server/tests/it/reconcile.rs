//! Doubts that end by asking the upstream what it did.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{get, post};
use crate::server::{Server, TOKEN, until};
use crate::upstream::{Gate, Upstream, reply};
use crate::wire::{Message, Wire};
use crate::{PATIENCE, SHORT};

/// The status of the upstream's answers to probes, if it answers them.
#[derive(Clone, Default)]
struct Known(Arc<AtomicU16>);

impl Known {
    const CUT: u16 = 0;
    const SILENT: u16 = 1;
    const BROKEN: u16 = 2;

    fn set(&self, status: u16) {
        self.0.store(status, Ordering::SeqCst);
    }

    fn get(&self) -> u16 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Goes away without an answer to its first request, and answers probes with what is `known`.
async fn losing(known: &Known) -> Upstream {
    let known = known.clone();
    Upstream::scripted(move |mut wire, upstream| {
        let known = known.clone();
        async move {
            while let Some(request) = wire.request().await {
                upstream.note(&request);
                let answer = match (request.method(), known.get()) {
                    ("POST", _) if upstream.effects() == 1 => return,
                    ("POST", _) => reply(201, &[], "run"),
                    (_, Known::CUT) => return,
                    (_, Known::SILENT) => {
                        wire.is_ended().await;
                        return;
                    }
                    (_, Known::BROKEN) => {
                        let _ = wire.send("HTTP/1.1 200 Said\r\ncontent-length: 10\r\n\r\nhalf").await;
                        return;
                    }
                    (_, status) => reply(status, &[("x-found", "yes"), ("set-cookie", "a=b")], "found"),
                };
                wire.send(answer).await.unwrap();
            }
        }
    })
    .await
}

fn settings(reconcile: &str, more: &str) -> String {
    format!(
        "{more}\n[timeouts]\nconnect = \"200ms\"\nresponse = \"300ms\"\n\
         [[routes]]\nmethod = \"POST\"\npath = \"/refunds/{{id}}\"\nlease = \"1s\"\n{reconcile}\n"
    )
}

const BY_CALL: &str = "reconcile = \"/by-call/{call}?of=refunds\"\nreconcile_after = \"0s\"";

/// Never within a test.
const SELDOM: &str = "reconcile_every = \"1h\"";

fn probes(upstream: &Upstream) -> Vec<Message> {
    let requests = upstream.requests().into_iter();
    requests.filter(|request| request.method() == "GET").collect()
}

/// What operators see at `path`.
async fn operators(server: &Server, path: &str) -> Value {
    let answer = get(path).bearer(TOKEN).to(server.admin).await;
    assert_eq!(answer.status(), 200, "{answer:?}");
    serde_json::from_slice(&answer.body).unwrap()
}

/// What the trail says about reconciling.
async fn reconciled(server: &Server) -> Vec<String> {
    let trail = operators(server, "/v1/trail").await;
    let entries = trail["entries"].as_array().unwrap_or_else(|| panic!("{trail}"));
    let by_gateway = entries.iter().filter(|entry| entry["action"] == "reconcile");
    by_gateway
        .map(|entry| entry["detail"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_doubt_ends_with_the_answer_that_the_upstream_tells() {
    let known = Known::default();
    let upstream = losing(&known).await;
    let server = Server::with(upstream.address, &settings(BY_CALL, SELDOM));
    let request = post("/refunds/7").key("k").bearer("ada");
    for (number, status) in [Known::CUT, Known::SILENT, Known::BROKEN, 500, 503, 403, 302, 402]
        .into_iter()
        .enumerate()
    {
        known.set(status);
        let answer = request.to(server.listen).await;
        assert_eq!(
            (answer.status(), answer.code().as_str()),
            (409, "OUTCOME.unknown"),
            "{status}"
        );
        // The first one was no repetition: nobody had to be asked about it.
        assert_eq!(probes(&upstream).len(), number, "{status}");
    }
    assert_eq!(reconciled(&server).await, [""; 0]);
    known.set(200);
    for _ in 0..3 {
        let answer = request.to(server.listen).await;
        assert_eq!((answer.status(), answer.text().as_str()), (200, "found"));
        assert_eq!(answer.key_status(), Some("replayed"));
        assert_eq!(answer.header("x-found"), Some("yes"));
        assert_eq!(answer.header("set-cookie"), None);
    }
    assert_eq!(probes(&upstream).len(), 8, "it is known by now");
    assert_eq!(upstream.effects(), 1);
    assert_eq!(
        reconciled(&server).await,
        ["asked; the upstream answered 200 OK: it happened"]
    );
    let asked = &probes(&upstream)[0];
    let call = upstream.requests()[0].header("exactly-call").unwrap().to_owned();
    assert_eq!(asked.target(), format!("/by-call/{call}?of=refunds"));
    assert_eq!(asked.header("host"), Some(upstream.address.to_string().as_str()));
    assert_eq!(
        asked.header("authorization"),
        None,
        "the caller's credentials are the caller's"
    );
}

#[tokio::test]
async fn what_the_upstream_does_not_know_of_is_run_again() {
    let known = Known::default();
    let upstream = losing(&known).await;
    let server = Server::with(upstream.address, &settings(BY_CALL, SELDOM));
    let request = post("/refunds/7").key("k");
    assert_eq!(request.to(server.listen).await.status(), 409);
    known.set(404);
    let again = request.to(server.listen).await;
    assert_eq!((again.text().as_str(), again.key_status()), ("run", Some("stored")));
    assert_eq!(request.to(server.listen).await.key_status(), Some("replayed"));
    assert_eq!((upstream.effects(), probes(&upstream).len()), (2, 1));
    assert_eq!(
        reconciled(&server).await,
        ["asked; the upstream answered 404: it did not happen"]
    );
}

#[tokio::test]
async fn what_may_still_lie_in_a_queue_is_not_run_again() {
    let known = Known::default();
    let upstream = losing(&known).await;
    let settings = settings(BY_CALL, SELDOM).replace("reconcile_after = \"0s\"", "reconcile_after = \"1s\"");
    let server = Server::with(upstream.address, &settings);
    let request = post("/refunds/7").key("k");
    known.set(404);
    let begun = Instant::now();
    assert_eq!(request.to(server.listen).await.status(), 409);
    let run = until(async || (request.to(server.listen).await.text() == "run").then_some(()));
    timeout(PATIENCE, run).await.unwrap();
    assert!(begun.elapsed() > Duration::from_millis(950), "{:?}", begun.elapsed());
    assert_eq!(upstream.effects(), 2);
}

#[tokio::test]
async fn probes_by_key_cannot_be_led_elsewhere() {
    let known = Known::default();
    let upstream = losing(&known).await;
    let reconcile = "reconcile = \"/by-key/{key}\"\nreconcile_headers = { authorization = \"Bearer operator\", host = \"in.example\" }";
    let server = Server::with(upstream.address, &settings(reconcile, SELDOM));
    let request = post("/refunds/7").key("\"../a?b#c/{call} d\"");
    assert_eq!(request.to(server.listen).await.status(), 409);
    known.set(200);
    assert_eq!(request.to(server.listen).await.text(), "found");
    let asked = &probes(&upstream)[0];
    assert_eq!(asked.target(), "/by-key/%2E%2E%2Fa%3Fb%23c%2F%7Bcall%7D%20d");
    assert_eq!(asked.header("authorization"), Some("Bearer operator"));
    assert_eq!(asked.header("host"), Some("in.example"));
}

#[tokio::test]
async fn concurrent_repetitions_ask_once() {
    let known = Known::default();
    let upstream = losing(&known).await;
    let server = Server::with(upstream.address, &settings(BY_CALL, SELDOM));
    let request = post("/refunds/7").key("k");
    assert_eq!(request.to(server.listen).await.status(), 409);
    known.set(404);
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let (request, listen) = (request.clone(), server.listen);
            tokio::spawn(async move { request.to(listen).await })
        })
        .collect();
    for asked in asking {
        assert_eq!(asked.await.unwrap().text(), "run");
    }
    assert_eq!((upstream.effects(), probes(&upstream).len()), (2, 1));
}

#[tokio::test]
async fn doubts_end_in_the_background_without_any_request() {
    let known = Known::default();
    let upstream = losing(&known).await;
    let server = Server::with(upstream.address, &settings(BY_CALL, "reconcile_every = \"100ms\""));
    let request = post("/refunds/7").key("k");
    assert_eq!(request.to(server.listen).await.status(), 409);
    known.set(500);
    let asked = until(async || (probes(&upstream).len() >= 2).then_some(()));
    timeout(PATIENCE, asked).await.unwrap();
    assert_eq!(reconciled(&server).await, [""; 0]);
    known.set(200);
    let ended = until(async || {
        let calls = operators(&server, "/v1/calls").await;
        (calls["calls"][0]["phase"] == "done").then_some(())
    });
    timeout(PATIENCE, ended).await.unwrap();
    // It is noted once it has ended.
    let noted = until(async || (reconciled(&server).await.len() == 1).then_some(()));
    timeout(PATIENCE, noted).await.unwrap();
    known.set(500);
    let answer = request.to(server.listen).await;
    assert_eq!(
        (answer.text().as_str(), answer.key_status()),
        ("found", Some("replayed"))
    );
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test]
async fn what_a_killed_gateway_left_behind_is_asked_about() {
    let upstream = Upstream::scripted(|mut wire, upstream| async move {
        while let Some(request) = wire.request().await {
            upstream.note(&request);
            if request.method() == "POST" {
                wire.is_ended().await;
                return;
            }
            wire.send(reply(200, &[], "found")).await.unwrap();
        }
    })
    .await;
    let mut server = Server::with(upstream.address, &settings(BY_CALL, "reconcile_every = \"100ms\""));
    let request = post("/refunds/7").key("k");
    let mut wire = Wire::connect(server.listen).await;
    wire.send(request.bytes()).await.unwrap();
    until(async || (upstream.effects() == 1).then_some(())).await;
    server.restart();
    let ended = until(async || {
        let calls = operators(&server, "/v1/calls").await;
        (calls["calls"][0]["phase"] == "done").then_some(())
    });
    timeout(PATIENCE, ended).await.unwrap();
    let answer = request.to(server.listen).await;
    assert_eq!(
        (answer.text().as_str(), answer.key_status()),
        ("found", Some("replayed"))
    );
    assert_eq!(upstream.effects(), 1);
}

/// Goes away without an answer to every request, and answers probes as their keys say.
async fn answering_by_key(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::scripted(move |mut wire, upstream| {
        let gate = gate.clone();
        async move {
            while let Some(request) = wire.request().await {
                upstream.note(&request);
                match (request.method(), request.target()) {
                    ("POST", _) => return,
                    (_, "/by-key/drip") => {
                        wire.send("HTTP/1.1 200 Said\r\ncontent-length: 1000000\r\n\r\n")
                            .await
                            .unwrap();
                        while wire.send("x").await.is_ok() {
                            sleep(SHORT / 5).await;
                        }
                        return;
                    }
                    (_, "/by-key/held") => gate.passed().await,
                    _ => {}
                }
                wire.send(reply(200, &[], "found")).await.unwrap();
            }
        }
    })
    .await
}

const BY_KEY: &str = "reconcile = \"/by-key/{key}\"\nwait = \"100ms\"";

#[tokio::test]
async fn a_probe_that_drips_holds_up_no_other_doubt() {
    let upstream = answering_by_key(&Gate::default()).await;
    let server = Server::with(upstream.address, &settings(BY_KEY, "reconcile_every = \"100ms\""));
    let dripping = post("/refunds/7").key("drip");
    assert_eq!(dripping.to(server.listen).await.code(), "OUTCOME.unknown");
    let asked = until(async || (!probes(&upstream).is_empty()).then_some(()));
    timeout(PATIENCE, asked).await.unwrap();
    // The next one is found out about in the background, without a request.
    assert_eq!(
        post("/refunds/7").key("k").to(server.listen).await.code(),
        "OUTCOME.unknown"
    );
    let ended = until(async || {
        let calls = operators(&server, "/v1/calls?phase=done").await;
        (calls["calls"].as_array().unwrap().len() == 1).then_some(())
    });
    timeout(PATIENCE, ended).await.unwrap();
    assert_eq!(post("/refunds/7").key("k").to(server.listen).await.text(), "found");
    assert_eq!(dripping.to(server.listen).await.code(), "OUTCOME.unknown");
}

#[tokio::test]
async fn a_probe_that_drips_holds_no_client_for_longer_than_it_waits() {
    let upstream = answering_by_key(&Gate::default()).await;
    let reconcile = format!("{BY_KEY}\nreconcile_timeout = \"1h\"");
    let server = Server::with(upstream.address, &settings(&reconcile, SELDOM));
    let dripping = post("/refunds/7").key("drip");
    for probed in [0, 1, 1] {
        assert_eq!(dripping.to(server.listen).await.code(), "OUTCOME.unknown");
        assert_eq!(probes(&upstream).len(), probed, "it is asked once at a time");
    }
}

#[tokio::test]
async fn the_trail_tells_only_of_what_ended_the_doubt() {
    let gate = Gate::default();
    let upstream = answering_by_key(&gate).await;
    let reconcile = format!("{BY_KEY}\nreconcile_timeout = \"1h\"");
    let settings = settings(&reconcile, SELDOM).replace("response = \"300ms\"", "response = \"1h\"");
    let server = Server::with(upstream.address, &settings);
    let request = post("/refunds/7").key("held");
    assert_eq!(request.to(server.listen).await.code(), "OUTCOME.unknown");
    assert_eq!(request.to(server.listen).await.code(), "OUTCOME.unknown");
    assert_eq!(
        probes(&upstream).len(),
        1,
        "the upstream was asked, and has not answered yet"
    );
    // A person is faster.
    let call = upstream.requests()[0].header("exactly-call").unwrap().to_owned();
    let settled = post(&format!("/v1/calls/{call}/resolve"))
        .bearer(TOKEN)
        .body("{\"outcome\":\"happened\",\"reason\":\"seen\",\"answer\":{\"status\":202,\"body\":\"by hand\"}}");
    let settled = settled.to(server.admin).await;
    assert_eq!(settled.status(), 200, "{}", settled.text());
    gate.open();
    // It was heard, and said nothing that was not so.
    let other = post("/refunds/7").key("other");
    assert_eq!(other.to(server.listen).await.code(), "OUTCOME.unknown");
    assert_eq!(other.to(server.listen).await.text(), "found");
    let again = request.to(server.listen).await;
    assert_eq!((again.status(), again.text().as_str()), (202, "by hand"));
    assert_eq!(
        reconciled(&server).await,
        ["asked; the upstream answered 200 OK: it happened"]
    );
}
