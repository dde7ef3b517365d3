//! Waking those who wait for a record to change.
//!
//! A watcher holds no connection and costs one map entry per record, however many watch it. A wake-up is a hint: the
//! watcher asks the store again, so a spurious one is harmless and a lost one is made good by its slow poll.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::CallId;

/// The part of a call's id that messages between processes carry. Two calls that share it wake each other for nothing.
pub type WakeHint = [u8; 8];

/// Who waits for which record in this process.
#[derive(Clone, Debug, Default)]
pub struct Wakeups {
    // A std mutex, since it is held for a map operation only and never across an await.
    watched: Arc<Mutex<HashMap<WakeHint, watch::Sender<()>>>>,
}

impl Wakeups {
    /// A watch on `id` that sees every wake-up from this moment on.
    pub fn watch(&self, id: &CallId) -> Watch {
        let hint = Self::hint(id);
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = watched
            .entry(hint)
            .or_insert_with(|| watch::Sender::new(()))
            .subscribe();
        Watch {
            hint,
            changes: Some(changes),
            wakeups: self.clone(),
        }
    }

    /// Wakes everyone in this process who watches `id`.
    pub fn wake(&self, id: &CallId) {
        self.wake_hint(&Self::hint(id));
    }

    /// Wakes everyone in this process who watches a call with this hint.
    pub fn wake_hint(&self, hint: &WakeHint) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watchers) = watched.get(hint) {
            watchers.send_replace(());
        }
    }

    /// Wakes everyone: after the messages of a while may have been lost.
    pub fn wake_all(&self) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.values().for_each(|watchers| {
            watchers.send_replace(());
        });
    }

    /// What another process needs to know to wake its watchers of `id`.
    pub fn hint(id: &CallId) -> WakeHint {
        let mut hint = WakeHint::default();
        hint.copy_from_slice(&id.as_bytes()[..size_of::<WakeHint>()]);
        hint
    }
}

/// Fires when a record may have changed since the watch was taken.
#[derive(Debug)]
pub struct Watch {
    hint: WakeHint,
    /// None only while it is dropped.
    changes: Option<watch::Receiver<()>>,
    wakeups: Wakeups,
}

impl Watch {
    /// Waits for the next change. Cancel-safe.
    pub async fn changed(&mut self) {
        // The sender lives as long as a watch does. Never waking would be the safe answer: the watcher polls.
        let changed = match &mut self.changes {
            Some(changes) => changes.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.wakeups.watched.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: of two watches that go at once, the second must see that it is the last.
        self.changes.take();
        if watched
            .get(&self.hint)
            .is_some_and(|watchers| watchers.receiver_count() == 0)
        {
            watched.remove(&self.hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_that_go_at_once_leave_nothing_behind() {
        let wakeups = Wakeups::default();
        let id = CallId::from_bytes([7; 32]);
        for _ in 0..2_000 {
            let barrier = std::sync::Barrier::new(2);
            let watches = [wakeups.watch(&id), wakeups.watch(&id)];
            std::thread::scope(|scope| {
                for watch in watches {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        drop(watch);
                    });
                }
            });
            assert!(wakeups.watched.lock().unwrap().is_empty());
        }
    }
}
