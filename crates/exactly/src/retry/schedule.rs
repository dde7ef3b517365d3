//! The waits between attempts.
//!
//! Short waits are spread widely, so that clients that failed together do not come back together. Waits of minutes and
//! hours are fixed and spread by a tenth: spread over their whole length, half of all attempts would fall into the first
//! half of an outage, and none might be left for its end.

use std::borrow::Cow;
use std::time::Duration;

/// How long to wait before each retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Doubles from `base` on, with something at random on top, never above `cap`.
    Doubling {
        /// The least wait before the first retry.
        base: Duration,
        /// What is added.
        jitter: Jitter,
        /// The longest wait.
        cap: Duration,
    },
    /// These waits, one per retry, each a tenth longer or shorter at random. There are no more retries than waits.
    Delays(Cow<'static, [Duration]>),
    /// Attempts at these times after the start of the call, each a tenth later or earlier at random. There are no more
    /// retries than times.
    Offsets(Cow<'static, [Duration]>),
}

/// What a doubling wait has on top, at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Up to the wait itself: 100–200 ms, 200–400 ms, and so on.
    Full,
    /// Up to a fixed time.
    UpTo(Duration),
}

const SECOND: Duration = Duration::from_secs(1);
/// As often doubled, a nanosecond is longer than the longest duration.
const DOUBLINGS_MAX: u32 = 94;

impl Schedule {
    /// 100–200 ms, 200–400 ms, 400–800 ms, 800–1600 ms, then up to 2 s.
    pub const PLAYBOOK: Self = Self::Doubling {
        base: Duration::from_millis(100),
        jitter: Jitter::Full,
        cap: Duration::from_secs(2),
    };
    /// 1–2 s, 2–3 s, 4–5 s, 8–9 s, and so on, up to 30 s.
    pub const SECONDS: Self = Self::Doubling {
        base: SECOND,
        jitter: Jitter::UpTo(SECOND),
        cap: Duration::from_secs(30),
    };
    /// 5 s, 30 s, 2 min, 10 min, 30 min, 1 h, 6 h, 12 h and 24 h after the event.
    pub const WEBHOOK: Self = Self::Offsets(Cow::Borrowed(&[
        Duration::from_secs(5),
        Duration::from_secs(30),
        Duration::from_mins(2),
        Duration::from_mins(10),
        Duration::from_mins(30),
        Duration::from_hours(1),
        Duration::from_hours(6),
        Duration::from_hours(12),
        Duration::from_hours(24),
    ]));
    /// 30 s, 2 min and 5 min.
    pub const SCHEDULED: Self = Self::Delays(Cow::Borrowed(&[
        Duration::from_secs(30),
        Duration::from_mins(2),
        Duration::from_mins(5),
    ]));

    /// How long to wait before retry number `retry`, counted from 1, of a call that began `elapsed` ago and has `total` in
    /// all. `random` is any number, all equally likely. `None`: there is no such retry.
    pub fn wait(&self, retry: u32, elapsed: Duration, total: Duration, random: u64) -> Option<Duration> {
        let nth = |times: &[Duration]| {
            let index = usize::try_from(retry.checked_sub(1)?).ok()?;
            times.get(index).copied()
        };
        match self {
            Self::Doubling { base, jitter, cap } => {
                let doublings = retry.checked_sub(1)?.min(DOUBLINGS_MAX);
                let wait = (0..doublings).fold(*base, |wait, _| wait.saturating_mul(2));
                let most = match jitter {
                    Jitter::Full => wait,
                    Jitter::UpTo(most) => *most,
                };
                Some(wait.saturating_add(fraction(most, random)).min(*cap))
            }
            Self::Delays(delays) => Some(about(nth(delays)?, Duration::MAX, random)),
            // The last attempt begins before the time is up.
            Self::Offsets(offsets) => Some(about(nth(offsets)?, total, random).saturating_sub(elapsed)),
        }
    }
}

/// A tenth more or less, and below `limit`.
pub(crate) fn about(duration: Duration, limit: Duration, random: u64) -> Duration {
    let tenth = duration / 10;
    let least = duration.saturating_sub(tenth).min(limit);
    let most = duration.saturating_add(tenth).min(limit);
    least.saturating_add(fraction(most.saturating_sub(least), random))
}

/// `random` of 2⁶⁴ parts of a duration.
fn fraction(duration: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let part = (u128::from(nanos) * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(part).expect("a part is no more than the whole"))
}
