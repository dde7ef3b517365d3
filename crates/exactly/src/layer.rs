//! A tower layer that makes requests safe to repeat.
//!
//! A client that sends `Idempotency-Key` may repeat its request after a double click, a time-out or a crash: the handler
//! runs once, and every repetition gets the first answer, byte for byte. It differs from a response cache in what it
//! does when it does not know: a claim is durable before the handler starts, every later write is fenced, and an attempt
//! that was lost half way is reported as in doubt instead of being guessed about.
//!
//! Handlers run detached from the connection by default: a client that hangs up does not cancel the work, because the
//! effect may be half done and its outcome must be recorded either way. On shutdown, [`IdempotencyLayer::drain`] waits
//! for them.
//!
//! ```
//! use std::sync::Arc;
//! use exactly::MemoryStore;
//! use exactly::layer::{IdempotencyLayer, KeyRule, Policy, Principal};
//!
//! // `Principal` was put into the request's extensions by your authentication, which runs before.
//! let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new()))
//!     .principal(|parts| parts.extensions.get::<Principal>().cloned())
//!     .policy(Policy::playbook().key(KeyRule::Required))
//!     .build()?;
//! # Ok::<_, exactly::layer::ConfigErrors>(())
//! ```

mod answer;
mod body;
mod config;
mod exchange;
mod policy;
mod problem;
mod recent;
mod reply;
mod request;
mod route;
mod seal;
mod transaction;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tokio_util::task::TaskTracker;
use tower_layer::Layer;
use tower_service::Service;

pub use self::body::{Body, BoxError};
use self::config::PrincipalRule;
pub use self::config::{Builder, ConfigError, ConfigErrors, Principal};
use self::exchange::Exchange;
pub use self::policy::{Guarantee, IDEMPOTENCY_KEY, KeyRule, Policy, Statuses};
pub use self::problem::{Problem, Renderer};
use self::problem::{Refusal, Render};
use self::recent::Recent;
pub use self::reply::{IDEMPOTENCY_EXPIRES, IDEMPOTENCY_RETRYABLE, IDEMPOTENCY_STATUS, NothingHappened};
use self::request::Keyed;
use self::route::Route;
pub use self::seal::KeyRing;
use self::transaction::Transactions;
pub use self::transaction::TxSlot;
use crate::gate::Gate;
use crate::once::{Ending, Once};
use crate::{CallId, Claim, Fenced, Key, Store, StoreError, telemetry};

/// Makes the requests of a service safe to repeat. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct IdempotencyLayer {
    shared: Arc<Shared>,
    policy: Arc<Policy>,
}

/// The middleware that [`IdempotencyLayer`] makes.
#[derive(Clone, Debug)]
pub struct Idempotency<S> {
    inner: S,
    layer: IdempotencyLayer,
}

/// What a handler can know about the call that it carries out, from the request's extensions.
#[derive(Clone, Debug)]
pub struct CallInfo {
    /// The key that the client sent. Hand it on to a provider that takes keys of its own.
    pub key: Key,
    /// The claim, whose token fences effects elsewhere and whose attempt says whether this is a rerun.
    pub claim: Claim,
}

/// What came of an attempt that was in doubt.
#[derive(Debug)]
pub enum Settlement {
    /// It happened, and this is the answer that every repetition gets.
    Happened(Response<Bytes>),
    /// It did not happen: the next request runs it.
    DidNotHappen,
}

#[derive(Debug)]
struct Shared {
    once: Once,
    transactions: Option<Arc<dyn Transactions>>,
    routes: Vec<Route>,
    principal: PrincipalRule,
    render: Render,
    settle_link: Option<Arc<str>>,
    tasks: TaskTracker,
    /// Duplicates of a transaction wait here, in memory, so that at most one connection per process ever waits inside
    /// the database for a key.
    gate: Gate<CallId>,
    recent: Recent,
}

impl IdempotencyLayer {
    /// A layer whose records are in `store`.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder::new(store, None)
    }

    /// A layer whose routes can be [`Transactional`](Guarantee::Transactional): record and effect commit together.
    pub fn transactional<S: crate::TransactionalStore>(store: Arc<S>) -> Builder {
        let transactions = transaction::StoreTransactions(Arc::clone(&store));
        Builder::new(store, Some(Arc::new(transactions)))
    }

    /// The same layer with another policy, for a single route or router.
    pub fn with_policy(&self, policy: Policy) -> Result<Self, ConfigErrors> {
        config::check(policy.faults("this route", self.shared.transactions.is_some()))?;
        Ok(Self {
            shared: Arc::clone(&self.shared),
            policy: Arc::new(policy),
        })
    }

    /// Ends a doubt on a route with this layer's policy: someone found out what came of the attempt with `claim`.
    /// `Superseded`: it was settled otherwise, by its owner or by somebody else.
    pub async fn settle(&self, claim: &Claim, settlement: Settlement) -> Result<Fenced, StoreError> {
        let ending = match settlement {
            Settlement::DidNotHappen => Ending::DidNotHappen,
            Settlement::Happened(answer) => {
                let (parts, body) = answer.into_parts();
                let kept = (body.len() <= self.policy.answer_max).then_some(&body);
                Ending::Happened(answer::encode(
                    &self.policy,
                    &claim.id,
                    parts.status,
                    &parts.headers,
                    kept,
                ))
            }
        };
        self.shared.once.settle(claim, ending, self.policy.keep).await
    }

    /// Waits until no handler runs any more, including those whose clients have hung up. Call it after the server has
    /// stopped accepting requests; handlers that are started later are waited for too.
    pub async fn drain(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.tasks.reopen();
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency {
            inner,
            layer: self.clone(),
        }
    }
}

impl<S, B, R> Service<Request<B>> for Idempotency<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The instance that is ready goes along; the clone gets ready for the next request.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(respond(self.layer.clone(), inner, request))
    }
}

async fn respond<S, B, R>(layer: IdempotencyLayer, inner: S, request: Request<B>) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let shared = layer.shared;
    let (parts, body) = request.into_parts();
    let (policy, route) = route::find(&shared.routes, &layer.policy, &parts);
    let policy = Arc::clone(policy);
    let refuse = |refusal: Refusal<'_>| Ok(shared.render.render(&refusal.problem(&policy)));

    let mut key = match request::key_of_headers(&policy, &parts.method, &parts.headers) {
        Ok(Keyed::Key(key)) => Some(key),
        Ok(Keyed::InBody) => None,
        Ok(Keyed::Unkeyed) => {
            let request = Request::from_parts(parts, Body::stream(body));
            return exchange::unkeyed(shared, policy, inner, request).await;
        }
        Err(refusal) => return refuse(refusal),
    };
    let principal = match shared.principal.of(&parts) {
        Ok(principal) => principal,
        Err(refusal) => return refuse(refusal),
    };
    let body = match request::read_body(&policy, body).await {
        Ok(body) => body,
        Err(refusal) => return refuse(refusal),
    };
    if key.is_none() {
        key = match request::key_of_body(&policy, &body) {
            Ok(key) => key,
            Err(refusal) => return refuse(refusal),
        };
    }
    let Some(key) = key else {
        let request = Request::from_parts(parts, Body::from(body));
        return exchange::unkeyed(shared, policy, inner, request).await;
    };

    telemetry::count(telemetry::KEYED_REQUESTS);
    let call = request::call(&policy, &route, principal, key, &parts, &body);
    let request = Request::from_parts(parts, Body::from(body));
    let exchange = Exchange {
        shared,
        policy,
        call,
        inner,
        request,
    };
    match exchange.policy.guarantee {
        Guarantee::Transactional => exchange.transactional().await,
        Guarantee::AtMostOnce | Guarantee::Rerunnable => exchange.leased().await,
    }
}
