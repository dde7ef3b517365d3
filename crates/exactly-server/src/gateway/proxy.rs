//! The upstream as a service, and the truth about it.
//!
//! What matters is not whether an answer came but what is known if none did. Refused before a byte was sent: nothing
//! happened. Sent without a whole answer: nobody knows. Nothing is ever sent twice by itself; the one thing that is tried
//! again is a request of which no byte had left when its idle connection turned out to be closed.

use std::convert::Infallible;
use std::error::Error as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use exactly::layer::{Body, BoxError, CallInfo, NothingHappened, OutcomeUnknown, Problem};
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;
use tower_service::Service;

use super::idle::Watched;
use super::{forward, upgrade};
use crate::config::{Timeouts, Upstream};

/// Which attempt this is, counted from one, on requests that the gateway protects.
const IDEMPOTENCY_ATTEMPT: HeaderName = HeaderName::from_static("idempotency-attempt");

/// How long an unused connection is kept. Shorter than what servers commonly close theirs after, because a request that
/// meets a connection just being closed is in doubt.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// Passes requests on to one upstream.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    client: Client<HttpConnector, Body>,
    upstream: Authority,
    response_timeout: Duration,
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Why there is no answer.
enum NoAnswer {
    /// No byte was sent.
    NotSent(legacy::Error),
    /// Something was sent, and then it broke.
    Broke(legacy::Error),
    TimedOut,
}

impl Proxy {
    pub(crate) fn new(upstream: &Upstream, timeouts: &Timeouts) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(timeouts.connect));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .build(connector);
        Self {
            client,
            upstream: upstream.0.clone(),
            response_timeout: timeouts.response,
        }
    }

    async fn forward(self, mut request: Request<Body>) -> Response<Body> {
        let is_keyed = request.extensions().get::<CallInfo>().is_some();
        let upgrade = upgrade::wanted(&mut request);
        self.readdress(&mut request);
        if let Some(protocol) = upgrade.as_ref().map(upgrade::Wanted::protocol) {
            upgrade::ask_for(request.headers_mut(), protocol);
        }
        let asked = timeout(self.response_timeout, self.client.request(request)).await;
        let asked = asked.map_err(|_| NoAnswer::TimedOut).and_then(|answer| answer.map_err(NoAnswer::of));
        match asked {
            Ok(response) => self.pass_back(response, upgrade),
            Err(no_answer) => no_answer.told(&self.upstream, is_keyed),
        }
    }

    /// Makes the request one to the upstream.
    fn readdress(&self, request: &mut Request<Body>) {
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
        let attempt = request.extensions().get::<CallInfo>().map(|call| call.claim.attempt.get());
        let path = request.uri().path_and_query().cloned();
        let host = request.uri().authority().map(|authority| HeaderValue::from_str(authority.as_str()));
        let mut uri = Uri::builder().scheme(Scheme::HTTP).authority(self.upstream.clone());
        uri = uri.path_and_query(path.unwrap_or_else(|| http::uri::PathAndQuery::from_static("/")));
        *request.uri_mut() = uri.build().expect("scheme, authority and path make up a URI");
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        // HTTP/2 names the host in its authority.
        if let Some(Ok(host)) = host {
            headers.entry(header::HOST).or_insert(host);
        }
        forward::strip_hop_by_hop(headers);
        if let Some(client) = peer {
            forward::add_forwarded(headers, client);
        }
        headers.remove(IDEMPOTENCY_ATTEMPT);
        if let Some(attempt) = attempt {
            headers.insert(IDEMPOTENCY_ATTEMPT, HeaderValue::from(attempt));
        }
    }

    fn pass_back(&self, mut response: Response<Incoming>, upgrade: Option<upgrade::Wanted>) -> Response<Body> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return match upgrade {
                Some(wanted) => upgrade::join(wanted, response),
                None => broken(&self.upstream, "it switched protocols unasked", false),
            };
        }
        forward::strip_hop_by_hop(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        response.map(|body| Body::stream(Watched::new(body, self.response_timeout)))
    }
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
    fn of(error: legacy::Error) -> Self {
        let never_written = error
            .source()
            .and_then(|source| source.downcast_ref::<hyper::Error>())
            .is_some_and(hyper::Error::is_canceled);
        if error.is_connect() || never_written {
            Self::NotSent(error)
        } else {
            Self::Broke(error)
        }
    }

    fn told(self, upstream: &Authority, is_keyed: bool) -> Response<Body> {
        match self {
            Self::NotSent(error) => unreached(upstream, &error),
            Self::Broke(error) => {
                let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                broken(upstream, &cause, is_keyed)
            }
            Self::TimedOut => broken(upstream, "it did not answer in time", is_keyed),
        }
    }
}
