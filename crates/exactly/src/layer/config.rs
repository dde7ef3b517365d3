//! Putting a layer together, with every mistake told at once.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, Response};
use tokio_util::task::TaskTracker;

use super::held::Held;
use super::policy::KeyRule;
use super::problem::{Problem, Refusal, Render};
use super::recent::Recent;
use super::route::Route;
use super::transaction::Transactions;
use super::{Body, IdempotencyLayer, Policy, Shared};
use crate::Store;
use crate::gate::Gate;
use crate::once::{Limits, Once};

/// The authenticated caller: the one whose key it is. Never anything that a client can simply claim to be.
///
/// A type of its own, so that authentication can put it into the request's extensions.
#[derive(Clone, PartialEq, Eq)]
pub struct Principal(Arc<str>);

impl Principal {
    /// The caller that your authentication calls `name`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    pub(super) fn into_name(self) -> Arc<str> {
        self.0
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Principal(…)")
    }
}

/// Builds an [`IdempotencyLayer`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    store: Arc<dyn Store>,
    transactions: Option<Arc<dyn Transactions>>,
    principal: Option<PrincipalRule>,
    policy: Policy,
    routes: Vec<Route>,
    limits: Limits,
    render: Render,
    settle_link: Option<Arc<str>>,
    held_max: usize,
    patience: Patience,
}

/// How long bodies that are read whole may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) request: Duration,
    pub(super) answer: Duration,
}

impl Builder {
    /// What [`held_max`](Self::held_max) is unless told otherwise: 256 MiB.
    pub const HELD_MAX_DEFAULT: usize = 256 * 1024 * 1024;
    /// What [`request_within`](Self::request_within) is unless told otherwise: a minute.
    pub const REQUEST_WITHIN_DEFAULT: Duration = Duration::from_mins(1);
    /// What [`answer_within`](Self::answer_within) is unless told otherwise: five minutes.
    pub const ANSWER_WITHIN_DEFAULT: Duration = Duration::from_mins(5);

    pub(super) fn new(store: Arc<dyn Store>, transactions: Option<Arc<dyn Transactions>>) -> Self {
        Self {
            store,
            transactions,
            principal: None,
            policy: Policy::default(),
            routes: Vec::new(),
            limits: Limits::default(),
            render: Render::default(),
            settle_link: None,
            held_max: Self::HELD_MAX_DEFAULT,
            patience: Patience {
                request: Self::REQUEST_WITHIN_DEFAULT,
                answer: Self::ANSWER_WITHIN_DEFAULT,
            },
        }
    }

    /// How to tell who sent a request. Where it says `None`, or gives a name that is empty, a request with a key is
    /// refused: without a caller, one person's key would open another's answer.
    pub fn principal(mut self, of: impl Fn(&Parts) -> Option<Principal> + Send + Sync + 'static) -> Self {
        self.principal = Some(PrincipalRule::By(Arc::new(of)));
        self
    }

    /// All callers share their keys, and whoever knows a key can see its answer. For services with one user.
    pub fn global_keys(mut self) -> Self {
        self.principal = Some(PrincipalRule::Global);
        self
    }

    /// The policy of requests that no [`route`](Self::route) matches.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The policy of one route, by method and path pattern: `/refunds`, `/orders/{id}/lines`, `/files/{*path}`. It is
    /// matched with the path that the client sent, also inside a nested router. The first match counts.
    pub fn route(mut self, method: Method, pattern: &str, policy: Policy) -> Self {
        self.routes.push(Route::new(method, pattern, policy));
        self
    }

    /// The bounds on what the layer holds and how long it tries.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The most bytes of requests and answers with a key that are in memory at one time, beside 16 KiB for each. While
    /// there are more, further ones are refused as `TRANSIENT.overloaded`, with nothing done. At least as many as one
    /// request may have.
    pub fn held_max(mut self, bytes: usize) -> Self {
        self.held_max = bytes;
        self
    }

    /// How long the body of a request with a key may take to come in. However steadily it drips, it holds a place; a later
    /// one is refused with 408, and nothing is done.
    pub fn request_within(mut self, time: Duration) -> Self {
        self.patience.request = time;
        self
    }

    /// How long the body of an answer to a request with a key may take, from its head on. A later one has broken off: what
    /// came of the request is not known.
    pub fn answer_within(mut self, time: Duration) -> Self {
        self.patience.answer = time;
        self
    }

    /// How refusals look.
    pub fn render(mut self, render: impl Fn(&Problem) -> Response<Body> + Send + Sync + 'static) -> Self {
        self.render = Render::new(Arc::new(render));
        self
    }

    /// Where calls in doubt are settled: a URL that the call's id is appended to.
    pub fn settle_link(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.settle_link = Some(prefix.into());
        self
    }

    /// The layer, or everything that is wrong with it.
    pub fn build(self) -> Result<IdempotencyLayer, ConfigErrors> {
        let has_transactions = self.transactions.is_some();
        let mut faults = self.policy.faults("default", has_transactions);
        for route in &self.routes {
            faults.extend(route.fault());
            faults.extend(route.policy.faults(&route.name(), has_transactions));
        }
        if self.principal.is_none() {
            let accepted = "principal(…), or global_keys() if all callers may share their keys and answers";
            faults.push(ConfigError::new("layer", "principal", "nothing", accepted));
        }
        for (limit, value, accepted) in self.limits.faults() {
            let accepted = format!("{:?} to {:?}", accepted.start(), accepted.end());
            faults.push(ConfigError::new("limits", limit, &format!("{value:?}"), &accepted));
        }
        let policies = self.routes.iter().map(|route| &*route.policy).chain([&self.policy]);
        faults.extend(too_little_held(self.held_max, policies));
        faults.extend(self.patience.faults());
        check(faults)?;
        let shared = Shared {
            once: Once::with_limits(self.store, self.limits),
            transactions: self.transactions,
            routes: self.routes,
            principal: self.principal.expect("a layer without a principal was refused above"),
            render: self.render,
            settle_link: self.settle_link,
            tasks: TaskTracker::new(),
            gate: Gate::default(),
            recent: Recent::default(),
            held: Held::new(self.held_max),
            patience: self.patience,
        };
        Ok(IdempotencyLayer {
            shared: Arc::new(shared),
            policy: Arc::new(self.policy),
        })
    }
}

impl Patience {
    fn faults(self) -> impl Iterator<Item = ConfigError> {
        const ACCEPTED: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(24);
        let both = [("request_within", self.request), ("answer_within", self.answer)];
        let wrong = both.into_iter().filter(|(_, time)| !ACCEPTED.contains(time));
        wrong.map(|(key, time)| ConfigError::new("layer", key, &format!("{time:?}"), "1 ms to 24 h"))
    }
}

/// What is wrong with a bound on all bodies together that is less than one may have: there is never room for it.
pub(super) fn too_little_held<'p>(held_max: usize, policies: impl Iterator<Item = &'p Policy>) -> Option<ConfigError> {
    let keyed = policies.filter(|policy| policy.key != KeyRule::Off);
    let largest = keyed.map(|policy| policy.body_max).max().unwrap_or_default().max(1);
    (held_max < largest).then(|| {
        let accepted = format!("at least {largest}, the largest body_max");
        ConfigError::new("layer", "held_max", &held_max.to_string(), &accepted)
    })
}

type PrincipalOf = dyn Fn(&Parts) -> Option<Principal> + Send + Sync;

/// Who a key belongs to.
#[derive(Clone)]
pub(super) enum PrincipalRule {
    Global,
    By(Arc<PrincipalOf>),
}

impl PrincipalRule {
    /// The caller; `None` if keys are shared by all.
    pub(super) fn of(&self, parts: &Parts) -> Result<Option<Principal>, Refusal<'static>> {
        match self {
            Self::Global => Ok(None),
            Self::By(of) => match of(parts) {
                Some(principal) if !principal.0.is_empty() => Ok(Some(principal)),
                _ => Err(Refusal::NoPrincipal),
            },
        }
    }
}

impl fmt::Debug for PrincipalRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "Global",
            Self::By(_) => "By(…)",
        })
    }
}

/// One setting that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    route: String,
    key: String,
    value: String,
    accepted: String,
}

impl ConfigError {
    pub(super) fn new(route: &str, key: &str, value: &str, accepted: &str) -> Self {
        Self {
            route: route.into(),
            key: key.into(),
            value: value.into(),
            accepted: accepted.into(),
        }
    }

    /// The setting.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What it may be instead.
    pub fn accepted(&self) -> &str {
        &self.accepted
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            route,
            key,
            value,
            accepted,
        } = self;
        write!(f, "{route}: {key} is {value}, accepted is {accepted}")
    }
}

/// Everything that is wrong with a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&faults.join("; "))
    }
}

impl std::error::Error for ConfigErrors {}

pub(super) fn check(faults: Vec<ConfigError>) -> Result<(), ConfigErrors> {
    if faults.is_empty() {
        Ok(())
    } else {
        Err(ConfigErrors(faults))
    }
}
