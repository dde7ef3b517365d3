//! When a delivery is attempted.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The table of attempts, each so long after the event.
///
/// Counted from the event and not from the attempt before, so that the window is the same however long attempts take, and a
/// delivery that was held up goes on where the table stands by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    offsets: Cow<'static, [Duration]>,
}

const OFFSETS: [Duration; 10] = [
    Duration::ZERO,
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_mins(30),
    Duration::from_hours(1),
    Duration::from_hours(6),
    Duration::from_hours(12),
    Duration::from_hours(24),
];

impl Course {
    /// The most attempts.
    pub const ATTEMPTS_MAX: usize = 100;
    /// The longest window.
    pub const WINDOW_MAX: Duration = Duration::from_hours(31 * 24);

    /// A table of one's own: the first attempt at once, and each later than the one before.
    pub fn new(offsets: impl Into<Vec<Duration>>) -> Result<Self, InvalidCourse> {
        let offsets = offsets.into();
        let (attempts, most) = (offsets.len(), Self::ATTEMPTS_MAX);
        if !(1..=most).contains(&attempts) {
            return Err(InvalidCourse(format!(
                "there are {attempts} attempts; give 1 to {most}"
            )));
        }
        if let Some(first) = offsets.first().filter(|first| !first.is_zero()) {
            return Err(InvalidCourse(format!(
                "the first attempt is {first:?} after the event; make it 0"
            )));
        }
        if let Some([one, next]) = offsets.array_windows().find(|[one, next]| one >= next) {
            return Err(InvalidCourse(format!(
                "{next:?} comes after {one:?}; make each attempt later than the one before"
            )));
        }
        if let Some(last) = offsets.last().filter(|last| **last > Self::WINDOW_MAX) {
            let days = Self::WINDOW_MAX.as_secs() / (24 * 60 * 60);
            return Err(InvalidCourse(format!(
                "the last attempt is {last:?} after the event; make it {days} days at most"
            )));
        }
        Ok(Self {
            offsets: offsets.into(),
        })
    }

    /// How long after the event the last attempt may begin.
    pub fn window(&self) -> Duration {
        self.offsets.last().copied().unwrap_or_default()
    }

    /// When each attempt begins, from the event.
    pub fn offsets(&self) -> &[Duration] {
        &self.offsets
    }

    /// How far a delivery has come that was made so long ago. One that was held past the end, because its endpoint was paused or
    /// nobody was there, has the attempts that it has left, as far apart as they would have been.
    pub fn reached(&self, attempts_failed: u32, since_event: Duration) -> Duration {
        if since_event < self.window() {
            return since_event;
        }
        let place = usize::try_from(attempts_failed).unwrap_or(usize::MAX);
        self.offsets.get(place).copied().unwrap_or(since_event)
    }

    /// How long to wait before the next attempt, after so many have failed; none, if there is no other.
    ///
    /// A `Retry-After` moves the attempt back, never forward, and takes no attempt away. One that ends after the window leaves
    /// no attempt that the endpoint would want.
    pub fn next(&self, attempts_failed: u32, since_event: Duration, retry_after: Option<Duration>) -> Option<Duration> {
        let used = usize::try_from(attempts_failed).ok()?;
        let left = self.offsets.get(used..)?;
        let due = left.iter().find(|offset| **offset > since_event)?;
        let wait = due.saturating_sub(since_event).max(retry_after.unwrap_or_default());
        (wait <= self.window().saturating_sub(since_event)).then_some(wait)
    }
}

/// Ten attempts in a day: at once, and after 5 s, 30 s, 2 min, 10 min, 30 min, 1 h, 6 h, 12 h and 24 h.
impl Default for Course {
    fn default() -> Self {
        Self {
            offsets: Cow::Borrowed(&OFFSETS),
        }
    }
}

/// What was wrong with a table of attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCourse(String);

impl fmt::Display for InvalidCourse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read table of attempts: {}", self.0)
    }
}

impl std::error::Error for InvalidCourse {}
