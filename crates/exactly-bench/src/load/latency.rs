//! How long answers took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Each power of two is cut into this many buckets, so that a percentile is off by three percent at most.
const BUCKETS_PER_OCTAVE: usize = 32;
const OCTAVES: usize = 40;

/// A histogram of durations, from a nanosecond to half an hour.
///
/// Shared and atomic, not one per connection: the counters of one histogram stay in the cache, those of hundreds do not.
#[derive(Debug)]
pub(crate) struct Latencies {
    counts: Box<[AtomicU64]>,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let counts = (0..OCTAVES * BUCKETS_PER_OCTAVE).map(|_| AtomicU64::new(0)).collect();
        Self { counts }
    }

    pub(crate) fn add(&self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// The duration that `percent` of all answers did not exceed.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        let total: u64 = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        let wanted = total as f64 * percent / 100.0;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count.load(Ordering::Relaxed);
            if seen > 0 && seen as f64 >= wanted {
                return Duration::from_nanos(upper_bound(bucket));
            }
        }
        Duration::ZERO
    }
}

fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(BUCKETS_PER_OCTAVE as u64);
    let octave = nanos.ilog2() - BUCKETS_PER_OCTAVE.ilog2();
    let within = usize::try_from(nanos >> octave).map_or(0, |top| top - BUCKETS_PER_OCTAVE);
    (octave as usize * BUCKETS_PER_OCTAVE + within).min(OCTAVES * BUCKETS_PER_OCTAVE - 1)
}

fn upper_bound(bucket: usize) -> u64 {
    let within = (bucket % BUCKETS_PER_OCTAVE + BUCKETS_PER_OCTAVE + 1) as u64;
    within << (bucket / BUCKETS_PER_OCTAVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_close_from_above() {
        let latencies = Latencies::new();
        (1..=1000).for_each(|ms| latencies.add(Duration::from_millis(ms)));
        for (percent, exact_ms) in [(50.0, 500), (99.0, 990), (100.0, 1000)] {
            let exact = Duration::from_millis(exact_ms);
            let found = latencies.percentile(percent);
            assert!(found >= exact && found <= exact.mul_f64(1.04), "{percent}: {found:?}");
        }
    }
}
