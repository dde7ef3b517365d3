//! A service of one's own, which knows nothing of the shipped upstream.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use exactly::MemoryStore;
use exactly::layer::{Body, IdempotencyLayer, Policy};
use serde_json::{Value, json};
use tower::Layer as _;

use super::process::check;

type Ledger = Arc<Mutex<HashMap<String, u64>>>;

/// Books a payment.
async fn pay(State(ledger): State<Ledger>, Json(payment): Json<Value>) -> Response {
    let Some(reference) = payment["reference"].as_str() else {
        return StatusCode::UNPROCESSABLE_ENTITY.into_response();
    };
    let mut ledger = ledger.lock().unwrap();
    *ledger.entry(reference.to_owned()).or_default() += 1;
    let id = ledger.values().sum::<u64>();
    (StatusCode::CREATED, Json(json!({ "id": id }))).into_response()
}

async fn count(State(ledger): State<Ledger>, Query(query): Query<HashMap<String, String>>) -> Json<u64> {
    let ledger = ledger.lock().unwrap();
    Json(ledger.get(&query["reference"]).copied().unwrap_or_default())
}

/// The service, with its payments behind the layer or not.
async fn serve(is_protected: bool) -> SocketAddr {
    let ledger = Ledger::default();
    let payments = Router::new()
        .route("/payments", post(pay))
        .with_state(Arc::clone(&ledger));
    let counts = Router::new().route("/counts", get(count)).with_state(ledger);
    let app = if is_protected {
        let store = Arc::new(MemoryStore::new());
        let render = |problem: &exactly::layer::Problem| {
            let envelope = json!({ "error": { "code": problem.code, "message": problem.title } });
            let body = Body::from(bytes::Bytes::from(envelope.to_string()));
            http::Response::builder().status(problem.status).body(body).unwrap()
        };
        let layer = IdempotencyLayer::builder(store).global_keys();
        let layer = layer.policy(Policy::stripe()).render(render).build().unwrap();
        let protected = tower::util::MapRequest::new(payments, |request: http::Request<Body>| {
            request.map(axum::body::Body::new)
        });
        counts.fallback_service(layer.layer(protected))
    } else {
        counts.merge(payments)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn arguments(effects: &str) -> Vec<&str> {
    let mut arguments = vec!["--path", "/payments", "--preset", "stripe", "--code-at", "/error/code"];
    arguments.extend([
        "--body",
        r#"{"amount": {n}, "reference": "{tag}"}"#,
        "--effects-url",
        effects,
    ]);
    arguments
}

#[tokio::test]
async fn it_is_checked_as_far_as_it_can_be_seen() {
    let target = serve(true).await;
    let effects = format!("http://{target}/counts?reference={{tag}}");
    let run = check(target, &arguments(&effects)).await;
    assert_eq!(run.ids("failed"), [""; 0], "{}", run.failures());
    let passed = [
        "key-optional",
        "key-empty",
        "key-too-long",
        "key-longest",
        "key-control-character",
        "key-not-ascii",
        "key-comma",
        "key-broken-quotes",
        "key-sent-twice",
        "key-quoted-is-bare",
        "key-ignored-on-reads",
        "scope-query",
        "scope-other-key",
        "content-other",
        "content-json-spelling",
        "replay-byte-for-byte",
        "replay-at-once",
        "replay-after-refusal",
        "in-flight-one-effect",
        "hang-up-in-body",
        "label-stored",
        "label-replayed",
        "label-expires",
        "label-exposed",
    ];
    assert_eq!(run.ids("passed"), passed);
    assert_eq!(
        run.reason("refusals-are-problems"),
        "refusals are rendered otherwise, as --code-at says"
    );
    assert_eq!(run.code, 0);
}

#[tokio::test]
async fn its_second_effect_is_counted() {
    let target = serve(false).await;
    let effects = format!("http://{target}/counts?reference={{tag}}");
    let run = check(
        target,
        &[&arguments(&effects)[..], &["--only", "replay-byte-for-byte"]].concat(),
    )
    .await;
    assert_eq!(run.ids("failed"), ["replay-byte-for-byte"]);
    let run = check(
        target,
        &[&arguments(&effects)[..], &["--only", "in-flight-one-effect"]].concat(),
    )
    .await;
    assert_eq!(run.ids("failed"), ["in-flight-one-effect"]);
}

#[tokio::test]
async fn content_that_cannot_be_varied_is_said_to_be_needed() {
    let target = serve(true).await;
    let fixed = [
        "--path",
        "/payments",
        "--body",
        r#"{"reference": "{tag}"}"#,
        "--only",
        "content-other",
    ];
    let run = check(target, &fixed).await;
    assert_eq!(run.reason("content-other"), "needs {n} in --body, or a second --body");
    assert_eq!(run.code, 2);
    let other = ["--body", r#"{"reference": "{tag}", "amount": 2}"#, "--preset", "stripe"];
    let run = check(target, &[&fixed[..], &other].concat()).await;
    assert_eq!(run.ids("passed"), ["content-other"], "{}", run.failures());
}
