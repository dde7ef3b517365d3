//! Events of one key arrive in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::time::timeout;

use super::{News, quick};
use crate::PATIENCE;
use crate::jobs::Backend;
use crate::server::until;
use crate::upstream::{Upstream, reply};
use crate::wire::Message;

fn event_of(request: &Message) -> String {
    request.header("webhook-id").unwrap_or_default().to_owned()
}

/// Refuses the first event twice.
async fn receiver() -> Upstream {
    let refused = Arc::new(AtomicUsize::new(0));
    Upstream::answering(move |request| {
        let is_refused = event_of(&request) == "e1" && refused.fetch_add(1, Ordering::SeqCst) < 2;
        async move { reply(if is_refused { 503 } else { 200 }, &[], "") }
    })
    .await
}

async fn events_of_one_key_arrive_in_order(backend: Backend) {
    let news = News::open(backend, receiver().await).await;
    news.endpoint("books", json!({})).await;
    let event = |id: &str| json!({"id": id, "type": "a.b", "data": {"of": id}, "order_key": "invoice 17"});
    assert_eq!(news.post("/v1/events", event("e1")).await.0, 201);
    let both = json!({"events": [event("e2"), event("e3")]});
    assert_eq!(news.post("/v1/events", both).await.0, 200);
    assert_eq!(news.post("/v1/events", event("e1")).await.0, 200);
    let mut other = event("e1");
    other["order_key"] = json!("invoice 18");
    assert_eq!(news.post("/v1/events", other).await.0, 409);
    let last = news.until_delivery("e3", "books", "done").await;
    let received: Vec<_> = news.received("books").iter().map(event_of).collect();
    assert_eq!(received, ["e1", "e1", "e1", "e2", "e3"]);

    // What goes before a delivery is shown beside what is sent, and not in it.
    assert_eq!(last["delivery"]["after"], "e2");
    assert_eq!(last["delivery"]["type"], "a.b");
    assert_eq!(last["body"]["data"], json!({"of": "e3"}));
    assert_eq!(last["body"].get("orderKey"), None);
    assert_eq!(last["attempts"].as_array().unwrap().len(), 1, "{last}");
    let first = news.until_delivery("e1", "books", "done").await;
    assert_eq!(first["delivery"].get("after"), None, "{first}");
    let shown = news.get("/v1/events/e3").await;
    assert_eq!(shown["event"]["order_key"], "invoice 17");
    let page = news.get("/v1/deliveries?endpoint=books&type=a.*").await;
    assert_eq!(page["deliveries"].as_array().unwrap().len(), 3, "{page}");
    news.publish("e4", "a.b").await;
    assert_eq!(news.get("/v1/events/e4").await["event"].get("order_key"), None);
}

#[tokio::test]
async fn events_of_one_key_arrive_in_order_on_postgres() {
    events_of_one_key_arrive_in_order(Backend::Postgres).await;
}

#[tokio::test]
async fn events_of_one_key_arrive_in_order_on_sqlite() {
    events_of_one_key_arrive_in_order(Backend::Sqlite).await;
}

/// Whoever retries a delivery whose turn has not come is told why nothing is sent.
#[tokio::test]
async fn a_retry_before_its_turn_says_what_it_waits_for() {
    let refusing = Upstream::answering(|_| async { reply(503, &[], "") }).await;
    let news = News::with(Backend::Sqlite, refusing, &quick(r#""0s", "10m""#)).await;
    news.endpoint("books", json!({})).await;
    for id in ["e1", "e2"] {
        let event = json!({"id": id, "type": "a.b", "data": {}, "order_key": "invoice 17"});
        assert_eq!(news.post("/v1/events", event).await.0, 201);
    }
    let failed = until(async || (news.received("books").len() == 1).then_some(()));
    timeout(PATIENCE, failed).await.expect("the first one is sent");
    // Each look whether it is its turn is an attempt that is under way for a moment.
    let retried = async |event: &str| {
        let delivery = news.until_delivery(event, "books", "waiting").await;
        let path = format!("/v1/deliveries/{}/retry", delivery["delivery"]["id"].as_str().unwrap());
        let told = until(async || {
            let (status, told) = news.post(&path, json!({})).await;
            assert_eq!(status, 200, "{told}");
            (told["was"] == "waiting").then_some(told)
        });
        timeout(PATIENCE, told).await.expect("it waits most of the time")
    };
    let told = retried("e2").await;
    let why = told["why"].as_str().unwrap_or_default();
    assert!(why.contains("after event e1"), "{told}");
    let told = retried("e1").await;
    assert_eq!(told.get("why"), None, "{told}");
}
