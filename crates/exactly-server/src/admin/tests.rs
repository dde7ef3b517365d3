//! The API over a real socket.

mod access;
mod document;
mod input;
mod operators;
mod rigged;
mod service;
mod trail;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::{ManualClock, Timestamp};
use exactly::store::Phase;
use exactly::{
    Call, CallId, Claim, Fingerprint, Inspect as _, Keep, Key, MemoryStore, OnLost, Operate, Scope, Store as _, Verdict,
};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::{Admin, AdminToken, router, settle};
use crate::config::Config;

const TOKEN: &str = "a-token-for-tests-only";

/// 2026-01-01T00:00:00Z
const START: u64 = 1_767_225_600_000;

/// A server, and what is behind it.
struct Api {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    base: String,
    client: Client<HttpConnector, Full<Bytes>>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Told {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Api {
    async fn start() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock)));
        let operate: Arc<dyn Operate> = Arc::<MemoryStore>::clone(&store);
        let mut api = Self::over(operate).await;
        (api.store, api.clock) = (store, clock);
        api
    }

    async fn over(operate: Arc<dyn Operate>) -> Self {
        Self::with(admin(operate)).await
    }

    async fn with(admin: Admin) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, router(admin)).await.unwrap() });
        Self {
            store: Arc::default(),
            clock: Arc::new(ManualClock::at(Timestamp::from_millis(START))),
            base,
            client: Client::builder(TokioExecutor::new()).build_http(),
            server,
        }
    }

    async fn send(&self, request: http::request::Builder, body: impl Into<Bytes>) -> Told {
        let request = request.body(Full::new(body.into())).unwrap();
        let (parts, body) = self.client.request(request).await.unwrap().into_parts();
        Told {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    fn request(&self, method: &str, path: &str) -> http::request::Builder {
        Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {TOKEN}"))
    }

    async fn get(&self, path: &str) -> Told {
        self.send(self.request("GET", path), "").await
    }

    async fn delete(&self, path: &str) -> Told {
        self.send(self.request("DELETE", path), "").await
    }

    async fn post(&self, path: &str, body: &Value) -> Told {
        let request = self.request("POST", path).header("content-type", "application/json");
        self.send(request, body.to_string()).await
    }

    /// Makes a record of `phase`.
    async fn call(&self, operation: &str, key: &str, phase: Phase) -> CallId {
        let claim = begin(&self.store, operation, key, phase).await;
        claim.id
    }

    async fn phase(&self, id: &CallId) -> Option<Phase> {
        self.store.get(id).await.unwrap().map(|view| view.phase)
    }
}

impl Told {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    #[track_caller]
    fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{:?}", self.body);
        assert_eq!(self.headers["content-type"], "application/json");
        self.json()
    }

    /// A problem of this status and code, as problem details have to be.
    #[track_caller]
    fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{:?}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["code"], code, "{problem}");
        assert!(
            problem["type"].as_str().unwrap().starts_with("urn:exactly:problem:"),
            "{problem}"
        );
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{problem}");
        problem
    }
}

fn admin(operate: Arc<dyn Operate>) -> Admin {
    let settle = settle::by_config(&operate, &Config::default()).unwrap();
    let metrics = Arc::new(|| "idempotency_cache_hit 7\n".to_owned());
    Admin::new(operate, AdminToken::new(TOKEN).unwrap(), settle, metrics)
}

/// A record of `phase`, made through the store.
async fn begin(store: &MemoryStore, operation: &str, key: &str, phase: Phase) -> Claim {
    let scope = Scope::new("ada", operation);
    let on_lost = if phase == Phase::Lost {
        OnLost::Rerun
    } else {
        OnLost::Doubt
    };
    let call = Call::new(scope, Key::new(key).unwrap(), Fingerprint::of(key))
        .with_lease(Duration::from_secs(30))
        .with_on_lost(on_lost);
    let Verdict::Run(claim) = store.begin(&call).await.unwrap() else {
        panic!("{key} is fresh");
    };
    let _ = match phase {
        Phase::InFlight => exactly::Fenced::Applied,
        Phase::InDoubt | Phase::Lost => store.lose(&claim).await.unwrap(),
        Phase::Done => store.complete(&claim, &"an answer".into(), Keep::DAY).await.unwrap(),
    };
    claim
}
