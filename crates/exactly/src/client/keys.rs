//! Which keys were used for what.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::frozen::Frozen;
use crate::digest::Digest;

/// How many keys are remembered; the oldest is forgotten first.
const KEYS_MAX: usize = 10_000;

/// Remembers what the keys that callers chose were used for, so that a slip is told before anything is sent.
///
/// A key that was made here is new, and is not looked up.
#[derive(Debug, Default)]
pub(super) struct UsedKeys(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    /// By key and address: two services, or two operations of one, may be given the same key.
    requests: HashMap<[u8; 32], [u8; 32]>,
    /// When each was first used, oldest first.
    order: VecDeque<(Instant, [u8; 32])>,
}

impl UsedKeys {
    /// Whether the call's key has not been used for another one within `lifetime`; it counts as used from now on.
    pub(super) fn admit(&self, call: &Frozen, lifetime: Duration) -> bool {
        let Some(key) = call.key.as_ref().filter(|_| call.is_key_given) else {
            return true;
        };
        let mut name = Digest::new("exactly client key 1");
        name.part(key.as_str().as_bytes());
        name.part(call.method.as_str().as_bytes());
        name.part(call.place().as_bytes());
        let (name, request) = (name.finish(), call.digest());
        let now = Instant::now();
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.forget(now, lifetime);
        if let Some(first) = used.requests.get(&name) {
            return *first == request;
        }
        used.requests.insert(name, request);
        used.order.push_back((now, name));
        true
    }
}

impl Used {
    fn forget(&mut self, now: Instant, lifetime: Duration) {
        while let Some((since, name)) = self.order.front()
            && (self.order.len() >= KEYS_MAX || now.duration_since(*since) >= lifetime)
        {
            self.requests.remove(name);
            self.order.pop_front();
        }
    }
}
