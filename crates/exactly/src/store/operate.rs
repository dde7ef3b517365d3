//! What people do to records, and the trail that it leaves.

use std::time::Duration;

use super::{Fenced, Inspect, Reply};
use crate::clock::Timestamp;
use crate::{CallId, Claim};

/// A store that operators can work on. A doubt is settled with [`complete`](super::Store::complete) and
/// [`abandon`](super::Store::abandon), as its owner would; here is what only operators do.
pub trait Operate: Inspect {
    /// Done → absent, before its retention ends: the same key is then a new operation. `Superseded`: the record is not
    /// done, or is another attempt's.
    fn forget<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced>;

    /// Adds to the trail; durable once answered. Repeating after a lost reply may add the entry twice. A text that the
    /// store cannot hold, such as one with a NUL in PostgreSQL, is refused, and nothing is added.
    ///
    /// The trail is bounded by age: entries older than [`Noted::KEEP`] go when a later one is written.
    fn note<'a>(&'a self, note: &'a Note) -> Reply<'a, ()>;

    /// Entries of the trail that match, oldest first.
    fn trail<'a>(&'a self, filter: &'a TrailFilter) -> Reply<'a, Vec<Noted>>;

    /// The present instant on the clock that judges leases and retention.
    fn now(&self) -> Reply<'_, Timestamp>;
}

/// Something that a person, or the server in its own name, did to a call or to many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The one call that it was done to.
    pub call: Option<CallId>,
    /// Who did it.
    pub actor: String,
    /// What was done: a short word such as `resolve`.
    pub action: String,
    /// How it was asked for and what came of it.
    pub detail: String,
}

/// A [`Note`] as the trail keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Its place in the trail; later entries have higher numbers.
    pub number: u64,
    /// When it was written, on the store's clock.
    pub at: Timestamp,
    /// What was written.
    pub note: Note,
}

impl Noted {
    /// How long the trail keeps an entry: a year's worth for whoever looks back once a year, and then some.
    pub const KEEP: Duration = Duration::from_hours(400 * 24);

    /// How many entries that are past that go with one that is written, so that no write takes long.
    pub const DROPPED_MAX: u32 = 256;
}

/// Which entries of the trail to read.
#[derive(Clone, Debug)]
pub struct TrailFilter {
    /// Only those about this call.
    pub call: Option<CallId>,
    /// Only those with a higher number.
    pub after: Option<u64>,
    /// At most so many; a store caps it at [`TrailFilter::LIMIT_MAX`].
    pub limit: u32,
}

impl TrailFilter {
    /// The most entries in one answer.
    pub const LIMIT_MAX: u32 = 1000;
}

impl Default for TrailFilter {
    fn default() -> Self {
        Self {
            call: None,
            after: None,
            limit: 100,
        }
    }
}
