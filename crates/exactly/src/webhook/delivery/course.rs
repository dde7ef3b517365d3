//! When a delivery is attempted.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::queue::Leased;

/// The table of attempts, each so long after the event.
///
/// Counted from the event and not from the attempt before, so that the window is the same however long attempts take. A delivery
/// that comes too late for an attempt makes it all the same, as long after the one before as the table has it, until it is back
/// on the table or the window is over.
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

/// Times are kept in milliseconds, and a few of them are added up here: what is meant for the window's end can be that much
/// before it.
const ROUNDING: Duration = Duration::from_millis(5);

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

    /// How long to wait before the next attempt, after one that failed; none, if it was the last.
    ///
    /// A `Retry-After` moves the attempt back, never forward, and takes none away while the window lasts. One that ends after
    /// the window is waited for until the window's end, where the last attempt is made.
    ///
    /// What was held past the window's end, because its endpoint was paused or nobody was there, has the attempts that it has
    /// left, as far apart as they would have been; each may be put off by a window more.
    pub fn next(&self, attempt: &Attempt, retry_after: Option<Duration>) -> Option<Duration> {
        let made = usize::try_from(attempt.failures).ok()?.checked_add(1)?;
        let (offset, apart) = (*self.offsets.get(made)?, self.apart(made)?);
        let (asked, window) = (retry_after.unwrap_or_default(), self.window());
        if attempt.begun >= self.end() {
            return self.was_held(attempt).then(|| apart.max(asked.min(window)));
        }
        let wait = match offset.checked_sub(attempt.ended) {
            Some(wait) if !wait.is_zero() => wait,
            _ => apart,
        };
        Some(wait.max(asked).min(window.saturating_sub(attempt.ended)))
    }

    /// Whether an attempt after the window's end is none that was meant for it.
    fn was_held(&self, attempt: &Attempt) -> bool {
        let before = usize::try_from(attempt.failures).ok().and_then(|made| self.apart(made));
        // The first one may come at any time: what was revived starts anew.
        let Some(apart) = before else { return true };
        // One that followed another after the end is that much later. What is nearer was put off until the end.
        attempt.due < self.end() || attempt.due >= self.end().saturating_add(apart)
    }

    /// How much later an attempt is than the one before it, which the first has not.
    fn apart(&self, place: usize) -> Option<Duration> {
        let before = *self.offsets.get(place.checked_sub(1)?)?;
        Some(self.offsets.get(place)?.saturating_sub(before))
    }

    fn end(&self) -> Duration {
        self.window().saturating_sub(ROUNDING)
    }
}

/// An attempt that failed. All times are counted from the event, on the clock that judges when the next one is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// How many failed before it.
    pub failures: u32,
    /// When it was to be made.
    pub due: Duration,
    /// When it began, which is later if the delivery was held.
    pub begun: Duration,
    /// When it ended.
    pub ended: Duration,
}

impl Attempt {
    /// The attempt at this task that took so long and ended `now`, by the clock that judges when the next one is due: a process's
    /// own may be hours off. If that one could not be asked, nothing was held up as far as anybody knows.
    pub fn ended(task: &Leased, now: Option<Timestamp>, took: Duration) -> Self {
        let due = task.due_at.since(task.enqueued_at);
        let ended = now.map_or(due.saturating_add(took), |now| now.since(task.enqueued_at));
        Self {
            failures: task.failures,
            due,
            begun: ended.saturating_sub(took),
            ended,
        }
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
