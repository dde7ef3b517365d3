//! Numbers that spread waits: far apart from those of other processes, and cheap enough to be drawn in vain.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of such numbers.
#[derive(Debug)]
pub(crate) struct Spread(AtomicU64);

impl Spread {
    pub(crate) fn new() -> Self {
        // Should the system have no random number to give, waits are only less spread.
        Self(AtomicU64::new(getrandom::u64().unwrap_or_default()))
    }

    /// The next one, by `SplitMix64`.
    pub(crate) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut number = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }
}
