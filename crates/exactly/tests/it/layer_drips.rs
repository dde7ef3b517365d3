//! Bodies that never stop coming, and never end.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use exactly::layer::Policy;
use futures_util::stream;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;

use crate::app::{Runs, SECOND, answer, app, ask, builder, layer, memory};

/// A byte every second, `count` of them.
fn drip(count: u32) -> Body {
    Body::from_stream(stream::unfold(0, move |dripped| async move {
        sleep(SECOND).await;
        let drop = Ok::<_, io::Error>(Bytes::from("x"));
        (dripped < count).then_some((drop, dripped + 1))
    }))
}

async fn send(app: &Router, key: Option<&str>, body: Body) -> (u16, String) {
    let mut request = Request::post("/refunds");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let request = request.body(body).unwrap();
    let response = timeout(3600 * SECOND, app.clone().oneshot(request))
        .await
        .unwrap()
        .unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_key_that_drips_is_refused_in_time_and_nothing_runs() {
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(&layer(memory(), Policy::playbook()), move |request: Request| {
        counted.count();
        async { answer(201, request.into_body().collect().await.unwrap().to_bytes()) }
    });
    let begun = Instant::now();
    let (status, told) = send(&app, Some("k1"), drip(90)).await;
    assert_eq!((status, begun.elapsed()), (408, 60 * SECOND));
    assert!(
        told.contains("VALIDATION.body_unreadable") && told.contains("60s"),
        "{told}"
    );
    assert!(told.contains("\"retryable\":true"), "{told}");
    assert_eq!(runs.get(), 0);
    // The key is free, what comes in time is carried out, and so is what has no key.
    for (key, count) in [(Some("k1"), 50), (None, 90)] {
        let (status, body) = send(&app, key, drip(count)).await;
        assert_eq!((status, body.len()), (201, count as usize));
    }
    assert_eq!(runs.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_key_that_drips_is_unknown_in_time() {
    let layer = builder(memory()).answer_within(60 * SECOND).build().unwrap();
    let app = app(&layer, |_| async { answer(200, drip(90)) });
    let begun = Instant::now();
    let refused = ask("k1").send(&app).await;
    refused.assert_problem(409, "OUTCOME.unknown");
    assert_eq!(begun.elapsed(), 60 * SECOND);
    ask("k1").send(&app).await.assert_problem(409, "OUTCOME.unknown");
    // Without a key it comes as it comes.
    assert_eq!(send(&app, None, Body::empty()).await.1.len(), 90);
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_large_to_keep_may_take_its_time() {
    let app = app(&layer(memory(), Policy::playbook().answer_max(10)), |_| async {
        answer(200, drip(400))
    });
    let (status, answer) = send(&app, Some("k1"), Body::from("{}")).await;
    assert_eq!((status, answer.len()), (200, 400));
}

#[test]
fn no_time_at_all_is_no_time() {
    let refused = builder(memory())
        .request_within(Duration::ZERO)
        .answer_within(Duration::ZERO);
    let refused = refused.build().unwrap_err().to_string();
    for key in ["request_within", "answer_within"] {
        assert!(
            refused.contains(&format!("layer: {key} is 0ns, accepted is 1 ms to 24 h")),
            "{refused}"
        );
    }
}
