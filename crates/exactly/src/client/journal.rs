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
/// An operation is one logical call, by the name that its caller gives it; without one, the client makes a name of method,
/// place and key. Durations go in, never instants: the journal's clock judges.
///
/// Several processes may have the same operation open at once. All of them send the same key, so the server carries it out
/// once, and each closes it with what it learned.
pub trait Journal: Debug + Send + Sync + 'static {
    /// Writes the call down, durably, before this returns, or tells what is written of its operation.
    ///
    /// One atomic step: of two processes that open the same operation, one gets [`Opened::New`]. An operation that ended
    /// as not applied may be opened anew with any request, under the new key.
    fn open<'a>(&'a self, entry: &'a Entry) -> Reply<'a, Opened>;

    /// Writes down how a call ended, and tells what is written now. A call that is no longer written down, or whose
    /// operation has another key by now, changes nothing and is told what it said.
    ///
    /// What is known stays known: *unknown* replaces neither *applied* nor *not applied*, and nothing replaces *applied*.
    /// *Not applied* frees the operation for another key, so whoever says so without having been in doubt has to have been
    /// the only one: if others opened it meanwhile, what is written is *unknown*.
    fn close<'a>(&'a self, close: &'a Close) -> Reply<'a, Ending>;

    /// The calls of which it is not known how they ended, oldest first: those that ended as unknown, and those whose time
    /// was up without anybody closing them.
    fn unsettled(&self, limit: u32) -> Reply<'_, Vec<Unsettled>>;

    /// Forgets calls whose key has expired, at most `limit` at once, and tells how many. Those that are unsettled stay
    /// until somebody closes them. An operation that is forgotten is a new one when it is opened again, so forget only
    /// what nobody will ask for any more.
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

/// How a call ended, as it is written down.
#[derive(Clone, Debug)]
pub struct Close {
    /// What the caller calls it.
    pub operation: String,
    /// The key of every attempt: which call of this operation it was.
    pub key: Key,
    /// Whether the ending takes into account what others may have attempted, because the call was resumed.
    pub in_doubt: bool,
    /// What is known.
    pub ending: Ending,
    /// How long the key stands for it from now, by the server's word.
    pub expires_in: Option<Duration>,
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
    /// It was attempted, and the key stands for it no longer: sending it would make it a new one.
    Expired {
        /// The key that it had.
        key: Key,
        /// How it ended, if it did.
        ending: Option<Ending>,
    },
    /// The operation belongs to a request with other content, or the key to another operation on the same place.
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
