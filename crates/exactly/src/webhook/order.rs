//! What events are in order with.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{EVENT_KIND, InvalidEvent};
use crate::Hex;
use crate::queue::Lane;

/// Over how many lanes keys are spread. Events of one lane become deliveries one after the other.
pub(super) const SHARDS: usize = 16;

/// What events have in common that are to arrive in the order in which they were published, such as the invoice that they are
/// about. Any text does; it is told to nobody but operators.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct OrderKey(Box<str>);

impl OrderKey {
    /// The longest, in bytes.
    pub const BYTES_MAX: usize = 128;

    /// The key of this text.
    pub fn new(key: impl Into<Box<str>>) -> Result<Self, InvalidEvent> {
        let key = key.into();
        let most = Self::BYTES_MAX;
        if !(1..=most).contains(&key.len()) || key.chars().any(char::is_control) {
            return Err(InvalidEvent(format!(
                "{key:?} is no order key: use 1 to {most} bytes without control characters"
            )));
        }
        Ok(Self(key))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where events of this key wait to become deliveries.
    pub fn lane(&self) -> Lane {
        Lane::new(format!("{EVENT_KIND}/{:02}", self.shard())).expect("the name is short and visible")
    }

    /// Which of the lanes that is.
    pub(super) fn shard(&self) -> usize {
        usize::from(Sha256::digest(self.0.as_bytes())[0]) % SHARDS
    }

    /// Names it in as many letters as any other, of which none means anything.
    pub(super) fn digest(&self) -> String {
        Hex(&Sha256::digest(self.0.as_bytes())).to_string()
    }
}

impl fmt::Display for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for OrderKey {
    type Error = InvalidEvent;

    fn try_from(key: String) -> Result<Self, InvalidEvent> {
        Self::new(key)
    }
}

impl From<OrderKey> for String {
    fn from(key: OrderKey) -> Self {
        key.0.into()
    }
}

impl FromStr for OrderKey {
    type Err = InvalidEvent;

    fn from_str(key: &str) -> Result<Self, InvalidEvent> {
        Self::new(key)
    }
}
