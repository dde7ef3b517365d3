//! A tower layer that makes requests safe to repeat.
//!
//! A client that sends `Idempotency-Key` may repeat its request after a double click, a time-out or a crash: the handler
//! runs once, and every repetition gets the first answer, byte for byte. It differs from a response cache in what it
//! does when it does not know: a claim is durable before the handler starts, every later write is fenced, and an attempt
//! that was lost half way is reported as in doubt instead of being guessed about.
//!
//! A client that hangs up does not cancel the work, because the effect may be half done and its outcome must be recorded
//! either way: the handler goes on in a task of its own. On shutdown, [`IdempotencyLayer::drain`] waits
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
mod detached;
mod exchange;
mod fate;
mod held;
mod host;
mod joined;
mod log;
mod member;
mod policy;
mod problem;
mod recent;
mod reconcile;
mod reply;
mod request;
mod route;
mod seal;
mod transaction;
mod unkeyed;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, header};
use http_body::Body as HttpBody;
use tokio_util::task::TaskTracker;
use tower_layer::Layer;
use tower_service::Service;

pub use self::body::{Body, BoxError};
pub use self::config::{Builder, ConfigError, ConfigErrors, Principal};
use self::config::{Patience, PrincipalRule};
use self::exchange::Exchange;
use self::held::Held;
pub use self::joined::{EXACTLY_CALL, EXACTLY_KEEP, EXACTLY_TOKEN};
pub use self::policy::{Guarantee, IDEMPOTENCY_KEY, KeyRule, Policy, Statuses};
use self::problem::Render;
pub use self::problem::{Problem, Renderer};
use self::recent::Recent;
pub use self::reconcile::{Doubt, Found, Reconciled, Telling};
pub use self::reply::{
    IDEMPOTENCY_EXPIRES, IDEMPOTENCY_RETRYABLE, IDEMPOTENCY_STATUS, NothingHappened, OutcomeUnknown,
};
use self::request::Asked;
use self::route::Route;
pub use self::seal::KeyRing;
use self::transaction::Transactions;
pub use self::transaction::TxSlot;
use crate::gate::Gate;
use crate::once::Once;
use crate::{CallId, Claim, Fenced, Keep, Key, Store, StoreError, telemetry};

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
    /// The key that the client sent. Two callers may send the same one, so it names the operation for this caller only.
    pub key: Key,
    /// The claim. Its id is unique to the operation: hand it on to a provider that takes keys of its own. Its token
    /// fences effects elsewhere, and its attempt says whether an earlier one was lost.
    pub claim: Claim,
    /// On a [`Joined`](Guarantee::Joined) route, how long the upstream's answer is to be kept.
    pub joined: Option<Keep>,
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
    held: Held,
    patience: Patience,
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
        let mut faults = policy.faults("this route", self.shared.transactions.is_some());
        faults.extend(config::too_little_held(self.shared.held.max(), [&policy].into_iter()));
        config::check(faults)?;
        Ok(Self {
            shared: Arc::clone(&self.shared),
            policy: Arc::new(policy),
        })
    }

    /// Ends a doubt on a route with this layer's policy: someone found out what came of the attempt with `claim`.
    /// `Superseded`: it was settled otherwise, by its owner or by somebody else.
    pub async fn settle(&self, claim: &Claim, settlement: Settlement) -> Result<Fenced, StoreError> {
        let ending = reconcile::encode(&self.policy, claim, &settlement);
        self.shared.once.settle(claim, ending, self.policy.keep).await
    }

    /// Waits until no handler runs any more, including those whose clients have hung up, and every outcome is stored or
    /// given up. Call it after the server has stopped accepting requests; handlers that are started later are waited for
    /// too. With the store down it can take ten minutes, so give it a deadline of your own.
    pub async fn drain(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.tasks.reopen();
        self.shared.once.drain().await;
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
        let (parts, body) = request.into_parts();
        Box::pin(respond(self.layer.clone(), inner, Box::new(parts), body))
    }
}

// What is large is boxed, and so is every further way that a request can go: a future with room for all of it would be
// copied from place to place, and is more than allocators hand out without a lock.
async fn respond<S, B, R>(
    layer: IdempotencyLayer,
    inner: S,
    parts: Box<Parts>,
    body: B,
) -> Result<Response<Body>, S::Error>
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
    let (policy, route) = route::find(&shared.routes, &layer.policy, &parts);
    let policy = Arc::clone(policy);
    // Browsers say where a script comes from, and hide from it what is not exposed.
    let from_script = parts.headers.contains_key(header::ORIGIN);
    let expose = |response| if from_script { reply::expose(response) } else { response };
    match request::ask(&policy, &shared, route, &parts, body).await {
        Err(refusal) => Ok(expose(shared.refuse(&policy, refusal))),
        Ok(Asked::Nothing(body)) => {
            let request = Request::from_parts(*parts, body);
            Box::pin(unkeyed::pass_on(shared, policy, inner, request)).await
        }
        Ok(Asked::Call(call, body)) => {
            telemetry::count(telemetry::KEYED_REQUESTS);
            let request = Request::from_parts(*parts, Body::from(body));
            let exchange = Box::new(Exchange {
                shared,
                policy,
                call,
                inner,
                request,
            });
            let answered = match exchange.policy.guarantee {
                Guarantee::Transactional => Box::pin(exchange.transactional()).await,
                Guarantee::AtMostOnce | Guarantee::Rerunnable | Guarantee::Joined => Box::pin(exchange.leased()).await,
            };
            answered.map(expose)
        }
    }
}
