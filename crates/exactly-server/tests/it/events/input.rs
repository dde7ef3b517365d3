//! What cannot be is refused, by name.

use serde_json::json;

use super::{News, OFTEN, quick};
use crate::jobs::{Backend, api, post};
use crate::server::Server;
use crate::servers;
use crate::upstream::Upstream;

#[tokio::test]
async fn what_is_wrong_with_an_event_is_named() {
    let news = News::open(Backend::Sqlite, Upstream::counting().await).await;
    for (body, field) in [
        (json!({"type": "a.b"}), "data"),
        (json!({"data": 1}), "type"),
        (json!({"type": "a b", "data": 1}), "type"),
        (json!({"type": "a", "data": 1, "id": "a.b"}), "id"),
        (json!({"type": "a", "data": 1, "id": ""}), "id"),
        (json!({"type": "a", "data": 1, "source": ""}), "source"),
        (json!({"type": "a", "data": 1, "order_key": ""}), "order_key"),
        (json!({"type": "a", "data": 1, "order_key": null}), "order_key"),
        (json!({"type": "a", "data": 1, "order_key": "a\nb"}), "order_key"),
        (
            json!({"type": "a", "data": 1, "order_key": "x".repeat(129)}),
            "order_key",
        ),
        (json!({"type": "a", "data": 1, "timestamp": "yesterday"}), "timestamp"),
        (json!({"type": "a", "data": 1, "kind": "b"}), "kind"),
        (json!({"type": "a", "data": "x".repeat(513 * 1024)}), "data"),
        (json!({"events": []}), "events"),
        (json!({"events": vec![json!({"type": "a", "data": 1}); 1001]}), "events"),
    ] {
        let (status, problem) = news.post("/v1/events", body).await;
        assert_eq!((status, &problem["field"]), (422, &json!(field)), "{problem}");
    }
    for (path, status) in [
        ("/v1/events?type=a%20b", 422),
        ("/v1/events?kind=a", 422),
        ("/v1/events/nobody", 404),
        ("/v1/events/a.b", 422),
        ("/v1/deliveries?endpoint=a.b", 422),
        ("/v1/deliveries?event=a.b", 422),
        ("/v1/deliveries/nonsense", 422),
        ("/v1/deliveries/00000000-0000-5000-8000-000000000000", 404),
        ("/v1/endpoints/nobody", 404),
        ("/v1/endpoints/a.b", 422),
    ] {
        let told = api(news.server.admin, "GET", path, None).await;
        assert_eq!(told.status(), status, "{path}: {}", told.text());
    }
    // A job is no delivery, though both are tasks.
    let (_, job) = news
        .post(
            "/v1/jobs",
            json!({"key": "k", "url": news.url("/job"), "delay_ms": 600_000}),
        )
        .await;
    let path = format!("/v1/deliveries/{}", job["id"].as_str().unwrap());
    assert_eq!(api(news.server.admin, "GET", &path, None).await.status(), 404);
}

#[tokio::test]
async fn what_is_wrong_with_an_endpoint_is_named_and_nothing_of_its_secret() {
    let news = News::open(Backend::Sqlite, Upstream::counting().await).await;
    let url = news.url("/hook");
    news.endpoint("books", json!({})).await;
    for (body, status, field) in [
        (json!({}), 422, "url"),
        (json!({"url": "nonsense"}), 422, "url"),
        (json!({"url": "ftp://a/"}), 422, "url"),
        (json!({"url": "http://10.0.0.1/"}), 422, "url"),
        (json!({"url": "http://[::ffff:169.254.169.254]/"}), 422, "url"),
        (json!({"url": url, "id": "a.b"}), 422, "id"),
        (json!({"url": url, "id": "books"}), 409, "id"),
        (json!({"url": url, "types": ["a", "b c"]}), 422, "types[1]"),
        (json!({"url": url, "secret": "hunter2"}), 422, "secret"),
        (json!({"url": url, "secret": "whpk_hunter2"}), 422, "secret"),
        (
            json!({"url": url, "secret": format!("whsec_{}", "A".repeat(43)), "scheme": "v1"}),
            422,
            "scheme",
        ),
        (json!({"url": url, "headers": {"webhook-id": "x"}}), 422, "headers"),
        (json!({"url": url, "headers": {"host": "x"}}), 422, "headers"),
        (json!({"url": url, "concurrency": 0}), 422, "concurrency"),
        (json!({"url": url, "concurrency": 1001}), 422, "concurrency"),
        (json!({"url": url, "per_second": 0}), 422, "per_second"),
        (json!({"url": url, "standing": "active"}), 422, "standing"),
    ] {
        let (told, problem) = news.post("/v1/endpoints", body).await;
        assert_eq!((told, &problem["field"]), (status, &json!(field)), "{problem}");
        assert!(!problem.to_string().contains("hunter2"), "{problem}");
    }
    for (body, field) in [
        (json!({}), "url"),
        (json!({"url": "http://10.0.0.1/"}), "url"),
        (json!({"concurrency": 0}), "concurrency"),
        (json!({"types": ["*"]}), "types[0]"),
        (json!({"secret": "x"}), "secret"),
    ] {
        let (told, problem) = news.patch("/v1/endpoints/books", body).await;
        assert_eq!((told, &problem["field"]), (422, &json!(field)), "{problem}");
    }
    let (told, _) = news.patch("/v1/endpoints/nobody", json!({"concurrency": 1})).await;
    assert_eq!(told, 404);
    for _ in 0..7 {
        assert_eq!(news.post("/v1/endpoints/books/rotate", json!({})).await.0, 200);
    }
    let (told, problem) = news.post("/v1/endpoints/books/rotate", json!({})).await;
    assert_eq!((told, &problem["field"]), (422, &json!("overlap_ms")), "{problem}");
    assert_eq!(
        news.post("/v1/endpoints/books/rotate", json!({"overlap_ms": 0}))
            .await
            .0,
        200
    );
    for action in ["pause", "resume", "disable", "discard"] {
        let path = format!("/v1/endpoints/nobody/{action}");
        assert_eq!(
            api(news.server.admin, "POST", &path, None).await.status(),
            404,
            "{action}"
        );
    }
    for action in ["rotate", "test"] {
        let (told, _) = news.post(&format!("/v1/endpoints/nobody/{action}"), json!({})).await;
        assert_eq!(told, 404, "{action}");
    }
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_refused_where_it_is_named_and_where_it_is_dialled() {
    let receiver = Upstream::counting().await;
    let settings = quick(OFTEN).replace("allow = [\"127.0.0.1\"]\n", "");
    let news = News::with(Backend::Sqlite, receiver, &settings).await;
    let (status, problem) = news.post("/v1/endpoints", json!({"url": news.url("/hook")})).await;
    assert_eq!((status, &problem["field"]), (422, &json!("url")));
    assert!(
        problem["detail"].as_str().unwrap().contains("[events] allow"),
        "{problem}"
    );
    // A name may stand for anything, so it is looked at when it is dialled.
    let url = format!("http://localhost:{}/named", news.receiver.address.port());
    news.endpoint("named", json!({"url": url})).await;
    news.publish("e1", "a").await;
    let failed = crate::server::until(async || {
        let shown = news.until_delivery("e1", "named", "waiting").await;
        (!shown["attempts"].as_array().unwrap().is_empty()).then_some(shown)
    });
    let failed = tokio::time::timeout(crate::PATIENCE, failed).await.expect("it fails");
    let message = failed["attempts"][0]["failure"]["message"].to_string();
    assert!(message.contains("refused to dial"), "{message}");
    assert_eq!(news.receiver.requests(), []);
}

#[tokio::test]
async fn a_store_without_events_names_the_fix() {
    let upstream = Upstream::counting().await;
    let redis = Server::with(upstream.address, &format!("store = \"{}\"", servers::redis()));
    let off = Server::with(upstream.address, "[jobs]\nenabled = false");
    for (server, fix) in [(&redis, "a SQLite or PostgreSQL store"), (&off, "enabled = false")] {
        for path in ["/v1/events", "/v1/endpoints", "/v1/deliveries"] {
            let told = api(server.admin, "GET", path, None).await;
            assert_eq!(
                (told.status(), told.code().as_str()),
                (501, "UNSUPPORTED.events"),
                "{path}"
            );
            assert!(told.text().contains(fix), "{}", told.text());
        }
        let (status, _) = post(server.admin, "/v1/events", &json!({"type": "a", "data": 1})).await;
        assert_eq!(status, 501);
    }
}
