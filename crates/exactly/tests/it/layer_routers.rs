//! Layers inside routers inside routers.

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use exactly::layer::Policy;
use http::Method;

use crate::app::{Runs, answer, ask, builder, layer, memory};

fn counted(runs: &Runs) -> impl Fn(Request) -> std::future::Ready<Response> + Clone + Send + Sync + 'static {
    let runs = runs.clone();
    move |_| std::future::ready(answer(201, format!("run {}", runs.count())))
}

#[tokio::test]
async fn what_a_nested_router_cuts_off_the_path_still_counts() {
    let runs = Runs::default();
    let inner = Router::new()
        .route("/refund", post(counted(&runs)))
        .layer(layer(memory(), Policy::playbook()));
    let app = Router::new().nest("/orders/{id}", inner);
    assert_eq!(ask("k1").uri("/orders/1/refund").send(&app).await.text(), "run 1");
    let other = ask("k1").uri("/orders/2/refund").send(&app).await;
    other.assert_problem(409, "CONFLICT.idempotency.payload_mismatch");
    let again = ask("k1").uri("/orders/1/refund").send(&app).await;
    assert_eq!((again.text(), again.key_status()), ("run 1", Some("replayed")));
}

#[tokio::test]
async fn one_router_mounted_twice_is_two_sets_of_routes() {
    let runs = Runs::default();
    let inner = Router::new()
        .route("/refunds", post(counted(&runs)))
        .layer(layer(memory(), Policy::playbook()));
    let app = Router::new().nest("/v1", inner.clone()).nest("/v2", inner);
    assert_eq!(ask("k1").uri("/v1/refunds").send(&app).await.text(), "run 1");
    assert_eq!(ask("k1").uri("/v2/refunds").send(&app).await.text(), "run 2");
}

#[tokio::test]
async fn a_service_that_knows_no_route_never_shows_a_foreign_answer() {
    let runs = Runs::default();
    let inner = Router::new()
        .fallback(counted(&runs))
        .layer(layer(memory(), Policy::playbook()));
    let app = Router::new()
        .nest_service("/v1", inner.clone())
        .nest_service("/v2", inner);
    assert_eq!(ask("k1").uri("/v1/refunds").send(&app).await.text(), "run 1");
    let other = ask("k1").uri("/v2/refunds").send(&app).await;
    other.assert_problem(409, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(runs.get(), 1);
}

#[tokio::test]
async fn patterns_are_matched_with_the_path_that_the_client_sent() {
    let runs = Runs::default();
    let layer = builder(memory())
        .policy(Policy::playbook().key(exactly::layer::KeyRule::Off))
        .route(Method::POST, "/v1/refunds", Policy::playbook())
        .build()
        .unwrap();
    let inner = Router::new().route("/refunds", post(counted(&runs))).layer(layer);
    let app = Router::new().nest("/v1", inner.clone()).nest("/v2", inner);
    assert_eq!(
        ask("k1").uri("/v1/refunds").send(&app).await.key_status(),
        Some("stored")
    );
    assert_eq!(ask("k1").uri("/v2/refunds").send(&app).await.key_status(), None);
}
