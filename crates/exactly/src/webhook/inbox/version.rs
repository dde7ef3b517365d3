//! Events that come out of order.

use crate::Hex;
use crate::digest::Digest;

/// What an event is about, and how new it is among the events about the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// What it is about, such as the id of an order, unique among what its source sends.
    pub entity: Box<str>,
    /// Higher with each event about it. The sender has to number them, or date them from one clock.
    pub number: i64,
}

impl Version {
    /// This version of this entity.
    pub fn new(entity: impl Into<Box<str>>, number: i64) -> Self {
        Self {
            entity: entity.into(),
            number,
        }
    }

    /// What its number is remembered under. A digest, since an entity may be called anything.
    pub(super) fn mark(&self, source: &str) -> String {
        let mut name = Digest::new("version of an entity");
        name.part(source.as_bytes());
        name.part(self.entity.as_bytes());
        Hex(&name.finish()).to_string()
    }
}
