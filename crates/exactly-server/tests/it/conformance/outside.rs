//! What stands before the layer, and can do wrong what takes a memory.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use exactly::clock::{Clock as _, WallClock};
use exactly::layer::{Body, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_KEY, IDEMPOTENCY_STATUS, Idempotency};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use super::fault::Fault;
use super::protector::{Inside, Original, status};

pub(crate) const MAIN_PATH: &str = "/effects/payments";

const IN_PROGRESS: &str = r#"{"code":"CONFLICT.idempotency.in_progress"}"#;

#[derive(Clone)]
pub(crate) struct Outside {
    fault: Option<Fault>,
    inner: Idempotency<Inside>,
    memory: Arc<Mutex<Memory>>,
    /// As many as a small pool has connections.
    connections: Arc<Semaphore>,
}

#[derive(Default)]
struct Memory {
    answers: HashMap<String, (StatusCode, HeaderMap, Bytes)>,
    keys_by_content: HashMap<String, String>,
    generations: HashMap<String, u32>,
    owners: HashMap<String, CancellationToken>,
    claimed: HashSet<String>,
}

/// Cancels unless it is told that all went well: the client hung up.
struct HangUp(Option<CancellationToken>);

impl Drop for HangUp {
    fn drop(&mut self) {
        if let Some(token) = self.0.take() {
            token.cancel();
        }
    }
}

impl Outside {
    pub(crate) fn new(fault: Option<Fault>, inner: Idempotency<Inside>) -> Self {
        Self {
            fault,
            inner,
            memory: Arc::default(),
            connections: Arc::new(Semaphore::new(20)),
        }
    }

    pub(crate) async fn answer(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let (mut parts, body) = request.into_parts();
        let original = Original {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            headers: parts.headers.clone(),
        };
        parts.extensions.insert(original);
        let Some(fault) = self.fault else {
            return self.inner.call(Request::from_parts(parts, Body::stream(body))).await;
        };
        let key = key(&parts);
        if fault == Fault::ClaimsBeforeBody && !self.memory().claimed.insert(key.clone()) {
            return Ok(json(StatusCode::CONFLICT, IN_PROGRESS));
        }
        let Ok(body) = body.collect().await else {
            return Ok(status(StatusCode::BAD_REQUEST));
        };
        self.memory().claimed.remove(&key);
        let body = fault.on_body(body.to_bytes());
        fault.on_request(&mut parts);
        self.answer_wrongly(fault, &key, parts, body).await
    }

    async fn answer_wrongly(
        mut self,
        fault: Fault,
        key: &str,
        mut parts: Parts,
        body: Bytes,
    ) -> Result<Response<Body>, Infallible> {
        let kept_as = kept_as(fault, key, &parts, &body);
        if let Some(early) = self.early(fault, key, &parts, &body, kept_as.as_deref()) {
            return Ok(early);
        }
        let is_short = parts.uri.path().ends_with("/short");
        if fault == Fault::FreesOnRefusal
            && let Some(generation) = self.memory().generations.get(key)
        {
            let other = format!("{key}-{generation}").parse().unwrap();
            parts.headers.insert(IDEMPOTENCY_KEY, other);
        }
        let holds = fault == Fault::WaitersHoldConnections && parts.uri.path() == MAIN_PATH;
        let connections = Arc::clone(&self.connections);
        let connection = if holds {
            Some(connections.acquire().await.unwrap())
        } else {
            None
        };
        let (was_running, mut hang_up) = self.enter(fault, key, &mut parts);
        let response = self.inner.call(Request::from_parts(parts, Body::from(body))).await?;
        hang_up.0 = None;
        drop(connection);
        if !was_running {
            self.memory().owners.remove(key);
        }
        let response = self.late(fault, key, was_running, response).await;
        Ok(match fault {
            Fault::ForgetsNothing if is_short => expiring(response),
            _ => self.keep(fault, kept_as, response).await,
        })
    }

    /// An answer without asking the layer.
    fn early(
        &self,
        fault: Fault,
        key: &str,
        parts: &Parts,
        body: &[u8],
        kept_as: Option<&str>,
    ) -> Option<Response<Body>> {
        if fault == Fault::HidesCounts && parts.method == Method::GET {
            return Some(status(StatusCode::NOT_FOUND));
        }
        if fault == Fault::RefusesSameContent && parts.uri.path() == MAIN_PATH && !key.is_empty() {
            let content = format!("{} {}", parts.uri, String::from_utf8_lossy(body));
            let mut memory = self.memory();
            let first = memory.keys_by_content.entry(content).or_insert_with(|| key.to_owned());
            if first != key {
                return Some(json(StatusCode::CONFLICT, r#"{"code":"duplicate"}"#));
            }
        }
        let (status, headers, body) = self.memory().answers.get(kept_as?)?.clone();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Some(response)
    }

    /// Whether another request with this key runs already, and what a hang-up of this one does.
    fn enter(&self, fault: Fault, key: &str, parts: &mut Parts) -> (bool, HangUp) {
        let mut memory = self.memory();
        let token = CancellationToken::new();
        let owner = memory.owners.get(key).cloned();
        if owner.is_none() {
            memory.owners.insert(key.to_owned(), token.clone());
        }
        parts.extensions.insert(token.clone());
        let is_running = owner.is_some();
        let hang_up = match fault {
            Fault::CancelsOnHangUp => Some(token),
            Fault::WaiterCancelsOwner => owner,
            _ => None,
        };
        (is_running, HangUp(hang_up))
    }

    /// Changes the layer's answer.
    async fn late(&self, fault: Fault, key: &str, was_running: bool, mut response: Response<Body>) -> Response<Body> {
        let is_replay = response
            .headers()
            .get(IDEMPOTENCY_STATUS)
            .is_some_and(|status| status == "replayed");
        match fault {
            Fault::ChecksFlightFirst if was_running => {
                let (response, body) = read(response).await;
                if is_mismatch(&body) {
                    return json(StatusCode::CONFLICT, IN_PROGRESS);
                }
                response
            }
            Fault::FreesOnRefusal => {
                let (response, body) = read(response).await;
                if is_mismatch(&body) {
                    *self.memory().generations.entry(key.to_owned()).or_default() += 1;
                }
                response
            }
            Fault::TurnsBodiesIntoText if is_replay => {
                let (response, body) = read(response).await;
                let text = String::from_utf8_lossy(&body).into_owned();
                response.map(|_| Body::from(Bytes::from(text)))
            }
            Fault::TellsNothing => {
                let names: Vec<_> = response.headers().keys().cloned().collect();
                for name in names.iter().filter(|name| name.as_str().starts_with("idempotency-")) {
                    response.headers_mut().remove(name);
                }
                response
            }
            Fault::ExposesNothing => {
                response.headers_mut().remove(header::ACCESS_CONTROL_EXPOSE_HEADERS);
                response
            }
            Fault::SaysNotWhenToRetry => {
                response.headers_mut().remove(header::RETRY_AFTER);
                response
            }
            _ => response,
        }
    }

    /// Keeps the answer where it should not be kept.
    async fn keep(&self, fault: Fault, kept_as: Option<String>, response: Response<Body>) -> Response<Body> {
        let Some(kept_as) = kept_as else { return response };
        let is_unavailable = [408, 425, 429, 503].contains(&response.status().as_u16());
        if fault == Fault::KeepsUnavailable && !is_unavailable {
            return response;
        }
        let (response, body) = read(response).await;
        let kept = (response.status(), response.headers().clone(), body);
        self.memory().answers.insert(kept_as, kept);
        response
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }
}

/// The name under which an answer is kept, if the fault is to keep it.
fn kept_as(fault: Fault, key: &str, parts: &Parts, body: &[u8]) -> Option<String> {
    let Parts { method, uri, .. } = parts;
    let is_read = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    let keeps = match fault {
        Fault::RemembersWithoutKey => key.is_empty() && !is_read && uri.path() == MAIN_PATH,
        Fault::ProtectsReads => is_read && !key.is_empty(),
        Fault::KeepsUnavailable => !key.is_empty(),
        _ => false,
    };
    keeps.then(|| format!("{method} {uri} {key} {}", String::from_utf8_lossy(body)))
}

fn key(parts: &Parts) -> String {
    let key = parts.headers.get(IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok());
    key.unwrap_or_default().trim_matches('"').to_owned()
}

fn is_mismatch(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).contains("payload_mismatch")
}

fn json(status: StatusCode, text: &'static str) -> Response<Body> {
    let response = Response::builder().status(status);
    let response = response.header(header::CONTENT_TYPE, "application/problem+json");
    response.body(Body::from(Bytes::from_static(text.as_bytes()))).unwrap()
}

/// The answer, and its body beside it.
async fn read(response: Response<Body>) -> (Response<Body>, Bytes) {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(parts, Body::from(bytes.clone())), bytes)
}

/// Says that the key expires in two seconds.
fn expiring(mut response: Response<Body>) -> Response<Body> {
    let at = UNIX_EPOCH + Duration::from_millis(WallClock.now().as_millis() + 2000);
    let value = httpdate::fmt_http_date(at).parse().unwrap();
    response.headers_mut().insert(IDEMPOTENCY_EXPIRES, value);
    response
}
