//! The layer in front of the shipped upstream, with or without a fault.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use exactly::fingerprint::LeaveOut;
use exactly::key::KeyFormat;
use exactly::layer::{Body, Builder, Guarantee, IdempotencyLayer, KeyRule, NothingHappened, Policy, Principal};
use exactly::store::{Reply, Watch};
use exactly::{Call, CallId, Claim, Fenced, Keep, MemoryStore, Store, StoreError, StoreErrorKind, Verdict};
use http::uri::{Authority, Scheme};
use http::{HeaderName, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;
use tower_service::Service;

use super::fault::Fault;
use super::outside::Outside;

/// How a protector is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) policy: Policy,
    pub(crate) fault: Option<Fault>,
    pub(crate) is_store_down: bool,
}

/// A request as the client sent it, whatever the layer got to see.
#[derive(Clone, Debug)]
pub(crate) struct Original {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: http::HeaderMap,
}

/// Passes requests on to the upstream.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    client: Client<HttpConnector, Full<Bytes>>,
    upstream: SocketAddr,
    fault: Option<Fault>,
}

impl Setup {
    pub(crate) fn of(policy: Policy) -> Self {
        Self {
            policy,
            fault: None,
            is_store_down: false,
        }
    }

    pub(crate) fn with(fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..Self::of(fault.base())
        }
    }
}

/// Starts a server in front of `upstream`, which lives as long as the test's runtime.
pub(crate) async fn protect(upstream: SocketAddr, setup: Setup) -> SocketAddr {
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build_http();
    let inside = Inside {
        client,
        upstream,
        fault: setup.fault,
    };
    let outside = Outside::new(setup.fault, layer(&setup).layer(inside));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let outside = outside.clone();
            let service = service_fn(move |request| outside.clone().answer(request));
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(served);
        }
    });
    address
}

fn layer(setup: &Setup) -> IdempotencyLayer {
    let has = |fault| setup.fault == Some(fault);
    let store: Arc<dyn Store> = if setup.is_store_down {
        Arc::new(Down(MemoryStore::new()))
    } else {
        Arc::new(MemoryStore::new())
    };
    let policy = match setup.fault {
        Some(fault) => fault.policy(setup.policy.clone()),
        None => setup.policy.clone(),
    };
    let mut builder = IdempotencyLayer::builder(store).policy(policy.clone());
    builder = if has(Fault::SharesKeys) {
        builder.global_keys()
    } else {
        builder.principal(|parts| {
            let credentials = parts.headers.get(header::AUTHORIZATION);
            let name = credentials.map_or("nobody", |value| value.to_str().unwrap());
            Some(Principal::new(name))
        })
    };
    if !has(Fault::LinksNowhere) {
        builder = builder.settle_link("http://127.0.0.1:8081/calls/");
    }
    if has(Fault::RefusesInItsOwnWords) {
        builder = builder.render(|problem| {
            let text = format!("{{\"code\":{:?}}}", problem.code);
            Response::builder()
                .status(problem.status)
                .body(Body::from(Bytes::from(text)))
                .unwrap()
        });
    }
    if !has(Fault::SetsNothing) {
        builder = routes(builder, &policy, has(Fault::ForgetsNothing));
    }
    builder.build().unwrap()
}

/// The routes that are set otherwise, as docs/conformance.md has them for the gateway.
fn routes(builder: Builder, policy: &Policy, keeps_all: bool) -> Builder {
    let short = if keeps_all { 3600 } else { 2 };
    let sent_at = LeaveOut::nothing().pointer("/sentAt").unwrap();
    let set: [(&str, Policy); 10] = [
        ("required", policy.clone().key(KeyRule::Required)),
        ("field", policy.clone().key_field("clientMutationId")),
        (
            "alias",
            policy.clone().key_header(HeaderName::from_static("x-idempotency-key")),
        ),
        ("uuid", policy.clone().key_format(KeyFormat::UuidV4)),
        ("off", policy.clone().key(KeyRule::Off)),
        ("leave-out", policy.clone().leave_out(sent_at)),
        ("short", policy.clone().keep(Keep::For(Duration::from_secs(short)))),
        ("secret", policy.clone().never_store_answers()),
        ("rerunnable", policy.clone().guarantee(Guarantee::Rerunnable)),
        ("impatient", policy.clone().wait(Duration::from_millis(200))),
    ];
    set.into_iter().fold(builder, |builder, (name, policy)| {
        builder.route(Method::POST, &format!("/effects/{name}"), policy)
    })
}

impl Inside {
    async fn forward(self, request: Request<Body>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let cancelled = parts.extensions.get::<CancellationToken>().cloned().unwrap_or_default();
        if let Some(original) = parts.extensions.remove::<Original>() {
            (parts.method, parts.headers) = (original.method, original.headers);
            parts.uri = original.uri;
        }
        let path = parts.uri.path_and_query().cloned().unwrap();
        let upstream: Authority = self.upstream.to_string().parse().unwrap();
        let uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(upstream)
            .path_and_query(path);
        parts.uri = uri.build().unwrap();
        parts.headers.remove(header::CONTENT_LENGTH);
        parts.headers.remove(header::CONNECTION);
        let Ok(body) = body.collect().await else {
            return status(StatusCode::BAD_REQUEST);
        };
        let request = Request::from_parts(parts, Full::new(body.to_bytes()));
        let sent = async {
            match self.client.request(request.clone()).await {
                Err(error) if !error.is_connect() && self.fault == Some(Fault::ResendsWhatWasCut) => {
                    self.client.request(request).await
                }
                sent => sent,
            }
        };
        let sent = tokio::select! {
            sent = sent => sent,
            () = cancelled.cancelled() => return nothing_happened(status(StatusCode::SERVICE_UNAVAILABLE)),
        };
        match sent {
            Ok(response) => {
                let response = response.map(Body::stream);
                match self.fault {
                    Some(fault) => fault.on_answer(response).await,
                    None => response,
                }
            }
            Err(error) if error.is_connect() => nothing_happened(status(StatusCode::SERVICE_UNAVAILABLE)),
            Err(_) if self.fault == Some(Fault::FreesWhatWasCut) => nothing_happened(status(StatusCode::BAD_GATEWAY)),
            Err(_) => status(StatusCode::BAD_GATEWAY),
        }
    }
}

pub(crate) fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::default());
    *response.status_mut() = status;
    response
}

pub(crate) fn nothing_happened(mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(NothingHappened);
    response
}

impl Service<Request<Body>> for Inside {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inside = self.clone();
        Box::pin(async move { Ok(inside.forward(request).await) })
    }
}

/// A store that cannot answer.
#[derive(Debug)]
struct Down(MemoryStore);

fn down<T>() -> Result<T, StoreError> {
    Err(StoreError::new(StoreErrorKind::Unavailable, "reach the store"))
}

impl Store for Down {
    fn begin<'a>(&'a self, _: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async { down() })
    }

    fn peek<'a>(&'a self, _: &'a Call) -> Reply<'a, Option<Verdict>> {
        Box::pin(async { down() })
    }

    fn renew<'a>(&'a self, _: &'a Claim, _: Duration) -> Reply<'a, Fenced> {
        Box::pin(async { down() })
    }

    fn complete<'a>(&'a self, _: &'a Claim, _: &'a Bytes, _: Keep) -> Reply<'a, Fenced> {
        Box::pin(async { down() })
    }

    fn abandon<'a>(&'a self, _: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async { down() })
    }

    fn lose<'a>(&'a self, _: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async { down() })
    }

    fn sweep(&self, _: u32) -> Reply<'_, u32> {
        Box::pin(async { down() })
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.0.watch(id)
    }
}
