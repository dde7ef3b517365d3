//! Events of others: the real server between a sender and a service.

mod forwarded;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exactly::Hex;
use exactly::clock::{Clock as _, WallClock};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::PATIENCE;
use crate::client::ask;
use crate::events::{OFTEN, quick};
use crate::jobs::{Backend, api, get, json_of, post};
use crate::server::{Server, TOKEN, until};
use crate::servers;
use crate::upstream::{Upstream, reply};
use crate::wire::Message;

/// What the senders sign with. GitHub's is in the environment of the server.
const SHOP: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PAY: &str = "whsec_of_stripe";
/// What the server signs with for the service of the shop's events.
const OURS: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A server that takes in events, and the service that they are for.
struct Hub {
    server: Server,
    service: Upstream,
}

impl Hub {
    async fn open(backend: Backend, status: &Arc<AtomicU16>) -> Self {
        let status = Arc::clone(status);
        let service = Upstream::answering(move |_| {
            let status = status.load(Ordering::SeqCst);
            async move { reply(status, &[], "heard") }
        })
        .await;
        Self::before(backend, service, &quick(OFTEN)).await
    }

    /// In front of this service, with these settings beside the inbox's.
    async fn before(backend: Backend, service: Upstream, settings: &str) -> Self {
        let at = service.address;
        let mut settings = format!(
            "{settings}[inbox]\nlisten = \"127.0.0.1:0\"\n\
             [inbox.shop]\nsecrets = [\"{SHOP}\"]\nforward = \"http://{at}/shop\"\nsign = \"{OURS}\"\n\
             [inbox.pay]\nstyle = \"stripe\"\nsecrets = [\"{PAY}\"]\nforward = \"http://{at}/pay\"\n\
             [inbox.code]\nstyle = \"github\"\nsecrets = [\"$EXACTLY_ADMIN_TOKEN\"]\nforward = \"http://{at}/code\"\n"
        );
        if matches!(backend, Backend::Postgres) {
            settings = format!("store = \"{}\"\n{settings}", servers::postgres_database().await);
        }
        let server = Server::with(service.address, &settings);
        Self { server, service }
    }

    /// Sends an event as its sender does.
    async fn send(&self, source: &str, headers: &[(&str, String)], body: &str) -> Message {
        let mut request = ask("POST", &format!("/v1/inbox/{source}")).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(body.to_owned()).to(self.server.door.unwrap()).await
    }

    async fn get(&self, path: &str) -> Value {
        get(self.server.admin, path).await
    }

    async fn until_state(&self, source: &str, id: &str, state: &str) -> Value {
        let path = format!("/v1/inbox/{source}/{id}");
        let reached = until(async || Some(self.get(&path).await).filter(|shown| shown["event"]["state"] == state));
        match timeout(PATIENCE, reached).await {
            Ok(shown) => shown,
            Err(late) => panic!("not {state}, {late}: {}", self.get(&path).await),
        }
    }

    /// What the service got at this path.
    fn got(&self, path: &str) -> Vec<Message> {
        let requests = self.service.requests().into_iter();
        requests.filter(|request| request.target() == path).collect()
    }
}

fn told(message: &Message) -> (u16, Option<&str>) {
    (message.status(), message.header("webhook-receipt"))
}

/// HMAC-SHA256 by its definition, so that nothing of the server signs what it verifies.
fn hmac(key: &[u8], text: &str) -> [u8; 32] {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x36))
        .chain_update(text)
        .finalize();
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c));
    outer.chain_update(inner).finalize().into()
}

/// Signed so many seconds ago.
fn seconds(ago: u64) -> u64 {
    WallClock.now().as_millis() / 1000 - ago
}

fn by_shop(id: &str, ago: u64, body: &str) -> Vec<(&'static str, String)> {
    let key = STANDARD.decode(SHOP.trim_start_matches("whsec_")).unwrap();
    let at = seconds(ago);
    let code = STANDARD.encode(hmac(&key, &format!("{id}.{at}.{body}")));
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", at.to_string()),
        ("webhook-signature", format!("v1,{code}")),
    ]
}

fn by_stripe(ago: u64, body: &str) -> Vec<(&'static str, String)> {
    let at = seconds(ago);
    let code = hmac(PAY.as_bytes(), &format!("{at}.{body}"));
    vec![("stripe-signature", format!("t={at},v1={}", Hex(&code)))]
}

fn by_github(id: &str, body: &str) -> Vec<(&'static str, String)> {
    let code = hmac(TOKEN.as_bytes(), body);
    vec![
        ("x-github-delivery", id.to_owned()),
        ("x-github-event", "push".to_owned()),
        ("x-hub-signature-256", format!("sha256={}", Hex(&code))),
    ]
}

async fn an_event_of_each_style_is_passed_on_once(backend: Backend) {
    let hub = Hub::open(backend, &Arc::new(AtomicU16::new(200))).await;
    let body = "{\"id\": \"evt_1\",  \"total\": 1.10}";
    let signed = |ago: u64| {
        [
            ("shop", by_shop("evt_1", ago, body)),
            ("pay", by_stripe(ago, body)),
            ("code", by_github("evt_1", body)),
        ]
    };
    for (source, headers) in signed(3) {
        let first = hub.send(source, &headers, body).await;
        assert_eq!(told(&first), (202, Some("deferred")), "{source}: {}", first.text());
        let shown = hub.until_state(source, "evt_1", "done").await;
        assert_eq!(shown["body"], body, "{shown}");
    }
    for (source, headers) in signed(0) {
        let again = hub.send(source, &headers, body).await;
        assert_eq!(
            told(&again),
            (200, Some("duplicate")),
            "signed anew, it is the same event"
        );
        let got = hub.got(&format!("/{source}"));
        assert_eq!(got.len(), 1, "{source}");
        assert_eq!(got[0].text(), body, "each byte of it");
        assert_eq!(
            (got[0].header("webhook-id"), got[0].header("content-type")),
            (Some("evt_1"), Some("application/json"))
        );
    }
    assert_eq!(hub.got("/code")[0].header("x-github-event"), Some("push"));
}

#[tokio::test]
async fn an_event_of_each_style_is_passed_on_once_on_postgres() {
    an_event_of_each_style_is_passed_on_once(Backend::Postgres).await;
}

#[tokio::test]
async fn an_event_of_each_style_is_passed_on_once_on_sqlite() {
    an_event_of_each_style_is_passed_on_once(Backend::Sqlite).await;
}

#[tokio::test]
async fn what_is_not_the_senders_is_refused_and_nothing_is_kept_of_it() {
    let hub = Hub::open(Backend::Sqlite, &Arc::new(AtomicU16::new(200))).await;
    let body = "{\"id\": \"evt_1\"}";
    for (source, headers) in [
        ("shop", by_shop("evt_1", 0, body)),
        ("shop", by_shop("evt_1", 3600, "{}")),
        ("pay", by_stripe(0, body)),
        ("code", by_github("evt_1", body)),
        ("code", by_shop("evt_1", 0, "{}")),
        ("shop", Vec::new()),
    ] {
        let refused = hub.send(source, &headers, "{}").await;
        assert_eq!(told(&refused), (401, Some("rejected")), "{source}: {}", refused.text());
    }
    let large = "x".repeat(600 << 10);
    let refused = hub.send("shop", &by_shop("evt_1", 0, &large), &large).await;
    assert_eq!(refused.status(), 413, "{}", refused.text());
    assert_eq!(hub.send("nobody", &by_shop("evt_1", 0, "{}"), "{}").await.status(), 404);
    for path in [
        "/v1/inbox",
        "/v1/inbox?source=shop",
        "/v1/inbox?source=no%20such%20name",
    ] {
        assert_eq!(hub.get(path).await, json!({"events": [], "next": null}));
    }

    let door = hub.server.door.unwrap();
    for path in ["/v1/jobs", "/v1/inbox", "/v1/endpoints", "/metrics", "/openapi.json"] {
        let told = api(door, "GET", path, None).await;
        assert_eq!(told.status(), 404, "{path} is the operators'");
    }
    let genuine = hub.send("shop", &by_shop("evt_1", 0, body), body).await;
    assert_eq!(told(&genuine), (202, Some("deferred")), "nobody has taken its id");
}

#[tokio::test]
async fn another_body_under_an_id_is_kept_for_people_and_not_passed_on() {
    let hub = Hub::open(Backend::Sqlite, &Arc::new(AtomicU16::new(200))).await;
    hub.send("shop", &by_shop("evt_1", 0, "1"), "1").await;
    hub.until_state("shop", "evt_1", "done").await;
    for _ in 0..2 {
        let other = hub.send("shop", &by_shop("evt_1", 0, "2"), "2").await;
        assert_eq!(told(&other), (409, Some("quarantined")), "{}", other.text());
    }
    let held = until(async || {
        let page = hub.get("/v1/inbox?quarantined=true&state=held&source=shop").await;
        page["events"].get(0).cloned()
    });
    let held = timeout(PATIENCE, held).await.expect("it is held");
    assert_eq!((&held["id"], hub.got("/shop").len()), (&json!("evt_1"), 1), "{held}");
    let digest = held["digest"].as_str().unwrap();
    assert_eq!(digest, Hex(&Sha256::digest("2")).to_string());
    let (first, other) = ("/v1/inbox/shop/evt_1", format!("/v1/inbox/shop/evt_1?digest={digest}"));
    assert_eq!(
        (&hub.get(first).await["body"], &hub.get(&other).await["body"]),
        (&json!("1"), &json!("2"))
    );
    let requeue = format!("/v1/jobs/{}/requeue", held["job"].as_str().unwrap());
    let (code, _) = post(hub.server.admin, &requeue, &json!({})).await;
    assert_eq!(code, 200);
    let passed = until(async || (hub.got("/shop").len() == 2).then_some(()));
    timeout(PATIENCE, passed)
        .await
        .expect("whoever requeues it passes it on");
}

#[tokio::test]
async fn what_was_acknowledged_is_passed_on_by_the_next_server() {
    let mut hub = Hub::open(Backend::Sqlite, &Arc::new(AtomicU16::new(200))).await;
    let lane = "/v1/lanes/exactly.inbox.shop";
    let paused = api(hub.server.admin, "PUT", lane, Some(&json!({"paused": true}))).await;
    assert_eq!(paused.status(), 200, "{}", paused.text());
    let first = hub.send("shop", &by_shop("evt_1", 0, "1"), "1").await;
    assert_eq!(told(&first), (202, Some("deferred")));
    hub.server.restart();
    assert_eq!(hub.got("/shop").len(), 0, "it was acknowledged, and not passed on");
    let resumed = api(hub.server.admin, "PUT", lane, Some(&json!({"paused": false}))).await;
    assert_eq!(json_of(&resumed)["paused"], false);
    hub.until_state("shop", "evt_1", "done").await;
    let again = hub.send("shop", &by_shop("evt_1", 0, "1"), "1").await;
    assert_eq!((told(&again), hub.got("/shop").len()), ((200, Some("duplicate")), 1));
}
