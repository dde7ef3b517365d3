//! Whether the calls that are begun are new.
//!
//! Most are, where clients repeat little: their rows can be added without a look whether they are there. Where one is there
//! after all, the batch has to be done again, so batches are done with care for a while after each such surprise.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many batches in which every call was new make up for one that was not.
const CAREFUL_BATCHES: u32 = 16;

/// What the last batches have been like.
#[derive(Debug, Default)]
pub(super) struct Novelty {
    careful: AtomicU32,
}

impl Novelty {
    /// Whether the next batch's calls are likely to be new.
    pub(super) fn is_likely(&self) -> bool {
        self.careful.load(Ordering::Relaxed) == 0
    }

    /// A call was there.
    pub(super) fn surprised(&self) {
        self.careful.store(CAREFUL_BATCHES, Ordering::Relaxed);
    }

    /// Every call of a batch was new.
    pub(super) fn confirmed(&self) {
        let _ = self
            .careful
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |careful| careful.checked_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surprise_is_made_up_for_by_many_batches() {
        let novelty = Novelty::default();
        assert!(novelty.is_likely());
        novelty.surprised();
        for _ in 0..CAREFUL_BATCHES {
            assert!(!novelty.is_likely());
            novelty.confirmed();
        }
        assert!(novelty.is_likely());
        novelty.confirmed();
        assert!(novelty.is_likely());
    }
}
