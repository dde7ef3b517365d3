//! The layer in front of a proxy: any service gets the contract by being behind it.

mod authorize;
mod correlation;
mod credentials;
mod forward;
mod idle;
mod line;
pub(crate) mod meter;
mod pool;
mod problem;
mod proxy;
mod reconcile;
mod upgrade;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use exactly::Operate;
use exactly::layer::{Body, ConfigErrors, Idempotency, IdempotencyLayer, Policy};
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;
use tower::Layer as _;
use tower_service::Service as _;
use tracing::Instrument as _;

use self::authorize::Authorize;
use self::idle::Watched;
use self::meter::InFlight;
pub(crate) use self::proxy::Peer;
use self::proxy::Proxy;
pub(crate) use self::upgrade::Place;
use crate::config::{Config, Route, Upstream};

/// Passes requests on to the upstream, those with a key at most once. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    layer: IdempotencyLayer,
    proxy: Proxy,
    service: Idempotency<Proxy>,
    authorize: Option<Authorize>,
    body_idle: Duration,
}

impl Gateway {
    /// A gateway whose records are in `store`.
    pub(crate) fn new(config: &Config, upstream: &Upstream, store: &Arc<dyn Operate>) -> Result<Self, ConfigErrors> {
        let proxy = Proxy::new(upstream, &config.timeouts);
        let credentials = config.credentials.clone();
        let records = Arc::clone(store);
        let mut builder = IdempotencyLayer::builder(records)
            .policy(config.default_policy.clone())
            .held_max(config.held_max)
            .request_within(config.timeouts.request)
            .answer_within(config.timeouts.answer);
        builder = if credentials.global {
            builder.global_keys()
        } else {
            builder.principal(move |parts| Some(credentials::principal(&credentials, parts)))
        };
        if let Some(link) = &config.settle_link {
            builder = builder.settle_link(link.as_str());
        }
        for route in &config.routes {
            let policy = Self::policy(route, &proxy, store);
            builder = builder.route(route.method.clone(), &route.path, policy);
        }
        let layer = builder.build()?;
        Ok(Self {
            service: layer.layer(proxy.clone()),
            authorize: config.authorize.clone().map(|path| Authorize::new(path, proxy.clone())),
            proxy,
            layer,
            body_idle: config.timeouts.body,
        })
    }

    fn policy(route: &Route, proxy: &Proxy, store: &Arc<dyn Operate>) -> Policy {
        match &route.reconcile {
            None => route.policy.clone(),
            Some(probe) => reconcile::asking(route.policy.clone(), probe.clone(), proxy.clone(), Arc::clone(store)),
        }
    }

    /// The layer, to settle and to drain its calls.
    pub(crate) fn layer(&self) -> &IdempotencyLayer {
        &self.layer
    }

    /// The same gateway with connections of its own, for a thread that shares none with others.
    #[must_use]
    pub(crate) fn with_own_lines(&self) -> Self {
        let proxy = self.proxy.with_own_lines();
        Self {
            service: self.layer.layer(proxy.clone()),
            authorize: self.authorize.as_ref().map(|authorize| authorize.over(proxy.clone())),
            proxy,
            ..self.clone()
        }
    }

    /// Closes connections to the upstream that nobody uses.
    pub(crate) fn prune(&self) {
        self.proxy.prune();
    }

    /// Answers one request. Never fails: what goes wrong is an answer too.
    pub(crate) async fn answer(self, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let _in_flight = InFlight::start();
        let id = correlation::name(&mut request);
        let span = correlation::span(&request, &id);
        let begun = (!span.is_disabled()).then(Instant::now);
        let mut response = self.respond(request).instrument(span.clone()).await?;
        meter::answer(response.status());
        if let Some(begun) = begun {
            correlation::close(&span, response.status(), begun.elapsed());
        }
        correlation::tell(id, response.headers_mut());
        Ok(response)
    }

    async fn respond(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        if let Some(refusal) = problem::unsupported(&request) {
            return Ok(refusal);
        }
        if let Some(authorize) = &self.authorize
            && let Err(refusal) = authorize.check(&request).await
        {
            return Ok(refusal);
        }
        let idle = self.body_idle;
        self.service.call(request.map(|body| Watched::new(body, idle))).await
    }
}
