//! The operators' API, and idempotency as a service, on an address of its own.
//!
//! Everything is bounded: bodies, pages, requests at one time, and how long the store may take. What cannot be done is a
//! problem that says why and what to do, and nothing is left hanging.

pub(crate) mod ask;
mod auth;
pub(crate) mod deliveries;
pub(crate) mod desk;
pub(crate) mod endpoints;
pub(crate) mod events;
mod extract;
mod health;
pub(crate) mod inbox;
pub(crate) mod input;
pub(crate) mod jobs;
mod openapi;
mod operators;
pub(crate) mod problem;
pub(crate) mod replays;
pub(crate) mod schedules;
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
use axum::routing::{get, post, put};
use exactly::Operate;
use http::{HeaderValue, Method, Uri, header};
use tokio::sync::Semaphore;

pub(crate) use self::auth::AdminToken;
use self::desk::Desk;
use self::events::desk::EventDesk;
pub(crate) use self::extract::ACTOR;
use self::jobs::desk::JobDesk;
use self::problem::{Answer, Problem};
use self::settle::Settle;
use crate::config::Events;
use crate::store::Ledger;
use crate::work::Nudge;

/// The most requests under way at one time. More would only wait for the same store.
const REQUESTS_MAX: usize = 256;

/// Why there are no jobs on a store that keeps none.
pub(crate) const NO_QUEUE: &str = "jobs need a SQLite or PostgreSQL store, and so do events: start the server with \
    --store sqlite:FILE or --store postgres://…";

/// Why there are no jobs where they were turned off.
pub(crate) const JOBS_OFF: &str = "jobs are turned off here, and events with them: start the server without --no-jobs, and without \
    enabled = false under [jobs]";

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
    jobs: Answer<JobDesk>,
    events: Answer<EventDesk>,
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
            jobs: Err(Problem::no_jobs(NO_QUEUE)),
            events: Err(Problem::no_events(NO_QUEUE)),
        }
    }

    /// Shows and takes jobs, which are kept in `queue`; without one, says why there are none.
    #[must_use]
    pub(crate) fn with_jobs(mut self, queue: Result<Arc<dyn Ledger>, &str>, nudge: Nudge) -> Self {
        let desk = self.desk.clone();
        self.jobs = queue
            .map(|queue| JobDesk::new(queue, desk, nudge))
            .map_err(Problem::no_jobs);
        self
    }

    /// Shows and takes events, which are kept in `queue` too.
    #[must_use]
    pub(crate) fn with_events(mut self, queue: Result<Arc<dyn Ledger>, &str>, settings: &Events) -> Self {
        let desk = self.desk.clone();
        let (source, destinations) = (settings.source.clone(), settings.destinations.clone());
        self.events = queue
            .map(|queue| EventDesk::new(queue, desk, source, Some(destinations)))
            .map_err(Problem::no_events);
        self
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
        .route("/v1/jobs", get(jobs::list).post(jobs::enqueue))
        .route("/v1/jobs/requeue", post(jobs::requeue))
        .route("/v1/jobs/{job}", get(jobs::show))
        .route("/v1/jobs/{job}/requeue", post(jobs::requeue_one))
        .route("/v1/jobs/{job}/resolve", post(jobs::resolve))
        .route("/v1/lanes", get(jobs::lanes))
        .route("/v1/lanes/{lane}", put(jobs::change_lane))
        .route("/v1/schedules", get(schedules::list))
        .route(
            "/v1/schedules/{name}",
            get(schedules::show).put(schedules::put).delete(schedules::delete),
        )
        .route("/v1/schedules/{name}/pause", post(schedules::pause))
        .route("/v1/schedules/{name}/resume", post(schedules::resume))
        .route("/v1/schedules/{name}/occurrences", get(schedules::occurrences))
        .route("/v1/purge", post(operators::purge))
        .route("/v1/trail", get(operators::trail))
        .merge(of_events());
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

fn of_events() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/events", get(events::list).post(events::publish))
        .route("/v1/events/{event}", get(events::show))
        .route("/v1/endpoints", get(endpoints::list).post(endpoints::create))
        .route(
            "/v1/endpoints/{endpoint}",
            get(endpoints::show).patch(endpoints::change).delete(endpoints::delete),
        )
        .route("/v1/endpoints/{endpoint}/health", get(endpoints::health))
        .route("/v1/endpoints/{endpoint}/pause", post(endpoints::pause))
        .route("/v1/endpoints/{endpoint}/resume", post(endpoints::resume))
        .route("/v1/endpoints/{endpoint}/disable", post(endpoints::disable))
        .route("/v1/endpoints/{endpoint}/discard", post(endpoints::discard))
        .route("/v1/endpoints/{endpoint}/rotate", post(endpoints::rotate))
        .route("/v1/endpoints/{endpoint}/test", post(endpoints::test))
        .route("/v1/deliveries", get(deliveries::list))
        .route("/v1/deliveries/{delivery}", get(deliveries::show))
        .route("/v1/deliveries/{delivery}/retry", post(deliveries::retry))
        .route("/v1/inbox", get(inbox::list))
        .route("/v1/inbox/{source}/{event}", get(inbox::show))
        .route("/v1/replays", get(replays::list).post(replays::start))
        .route("/v1/replays/{replay}", get(replays::show))
        .route("/v1/replays/{replay}/pause", post(replays::pause))
        .route("/v1/replays/{replay}/resume", post(replays::resume))
        .route("/v1/replays/{replay}/cancel", post(replays::cancel))
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
