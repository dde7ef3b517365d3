//! What may be opened, and what a closing counts for, as plain functions.

use exactly::Key;
use exactly::client::journal::{Close, Entry, Opened};
use exactly::clock::Timestamp;
use exactly::retry::Ending;

/// What is written of an operation.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) key: Key,
    pub(super) digest: Vec<u8>,
    /// More than one process opened it with this key.
    pub(super) is_shared: bool,
    pub(super) due: Timestamp,
    pub(super) expires: Timestamp,
    pub(super) ending: Option<Ending>,
}

/// What opening a call changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// It is written down, in place of what did not happen.
    Write,
    /// One more has it open.
    Reopen {
        due: Timestamp,
    },
}

/// Whether a call may be sent, and with which key.
pub(super) fn open(found: Option<Written>, entry: &Entry, is_key_taken: bool, now: Timestamp) -> (Opened, Change) {
    let found = found.filter(|found| found.ending != Some(Ending::NotApplied));
    match found {
        None if is_key_taken => (Opened::OtherRequest, Change::None),
        None => (Opened::New, Change::Write),
        Some(found) if found.digest != entry.digest => (Opened::OtherRequest, Change::None),
        // Also what is known to have happened: under another key it would happen again.
        Some(found) if found.expires <= now => {
            let (key, ending) = (found.key, found.ending);
            (Opened::Expired { key, ending }, Change::None)
        }
        Some(found) => {
            let due = found.due.max(now.after(entry.within));
            let opened = Opened::Resumed {
                key: found.key,
                ending: found.ending,
                expires_in: found.expires.since(now),
            };
            (opened, Change::Reopen { due })
        }
    }
}

/// What is known of a call when one of those who have it open says how it ended.
pub(super) fn close(found: &Written, close: &Close) -> Ending {
    match (found.ending, close.ending) {
        (Some(Ending::Applied), _) | (_, Ending::Applied) => Ending::Applied,
        (Some(Ending::NotApplied), _) => Ending::NotApplied,
        // Whoever was not in doubt speaks for its own attempts only, and another's may be on their way.
        (_, Ending::NotApplied) if found.is_shared && !close.in_doubt => Ending::Unknown,
        (_, ending) => ending,
    }
}
