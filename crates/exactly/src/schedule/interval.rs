//! Equal times from an anchor on.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{PatternError, Quoted};

/// A length, and the instant that it is counted from.
///
/// The anchor is the first occurrence. It is a part of the pattern and not the time at which somebody asks, so that a
/// restart does not shift what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    seconds: u32,
    anchor: Timestamp,
}

const DAY_SECONDS: u32 = 86_400;

impl Interval {
    /// The shortest accepted.
    pub const MIN: Duration = Duration::from_secs(1);
    /// The longest accepted: a leap year.
    pub const MAX: Duration = Duration::from_hours(366 * 24);

    /// Whole seconds from [`Interval::MIN`] to [`Interval::MAX`], counted from the start of 1970 in UTC.
    pub fn new(length: Duration) -> Result<Self, PatternError> {
        let refused = || {
            PatternError::new(format!(
                "interval {length:?}: accepted are whole seconds from 1s to 366d"
            ))
        };
        if length.subsec_nanos() != 0 || !(Self::MIN..=Self::MAX).contains(&length) {
            return Err(refused());
        }
        Ok(Self {
            seconds: u32::try_from(length.as_secs()).map_err(|_| refused())?,
            anchor: Timestamp::UNIX_EPOCH,
        })
    }

    /// The same length, counted from a whole second.
    pub fn anchored(self, anchor: Timestamp) -> Result<Self, PatternError> {
        if anchor.subsec_nanosecond() != 0 {
            return Err(PatternError::new(format!(
                "anchor {anchor}: accepted are whole seconds; leave out the fraction"
            )));
        }
        Ok(Self { anchor, ..self })
    }

    /// The time between two occurrences.
    pub fn length(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// The first occurrence.
    pub fn anchor(&self) -> Timestamp {
        self.anchor
    }

    pub(super) fn first_after(&self, after: Timestamp) -> Option<Timestamp> {
        if after < self.anchor {
            return Some(self.anchor);
        }
        let length = i64::from(self.seconds);
        let done = after.duration_since(self.anchor).as_secs() / length;
        let since_anchor = SignedDuration::from_secs(length.checked_mul(done + 1)?);
        self.anchor.checked_add(since_anchor).ok()
    }
}

impl FromStr for Interval {
    type Err = PatternError;

    /// `15m`, or `15m from 2027-01-01T00:00:00Z`.
    fn from_str(text: &str) -> Result<Self, PatternError> {
        let mut words = text.split_whitespace();
        let refused = || {
            let text = Quoted(text.trim());
            PatternError::new(format!(
                "interval {text}: accepted are 1s to 366d, such as 90s, 15m, 6h or 7d"
            ))
        };
        let interval =
            Self::new(length(words.next().unwrap_or_default()).ok_or_else(refused)?).map_err(|_| refused())?;
        match (words.next(), words.next(), words.next()) {
            (None, ..) => Ok(interval),
            (Some("from"), Some(anchor), None) => interval.anchored(anchor.parse().map_err(|_| {
                let anchor = Quoted(anchor);
                PatternError::new(format!(
                    "anchor {anchor}: accepted is an instant such as 2027-01-01T00:00:00Z"
                ))
            })?),
            _ => Err(PatternError::new(format!(
                "interval {}: accepted is DURATION, or DURATION from INSTANT",
                Quoted(text.trim())
            ))),
        }
    }
}

fn length(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY_SECONDS.into(),
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    Some(Duration::from_secs(number.checked_mul(seconds)?))
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(DAY_SECONDS, "d"), (3600, "h"), (60, "m"), (1, "s")];
        let whole = units
            .into_iter()
            .find(|(seconds, _)| self.seconds.is_multiple_of(*seconds));
        let (seconds, unit) = whole.unwrap_or((1, "s"));
        write!(f, "{}{unit}", self.seconds / seconds)?;
        if self.anchor != Timestamp::UNIX_EPOCH {
            write!(f, " from {}", self.anchor)?;
        }
        Ok(())
    }
}
