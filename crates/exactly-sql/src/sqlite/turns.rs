//! Whose turn it is to write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};

use super::database::Slot;

/// This process's turns to write: SQLite has one writer, and those who wait for it inside SQLite sleep and are served in no
/// order. Whoever has the turn has the connection that batches are written on, unless the scribe writes them.
#[derive(Debug)]
pub(super) struct Turns {
    slot: Arc<Mutex<Slot>>,
    waiting: AtomicUsize,
}

/// Somebody who waits for its turn.
struct Waiting<'a>(&'a AtomicUsize);

impl Turns {
    pub(super) fn new(slot: Slot) -> Self {
        Self {
            slot: Arc::new(Mutex::new(slot)),
            waiting: AtomicUsize::new(0),
        }
    }

    pub(super) async fn lock(&self) -> MutexGuard<'_, Slot> {
        let _waiting = Waiting::begin(&self.waiting);
        self.slot.lock().await
    }

    pub(super) async fn lock_owned(&self) -> OwnedMutexGuard<Slot> {
        let _waiting = Waiting::begin(&self.waiting);
        Arc::clone(&self.slot).lock_owned().await
    }

    /// Whether somebody waits. Whoever has more to write than one batch lets others in between.
    pub(super) fn are_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn turns_are_wanted_while_somebody_waits_and_not_after_it_gave_up() {
        let turns = Turns::new(Slot::default());
        let held = turns.lock().await;
        assert!(!turns.are_wanted());
        {
            let mut next = std::pin::pin!(turns.lock());
            assert!(timeout(Duration::ZERO, &mut next).await.is_err());
            assert!(turns.are_wanted());
        }
        assert!(!turns.are_wanted());
        assert!(timeout(Duration::ZERO, turns.lock_owned()).await.is_err());
        assert!(!turns.are_wanted());
        drop(held);
        let _held = turns.lock_owned().await;
        assert!(!turns.are_wanted());
    }
}
