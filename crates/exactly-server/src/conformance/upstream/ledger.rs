//! What ran how often.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// How many tags are counted. Forgetting an old one would make a second effect look like a first.
const TAGS_MAX: usize = 1_000_000;

/// The counts of one tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Requests that were started.
    pub(super) runs: u64,
    /// Effects that were made.
    pub(super) effects: u64,
    /// Runs that have not ended.
    pub(super) running: u64,
    /// Requests that only read.
    pub(super) reads: u64,
}

/// The counts of all tags.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Mutex<HashMap<String, Entry>>,
    effects: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    counts: Counts,
    released: watch::Sender<bool>,
}

/// A run, from its start to its end or to the moment that it was cancelled.
#[derive(Debug)]
pub(super) struct Run {
    ledger: Arc<Ledger>,
    tag: String,
    /// Which run of its tag, from one.
    pub(super) number: u64,
    released: watch::Receiver<bool>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            released: watch::Sender::new(false),
        }
    }
}

impl Ledger {
    /// Counts a run; none if there are too many tags.
    pub(super) fn start(self: &Arc<Self>, tag: &str) -> Option<Run> {
        let mut entries = self.entries();
        if entries.len() >= TAGS_MAX && !entries.contains_key(tag) {
            return None;
        }
        let entry = entries.entry(tag.to_owned()).or_default();
        entry.counts.runs += 1;
        entry.counts.running += 1;
        Some(Run {
            ledger: Arc::clone(self),
            tag: tag.to_owned(),
            number: entry.counts.runs,
            released: entry.released.subscribe(),
        })
    }

    /// Counts a request that only reads.
    pub(super) fn read(&self, tag: &str) -> u64 {
        let mut entries = self.entries();
        if entries.len() >= TAGS_MAX && !entries.contains_key(tag) {
            return 0;
        }
        let entry = entries.entry(tag.to_owned()).or_default();
        entry.counts.reads += 1;
        entry.counts.reads
    }

    /// Lets the runs of `tag` go on, those that wait and those that come.
    pub(super) fn release(&self, tag: &str) {
        if let Some(entry) = self.entries().get(tag) {
            entry.released.send_replace(true);
        }
    }

    pub(super) fn counts(&self, tag: &str) -> Counts {
        self.entries()
            .get(tag)
            .map_or_else(Counts::default, |entry| entry.counts)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    /// Makes the effect. Its number is unique over all tags.
    pub(super) fn effect(&self) -> u64 {
        if let Some(entry) = self.ledger.entries().get_mut(&self.tag) {
            entry.counts.effects += 1;
        }
        1 + self.ledger.effects.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until somebody releases the tag.
    pub(super) async fn released(&self) {
        let mut released = self.released.clone();
        // The sender lives as long as the ledger, so there is no error to see.
        let _ = released.wait_for(|released| *released).await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(entry) = self.ledger.entries().get_mut(&self.tag) {
            entry.counts.running -= 1;
        }
    }
}
