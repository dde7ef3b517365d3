//! What an endpoint gets, and what it does not get for now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::json;

use super::{News, verified};
use crate::jobs::{Backend, api};
use crate::upstream::{Upstream, reply};

/// Answers everything with a status that can be changed.
async fn receiver() -> (Upstream, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(200));
    let told = Arc::clone(&status);
    let receiver = Upstream::answering(move |_| {
        let status = told.load(Ordering::SeqCst);
        async move { reply(status, &[], "so it is") }
    })
    .await;
    (receiver, status)
}

async fn a_paused_endpoint_holds_what_it_is_to_get(backend: Backend) {
    let news = News::open(backend, receiver().await.0).await;
    for id in ["books", "stock"] {
        news.endpoint(id, json!({})).await;
    }
    let paused = news.act("/v1/endpoints/books/pause?reason=moving").await;
    assert_eq!(paused["state"], "paused");
    news.publish("e1", "invoice.paid").await;
    news.until_delivery("e1", "stock", "done").await;
    let held = news.until_delivery("e1", "books", "waiting").await;
    assert_eq!(held["attempts"], json!([]));
    assert_eq!(news.received("books"), []);
    let disabled = news.act("/v1/endpoints/books/disable?reason=not%20paid").await;
    assert_eq!(
        (&disabled["state"], &disabled["reason"]),
        (&json!("disabled"), &json!("not paid"))
    );
    // What waits is given up only if somebody says so.
    news.act("/v1/endpoints/books/resume").await;
    news.until_delivery("e1", "books", "done").await;
    news.act("/v1/endpoints/books/pause").await;
    news.publish("e2", "invoice.paid").await;
    news.until_delivery("e2", "books", "waiting").await;
    let discarded = news.act("/v1/endpoints/books/discard").await;
    assert!(discarded["discard_before"].is_string(), "{discarded}");
    news.act("/v1/endpoints/books/resume").await;
    let dead = news.until_delivery("e2", "books", "dead").await;
    assert!(
        dead["delivery"]["failure"]["message"]
            .as_str()
            .unwrap()
            .contains("discarded"),
        "{dead}"
    );
    news.publish("e3", "invoice.paid").await;
    news.until_delivery("e3", "books", "done").await;
    assert_eq!(news.received("books").len(), 2);
    let trail = news.trail().await;
    for part in [
        "pause endpoint books; reason: moving",
        "discard endpoint books",
        "done: done",
    ] {
        assert!(trail.contains(part), "{part} is not in {trail}");
    }
}

#[tokio::test]
async fn a_paused_endpoint_holds_what_it_is_to_get_on_postgres() {
    a_paused_endpoint_holds_what_it_is_to_get(Backend::Postgres).await;
}

#[tokio::test]
async fn a_paused_endpoint_holds_what_it_is_to_get_on_sqlite() {
    a_paused_endpoint_holds_what_it_is_to_get(Backend::Sqlite).await;
}

async fn gone_disables_an_endpoint_and_what_it_has_not_got_waits(backend: Backend) {
    let (receiver, status) = receiver().await;
    let news = News::open(backend, receiver).await;
    news.endpoint("books", json!({})).await;
    status.store(410, Ordering::SeqCst);
    news.publish("e1", "invoice.paid").await;
    let disabled = crate::server::until(async || {
        let shown = news.get("/v1/endpoints/books").await;
        (shown["state"] == "disabled").then_some(shown)
    });
    let disabled = tokio::time::timeout(crate::PATIENCE, disabled)
        .await
        .expect("it is disabled");
    assert!(disabled["reason"].as_str().unwrap().contains("410"), "{disabled}");
    news.publish("e2", "invoice.paid").await;
    news.until_delivery("e2", "books", "waiting").await;
    assert_eq!(news.received("books").len(), 1);
    status.store(200, Ordering::SeqCst);
    news.act("/v1/endpoints/books/resume").await;
    let first = news.until_delivery("e1", "books", "done").await;
    let results: Vec<_> = first["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["result"].clone())
        .collect();
    assert_eq!(results, ["failed", "delivered"], "a row for each request: {first}");
    news.until_delivery("e2", "books", "done").await;
    assert_eq!(news.received("books").len(), 3);
}

#[tokio::test]
async fn gone_disables_an_endpoint_and_what_it_has_not_got_waits_on_postgres() {
    gone_disables_an_endpoint_and_what_it_has_not_got_waits(Backend::Postgres).await;
}

#[tokio::test]
async fn gone_disables_an_endpoint_and_what_it_has_not_got_waits_on_sqlite() {
    gone_disables_an_endpoint_and_what_it_has_not_got_waits(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_secret_is_replaced_while_the_old_one_still_signs() {
    let news = News::open(Backend::Sqlite, receiver().await.0).await;
    let first = news.endpoint("books", json!({})).await;
    let (status, rotated) = news
        .post("/v1/endpoints/books/rotate", json!({"reason": "yearly"}))
        .await;
    assert_eq!(status, 200, "{rotated}");
    let second = rotated["secret"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    let shown = news.get("/v1/endpoints/books").await;
    assert_eq!(
        (&shown["secrets"][0]["until"], shown["secrets"][1]["until"].is_string()),
        (&json!(null), true)
    );
    assert!(!shown.to_string().contains("whsec_"), "{shown}");
    // Whoever sends sees it within a second; one that was made since then is signed by both.
    let (_, tested) = news.post("/v1/endpoints/books/test", json!({})).await;
    let delivered = async |tested: &serde_json::Value| {
        let event = tested["event"].as_str().unwrap().to_owned();
        news.until_delivery(&event, "books", "done").await;
        let received = news.received("books").into_iter();
        let of_event = |request: &crate::wire::Message| request.header("webhook-id") == Some(event.as_str());
        received.into_iter().find(of_event).unwrap()
    };
    let request = delivered(&tested).await;
    assert!(verified(&first, &request).is_ok() && verified(&second, &request).is_ok());
    let given = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let body = json!({"secret": given, "overlap_ms": 0});
    let (status, rotated) = news.post("/v1/endpoints/books/rotate", body).await;
    assert_eq!(
        (status, &rotated["secret"]),
        (200, &json!(null)),
        "one that was given is not told"
    );
    let only = async || {
        let (_, tested) = news
            .post("/v1/endpoints/books/test", json!({"type": "invoice.test", "data": 7}))
            .await;
        let request = delivered(&tested).await;
        assert!(verified(given, &request).is_ok() || verified(&second, &request).is_ok());
        let is_only = verified(given, &request).is_ok() && verified(&second, &request).is_err();
        is_only.then_some(())
    };
    tokio::time::timeout(crate::PATIENCE, crate::server::until(only))
        .await
        .expect("the old one ends");
    let (_, rotated) = news.post("/v1/endpoints/books/rotate", json!({"scheme": "v1a"})).await;
    let key = &rotated["endpoint"]["secrets"][0]["public_key"];
    assert!(key.as_str().unwrap().starts_with("whpk_") && rotated["secret"].as_str().unwrap().starts_with("whsk_"));
    let trail = news.trail().await;
    assert!(trail.contains("reason: yearly") && !trail.contains("whs"), "{trail}");
}

#[tokio::test]
async fn a_test_event_goes_to_one_endpoint_alone() {
    let news = News::open(Backend::Postgres, receiver().await.0).await;
    news.endpoint("books", json!({"types": ["invoice.*"]})).await;
    news.endpoint("stock", json!({})).await;
    let (status, tested) = news.post("/v1/endpoints/books/test", json!({})).await;
    assert_eq!((status, &tested["endpoint"]), (200, &json!("books")), "{tested}");
    let event = tested["event"].as_str().unwrap();
    let delivery = news.until_delivery(event, "books", "done").await;
    assert_eq!(delivery["delivery"]["id"], tested["delivery"]);
    assert_eq!(
        (&delivery["body"]["eventType"], &delivery["body"]["source"]),
        (&json!("exactly.test"), &json!("shop"))
    );
    // What comes after it has arrived everywhere, and the test has not.
    news.publish("e1", "invoice.paid").await;
    news.until_delivery("e1", "stock", "done").await;
    assert_eq!(news.received("stock").len(), 1);
    assert_eq!(
        api(news.server.admin, "GET", &format!("/v1/events/{event}"), None)
            .await
            .status(),
        404
    );
    news.act("/v1/endpoints/books/pause").await;
    let (status, problem) = news.post("/v1/endpoints/books/test", json!({})).await;
    assert_eq!(
        (status, &problem["code"]),
        (409, &json!("CONFLICT.endpoint.closed")),
        "{problem}"
    );
}

#[tokio::test]
async fn an_endpoint_is_changed_in_what_is_said_and_nothing_else() {
    let news = News::open(Backend::Sqlite, receiver().await.0).await;
    let secret = news
        .endpoint(
            "books",
            json!({"per_second": 50, "concurrency": 2, "headers": {"x-a": "b"}}),
        )
        .await;
    let (status, changed) = news
        .patch(
            "/v1/endpoints/books",
            json!({"url": news.url("/moved"), "per_second": null, "reason": "moved"}),
        )
        .await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!(
        (&changed["per_second"], &changed["concurrency"], &changed["headers"]),
        (&json!(null), &json!(2), &json!({"x-a": "b"}))
    );
    let moved = async || {
        let (_, tested) = news.post("/v1/endpoints/books/test", json!({})).await;
        news.until_delivery(tested["event"].as_str().unwrap(), "books", "done")
            .await;
        news.received("moved").pop()
    };
    let request = tokio::time::timeout(crate::PATIENCE, crate::server::until(moved))
        .await
        .expect("it moves");
    assert!(verified(&secret, &request).is_ok() && request.header("x-a") == Some("b"));
    let (status, _) = news
        .patch("/v1/endpoints/books", json!({"types": ["invoice.*"], "concurrency": 1}))
        .await;
    assert_eq!(status, 200);
    let trail = news.trail().await;
    assert!(
        trail.contains("change endpoint books: url at http://127.0.0.1") && !trail.contains("/moved"),
        "{trail}"
    );
}
