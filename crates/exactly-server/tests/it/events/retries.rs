//! What failed is sent again: by itself, or because somebody says so, and never both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::json;

use super::{News, quick};
use crate::jobs::Backend;
use crate::upstream::{Upstream, reply};

/// One attempt at once, and the next one in an hour.
fn seldom() -> String {
    quick(r#""0s", "1h""#)
}

fn broken() -> (Arc<AtomicU16>, impl Fn() -> u16 + Clone + Send + Sync + 'static) {
    let status = Arc::new(AtomicU16::new(503));
    let told = Arc::clone(&status);
    (status, move || told.load(Ordering::SeqCst))
}

async fn a_delivery_is_retried_now_and_not_again_later(backend: Backend) {
    let (status, told) = broken();
    let receiver = Upstream::answering(move |_| {
        let status = told();
        async move { reply(status, &[], "no room") }
    })
    .await;
    let news = News::with(backend, receiver, &seldom()).await;
    news.endpoint("books", json!({})).await;
    news.publish("e1", "invoice.paid").await;
    let failed = crate::server::until(async || {
        let shown = news.until_delivery("e1", "books", "waiting").await;
        (shown["delivery"]["failures"] == 1).then_some(shown)
    });
    let failed = tokio::time::timeout(crate::PATIENCE, failed).await.expect("it fails");
    let attempt = &failed["attempts"][0];
    assert_eq!(attempt["result"], "failed");
    let message = attempt["failure"]["message"].as_str().unwrap();
    assert!(message.contains("503") && message.contains("no room"), "{message}");
    let retry = format!("/v1/deliveries/{}/retry", failed["delivery"]["id"].as_str().unwrap());
    let (code, would) = news.post(&retry, json!({"dry_run": true})).await;
    assert_eq!(
        (code, &would["retried"], &would["was"]),
        (200, &json!(true), &json!("waiting")),
        "{would}"
    );
    assert_eq!(news.received("books").len(), 1, "a dry run sends nothing");

    // Its last attempt, made now; nothing is left for later.
    let (code, retried) = news.post(&retry, json!({"reason": "they are back"})).await;
    assert_eq!((code, &retried["retried"]), (200, &json!(true)), "{retried}");
    let dead = news.until_delivery("e1", "books", "dead").await;
    assert_eq!(dead["attempts"].as_array().unwrap().len(), 2, "{dead}");

    status.store(200, Ordering::SeqCst);
    let (_, retried) = news.post(&retry, json!({})).await;
    assert_eq!(
        (&retried["retried"], &retried["was"]),
        (&json!(true), &json!("dead")),
        "{retried}"
    );
    let done = news.until_delivery("e1", "books", "done").await;
    assert_eq!(done["attempts"].as_array().unwrap().len(), 3, "{done}");
    let (_, retried) = news.post(&retry, json!({})).await;
    assert_eq!(
        (&retried["retried"], &retried["was"]),
        (&json!(false), &json!("done")),
        "{retried}"
    );
    assert_eq!(news.received("books").len(), 3, "a request for each attempt");
    let trail = news.trail().await;
    assert!(trail.contains("of event e1 to books; reason: they are back"), "{trail}");
}

#[tokio::test]
async fn a_delivery_is_retried_now_and_not_again_later_on_postgres() {
    a_delivery_is_retried_now_and_not_again_later(Backend::Postgres).await;
}

#[tokio::test]
async fn a_delivery_is_retried_now_and_not_again_later_on_sqlite() {
    a_delivery_is_retried_now_and_not_again_later(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_retry_says_why_it_has_to_wait() {
    let (_, told) = broken();
    let receiver = Upstream::answering(move |_| {
        let status = told();
        async move { reply(status, &[], "") }
    })
    .await;
    let news = News::with(Backend::Sqlite, receiver, &seldom()).await;
    news.endpoint("books", json!({"paused": true})).await;
    news.publish("e1", "invoice.paid").await;
    let held = news.until_delivery("e1", "books", "waiting").await;
    let retry = format!("/v1/deliveries/{}/retry", held["delivery"]["id"].as_str().unwrap());
    let (_, told) = news.post(&retry, json!({})).await;
    assert!(told["why"].as_str().unwrap().contains("paused"), "{told}");
    assert_eq!(news.received("books"), []);
}

#[tokio::test]
async fn a_delivery_is_tried_by_its_table_and_then_dead() {
    let (_, told) = broken();
    let receiver = Upstream::answering(move |_| {
        let status = told();
        async move { reply(status, &[], "") }
    })
    .await;
    let settings = quick(r#""0s", "50ms", "100ms""#);
    let news = News::with(Backend::Postgres, receiver, &settings).await;
    news.endpoint("books", json!({})).await;
    news.publish("e1", "invoice.paid").await;
    let dead = news.until_delivery("e1", "books", "dead").await;
    let attempts = dead["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), news.received("books").len(), "{dead}");
    assert!(
        (1..=3).contains(&attempts.len()),
        "one that is late leaves out those that it has passed: {dead}"
    );
    let message = dead["delivery"]["failure"]["message"].as_str().unwrap();
    assert!(message.contains("no attempt is left"), "{message}");
}
