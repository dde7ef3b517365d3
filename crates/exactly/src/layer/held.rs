//! How much of what is sent is in memory.
//!
//! A request with a key is read whole before it is carried out, and so is its answer before it is given. Each is bounded by
//! its route's policy, and all of them together by this: who comes when there is no room is asked to come again, which is
//! better than to be killed with everybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// What each body has room for without being counted. Most have no more, and counting costs.
const UNCOUNTED: usize = 16 * 1024;

/// What a layer holds of all bodies.
#[derive(Clone, Debug)]
pub(super) struct Held(Arc<Total>);

#[derive(Debug)]
struct Total {
    bytes: AtomicUsize,
    max: usize,
}

/// What it holds of one body.
#[derive(Debug)]
pub(super) struct Share {
    held: Held,
    bytes: usize,
    /// The effect has happened: an answer is taken in whatever room there is, and others are refused for it.
    is_answer: bool,
}

impl Held {
    pub(super) fn new(max: usize) -> Self {
        let bytes = AtomicUsize::new(0);
        Self(Arc::new(Total { bytes, max }))
    }

    pub(super) fn max(&self) -> usize {
        self.0.max
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.bytes.load(Ordering::Relaxed) >= self.0.max
    }

    pub(super) fn for_request(&self) -> Share {
        self.share(false)
    }

    pub(super) fn for_answer(&self) -> Share {
        self.share(true)
    }

    fn share(&self, is_answer: bool) -> Share {
        Share {
            held: self.clone(),
            bytes: 0,
            is_answer,
        }
    }
}

impl Share {
    /// Makes room for a body of `bytes` bytes. `false` if there is none.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(UNCOUNTED).saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let total = &self.held.0;
        self.bytes += more;
        let all = total.bytes.fetch_add(more, Ordering::Relaxed) + more;
        all <= total.max || self.is_answer
    }

    /// The bytes, which are counted for as long as anybody has them.
    pub(super) fn keep(self, bytes: Bytes) -> Bytes {
        if self.bytes == 0 {
            return bytes;
        }
        Bytes::from_owner(Counted { bytes, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.held.0.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

struct Counted {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_as_a_body_grows_and_given_back_with_its_last_copy() {
        let held = Held::new(100_000);
        let mut one = held.for_request();
        assert!(one.grow_to(UNCOUNTED + 60_000));
        let kept = one.keep(Bytes::from_static(b"kept"));
        let mut other = held.for_request();
        assert!(other.grow_to(UNCOUNTED));
        assert!(!other.grow_to(UNCOUNTED + 60_000), "there is room for one of them");
        drop(other);
        let copy = kept.clone();
        drop(kept);
        assert!(!held.for_request().grow_to(UNCOUNTED + 60_000), "a copy is left");
        drop(copy);
        assert!(held.for_request().grow_to(UNCOUNTED + 60_000));
    }

    #[test]
    fn an_answer_always_finds_room_and_leaves_none_to_requests() {
        let held = Held::new(100_000);
        let mut answer = held.for_answer();
        assert!(!held.is_full());
        assert!(answer.grow_to(UNCOUNTED + 200_000));
        assert!(held.is_full());
        drop(answer);
        assert!(!held.is_full());
    }
}
