//! One at a time, per key.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// Lets one passage per key be held at a time. Who waits costs no connection and no thread, and a key that nobody holds
/// costs nothing.
pub struct Gate<K> {
    // A std mutex, since it is held for a map operation only.
    doors: Arc<Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>>,
}

/// The right to go ahead; dropping it lets the next one in.
pub struct Passage<K: Copy + Eq + Hash> {
    key: K,
    gate: Gate<K>,
    inside: Option<OwnedMutexGuard<()>>,
}

impl<K: Copy + Eq + Hash> Gate<K> {
    /// The passage, if nobody holds it.
    pub fn try_enter(&self, key: &K) -> Option<Passage<K>> {
        // Under the lock: a door that is looked at in vain would seem to have someone waiting.
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = Arc::clone(doors.entry(*key).or_default()).try_lock_owned().ok()?;
        drop(doors);
        Some(Passage {
            key: *key,
            gate: self.clone(),
            inside: Some(inside),
        })
    }

    /// Waits until nobody holds the passage, in the order of arrival.
    pub async fn enter(&self, key: &K) -> Passage<K> {
        let mut passage = Passage {
            key: *key,
            gate: self.clone(),
            inside: None,
        };
        passage.inside = Some(self.door(key).lock_owned().await);
        passage
    }

    fn door(&self, key: &K) -> Arc<tokio::sync::Mutex<()>> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(doors.entry(*key).or_default())
    }
}

impl<K: Copy + Eq + Hash> Drop for Passage<K> {
    fn drop(&mut self) {
        let mut doors = self.gate.doors.lock().unwrap_or_else(PoisonError::into_inner);
        self.inside.take();
        // Whoever waits holds the door too: the map's and nobody else's means that it leads nowhere.
        if doors.get(&self.key).is_some_and(|door| Arc::strong_count(door) == 1) {
            doors.remove(&self.key);
        }
    }
}

impl<K> Clone for Gate<K> {
    fn clone(&self) -> Self {
        Self {
            doors: Arc::clone(&self.doors),
        }
    }
}

impl<K> Default for Gate<K> {
    fn default() -> Self {
        Self { doors: Arc::default() }
    }
}

impl<K> fmt::Debug for Gate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.doors.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Gate").field("held", &held).finish()
    }
}

impl<K: Copy + Eq + Hash> fmt::Debug for Passage<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passage")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_holds_a_passage_and_the_next_gets_it_when_it_is_dropped() {
        let gate = Gate::default();
        let first = gate.try_enter(&7).unwrap();
        assert!(gate.try_enter(&7).is_none());
        assert!(gate.try_enter(&8).is_some());
        let next = tokio::spawn({
            let gate = gate.clone();
            async move { gate.enter(&7).await }
        });
        tokio::task::yield_now().await;
        assert!(!next.is_finished());
        drop(first);
        let second = next.await.unwrap();
        assert!(gate.try_enter(&7).is_none());
        drop(second);
        assert_eq!(format!("{gate:?}"), "Gate { held: 0 }");
    }

    #[tokio::test]
    async fn one_that_gives_up_waiting_leaves_nothing_behind() {
        let gate = Gate::default();
        let first = gate.enter(&7).await;
        let waiting = gate.enter(&7);
        assert!(tokio::time::timeout(std::time::Duration::ZERO, waiting).await.is_err());
        drop(first);
        assert_eq!(format!("{gate:?}"), "Gate { held: 0 }");
    }
}
