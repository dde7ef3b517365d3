//! One customer's connection to one server.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::history::{Answer, Said, Wish};
use crate::victim::{EFFECTS_PATH, Order, Receipt};

/// How long a customer rather asks elsewhere after a failure.
const SUSPECT_FOR: Duration = Duration::from_millis(400);

type Broken = Box<dyn std::error::Error + Send + Sync>;

/// A connection that is opened when needed and again after it broke.
#[derive(Debug)]
pub(crate) struct Line {
    port: u16,
    link: Option<Link>,
    /// When it last got no answer.
    failed_at: Option<Instant>,
}

#[derive(Debug)]
struct Link {
    requests: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Line {
    pub(crate) fn to(port: u16) -> Self {
        Self {
            port,
            link: None,
            failed_at: None,
        }
    }

    /// Whether the server there gave no answer a moment ago: dead, or frozen.
    pub(crate) fn is_suspect(&self) -> bool {
        self.failed_at
            .is_some_and(|failed_at| failed_at.elapsed() < SUSPECT_FOR)
    }

    /// Orders an effect, and hangs up if no answer has come within `patience`.
    pub(crate) async fn order(&mut self, key: &str, wish: Wish, patience: Duration) -> Said {
        let order = Order {
            key: key.to_owned(),
            amount: wish.amount,
            declined: wish.declined,
        };
        let body = serde_json::to_vec(&order).expect("an order is plain data");
        match self.send(EFFECTS_PATH, Some(key), body, patience).await {
            Some((status, headers, body)) => read(status, &headers, body),
            None => Said::Lost,
        }
    }

    /// One request and its whole answer; `None` if there is none.
    pub(crate) async fn send(
        &mut self,
        path: &str,
        key: Option<&str>,
        body: Vec<u8>,
        patience: Duration,
    ) -> Option<(StatusCode, HeaderMap, Bytes)> {
        let answered = timeout(patience, self.exchange(path, key, body)).await;
        if let Ok(Ok(answer)) = answered {
            self.failed_at = None;
            return Some(answer);
        }
        // Hangs up.
        self.link = None;
        self.failed_at = Some(Instant::now());
        None
    }

    async fn exchange(
        &mut self,
        path: &str,
        key: Option<&str>,
        body: Vec<u8>,
    ) -> Result<(StatusCode, HeaderMap, Bytes), Broken> {
        let mut request = Request::post(path)
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::from(body))?;
        let requests = self.requests().await?;
        requests.ready().await?;
        let response: Response<Incoming> = requests.send_request(request).await?;
        let (parts, body) = response.into_parts();
        Ok((parts.status, parts.headers, body.collect().await?.to_bytes()))
    }

    async fn requests(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, Broken> {
        if self.link.as_ref().is_none_or(|link| link.requests.is_closed()) {
            let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).await?;
            stream.set_nodelay(true)?;
            let (requests, connection) = handshake(TokioIo::new(stream)).await?;
            let driver = tokio::spawn(connection).abort_handle();
            self.link = Some(Link { requests, driver });
        }
        Ok(&mut self.link.as_mut().expect("opened above").requests)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Ends the connection at once, whatever is under way on it.
        self.driver.abort();
    }
}

/// The parts of a problem that clients branch on.
#[derive(Deserialize)]
struct Problem {
    code: String,
    call: Option<String>,
}

fn read(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Said {
    let label = headers.get("idempotency-status").and_then(|value| value.to_str().ok());
    match label {
        Some("freed") => return Said::Freed,
        Some(label @ ("stored" | "replayed")) => {
            if let Ok(receipt) = serde_json::from_slice::<Receipt>(&body) {
                return Said::Done(Answer {
                    status: status.as_u16(),
                    nonce: receipt.nonce,
                    replayed: label == "replayed",
                    body,
                });
            }
        }
        _ => {}
    }
    let strange = || Said::Strange(format!("{status} {label:?} {}", String::from_utf8_lossy(&body)));
    let Ok(problem) = serde_json::from_slice::<Problem>(&body) else {
        return strange();
    };
    match (status.as_u16(), problem.code.as_str()) {
        (409, "CONFLICT.idempotency.payload_mismatch") => Said::Mismatch,
        (409, "CONFLICT.idempotency.in_progress") => Said::InProgress,
        (409, "OUTCOME.unknown") => Said::InDoubt(problem.call.and_then(|call| call.parse().ok())),
        (_, "OUTCOME.replay_unavailable") => Said::Settled,
        (503, "DEPENDENCY.unavailable") => Said::Unavailable,
        _ => strange(),
    }
}
