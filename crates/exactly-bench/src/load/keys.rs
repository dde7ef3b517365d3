//! Which keys the requests carry.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Keys look like hyphenated UUIDs, as most clients send them.
pub(super) const KEY_LEN: usize = 36;

/// A source of keys. Clones of one source share it.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// A key that was never used before.
    Fresh,
    /// The same until told to stop.
    FreshUntil(Arc<AtomicBool>),
    /// One in four was never used before, the others are among the first `count` of a series.
    Mixed { series: u32, count: u64 },
    /// One of the first `count` keys of a series, at random.
    Known { series: u32, count: u64 },
    /// Each of them once.
    Each {
        series: u32,
        count: u64,
        next: Arc<AtomicU64>,
    },
}

impl Keys {
    /// The first `count` keys of a series, each once.
    pub(crate) fn each(series: u32, count: u64) -> Self {
        let next = Arc::default();
        Self::Each { series, count, next }
    }

    /// Writes the next key; `false` after the last one.
    pub(super) fn write_next(&mut self, key: &mut [u8]) -> bool {
        match self {
            Self::Fresh => write_fresh(key),
            Self::FreshUntil(stopped) => {
                if stopped.load(Ordering::Relaxed) {
                    return false;
                }
                write_fresh(key);
            }
            Self::Mixed { .. } if fastrand::u8(..4) == 0 => write_fresh(key),
            Self::Mixed { series, count } | Self::Known { series, count } => {
                write_known(*series, fastrand::u64(..*count), key);
            }
            Self::Each { series, count, next } => {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= *count {
                    return false;
                }
                write_known(*series, index, key);
            }
        }
        true
    }
}

/// The part of a series' keys in front of their twelve decimal digits, for SQL that makes the same keys.
pub(crate) fn series_prefix(series: u32) -> String {
    format!("{series:08x}-0000-4000-8000-")
}

fn write_fresh(key: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut bits = fastrand::u128(..);
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = match at {
            8 | 13 | 18 | 23 => b'-',
            14 => b'4',
            19 => b'8',
            _ => {
                let digit = DIGITS[usize::from(bits.to_le_bytes()[0] & 0xf)];
                bits >>= 4;
                digit
            }
        };
    }
}

fn write_known(series: u32, index: u64, mut key: &mut [u8]) {
    write!(key, "{}{index:012}", series_prefix(series)).expect("a key fills its place");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(keys: &mut Keys) -> Option<String> {
        let mut key = [b'?'; KEY_LEN];
        keys.write_next(&mut key)
            .then(|| String::from_utf8(key.to_vec()).unwrap())
    }

    #[test]
    fn every_source_writes_whole_keys() {
        for mut keys in [Keys::Fresh, Keys::Known { series: 7, count: 3 }, Keys::each(7, 3)] {
            let key = next(&mut keys).unwrap();
            assert!(!key.contains('?'), "{key}");
            assert_eq!(key.matches('-').count(), 4, "{key}");
        }
    }

    #[test]
    fn a_series_ends_after_its_last_key_and_clones_share_it() {
        let mut keys = Keys::each(1, 2);
        let mut clone = keys.clone();
        assert_eq!(next(&mut keys).unwrap(), "00000001-0000-4000-8000-000000000000");
        assert_eq!(next(&mut clone).unwrap(), "00000001-0000-4000-8000-000000000001");
        assert_eq!(next(&mut keys), None);
    }
}
