//! What operators do is written down, before and after.

use std::sync::Arc;
use std::time::Duration;

use exactly::store::{Phase, TrailFilter};
use exactly::{Inspect as _, Operate as _};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::rigged::{Fault, Rigged};
use super::{Api, TOKEN, begin};

async fn details(api: &Api) -> Vec<String> {
    let trail = api.get("/v1/trail").await.ok();
    let told = |entry: &Value| {
        let text = |name: &str| entry[name].as_str().unwrap().to_owned();
        format!("{} {} {}", text("actor"), text("action"), text("detail"))
    };
    trail["entries"].as_array().unwrap().iter().map(told).collect()
}

#[tokio::test]
async fn every_action_is_written_down_with_who_why_and_what_came_of_it() {
    let api = Api::start().await;
    let doubt = api.call("POST /refunds", "r-1", Phase::InDoubt).await;
    let done = api.call("POST /refunds", "r-2", Phase::Done).await;
    let resolve = api
        .request("POST", &format!("/v1/calls/{doubt}/resolve"))
        .header("content-type", "application/json")
        .header("x-exactly-actor", "ada@example.org");
    let body = json!({"outcome": "did_not_happen", "reason": "the provider shows nothing"});
    api.send(resolve, body.to_string()).await.ok();
    api.delete(&format!("/v1/calls/{done}?reason=test")).await.ok();
    api.call("POST /refunds", "r-3", Phase::Done).await;
    api.post("/v1/purge", &json!({"operation": "POST /refunds"})).await.ok();
    api.post("/v1/purge", &json!({"operation": "POST /refunds", "dry_run": false}))
        .await
        .ok();
    assert_eq!(
        details(&api).await,
        [
            "ada@example.org resolve asked: it did not happen; reason: the provider shows nothing",
            "ada@example.org resolve done: freed the key",
            "api free asked: free the key; reason: test",
            "api free done: freed the key",
            // The dry run left nothing.
            "api purge asked: forget finished records, of operation \"POST /refunds\"",
            "api purge done: forgot 1 of 1 records",
        ]
    );
}

#[tokio::test]
async fn attempts_that_are_refused_are_written_down_too() {
    let api = Api::start().await;
    let flying = api.call("POST /refunds", "r-1", Phase::InFlight).await;
    let missing = "0".repeat(64);
    api.delete(&format!("/v1/calls/{flying}"))
        .await
        .problem(409, "CONFLICT.call.in_flight");
    api.delete(&format!("/v1/calls/{missing}"))
        .await
        .problem(404, "NOT_FOUND.call");
    let resolve = json!({"outcome": "did_not_happen"});
    let path = format!("/v1/calls/{flying}/resolve");
    api.post(&path, &resolve)
        .await
        .problem(409, "CONFLICT.call.not_in_doubt");
    let told = details(&api).await;
    assert_eq!(told.len(), 6, "{told:?}");
    for at in [1, 3, 5] {
        assert!(told[at].contains(" refused: "), "{told:?}");
    }
    // What cannot be, such as a malformed request, was never attempted.
    api.post(&path, &json!({"outcome": "perhaps"}))
        .await
        .problem(422, "VALIDATION.request");
    assert_eq!(details(&api).await.len(), 6);
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_done() {
    let store = Arc::new(Rigged::new(Fault::NoTrail));
    let doubt = begin(&store.store, "POST /refunds", "r-1", Phase::InDoubt).await.id;
    let done = begin(&store.store, "POST /refunds", "r-2", Phase::Done).await.id;
    let api = Api::over(Arc::<Rigged>::clone(&store)).await;
    let told = [
        api.post(
            &format!("/v1/calls/{doubt}/resolve"),
            &json!({"outcome": "did_not_happen"}),
        )
        .await,
        api.delete(&format!("/v1/calls/{done}")).await,
        api.delete(&format!("/v1/calls/{doubt}")).await,
        api.post("/v1/purge", &json!({"all": true, "dry_run": false})).await,
        api.get(&format!("/v1/calls/{doubt}?reveal=true")).await,
    ];
    for told in told {
        let problem = told.problem(503, "DEPENDENCY.unavailable");
        assert!(
            problem["detail"].as_str().unwrap().starts_with("nothing was done"),
            "{problem}"
        );
    }
    for (id, phase) in [(doubt, Phase::InDoubt), (done, Phase::Done)] {
        assert_eq!(store.store.get(&id).await.unwrap().unwrap().phase, phase);
    }
    // Looking needs no trail.
    api.get(&format!("/v1/calls/{doubt}")).await.ok();
}

#[tokio::test]
async fn a_key_that_is_shown_leaves_an_entry() {
    let api = Api::start().await;
    let id = api.call("POST /refunds", "secret-key", Phase::Done).await;
    let shown = api.get(&format!("/v1/calls/{id}")).await;
    assert!(!String::from_utf8_lossy(&shown.body).contains("secret-key"));
    assert!(details(&api).await.is_empty());
    let shown = api.get(&format!("/v1/calls/{id}?reveal=true")).await.ok();
    assert_eq!(shown["call"]["key"], "secret-key");
    assert_eq!(
        details(&api).await,
        ["api reveal asked: show the key", "api reveal done: shown"]
    );
}

#[tokio::test]
async fn the_trail_is_paged_and_can_be_asked_about_one_call() {
    let api = Api::start().await;
    let one = api.call("o", "k-1", Phase::Done).await;
    let two = api.call("o", "k-2", Phase::Done).await;
    for id in [one, two] {
        api.delete(&format!("/v1/calls/{id}")).await.ok();
    }
    let page = api.get("/v1/trail?limit=3").await.ok();
    assert_eq!(page["entries"].as_array().unwrap().len(), 3);
    let rest = api.get(&format!("/v1/trail?limit=3&after={}", page["next"])).await.ok();
    assert_eq!(rest["entries"].as_array().unwrap().len(), 1);
    assert_eq!(rest["next"], Value::Null);
    let about = api.get(&format!("/v1/trail?call={two}")).await.ok();
    let entries = about["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|entry| entry["call"] == two.to_string()));
}

#[tokio::test]
async fn an_action_goes_on_when_its_caller_hangs_up() {
    let store = Arc::new(Rigged::new(Fault::Gated));
    let id = begin(&store.store, "o", "k-1", Phase::Done).await.id;
    let api = Api::over(Arc::<Rigged>::clone(&store)).await;
    let mut socket = TcpStream::connect(api.base.trim_start_matches("http://"))
        .await
        .unwrap();
    let request = format!("DELETE /v1/calls/{id} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    store.arrived.acquire().await.unwrap().forget();
    drop(socket);
    // Time for the server to notice. If it has not, the test shows less and does not fail for it.
    tokio::time::sleep(Duration::from_millis(100)).await;
    store.gate.add_permits(1);
    let noted = async || store.store.trail(&TrailFilter::default()).await.unwrap();
    let both = async {
        while noted().await.len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), both)
        .await
        .expect("the trail says how it ended");
    assert_eq!(noted().await[1].note.detail, "done: freed the key");
    assert!(store.store.get(&id).await.unwrap().is_none());
}
