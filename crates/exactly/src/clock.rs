//! Time, read in one place.
//!
//! Durations go into a store and its own clock judges them, so application servers may disagree about the time of
//! day. A database brings its clock along; embedded stores use a [`Clock`]. Tests pass a [`ManualClock`] and never
//! sleep.

#![expect(clippy::disallowed_methods, reason = "this is the one place that reads time")]

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An instant on a store's clock: milliseconds since the Unix epoch.
///
/// Not `SystemTime`, because it must round-trip through SQL and Lua integers without loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant `ms` milliseconds after the Unix epoch.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The instant `duration` later, or the last representable one.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// How long from `earlier` until `self`; zero when `self` is not later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in whole milliseconds, capped so that adding it to any real instant stays within SQL's signed integers.
pub fn millis(duration: Duration) -> u64 {
    const MILLIS_MAX: u64 = 1 << 52;
    u64::try_from(duration.as_millis()).map_or(MILLIS_MAX, |ms| ms.min(MILLIS_MAX))
}

/// What a store without a clock of its own judges leases and retention by.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

/// The wall clock. It follows every step that an operator or NTP makes, so use it for dates shown to people, not for
/// judging leases.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(millis(since_epoch))
    }
}

/// The wall clock as it stood when this was made, advanced by monotonic time: a step of the wall clock, in either
/// direction, ends no lease and forgets no outcome.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    anchor: Timestamp,
    anchored: Instant,
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self {
            anchor: WallClock.now(),
            anchored: Instant::now(),
        }
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        self.anchor.after(self.anchored.elapsed())
    }
}

/// A clock that moves only when told to.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self {
            now: AtomicU64::new(now.as_millis()),
        }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.now.fetch_add(millis(by), Ordering::SeqCst);
    }

    /// Puts the clock anywhere, as an operator or a broken time server would.
    pub fn set(&self, now: Timestamp) {
        self.now.store(now.as_millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}
