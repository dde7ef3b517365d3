//! Events of one key arrive in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::News;
use crate::jobs::Backend;
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
