//! Who wants to hear of events, and how.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::queue::Lane;
use crate::webhook::EventType;

/// Where events go.
///
/// Its address and headers are not shown by `Debug`: many a one holds a password.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Endpoint {
    /// What it is known by.
    pub id: EndpointId,
    /// Where to post.
    pub url: String,
    /// What it wants to hear of; everything if there is nothing in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypeFilter>,
    /// What signs what is sent to it. Several while they are rotated.
    pub secrets: Vec<EndpointSecret>,
    /// What is sent beside our own headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How many deliveries are under way to it at once, over all processes.
    pub concurrency: u32,
    /// The most deliveries that a process begins within a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// Whether it gets anything for now.
    pub standing: Standing,
    /// Deliveries that were made before this are to be given up and not sent, because somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard_before_ms: Option<u64>,
}

impl Endpoint {
    /// How many deliveries are under way at once unless it is said otherwise.
    pub const CONCURRENCY_DEFAULT: u32 = 256;
    /// The most that can be said.
    pub const CONCURRENCY_MAX: u32 = 1000;
    /// The most secrets at once.
    pub const SECRETS_MAX: usize = 8;

    /// An endpoint that wants everything, signed by this secret.
    pub fn new(id: EndpointId, url: impl Into<String>, secret: impl Into<String>) -> Self {
        Self {
            id,
            url: url.into(),
            types: Vec::new(),
            secrets: vec![EndpointSecret {
                secret: secret.into(),
                until_ms: None,
            }],
            headers: BTreeMap::new(),
            concurrency: Self::CONCURRENCY_DEFAULT,
            per_second: None,
            standing: Standing::Active,
            discard_before_ms: None,
        }
    }

    /// Whether it wants to hear of such events.
    pub fn wants(&self, event_type: &EventType) -> bool {
        self.types.is_empty() || self.types.iter().any(|filter| filter.takes(event_type))
    }

    /// How many places of workers its deliveries take at once. Fewer than its concurrency if they have to wait for their turns:
    /// those who wait take the places of others.
    pub(super) fn places(&self) -> u32 {
        let paced = self
            .per_second
            .map_or(u32::MAX, |per_second| per_second.saturating_mul(2));
        self.concurrency.min(paced)
    }

    /// The secrets that sign at this moment, the newest first.
    pub fn signs_with(&self, now: Timestamp) -> impl Iterator<Item = &str> {
        let valid = self.secrets.iter().filter(move |secret| secret.signs_at(now));
        valid.map(|secret| secret.secret.as_str())
    }

    /// Whether a delivery that was made then is to be given up.
    pub fn discards(&self, enqueued_at: Timestamp) -> bool {
        self.discard_before_ms
            .is_some_and(|before| enqueued_at.as_millis() < before)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id)
            .field("types", &self.types)
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}

/// What an endpoint is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct EndpointId(Box<str>);

impl EndpointId {
    /// The longest, in bytes.
    pub const BYTES_MAX: usize = 64;

    /// A new one.
    pub fn random() -> Self {
        Self(format!("ep_{}", Uuid::new_v4().simple()).into())
    }

    /// One that somebody has chosen.
    pub fn new(id: impl Into<Box<str>>) -> Result<Self, InvalidEndpoint> {
        let id = id.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=Self::BYTES_MAX).contains(&id.len()) || !id.bytes().all(plain) {
            let most = Self::BYTES_MAX;
            return Err(InvalidEndpoint(format!(
                "{id:?} is no id: use 1 to {most} of a-z, 0-9, _ and -"
            )));
        }
        Ok(Self(id))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The lane of what goes to it.
    pub fn lane(&self) -> Lane {
        Lane::new(format!("endpoint/{self}")).expect("an id is short and has no control characters")
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EndpointId {
    type Err = InvalidEndpoint;

    fn from_str(id: &str) -> Result<Self, InvalidEndpoint> {
        Self::new(id)
    }
}

impl TryFrom<String> for EndpointId {
    type Error = InvalidEndpoint;

    fn try_from(id: String) -> Result<Self, InvalidEndpoint> {
        Self::new(id)
    }
}

impl From<EndpointId> for String {
    fn from(id: EndpointId) -> Self {
        id.0.into()
    }
}

/// A secret, and for how long it still signs.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct EndpointSecret {
    /// As it is given out: `whsec_…` or `whsk_…`.
    pub secret: String,
    /// It signs until then, if it is being replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
}

impl EndpointSecret {
    /// Whether it signs what is sent then.
    pub fn signs_at(&self, now: Timestamp) -> bool {
        self.until_ms.is_none_or(|until| until > now.as_millis())
    }
}

impl fmt::Debug for EndpointSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointSecret")
            .field("until_ms", &self.until_ms)
            .finish_non_exhaustive()
    }
}

/// Whether an endpoint gets anything for now. What it does not get waits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Standing {
    /// It does.
    Active,
    /// Somebody has paused it.
    Paused,
    /// It said that it is gone, or somebody has disabled it.
    Disabled {
        /// Why.
        reason: String,
    },
}

impl Standing {
    /// Whether anything is to be sent.
    pub fn is_active(&self) -> bool {
        *self == Self::Active
    }
}

/// What an endpoint wants to hear of: one type, or with `.*` at the end all that begin so.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct TypeFilter {
    of: EventType,
    and_below: bool,
}

impl TypeFilter {
    /// Whether it takes events of this type.
    pub fn takes(&self, event_type: &EventType) -> bool {
        if self.and_below {
            let rest = event_type.as_str().strip_prefix(self.of.as_str());
            return rest.is_some_and(|rest| rest.starts_with('.'));
        }
        self.of == *event_type
    }
}

impl fmt::Display for TypeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.of, if self.and_below { ".*" } else { "" })
    }
}

impl FromStr for TypeFilter {
    type Err = InvalidEndpoint;

    fn from_str(filter: &str) -> Result<Self, InvalidEndpoint> {
        let (of, and_below) = match filter.strip_suffix(".*") {
            Some(of) => (of, true),
            None => (filter, false),
        };
        match EventType::new(of) {
            Ok(of) => Ok(Self { of, and_below }),
            Err(_) => Err(InvalidEndpoint(format!(
                "{filter:?} filters no event types: use one, as `invoice.paid`, or all below a word, as `invoice.*`"
            ))),
        }
    }
}

impl TryFrom<String> for TypeFilter {
    type Error = InvalidEndpoint;

    fn try_from(filter: String) -> Result<Self, InvalidEndpoint> {
        filter.parse()
    }
}

impl From<TypeFilter> for String {
    fn from(filter: TypeFilter) -> Self {
        filter.to_string()
    }
}

/// What was wrong with an endpoint, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEndpoint(pub(super) String);

impl fmt::Display for InvalidEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read endpoint: {}", self.0)
    }
}

impl std::error::Error for InvalidEndpoint {}
