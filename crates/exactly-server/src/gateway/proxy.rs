//! The upstream as a service, and the truth about it.
//!
//! What matters is not whether an answer came but what is known if none did. Refused before a byte was sent: nothing
//! happened. Sent without a whole answer: nobody knows. Nothing is ever sent twice by itself; the one thing that is tried
//! again is a request of which no byte had left when its idle connection turned out to be closed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use exactly::layer::{Body, BoxError, CallInfo, EXACTLY_CALL, EXACTLY_KEEP, EXACTLY_TOKEN};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt as _, Limited};
use tokio::time::{timeout, timeout_at};
use tower_service::Service;

use super::idle::{Pieces, Watched};
use super::pool::{Answering, Pool};
use super::{correlation, forward, line, meter, problem, upgrade};
use crate::config::{Timeouts, Upstream};

/// Which attempt this is, counted from one, on requests that the gateway protects.
const IDEMPOTENCY_ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");

/// The longest body that is read in order to keep a connection; a new one is cheaper than a longer one.
const LET_GO_MAX: usize = 64 * 1024;

/// Passes requests on to one upstream. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub(super) struct Proxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: Pool,
    response_timeout: Duration,
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct NoAnswer {
    /// Whether the upstream may have got any of it.
    pub(super) sent: bool,
    pub(super) timed_out: bool,
    /// Whether it was the client's body that broke off.
    pub(super) by_client: bool,
    pub(super) cause: String,
}

impl Proxy {
    pub(super) fn new(upstream: &Upstream, timeouts: &Timeouts) -> Self {
        Self(Arc::new(Inner {
            pool: Pool::new(upstream.clone(), timeouts.connect),
            response_timeout: timeouts.response,
        }))
    }

    /// The same upstream over lines that nobody else has.
    pub(super) fn with_own_lines(&self) -> Self {
        Self(Arc::new(Inner {
            pool: Pool::new(self.upstream().clone(), self.0.pool.connect_timeout()),
            response_timeout: self.0.response_timeout,
        }))
    }

    pub(super) fn upstream(&self) -> &Upstream {
        self.0.pool.upstream()
    }

    pub(super) fn response_timeout(&self) -> Duration {
        self.0.response_timeout
    }

    /// Closes what nobody uses.
    pub(super) fn prune(&self) {
        self.0.pool.prune();
    }

    /// Sends a request of which only path and content matter, and waits for the head of the answer.
    pub(super) async fn ask(&self, mut request: Request<Body>) -> Result<Response<Answering>, NoAnswer> {
        self.readdress(&mut request);
        self.exchange(request).await
    }

    /// Sends a request and waits for the head of its answer, but not for long after the last piece of it was sent.
    async fn exchange(&self, mut request: Request<Body>) -> Result<Response<Answering>, NoAnswer> {
        let begun = AtomicBool::new(false);
        let pieces = Pieces::of(&mut request);
        let exchange = self.0.pool.exchange(request, &begun);
        self.within(&begun, pieces, exchange).await
    }

    /// An answer as it goes back.
    pub(super) fn pass_back<B>(&self, mut response: Response<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        forward::strip_hop_by_hop(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        let idle_max = self.0.response_timeout;
        response.map(|body| Body::stream(Watched::new(body, idle_max)))
    }

    /// Reads an answer of which only the head matters, so that its connection can be used again.
    pub(super) fn let_go(&self, response: Response<Answering>) {
        if response.body().is_end_stream() {
            return;
        }
        let body = Limited::new(self.pass_back(response).into_body(), LET_GO_MAX);
        let limit = self.0.response_timeout;
        tokio::spawn(async move { timeout(limit, body.collect()).await.map(drop) });
    }

    async fn forward(self, mut request: Request<Body>) -> Response<Body> {
        let is_keyed = request.extensions().get::<CallInfo>().is_some();
        // A switch of protocols is nothing that a duplicate could be given again.
        let upgrade = if is_keyed { None } else { upgrade::wanted(&mut request) };
        let id = correlation::of(&request);
        self.readdress(&mut request);
        if let Some(upgrade) = upgrade {
            return self.forward_upgrade(upgrade, request, id.as_ref()).await;
        }
        match self.exchange(request).await {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                meter::unknown();
                problem::broken(self.upstream(), "it switched protocols unasked", false, id.as_ref())
            }
            Ok(mut response) => {
                meter::answered();
                if is_keyed {
                    // It is read whole, and replayed without what came after it.
                    response.headers_mut().remove(header::TRAILER);
                }
                self.pass_back(response)
            }
            Err(no_answer) => no_answer.told(self.upstream(), id.as_ref()),
        }
    }

    async fn forward_upgrade(
        &self,
        upgrade: upgrade::Wanted,
        mut request: Request<Body>,
        id: Option<&HeaderValue>,
    ) -> Response<Body> {
        upgrade.ask_for(request.headers_mut());
        let begun = AtomicBool::new(true);
        let exchange = line::exchange_alone(self.upstream(), self.0.pool.connect_timeout(), request);
        let response = match self.within(&begun, Pieces::none(), exchange).await {
            Ok(response) => response,
            Err(no_answer) => return no_answer.told(self.upstream(), id),
        };
        meter::answered();
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => upgrade.join(response),
            _ => self.pass_back(response),
        }
    }

    async fn within<T>(
        &self,
        begun: &AtomicBool,
        pieces: Pieces,
        exchange: impl Future<Output = Result<T, NoAnswer>>,
    ) -> Result<T, NoAnswer> {
        let mut exchange = pin!(exchange);
        loop {
            let last = pieces.last();
            if let Ok(answered) = timeout_at(last + self.0.response_timeout, exchange.as_mut()).await {
                return answered;
            }
            // A long upload is no silence.
            if pieces.last() == last {
                return Err(NoAnswer {
                    sent: begun.load(Ordering::Relaxed),
                    timed_out: true,
                    by_client: false,
                    cause: format!("no answer within {:?}", self.0.response_timeout),
                });
            }
        }
    }

    /// Makes the request one to the upstream.
    fn readdress(&self, request: &mut Request<Body>) {
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
        let call = request.extensions().get::<CallInfo>().cloned();
        let named = request.uri().authority().and_then(host);
        // Only the path: a proxy is asked with whole URLs, and the upstream is none.
        *request.uri_mut() = Uri::from(path(request.uri()));
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        let wants_trailers = call.is_none() && forward::wants_trailers(headers);
        forward::strip_hop_by_hop(headers);
        if wants_trailers {
            forward::ask_for_trailers(headers);
        }
        match named {
            // The target has the last word, and is all that HTTP/2 has.
            Some(host) => _ = headers.insert(header::HOST, host),
            // Clients of HTTP/1.0 name none, and what the gateway asks by itself is for the upstream.
            None => _ = headers.entry(header::HOST).or_insert_with(|| self.own_host()),
        }
        // Whoever waits for leave to send a body has got it from the gateway.
        headers.remove(header::EXPECT);
        if let Some(client) = peer {
            forward::add_forwarded(headers, client);
        }
        name_call(headers, call.as_ref());
    }

    fn own_host(&self) -> HeaderValue {
        host(&self.upstream().0).expect("an authority is visible ASCII")
    }
}

/// Tells the upstream which call this is. Clients cannot.
fn name_call(headers: &mut HeaderMap, call: Option<&CallInfo>) {
    for name in [IDEMPOTENCY_ATTEMPT, EXACTLY_CALL, EXACTLY_TOKEN, EXACTLY_KEEP] {
        headers.remove(name);
    }
    let Some(call) = call else { return };
    let claim = &call.claim;
    // Its body was read whole, and without what came after it.
    headers.remove(header::TRAILER);
    headers.insert(IDEMPOTENCY_ATTEMPT, HeaderValue::from(claim.attempt.get()));
    let id = HeaderValue::from_str(&claim.id.to_string()).expect("hex digits are a header");
    headers.insert(EXACTLY_CALL, id);
    headers.extend(call.join_headers());
}

/// What is asked for. `OPTIONS *` asks about the server, which for a client is the gateway's root.
fn path(uri: &Uri) -> PathAndQuery {
    let path = uri.path_and_query().filter(|path| path.as_str().starts_with('/'));
    path.cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
}

/// An authority as a header names it: without the user.
pub(super) fn host(authority: &Authority) -> Option<HeaderValue> {
    let text = authority.as_str();
    let place = text.rsplit_once('@').map_or(text, |(_, place)| place);
    HeaderValue::from_str(place).ok()
}

impl Service<Request<Body>> for Proxy {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let proxy = self.clone();
        Box::pin(async move { Ok(proxy.forward(request).await) })
    }
}

impl NoAnswer {
    pub(super) fn unsent(cause: String) -> Self {
        Self {
            sent: false,
            timed_out: false,
            by_client: false,
            cause,
        }
    }

    /// What the client is told.
    fn told(self, upstream: &Upstream, id: Option<&HeaderValue>) -> Response<Body> {
        if self.by_client {
            problem::body_broken(&self.cause, self.sent)
        } else if self.sent {
            meter::unknown();
            problem::broken(upstream, &self.cause, self.timed_out, id)
        } else {
            meter::unreached();
            problem::unreached(upstream, &self.cause, id)
        }
    }
}
