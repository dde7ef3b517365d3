//! Whether the server lives, and what it does.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::Admin;
use super::extract::Told;
use super::problem::{Answer, Problem};

/// How long the store may take to say that it is there. Shorter than what probes commonly wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// That all is well.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(example = json!({"status": "ready"}))]
pub(crate) struct Health {
    status: HealthWord,
}

/// How well.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HealthWord {
    /// The process runs.
    Alive,
    /// The store answers too.
    Ready,
}

/// Whether the process lives
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "health",
    operation_id = "isAlive",
    security(()),
    responses((status = 200, description = "It does", body = Health))
)]
pub(super) async fn alive() -> Told<Health> {
    Told(Health {
        status: HealthWord::Alive,
    })
}

/// Whether the store answers
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "health",
    operation_id = "isReady",
    security(()),
    responses((status = 200, description = "It does", body = Health))
)]
pub(super) async fn ready(State(admin): State<Arc<Admin>>) -> Answer<Told<Health>> {
    match timeout(PATIENCE, admin.store.now()).await {
        Ok(Ok(_)) => Ok(Told(Health {
            status: HealthWord::Ready,
        })),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::no_answer("read the store's clock", PATIENCE)),
    }
}

/// Metrics for Prometheus
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "health",
    operation_id = "metrics",
    responses((status = 200, description = "The text format", body = String, content_type = "text/plain"))
)]
pub(super) async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let mut response = (admin.metrics)().into_response();
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}
