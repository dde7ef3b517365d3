//! What a restarted process needs to know.
//!
//! A call is written down before its first byte leaves, so that after a crash the same operation is resumed with the same
//! key, or at least is known to be unknown. The request's content is not kept, only its digest: whoever resumes a call has
//! to bring the same bytes, and other bytes are refused.

use std::fmt::Debug;
use std::time::Duration;

use crate::Key;
use crate::retry::Ending;
use crate::store::Reply;

/// Keeps calls over a restart. `exactly-sql` has one on SQLite.
///
/// An operation is one logical call, by the name that its caller gives it; without one, its key is its name. Durations go
/// in, never instants: the journal's clock judges.
pub trait Journal: Debug + Send + Sync + 'static {
    /// Writes the call down, durably, before this returns, or tells what is written of its operation.
    ///
    /// One atomic step: of two processes that open the same operation, one gets [`Opened::New`]. An operation that ended
    /// as not applied may be opened anew with another request, under the new key.
    fn open<'a>(&'a self, entry: &'a Entry) -> Reply<'a, Opened>;

    /// Writes down how the call of this operation ended. It stays until its key expires, so that the same operation is
    /// never given a second key meanwhile. `expires_in` is the server's word on when that is.
    fn close<'a>(&'a self, operation: &'a str, ending: Ending, expires_in: Option<Duration>) -> Reply<'a, ()>;

    /// The calls of which it is not known how they ended, oldest first: those that ended as unknown, and those whose time
    /// was up without anybody closing them.
    fn unsettled(&self, limit: u32) -> Reply<'_, Vec<Unsettled>>;

    /// Forgets calls whose key has expired, at most `limit` at once, and tells how many. Those that are unsettled stay
    /// until somebody closes them.
    fn prune(&self, limit: u32) -> Reply<'_, u32>;
}

/// A call, as it is written down.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What the caller calls it.
    pub operation: String,
    /// The key of every attempt.
    pub key: Key,
    /// Its method.
    pub method: String,
    /// Where it goes, without query and credentials.
    pub place: String,
    /// SHA-256 of everything that two calls with one key must have in common.
    pub digest: [u8; 32],
    /// How long it may take.
    pub within: Duration,
    /// How long the key stands for it, as long as the server says nothing else.
    pub expires_in: Duration,
}

/// What a journal says when a call is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Nobody attempted it.
    New,
    /// It was attempted, with this key: go on with it.
    Resumed {
        /// The key to send.
        key: Key,
        /// How it ended, if it did.
        ending: Option<Ending>,
        /// How long the key still stands for it.
        expires_in: Duration,
    },
    /// It was attempted, is unsettled, and the key stands for it no longer: sending it would make it a new one.
    Expired {
        /// The key that it had.
        key: Key,
    },
    /// The operation, or its key, belongs to a request with other content.
    OtherRequest,
}

/// A call of which it is not known how it ended.
#[derive(Clone, Debug)]
pub struct Unsettled {
    /// What the caller calls it.
    pub operation: String,
    /// The key of every attempt.
    pub key: Key,
    /// Its method.
    pub method: String,
    /// Where it went, without query and credentials.
    pub place: String,
    /// How long ago it was opened.
    pub age: Duration,
    /// How long the key still stands for it; zero, if it does no more.
    pub expires_in: Duration,
}
