//! What is published arrives, signed, wherever it is wanted.

use serde_json::{Value, json};

use super::{News, verified};
use crate::jobs::{Backend, api};
use crate::upstream::{Upstream, reply};

async fn receiver() -> Upstream {
    Upstream::answering(|_| async { reply(200, &[], "taken") }).await
}

async fn an_event_arrives_signed_wherever_it_is_wanted(backend: Backend) {
    let news = News::open(backend, receiver().await).await;
    let books = news.endpoint("books", json!({"types": ["invoice.*"]})).await;
    let everything = news
        .endpoint(
            "everything",
            json!({"headers": {"x-tenant": "acme", "authorization": "Bearer s3cret"}}),
        )
        .await;
    let stock = news.endpoint("stock", json!({"types": ["parcel.sent"]})).await;
    assert!(
        [&books, &everything, &stock]
            .iter()
            .all(|secret| secret.starts_with("whsec_"))
    );
    let event = json!({"id": "inv-17-paid", "type": "invoice.paid", "data": {"invoice": 17, "total": 1.10}});
    let (status, row) = news.post("/v1/events", event.clone()).await;
    assert_eq!((status, &row["id"]), (201, &json!("inv-17-paid")), "{row}");
    for (endpoint, secret, other) in [("books", &books, &everything), ("everything", &everything, &books)] {
        let shown = news.until_delivery("inv-17-paid", endpoint, "done").await;
        let received = news.received(endpoint);
        assert_eq!(received.len(), 1);
        let request = &received[0];
        let event_id = verified(secret, request).unwrap().event_id;
        assert_eq!(&*event_id, "inv-17-paid");
        assert!(verified(other, request).is_err(), "each has a secret of its own");
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(
            (&body["eventId"], &body["eventType"], &body["source"], &body["data"]),
            (
                &json!("inv-17-paid"),
                &json!("invoice.paid"),
                &json!("shop"),
                &json!({"invoice": 17, "total": 1.10})
            )
        );
        assert_eq!(shown["body"], body);
        let attempts = shown["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 1, "{shown}");
        assert_eq!(
            (&attempts[0]["result"], &attempts[0]["status"], &attempts[0]["response"]),
            (&json!("delivered"), &json!(200), &json!("taken"))
        );
    }
    assert_eq!(
        news.received("everything")[0].header("authorization"),
        Some("Bearer s3cret")
    );
    assert_eq!(news.received("stock"), []);
    let shown = news.get("/v1/events/inv-17-paid").await;
    let to: Vec<_> = shown["deliveries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["endpoint"].clone())
        .collect();
    assert_eq!(to, [json!("books"), json!("everything")]);
    assert_eq!(
        (&shown["data"], &shown["event"]["deliveries"]),
        (&event["data"], &json!(2))
    );
    // What is shown of endpoints is no key to anything.
    let listed = news.get("/v1/endpoints").await.to_string();
    assert!(listed.contains("acme") && !listed.contains("s3cret"), "{listed}");
    let trail = news.trail().await;
    for secret in [&books, &everything, &stock] {
        assert!(!listed.contains(&secret[10..]) && !trail.contains(&secret[10..]));
    }
}

#[tokio::test]
async fn an_event_arrives_signed_wherever_it_is_wanted_on_postgres() {
    an_event_arrives_signed_wherever_it_is_wanted(Backend::Postgres).await;
}

#[tokio::test]
async fn an_event_arrives_signed_wherever_it_is_wanted_on_sqlite() {
    an_event_arrives_signed_wherever_it_is_wanted(Backend::Sqlite).await;
}

#[tokio::test]
async fn what_an_endpoint_that_is_gone_got_is_found_by_its_event() {
    let news = News::open(Backend::Sqlite, receiver().await).await;
    news.endpoint("books", json!({})).await;
    news.publish("e1", "invoice.paid").await;
    news.until_delivery("e1", "books", "done").await;
    let told = api(news.server.admin, "DELETE", "/v1/endpoints/books?reason=closed", None).await;
    assert_eq!(told.status(), 200, "{}", told.text());
    let shown = news.get("/v1/events/e1").await;
    assert_eq!(shown["deliveries"][0]["endpoint"], "books", "{shown}");
    assert_eq!(
        api(news.server.admin, "GET", "/v1/endpoints/books", None)
            .await
            .status(),
        404
    );
}

async fn an_event_is_published_once(backend: Backend) {
    let news = News::open(backend, receiver().await).await;
    news.endpoint("books", json!({})).await;
    let event = json!({"id": "e1", "type": "invoice.paid", "data": [1]});
    assert_eq!(news.post("/v1/events", event.clone()).await.0, 201);
    let (status, row) = news.post("/v1/events", event.clone()).await;
    assert_eq!((status, &row["result"]), (200, &json!("found")), "{row}");
    for other in [
        json!({"id": "e1", "type": "invoice.paid", "data": [2]}),
        json!({"id": "e1", "type": "invoice.sent", "data": [1]}),
        json!({"id": "e1", "type": "invoice.paid", "data": [1], "source": "somebody"}),
        json!({"id": "e1", "type": "invoice.paid", "data": [1], "timestamp": "2026-01-31T12:00:00Z"}),
    ] {
        let (status, problem) = news.post("/v1/events", other).await;
        assert_eq!(
            (status, &problem["code"]),
            (409, &json!("CONFLICT.event.content")),
            "{problem}"
        );
    }
    let (status, rows) = news
        .post(
            "/v1/events",
            json!({"events": [
                event,
                {"id": "e2", "type": "invoice.paid", "data": null, "source": "till"},
                {"id": "e1", "type": "invoice.paid", "data": 7},
                {"id": "a.b", "type": "invoice.paid", "data": 7},
                {"type": "invoice.paid", "data": 7},
            ]}),
        )
        .await;
    assert_eq!(status, 207, "{rows}");
    let results: Vec<_> = rows["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["result"].clone())
        .collect();
    assert_eq!(results, ["found", "new", "conflict", "invalid", "new"]);
    assert_eq!(
        (&rows["new"], &rows["found"], &rows["conflicts"], &rows["invalid"]),
        (&json!(2), &json!(1), &json!(1), &json!(1))
    );
    assert_eq!(rows["rows"][3]["field"], "id");
    let random = rows["rows"][4]["id"].as_str().unwrap();
    for event in ["e1", "e2", random] {
        news.until_delivery(event, "books", "done").await;
    }
    assert_eq!(news.received("books").len(), 3);
    let second = news.get("/v1/events/e2").await;
    assert_eq!(
        (&second["event"]["source"], &second["data"]),
        (&json!("till"), &json!(null))
    );
}

#[tokio::test]
async fn an_event_is_published_once_on_postgres() {
    an_event_is_published_once(Backend::Postgres).await;
}

#[tokio::test]
async fn an_event_is_published_once_on_sqlite() {
    an_event_is_published_once(Backend::Sqlite).await;
}

#[tokio::test]
async fn events_and_deliveries_are_listed_by_what_they_are() {
    let news = News::open(Backend::Postgres, receiver().await).await;
    for id in ["books", "stock"] {
        news.endpoint(id, json!({})).await;
    }
    for (id, event_type) in [
        ("e1", "invoice.paid"),
        ("e2", "invoice.sent.late"),
        ("e3", "parcel.sent"),
    ] {
        news.publish(id, event_type).await;
        for endpoint in ["books", "stock"] {
            news.until_delivery(id, endpoint, "done").await;
        }
    }
    let listed = async |path: &str, of: &str, member: &str| {
        let page = news.get(path).await;
        let mut ids: Vec<_> = page[of]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row[member].to_string())
            .collect();
        ids.sort();
        ids.join(" ").replace('"', "")
    };
    for (query, expected) in [
        ("", "e1 e2 e3"),
        ("type=invoice.*", "e1 e2"),
        ("type=parcel.sent&state=done", "e3"),
        ("state=waiting", ""),
        ("since=2020-01-01T00:00:00Z", "e1 e2 e3"),
        ("until=2020-01-01T00:00:00Z", ""),
    ] {
        assert_eq!(
            listed(&format!("/v1/events?{query}"), "events", "id").await,
            expected,
            "{query}"
        );
    }
    for (query, expected) in [
        ("endpoint=books", "e1 e2 e3"),
        ("endpoint=nobody", ""),
        ("event=e2", "e2 e2"),
        ("event=e2&endpoint=stock", "e2"),
        ("type=invoice.*&endpoint=stock", "e1 e2"),
        ("state=dead", ""),
        ("until=2020-01-01T00:00:00Z", ""),
    ] {
        let found = listed(&format!("/v1/deliveries?{query}"), "deliveries", "event").await;
        assert_eq!(found, expected, "{query}");
    }
    let mut seen = 0;
    let mut path = "/v1/deliveries?limit=4".to_owned();
    loop {
        let page = news.get(&path).await;
        seen += page["deliveries"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/deliveries?limit=4&after={next}");
    }
    assert_eq!(seen, 6);
    let first = news.get("/v1/endpoints?limit=1").await;
    assert_eq!(
        (&first["endpoints"][0]["id"], &first["next"]),
        (&json!("books"), &json!("books"))
    );
    let rest = news.get("/v1/endpoints?after=books").await;
    assert_eq!(
        (&rest["endpoints"][0]["id"], &rest["next"]),
        (&json!("stock"), &json!(null))
    );
}
