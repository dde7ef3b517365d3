//! The caller's half of the contract: one key per operation, the same bytes on every attempt, and an outcome that says what
//! is known.
//!
//! Unlike a client with retries bolted on, this one never makes a second operation out of a first one: the key is made
//! once, before the first byte, and kept over every attempt, redirect and restart. And it does not call a lost answer a
//! failure: [`Outcome::Unknown`] is its own ending, with [`Unknown::resolve`] to find out.
//!
//! ```no_run
//! # async fn refund() -> Result<(), exactly::client::Failure> {
//! use exactly::client::{Client, Outcome};
//!
//! let client = Client::new();
//! let outcome = client
//!     .post("https://payments.example/refunds")
//!     .json(&serde_json::json!({ "charge_id": "ch_9ab", "amount": 1000 }))
//!     .send()
//!     .await;
//! match outcome {
//!     Outcome::Applied(applied) => println!("refunded: {}", applied.answer().text()),
//!     Outcome::NotApplied(not) => println!("not refunded, and it is safe to say so: {:?}", not.answer()),
//!     // Not "failed": the money may have moved. The same key finds out.
//!     Outcome::Unknown(unknown) => println!("now known: {}", unknown.resolve().await.applied()?.status()),
//! }
//! # Ok(()) }
//! ```
//!
//! Who has a client already puts the same engine around it: [`RetryLayer`] for tower services, `RetryMiddleware` (feature
//! `client-middleware`) for `reqwest-middleware`.

mod account;
mod around;
mod engine;
mod error;
mod frozen;
mod heard;
pub mod journal;
mod keys;
mod layer;
#[cfg(feature = "client-middleware")]
mod middleware;
mod outcome;
mod pending;
mod request;
pub(crate) mod sending;
#[cfg(feature = "client-tls")]
pub(crate) mod tls;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderName, Method};
use reqwest::Url;

pub use self::account::{Account, Attempt};
pub use self::around::NoAnswer;
use self::engine::Engine;
pub use self::error::{Error, ErrorKind};
pub use self::journal::Journal;
use self::keys::UsedKeys;
pub use self::layer::{AnswerBody, Retry, RetryLayer};
#[cfg(feature = "client-middleware")]
pub use self::middleware::RetryMiddleware;
pub use self::outcome::{Answer, Applied, Failure, NotApplied, Outcome, Unknown};
pub use self::request::{RequestBuilder, fresh_key};
pub use self::wire::is_safe;
use crate::retry::{BudgetLimits, Budgets, Class, Policy};

const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// How long servers keep a key that do not say otherwise.
const KEY_LIFETIME_DEFAULT: Duration = Duration::from_hours(24);
const ANSWER_BYTES_MAX_DEFAULT: usize = 16 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes calls that happen once. Cheap to clone; clones share connections, budgets and what they know of keys.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    http: reqwest::Client,
    /// Nobody changed how connections are made.
    is_plain: bool,
    engine: Engine,
    policy: Policy,
    key_header: HeaderName,
    key_lifetime: Duration,
    answer_bytes_max: usize,
    used_keys: UsedKeys,
    journal: Option<Arc<dyn Journal>>,
    /// The address that was called last, as it was given and as it was read: most callers have few, and reading one costs
    /// more than the rest of putting a call together.
    last_address: Mutex<Option<(String, Url)>>,
}

/// Puts a [`Client`] together.
#[must_use = "a client is made by `build`"]
pub struct ClientBuilder {
    http: reqwest::ClientBuilder,
    is_plain: bool,
    policy: Policy,
    budget: BudgetLimits,
    key_header: HeaderName,
    key_lifetime: Duration,
    answer_bytes_max: usize,
    journal: Option<Arc<dyn Journal>>,
    random: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
}

impl Client {
    /// A client for calls that somebody waits for: 3 retries within 10 seconds.
    ///
    /// Panics if the system's TLS cannot be set up; [`builder`](Self::builder) tells instead.
    pub fn new() -> Self {
        Self::builder().build().expect("the defaults are accepted")
    }

    /// Puts a client together.
    pub fn builder() -> ClientBuilder {
        let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT);
        #[cfg(feature = "client-tls")]
        let http = http.tls_backend_preconfigured(tls::by_default());
        ClientBuilder {
            http,
            is_plain: true,
            policy: Policy::of(Class::UserFacing),
            budget: BudgetLimits::default(),
            key_header: KEY_HEADER,
            key_lifetime: KEY_LIFETIME_DEFAULT,
            answer_bytes_max: ANSWER_BYTES_MAX_DEFAULT,
            journal: None,
            random: None,
        }
    }

    /// A call with any method.
    pub fn request(&self, method: Method, url: impl Into<String>) -> RequestBuilder {
        RequestBuilder::new(self.clone(), method, url.into(), self.0.policy.clone())
    }

    /// A call that makes something.
    pub fn post(&self, url: impl Into<String>) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// A call that puts something in its place.
    pub fn put(&self, url: impl Into<String>) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// A call that changes something.
    pub fn patch(&self, url: impl Into<String>) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// A call that takes something away.
    pub fn delete(&self, url: impl Into<String>) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// A call that changes nothing, and needs no key.
    pub fn get(&self, url: impl Into<String>) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    fn http(&self) -> &reqwest::Client {
        &self.0.http
    }

    fn is_plain(&self) -> bool {
        self.0.is_plain
    }

    fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// The address of a call, or what is wrong with it.
    fn address(&self, text: String) -> Result<Url, Error> {
        let mut last = self.0.last_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, url)) = &*last
            && *known == text
        {
            return Ok(url.clone());
        }
        let url = frozen::address(&text)?;
        *last = Some((text, url.clone()));
        Ok(url)
    }

    fn key_header(&self) -> &HeaderName {
        &self.0.key_header
    }

    fn key_lifetime(&self) -> Duration {
        self.0.key_lifetime
    }

    fn answer_bytes_max(&self) -> usize {
        self.0.answer_bytes_max
    }

    fn used_keys(&self) -> &UsedKeys {
        &self.0.used_keys
    }

    fn journal(&self) -> Option<&Arc<dyn Journal>> {
        self.0.journal.as_ref()
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl ClientBuilder {
    /// Repeats calls as this class of work is.
    pub fn class(mut self, class: Class) -> Self {
        self.policy = Policy::of(class);
        self
    }

    /// Repeats calls as this says.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How many retries each destination is given.
    pub fn budget(mut self, limits: BudgetLimits) -> Self {
        self.budget = limits;
        self
    }

    /// The header that carries the key, for servers that know it by another name than `Idempotency-Key`.
    pub fn key_header(mut self, name: HeaderName) -> Self {
        self.key_header = name;
        self
    }

    /// How long a key stands for its call at servers that do not say, 24 hours if nobody does. Past it nothing is sent
    /// again.
    pub fn key_lifetime(mut self, lifetime: Duration) -> Self {
        self.key_lifetime = lifetime;
        self
    }

    /// The longest answer that is read; the rest of a longer one is left out, and the answer says so.
    pub fn answer_bytes_max(mut self, max: usize) -> Self {
        self.answer_bytes_max = max;
        self
    }

    /// Writes every call down before it is sent.
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Changes how connections are made: proxies, certificates, pools. Redirects and retries stay this client's own.
    pub fn http(mut self, change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> Self {
        self.http = change(self.http);
        self.is_plain = false;
        self
    }

    /// Trusts the certificate authorities in this PEM text, and no others. Without it, those of the system.
    #[cfg(feature = "client-tls")]
    pub fn authorities(mut self, pem: &[u8]) -> Result<Self, Error> {
        self.http = self.http.tls_backend_preconfigured(tls::trusting(pem)?);
        Ok(self)
    }

    /// Where the spread of waits comes from; any number, all equally likely. For tests that must not depend on chance.
    pub fn random(mut self, random: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.random = Some(Arc::new(random));
        self
    }

    /// The client. Fails if connections cannot be made as asked.
    pub fn build(self) -> Result<Client, Error> {
        let http = self
            .http
            // What reqwest would do by itself would be neither counted nor waited for, and carry the key anywhere.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()
            .map_err(|error| Error::caused(ErrorKind::Invalid, "set up connections", error))?;
        let mut engine = Engine::new(Arc::new(Budgets::new(self.budget)));
        if let Some(random) = self.random {
            engine = engine.with_random(random);
        }
        Ok(Client(Arc::new(Shared {
            http,
            is_plain: self.is_plain,
            engine,
            policy: self.policy,
            key_header: self.key_header,
            key_lifetime: self.key_lifetime,
            answer_bytes_max: self.answer_bytes_max,
            used_keys: UsedKeys::default(),
            journal: self.journal,
            last_address: Mutex::default(),
        })))
    }
}

/// Without the addresses that were called, which may carry secrets.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("policy", &self.0.policy)
            .field("journal", &self.0.journal)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("policy", &self.policy)
            .field("budget", &self.budget)
            .field("journal", &self.journal)
            .finish_non_exhaustive()
    }
}
