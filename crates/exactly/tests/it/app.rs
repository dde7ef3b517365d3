//! A small service behind the layer, and the requests that tests send to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::any;
use exactly::clock::{Clock, Timestamp};
use exactly::layer::{Builder, IdempotencyLayer, Policy, Principal};
use exactly::{MemoryStore, Store};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::{Notify, Semaphore};
use tower::ServiceExt;

/// A store's clock that stands still with tokio's, so that a test with paused time moves both.
#[derive(Debug)]
pub(crate) struct PausedClock(tokio::time::Instant);

impl PausedClock {
    pub(crate) fn new() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).after(self.0.elapsed())
    }
}

/// How often a handler ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(Arc<AtomicU32>);

impl Runs {
    /// Counts one run and says which it is, from one.
    pub(crate) fn count(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::with_clock(PausedClock::new()))
}

/// A layer whose principal is the `x-user` header, as a test's authentication.
pub(crate) fn builder(store: Arc<dyn Store>) -> Builder {
    IdempotencyLayer::builder(store).principal(|parts| {
        let user = parts.headers.get("x-user").map_or("ada", |user| user.to_str().unwrap());
        (user != "nobody").then(|| Principal::new(user))
    })
}

pub(crate) fn layer(store: Arc<dyn Store>, policy: Policy) -> IdempotencyLayer {
    builder(store).policy(policy).build().unwrap()
}

/// An app with `handler` on a few routes behind `layer`.
pub(crate) fn app<F, Fut>(layer: &IdempotencyLayer, handler: F) -> Router
where
    F: Fn(Request) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    Router::new()
        .route("/refunds", any(handler.clone()))
        .route("/payments", any(handler.clone()))
        .route("/orders/{id}", any(handler))
        .layer(layer.clone())
}

/// An app whose handler answers with the number of its run.
pub(crate) fn counting(store: Arc<dyn Store>, policy: Policy) -> (Router, Runs) {
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(&layer(store, policy), move |_request| {
        let run = counted.count();
        async move { answer(201, format!("run {run}")) }
    });
    (app, runs)
}

/// An app whose handler says that it has started and waits for leave to end.
pub(crate) struct Gated {
    pub(crate) app: Router,
    pub(crate) layer: IdempotencyLayer,
    pub(crate) runs: Runs,
    pub(crate) started: Arc<Semaphore>,
    pub(crate) leave: Arc<Notify>,
}

pub(crate) fn gated(layer: IdempotencyLayer) -> Gated {
    let runs = Runs::default();
    let started = Arc::new(Semaphore::new(0));
    let leave = Arc::new(Notify::new());
    let (counted, announce, wait) = (runs.clone(), Arc::clone(&started), Arc::clone(&leave));
    let app = app(&layer, move |request| {
        let run = counted.count();
        let (announce, wait) = (Arc::clone(&announce), Arc::clone(&wait));
        async move {
            let leave = wait.notified();
            announce.add_permits(1);
            leave.await;
            drop(request);
            answer(201, format!("run {run}"))
        }
    });
    Gated {
        app,
        layer,
        runs,
        started,
        leave,
    }
}

impl Gated {
    pub(crate) async fn until_started(&self) {
        self.started.acquire().await.unwrap().forget();
    }
}

pub(crate) fn answer(status: u16, body: impl Into<Body>) -> Response {
    Response::builder().status(status).body(body.into()).unwrap()
}

/// A request under construction; `POST /refunds` with a JSON body unless told otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: &'static str,
    uri: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

pub(crate) fn ask(key: &str) -> Ask {
    Ask::bare().header("idempotency-key", key)
}

impl Ask {
    pub(crate) fn bare() -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self {
            method: "POST",
            uri: "/refunds".to_owned(),
            headers,
            body: br#"{"amount":1000}"#.to_vec(),
        }
    }

    pub(crate) fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn uri(mut self, uri: &str) -> Self {
        uri.clone_into(&mut self.uri);
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) async fn send(self, app: &Router) -> Answer {
        let mut request = Request::builder().method(self.method).uri(self.uri);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(self.body)).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }
}

/// An answer, read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn key_status(&self) -> Option<&str> {
        self.header("idempotency-status")
    }

    pub(crate) fn problem(&self) -> serde_json::Value {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{}",
            self.text()
        );
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], self.status.as_u16());
        problem
    }

    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.problem()["code"], code);
    }
}

/// Lets everything that can run do so, without time passing.
pub(crate) async fn settle_down() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
