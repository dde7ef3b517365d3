//! What is remembered beside tasks.

use std::fmt;

use bytes::Bytes;

use super::Queue;
use crate::Fenced;
use crate::clock::Timestamp;
use crate::store::Reply;

/// A queue that also remembers values by their names, such as who wants to hear of events. Each is changed by
/// compare-and-set: whoever changes a value says which one it has seen, and a change that it has not seen stays.
pub trait Registry: Queue {
    /// Writes a value. `over` is the revision that it replaces, `None` for a name that is not taken. Tells the new revision,
    /// or `None` if the name has another one, or is taken or gone, and nothing was changed.
    fn write_card<'a>(&'a self, name: &'a str, value: &'a Bytes, over: Option<Revision>)
    -> Reply<'a, Option<Revision>>;

    /// The value of this name.
    fn read_card<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Card>>;

    /// At most `limit` values whose names start so, by name, byte by byte, those behind `after`.
    fn cards<'a>(&'a self, prefix: &'a str, after: &'a str, limit: u32) -> Reply<'a, Vec<Card>>;

    /// Forgets a value. `Superseded`: it is not there, or has another revision, and nothing was changed.
    fn erase_card<'a>(&'a self, name: &'a str, over: Revision) -> Reply<'a, Fenced>;
}

/// A value as it is remembered. Not shown by `Debug`, since it may hold secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Card {
    /// What it is known by.
    pub name: Box<str>,
    /// What was written.
    pub value: Bytes,
    /// Which of its values this is.
    pub revision: Revision,
    /// When it was written.
    pub changed_at: Timestamp,
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card")
            .field("name", &self.name)
            .field("revision", &self.revision)
            .field("value_bytes", &self.value.len())
            .finish_non_exhaustive()
    }
}

/// Which value of a name is meant. It rises with each change, also over a name that was forgotten and is used again, because
/// it starts from the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// The one of a value that is written now, over this one.
    #[must_use]
    pub fn next(over: Option<Self>, now: Timestamp) -> Self {
        Self(over.map_or(0, |over| over.0 + 1).max(now.as_millis()))
    }

    /// The revision of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
