//! Who gets in, and what is told to those who do not.

use std::sync::Arc;

use exactly::MemoryStore;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::json;
use tower::ServiceExt as _;

use super::super::router;
use super::rigged::{Fault, Rigged};
use super::{Api, TOKEN, admin};

const CLOSED: [(&str, &str); 12] = [
    ("GET", "/v1/calls"),
    ("POST", "/v1/calls/begin"),
    ("GET", "/v1/calls/00"),
    ("DELETE", "/v1/calls/00"),
    ("POST", "/v1/calls/00/resolve"),
    ("POST", "/v1/calls/00/renew"),
    ("POST", "/v1/calls/00/complete"),
    ("POST", "/v1/calls/00/abandon"),
    ("POST", "/v1/calls/00/lose"),
    ("POST", "/v1/purge"),
    ("GET", "/v1/trail"),
    ("GET", "/metrics"),
];

#[tokio::test]
async fn nothing_is_done_or_told_without_the_token() {
    let api = Api::start().await;
    let wrong = [
        None,
        Some("Bearer wrong-wrong-wrong-wrong"),
        Some(TOKEN),
        Some("Basic YTpi"),
    ];
    for (method, path) in CLOSED {
        for credentials in wrong {
            let mut request = Request::builder().method(method).uri(format!("{}{path}", api.base));
            if let Some(credentials) = credentials {
                request = request.header("authorization", credentials);
            }
            let told = api.send(request, "{}").await;
            let problem = told.problem(401, "AUTH.token");
            assert_eq!(told.headers["www-authenticate"], "Bearer realm=\"exactly\"");
            assert!(!problem.to_string().contains(TOKEN), "{problem}");
        }
        // With the token it gets further, if only to be told what is wrong.
        let told = api.send(api.request(method, path), "{}").await;
        assert_ne!(told.status, StatusCode::UNAUTHORIZED, "{method} {path}");
    }
}

#[tokio::test]
async fn probes_and_the_description_need_no_token() {
    let api = Api::start().await;
    for (path, status) in [("/healthz", "alive"), ("/readyz", "ready")] {
        let told = api.send(Request::get(format!("{}{path}", api.base)), "").await;
        assert_eq!(told.ok(), json!({"status": status}));
    }
    let told = api.send(Request::get(format!("{}/openapi.json", api.base)), "").await;
    assert!(told.ok()["openapi"].as_str().unwrap().starts_with("3.1"));
}

#[tokio::test]
async fn metrics_are_open_only_if_told_so() {
    let api = Api::start().await;
    let told = api.get("/metrics").await;
    assert_eq!(told.status, StatusCode::OK);
    assert_eq!(told.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(told.body, "idempotency_cache_hit 7\n");

    let api = Api::with(admin(Arc::new(MemoryStore::new())).with_open_metrics(true)).await;
    let told = api.send(Request::get(format!("{}/metrics", api.base)), "").await;
    assert_eq!(told.status, StatusCode::OK);
}

#[tokio::test]
async fn what_is_not_there_is_a_problem() {
    let api = Api::start().await;
    api.get("/v2/calls").await.problem(404, "NOT_FOUND.path");
    api.get("/").await.problem(404, "NOT_FOUND.path");
    for (method, path, allowed) in [
        ("PUT", "/v1/calls", "GET,HEAD"),
        ("GET", "/v1/purge", "POST"),
        ("POST", "/healthz", "GET,HEAD"),
        ("PATCH", "/v1/calls/00", "GET,HEAD,DELETE"),
    ] {
        let told = api.send(api.request(method, path), "").await;
        told.problem(405, "VALIDATION.method");
        assert_eq!(told.headers["allow"], allowed, "{method} {path}");
    }
}

#[tokio::test]
async fn a_store_that_is_down_is_told_and_nothing_else_is() {
    let store = Arc::new(Rigged::new(Fault::Down));
    let api = Api::over(Arc::<Rigged>::clone(&store)).await;
    assert_eq!(api.get("/healthz").await.status, StatusCode::OK);
    let id = "0".repeat(64);
    let held = json!({"token": "0".repeat(32), "attempt": 1});
    let told = [
        api.get("/readyz").await,
        api.get("/v1/calls").await,
        api.get(&format!("/v1/calls/{id}")).await,
        api.get("/v1/trail").await,
        api.delete(&format!("/v1/calls/{id}")).await,
        api.post(&format!("/v1/calls/{id}/lose"), &held).await,
        api.post("/v1/calls/begin", &json!({"operation": "o", "key": "k", "content": 1}))
            .await,
        api.post("/v1/purge", &json!({"all": true, "dry_run": false})).await,
        api.post(
            &format!("/v1/calls/{id}/resolve"),
            &json!({"outcome": "did_not_happen"}),
        )
        .await,
    ];
    for told in told {
        let problem = told.problem(503, "DEPENDENCY.unavailable");
        assert_eq!(told.headers["retry-after"], "1");
        assert_eq!(problem["retryable"], true);
        assert!(
            problem["detail"].as_str().unwrap().contains("reach the store"),
            "{problem}"
        );
    }
    store.set(Fault::Nothing);
    api.get("/readyz").await.ok();
}

/// The clock is paused, so that what waits for a time-out waits no time, and what waits forever would hang here.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_hangs_nobody() {
    let router = router(admin(Arc::new(Rigged::new(Fault::Hangs))));
    let id = "0".repeat(64);
    let begin = json!({"operation": "o", "key": "k", "content": 1}).to_string();
    for (method, path, body) in [
        ("GET", "/readyz".to_owned(), String::new()),
        ("GET", "/v1/calls".to_owned(), String::new()),
        ("GET", format!("/v1/calls/{id}"), String::new()),
        ("GET", format!("/v1/calls/{id}?reveal=true"), String::new()),
        ("DELETE", format!("/v1/calls/{id}"), String::new()),
        ("GET", "/v1/trail".to_owned(), String::new()),
        ("POST", "/v1/calls/begin".to_owned(), begin),
        ("POST", "/v1/purge".to_owned(), json!({"all": true}).to_string()),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(&path)
            .header("authorization", format!("Bearer {TOKEN}"))
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body))
            .unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{method} {path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(
            String::from_utf8_lossy(&body).contains("no answer within"),
            "{method} {path}"
        );
    }
}
