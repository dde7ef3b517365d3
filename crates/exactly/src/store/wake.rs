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
            changes,
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

    /// Whether nobody waits for anything.
    pub fn is_empty(&self) -> bool {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
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
    changes: watch::Receiver<()>,
    wakeups: Wakeups,
}

impl Watch {
    /// Waits for the next change. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            // The sender lives as long as a watch does, so this cannot happen. Never waking is the safe answer: the
            // watcher polls.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.wakeups.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched
            .get(&self.hint)
            .is_some_and(|watchers| watchers.receiver_count() <= 1)
        {
            watched.remove(&self.hint);
        }
    }
}
