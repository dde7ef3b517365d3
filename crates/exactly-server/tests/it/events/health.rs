//! How endpoints are doing, over the API and from a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::terminal::{run, ways};
use super::{News, quick};
use crate::PATIENCE;
use crate::jobs::{Backend, api, json_of};
use crate::server::until;
use crate::upstream::{Upstream, reply};

const HEALTH: &str = "/v1/endpoints/books/health";

async fn until_health(news: &News, is_so: impl Fn(&Value) -> bool) -> Value {
    let reached = until(async || Some(news.get(HEALTH).await).filter(|health| is_so(health)));
    match timeout(PATIENCE, reached).await {
        Ok(health) => health,
        Err(late) => panic!("not so, {late}: {}", news.get(HEALTH).await),
    }
}

async fn an_endpoints_health_is_told(backend: Backend) {
    let status = Arc::new(AtomicU16::new(503));
    let answered = Arc::clone(&status);
    let receiver = Upstream::answering(move |_| {
        let status = answered.load(Ordering::SeqCst);
        async move { reply(status, &[], "no room") }
    })
    .await;
    // The second failure in a row parks it for an hour.
    let settings = quick(r#""0s", "1h""#).replace(
        "park_after = 1000",
        "park_after = 2\npark_for = \"1h\"\npark_for_max = \"1h\"",
    );
    let news = News::with(backend, receiver, &settings).await;
    news.endpoint("books", json!({})).await;
    let fresh = news.get(HEALTH).await;
    assert_eq!(
        fresh,
        json!({
            "waiting": 0, "running": 0, "dead": 0, "parked_until": null, "last_success": null, "last_failures": []
        })
    );
    news.publish("e1", "invoice.paid").await;
    let failed = until_health(&news, |health| {
        health["waiting"] == 1 && health["last_failures"][0] != json!(null)
    })
    .await;
    let failure = &failed["last_failures"][0];
    assert_eq!(
        (&failure["event"], &failure["status"]),
        (&json!("e1"), &json!(503)),
        "{failed}"
    );
    assert!(
        failure["why"].as_str().unwrap().contains("no room") && failure["at"].is_string(),
        "{failed}"
    );
    assert_eq!(
        (&failed["parked_until"], &failed["last_success"]),
        (&json!(null), &json!(null)),
        "{failed}"
    );
    news.publish("e2", "invoice.paid").await;
    // It is parked while the attempt that parked it is still being settled.
    let parked = until_health(&news, |health| {
        health["parked_until"].is_string() && health["waiting"] == 2
    })
    .await;
    // The second way is to a file.
    let count = if matches!(backend, Backend::Sqlite) { 2 } else { 1 };
    for way in &ways(&news)[..count] {
        let shown = run(way, &["endpoints", "show", "books"]).ok();
        for part in ["waiting", "parked", "503", "no room"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let shown = run(way, &["endpoints", "show", "books", "--json"]).json();
        assert_eq!((&shown["id"], &shown["health"]), (&json!("books"), &parked), "{shown}");
    }

    status.store(200, Ordering::SeqCst);
    news.act("/v1/endpoints/books/resume").await;
    for event in ["e1", "e2"] {
        let waits = news.until_delivery(event, "books", "waiting").await;
        let retry = format!("/v1/deliveries/{}/retry", waits["delivery"]["id"].as_str().unwrap());
        assert_eq!(news.post(&retry, json!({})).await.0, 200);
        news.until_delivery(event, "books", "done").await;
    }
    let well = until_health(&news, |health| health["last_success"].is_string()).await;
    assert_eq!(
        (&well["waiting"], &well["parked_until"]),
        (&json!(0), &json!(null)),
        "{well}"
    );
}

#[tokio::test]
async fn an_endpoints_health_is_told_on_postgres() {
    an_endpoints_health_is_told(Backend::Postgres).await;
}

#[tokio::test]
async fn an_endpoints_health_is_told_on_sqlite() {
    an_endpoints_health_is_told(Backend::Sqlite).await;
}

#[tokio::test]
async fn nobody_has_no_health() {
    let news = News::open(Backend::Sqlite, Upstream::counting().await).await;
    let told = api(news.server.admin, "GET", "/v1/endpoints/nobody/health", None).await;
    assert_eq!(
        (told.status(), &json_of(&told)["code"]),
        (404, &json!("NOT_FOUND.endpoint"))
    );
}
