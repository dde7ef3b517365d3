//! A time of day.

use std::fmt;
use std::str::FromStr;

use super::calendar::Calendar;
use super::{PatternError, Quoted};

/// A local time from 00:00 to 23:59.
///
/// Not jiff's `Time`, because a schedule has no seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay {
    hour: u8,
    minute: u8,
}

impl TimeOfDay {
    /// This time, if a day has it.
    pub fn new(hour: u8, minute: u8) -> Result<Self, PatternError> {
        if hour > 23 || minute > 59 {
            return Err(PatternError::new(format!(
                "time {hour:02}:{minute:02}: accepted are 00:00 to 23:59"
            )));
        }
        Ok(Self { hour, minute })
    }

    /// 0 to 23.
    pub fn hour(self) -> u8 {
        self.hour
    }

    /// 0 to 59.
    pub fn minute(self) -> u8 {
        self.minute
    }

    pub(super) fn calendar(self) -> Calendar {
        Calendar::daily(self.hour, self.minute)
    }
}

impl FromStr for TimeOfDay {
    type Err = PatternError;

    /// Two digits, a colon, two digits: 9:00 could be either half of the day.
    fn from_str(text: &str) -> Result<Self, PatternError> {
        let text = text.trim();
        let refused = || {
            let text = Quoted(text);
            PatternError::new(format!(
                "time {text}: accepted is HH:MM from 00:00 to 23:59, such as 09:00"
            ))
        };
        let two = |digits: &str| {
            let all = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_digit());
            all.then(|| digits.parse().ok()).flatten().ok_or_else(refused)
        };
        let (hour, minute) = text.split_once(':').ok_or_else(refused)?;
        Self::new(two(hour)?, two(minute)?)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute)
    }
}

impl fmt::Debug for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimeOfDay({self})")
    }
}
