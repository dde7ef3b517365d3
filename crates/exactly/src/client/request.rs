//! Putting a call together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::Body;
use serde::Serialize;

use super::Client;
use super::account::{Account, Attempt};
use super::error::{Error, ErrorKind};
use super::frozen::{Frozen, OnAttempt, Payload, spelled};
use super::outcome::{NotApplied, Outcome, Unknown};
use super::pending::Pending;
use super::wire::is_safe;
use crate::Key;
use crate::key::{KeyFormat, KeySyntax};
use crate::retry::{Class, Policy};

/// A call in the making: [`send`](Self::send) carries it out.
///
/// What is malformed is told by the outcome, as not applied; for a call that was sent before, as unknown.
#[must_use = "a call is made by `send`"]
pub struct RequestBuilder {
    client: Client,
    method: Method,
    url: String,
    headers: HeaderMap,
    payload: Payload,
    key: Option<Arc<str>>,
    was_sent: bool,
    is_straight: bool,
    operation: Option<String>,
    policy: Policy,
    on_attempt: OnAttempt,
    error: Option<Error>,
}

impl RequestBuilder {
    pub(super) fn new(client: Client, method: Method, url: String, policy: Policy) -> Self {
        Self {
            client,
            method,
            url,
            headers: HeaderMap::new(),
            payload: Payload::Whole(Bytes::new()),
            key: None,
            was_sent: false,
            is_straight: false,
            operation: None,
            policy,
            on_attempt: OnAttempt::default(),
            error: None,
        }
    }

    /// Adds a header. One that is marked sensitive stays with the origin of the URL.
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        let name = name.try_into().map_err(Into::into);
        let value = value.try_into().map_err(Into::into);
        match name.and_then(|name| value.map(|value| (name, value))) {
            Ok((name, value)) => _ = self.headers.append(name, value),
            Err(error) => self.refuse(Error::caused(ErrorKind::Invalid, "add a header", error)),
        }
        self
    }

    /// Says who is calling, by an `Authorization: Bearer` header.
    pub fn bearer(self, token: &str) -> Self {
        let value = HeaderValue::try_from(format!("Bearer {token}")).map(|mut value| {
            value.set_sensitive(true);
            value
        });
        match value {
            Ok(value) => self.header(header::AUTHORIZATION, value),
            Err(error) => {
                let mut this = self;
                this.refuse(Error::caused(ErrorKind::Invalid, "add the token", error));
                this
            }
        }
    }

    /// Sends `content` as JSON. It is written once, so that every attempt carries the same bytes.
    pub fn json<T: Serialize + ?Sized>(mut self, content: &T) -> Self {
        match serde_json::to_vec(content) {
            Ok(json) => {
                self.payload = Payload::Whole(json.into());
                self.headers
                    .entry(header::CONTENT_TYPE)
                    .or_insert(HeaderValue::from_static("application/json"));
            }
            Err(error) => self.refuse(Error::caused(ErrorKind::Invalid, "write the content as JSON", error)),
        }
        self
    }

    /// Sends these bytes.
    pub fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        self.payload = Payload::Whole(bytes.into());
        self
    }

    /// Sends a body that is not in memory. It can be sent once only, so such a call is never repeated, not even with a
    /// key: it ends with [`Stop::Unrepeatable`](crate::retry::Stop::Unrepeatable).
    pub fn stream(mut self, body: impl Into<Body>) -> Self {
        self.payload = Payload::Stream(Some(body.into()));
        self
    }

    /// Names the operation by a key of your own. Without one, every POST, PUT, PATCH and DELETE is given a random one.
    pub fn key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Goes on with a call that was sent before under this key, by a process that did not learn what came of it. Unlike a
    /// [`key`](Self::key) of one's own, a refusal then leaves it unknown, because it tells nothing of what was sent before.
    pub fn resume(mut self, key: impl Into<Arc<str>>) -> Self {
        self.was_sent = true;
        self.key(key)
    }

    /// Goes nowhere else than to its address: an answer that points elsewhere is the answer.
    pub fn straight(mut self) -> Self {
        self.is_straight = true;
        self
    }

    /// Names the operation for the journal: after a restart, the same name goes on with the same key.
    pub fn operation(mut self, name: impl Into<String>) -> Self {
        self.operation = Some(name.into());
        self
    }

    /// Repeats it as this class of work is.
    pub fn class(mut self, class: Class) -> Self {
        self.policy = Policy::of(class);
        self
    }

    /// Repeats it as this says.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Gives it this much time in all.
    pub fn within(mut self, total: Duration) -> Self {
        self.policy.total = total;
        self
    }

    /// Repeats it at most so often.
    pub fn retries(mut self, max: u32) -> Self {
        self.policy.retries_max = max;
        self
    }

    /// Gives each attempt this much time.
    pub fn attempt_within(mut self, attempt: Duration) -> Self {
        self.policy.attempt = attempt;
        self
    }

    /// Tells of every attempt as soon as it is over, and how long is waited before the next one. It is called between
    /// attempts, so whatever takes long in it delays the call.
    pub fn on_attempt(mut self, told: impl Fn(&Attempt, Option<Duration>) + Send + Sync + 'static) -> Self {
        self.on_attempt = OnAttempt(Some(Arc::new(told)));
        self
    }

    /// Carries it out. Dropping the returned future gives up on learning the outcome, which is unknown from then on; a
    /// journal keeps it as such.
    pub async fn send(mut self) -> Outcome {
        let error = self.error.take();
        let client = self.client.clone();
        // Whoever had it before us may have sent it without this mistake.
        let is_resumed = self.was_sent || self.operation.is_some();
        let (answer, account) = (None, Account::default());
        match error.map_or_else(|| self.freeze(), Err) {
            Ok(call) => Pending::new(client, call).send().await,
            Err(error) if is_resumed => Outcome::Unknown(Unknown {
                answer,
                error: Some(error),
                account,
                pending: None,
            }),
            Err(error) => Outcome::NotApplied(NotApplied {
                answer,
                error: Some(error),
                account,
            }),
        }
    }

    fn freeze(self) -> Result<Frozen, Error> {
        let url = self.client.address(self.url)?;
        let key_header = self.client.key_header().clone();
        let mut headers = self.headers;
        let is_key_sent = secure(&mut headers, &key_header)?;
        let given = match self.key {
            Some(key) => Some(Key::new(key)),
            None if is_key_sent => {
                let lines = headers.get_all(&key_header).iter().map(HeaderValue::as_bytes);
                Key::from_header(lines, KeySyntax::Lenient).transpose()
            }
            None => None,
        };
        let given = given
            .transpose()
            .map_err(|error| Error::caused(ErrorKind::Invalid, "use the key", error))?;
        let is_key_given = given.is_some();
        let key = given.or_else(|| (!is_safe(&self.method)).then(fresh_key));
        if let Some(key) = &key {
            headers.insert(key_header.clone(), spelled(key)?);
        }
        Ok(Frozen {
            method: self.method,
            url,
            headers,
            payload: self.payload,
            key,
            is_key_given,
            was_sent: self.was_sent,
            is_straight: self.is_straight,
            key_header,
            operation: self.operation,
            policy: self.policy,
            on_attempt: self.on_attempt,
        })
    }

    /// Keeps the first mistake, which explains the others.
    fn refuse(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }
}

/// Keeps credentials out of what is printed, refuses what would make the body shorter or longer than it is, and tells whether
/// there is a key. In one pass, because every call goes through it.
fn secure(headers: &mut HeaderMap, key_header: &HeaderName) -> Result<bool, Error> {
    let mut is_key_sent = false;
    for (name, value) in headers {
        if [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION].contains(name) {
            value.set_sensitive(true);
        } else if [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].contains(name) {
            let context = format!("add the header {name}: how long the body is follows from the body");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        is_key_sent |= name == key_header;
    }
    Ok(is_key_sent)
}

/// Without the key, the address and the content, which are the caller's secrets.
impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBuilder")
            .field("method", &self.method)
            .field("operation", &self.operation)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// A key that nobody has used: a random UUID, which every route accepts. For callers who write it down before they call.
pub fn fresh_key() -> Key {
    let text = uuid::Uuid::new_v4().hyphenated().to_string();
    let key = Key::new(text).expect("a UUID is 36 visible characters");
    debug_assert!(KeyFormat::UuidV4.check(key.clone()).is_ok(), "every route accepts it");
    key
}
