//! What a sender sees.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, Response, StatusCode, header};
use exactly::webhook::Inbox;
use exactly_sql::PgQueue;
use tower::ServiceExt as _;

use super::order::ordered;
use super::{Does, FORGED, Office, signed, signed_by};
use crate::postgres::queue::Yard;

async fn post(office: &Office<Yard>, headers: axum::http::HeaderMap, body: impl Into<Body>) -> Response<Body> {
    let mut request = Request::post("/hooks/payments").body(body.into()).unwrap();
    request.headers_mut().extend(headers);
    let routes: Router = Router::new().route("/hooks/payments", office.inbox.route());
    routes.oneshot(request).await.unwrap()
}

#[track_caller]
fn assert_told(response: &Response<Body>, status: u16, receipt: &str) {
    let told = response.headers().get("webhook-receipt");
    assert_eq!(response.status().as_u16(), status);
    assert_eq!(told.map(|told| told.to_str().unwrap()), Some(receipt));
}

#[tokio::test]
async fn every_receipt_has_its_status() {
    let office = ordered::<Yard>().await;
    for (id, body, does, status, receipt) in [
        ("evt_1", "paid", Does::Succeeds, 200, "applied"),
        ("evt_1", "paid", Does::Succeeds, 200, "duplicate"),
        ("evt_1", "paid twice", Does::Succeeds, 409, "quarantined"),
        ("evt_2", "paid", Does::FailsForNow, 202, "deferred"),
        ("evt_2", "paid", Does::Succeeds, 202, "deferred"),
        ("evt_3", "paid", Does::FailsForGood, 202, "parked"),
        ("evt_3", "paid", Does::Succeeds, 202, "parked"),
        ("evt_5", "ann 2", Does::Succeeds, 200, "applied"),
        ("evt_6", "ann 1", Does::Succeeds, 200, "stale"),
        ("evt_6", "ann 1", Does::Succeeds, 200, "duplicate"),
    ] {
        office.script([does]);
        assert_told(&post(&office, signed(id, body), body).await, status, receipt);
    }
    let mut unsigned = signed("evt_4", "paid");
    unsigned.remove("webhook-signature");
    let mut odd = signed("evt_4", "paid");
    odd.insert("webhook-timestamp", "yesterday".parse().unwrap());
    for (headers, status) in [(signed_by(FORGED, "evt_4", "paid"), 401), (unsigned, 401), (odd, 400)] {
        let response = post(&office, headers, "paid").await;
        assert_told(&response, status, "rejected");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        let problem = to_bytes(response.into_body(), 10_000).await.unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&problem).unwrap();
        assert_eq!(problem["status"], status);
        assert_eq!(problem["retryable"], false);
    }
    assert_eq!(office.state("evt_4").await, None);
}

/// No more is read of a body than an event may have.
#[tokio::test]
async fn a_body_that_is_too_large_is_not_read_to_its_end() {
    const CHUNK: usize = 64 * 1024;
    let office = Office::<Yard>::new().await;
    let (sent, count) = (std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0)), 1000);
    let counted = std::sync::Arc::clone(&sent);
    let chunks = futures_util::stream::iter((0..count).map(move |_| {
        counted.fetch_add(CHUNK, std::sync::atomic::Ordering::SeqCst);
        Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b'x'; CHUNK]))
    }));
    let response = post(&office, signed("evt_1", "paid"), Body::from_stream(chunks)).await;
    assert_told(&response, 413, "rejected");
    let sent = sent.load(std::sync::atomic::Ordering::SeqCst);
    assert!(
        sent <= Inbox::<PgQueue>::BODY_BYTES_MAX + 2 * CHUNK,
        "{sent} bytes were read"
    );
}

#[tokio::test]
async fn while_the_database_is_away_the_sender_is_asked_to_wait() {
    let office = Office::<Yard>::new().await;
    office.harness.0.pool.close().await;
    let response = post(&office, signed("evt_1", "paid"), "paid").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key(header::RETRY_AFTER));
    assert!(!response.headers().contains_key("webhook-receipt"));
    let again = Office::<Yard>::new().await;
    assert_told(&post(&again, signed("evt_1", "paid"), "paid").await, 200, "applied");
}

#[tokio::test]
async fn only_posts_are_events() {
    let office = Office::<Yard>::new().await;
    let routes: Router = Router::new().route("/", office.inbox.route());
    let request = Request::builder().method(Method::GET).uri("/").body(Body::empty());
    let response = routes.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
}
