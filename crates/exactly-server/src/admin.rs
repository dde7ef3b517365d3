//! The operators' API, and idempotency as a service, on an address of its own.
//!
//! Everything is bounded: bodies, pages, requests at one time, and how long the store may take. What cannot be done is a
//! problem that says why and what to do, and nothing is left hanging.

pub(crate) mod ask;
mod auth;
pub(crate) mod desk;
mod extract;
mod health;
pub(crate) mod input;
mod openapi;
mod operators;
pub(crate) mod problem;
mod service;
pub(crate) mod settle;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use exactly::Operate;
use http::{HeaderValue, Method, Uri, header};
use tokio::sync::Semaphore;

pub(crate) use self::auth::AdminToken;
use self::desk::Desk;
pub(crate) use self::extract::ACTOR;
use self::problem::Problem;
use self::settle::Settle;

/// The most requests under way at one time. More would only wait for the same store.
const REQUESTS_MAX: usize = 256;

/// Writes the metrics in Prometheus' text format.
pub(crate) type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What the API works with.
pub(crate) struct Admin {
    store: Arc<dyn Operate>,
    desk: Desk,
    token: AdminToken,
    metrics: RenderMetrics,
    open_metrics: bool,
    running: Semaphore,
}

impl Admin {
    /// An API over `store` for whoever holds `token`. `settle` ends doubts of the gateway.
    pub(crate) fn new(store: Arc<dyn Operate>, token: AdminToken, settle: Settle, metrics: RenderMetrics) -> Self {
        Self {
            desk: Desk::new(Arc::clone(&store), settle),
            store,
            token,
            metrics,
            open_metrics: false,
            running: Semaphore::new(REQUESTS_MAX),
        }
    }

    /// Shows `/metrics` without the token, for scrapers that cannot send one. Not the default: operation names and traffic
    /// are nobody else's business.
    #[must_use]
    pub(crate) fn with_open_metrics(mut self, open: bool) -> Self {
        self.open_metrics = open;
        self
    }
}

/// Everything on the admin address.
pub(crate) fn router(admin: Admin) -> Router {
    let admin = Arc::new(admin);
    let mut closed = Router::new()
        .route("/v1/calls", get(operators::list))
        .route("/v1/calls/begin", post(service::begin))
        .route("/v1/calls/{id}", get(operators::show).delete(operators::free))
        .route("/v1/calls/{id}/resolve", post(operators::resolve))
        .route("/v1/calls/{id}/renew", post(service::renew))
        .route("/v1/calls/{id}/complete", post(service::complete))
        .route("/v1/calls/{id}/abandon", post(service::abandon))
        .route("/v1/calls/{id}/lose", post(service::lose))
        .route("/v1/purge", post(operators::purge))
        .route("/v1/trail", get(operators::trail));
    let mut open = Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready));
    let metrics = get(health::metrics);
    if admin.open_metrics {
        open = open.route("/metrics", metrics);
    } else {
        closed = closed.route("/metrics", metrics);
    }
    let document = openapi::document(admin.open_metrics);
    let closed = closed
        .method_not_allowed_fallback(wrong_method)
        .route_layer(middleware::from_fn_with_state(Arc::clone(&admin), bound))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&admin), auth::require));
    open.route("/openapi.json", get(async || openapi::served(document)))
        .method_not_allowed_fallback(wrong_method)
        .merge(closed)
        .fallback(nothing_here)
        .layer(middleware::map_response(unsniffed))
        .with_state(admin)
}

async fn bound(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    match admin.running.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => Problem::busy(REQUESTS_MAX).into_response(),
    }
}

async fn nothing_here(uri: Uri) -> Problem {
    Problem::no_such_path(uri.path())
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    Problem::method(&method, uri.path())
}

/// A browser must not take what it is shown for something else.
async fn unsniffed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
