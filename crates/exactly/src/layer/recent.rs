//! Calls that ended in this process not long ago.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::CallId;

/// The most calls that are remembered; the oldest makes room.
const CALLS_MAX: usize = 16 * 1024;

/// A hint, not a cache: whoever asks for one of these is most likely a duplicate, for whom looking first is cheaper than
/// opening a transaction. For everyone else looking first is a round trip in vain.
#[derive(Debug, Default)]
pub(super) struct Recent {
    // A std mutex, since it is held for a map operation only.
    calls: Mutex<(HashSet<CallId>, VecDeque<CallId>)>,
}

impl Recent {
    pub(super) fn contains(&self, id: &CallId) -> bool {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).0.contains(id)
    }

    pub(super) fn insert(&self, id: CallId) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, order) = &mut *calls;
        if !known.insert(id) {
            return;
        }
        order.push_back(id);
        if order.len() > CALLS_MAX
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room() {
        let id = |n: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&n.to_be_bytes());
            CallId::from_bytes(bytes)
        };
        let recent = Recent::default();
        for n in 0..=CALLS_MAX {
            recent.insert(id(n));
            recent.insert(id(n));
        }
        assert!(!recent.contains(&id(0)));
        assert!(recent.contains(&id(1)) && recent.contains(&id(CALLS_MAX)));
        assert_eq!(recent.calls.lock().unwrap().1.len(), CALLS_MAX);
    }
}
