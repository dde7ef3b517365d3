//! What is remembered of schedules.

use bytes::Bytes;

use super::Queue;
use crate::clock::Timestamp;
use crate::store::Reply;

/// A queue that also remembers schedules: how they are defined, and up to when their occurrences have become tasks.
pub trait Book: Queue {
    /// Writes a definition, new or in place of the one of that name. Its position stays, and so does its pause if nothing is
    /// said of it; a new one is not paused.
    fn write_schedule<'a>(&'a self, name: &'a str, definition: &'a Bytes, paused: Option<bool>) -> Reply<'a, ()>;

    /// Pauses a schedule or goes on with it, and says whether it is there. Nothing else of it is changed.
    fn pause_schedule<'a>(&'a self, name: &'a str, paused: bool) -> Reply<'a, bool>;

    /// The schedule of this name.
    fn read_schedule<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Entry>>;

    /// All schedules, by name.
    fn schedules(&self) -> Reply<'_, Vec<Entry>>;

    /// Forgets a schedule, and says whether it was there. Tasks that it made stay.
    fn erase_schedule<'a>(&'a self, name: &'a str) -> Reply<'a, bool>;

    /// Everything up to `position` has become tasks. Never goes back. Does nothing for a schedule that is not there.
    fn advance_schedule<'a>(&'a self, name: &'a str, position: Timestamp) -> Reply<'a, ()>;

    /// The present instant on the calendar, by which occurrences are due and positions are counted. The clock that judges
    /// leases may be behind it: where it is kept in the database, it stands still while nobody is there.
    fn calendar(&self) -> Reply<'_, Timestamp>;
}

/// A schedule as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is known by.
    pub name: Box<str>,
    /// What was written of it.
    pub definition: Bytes,
    /// Whether it makes no tasks for now. What falls into a pause is left out, not caught up.
    pub paused: bool,
    /// Up to when its occurrences have become tasks; `None` before the first time.
    pub position: Option<Timestamp>,
    /// When it was last written, paused or resumed.
    pub changed_at: Timestamp,
}
