//! When a schedule fires, in every time zone: pure, without a clock.
//!
//! A [`Pattern`] says what is meant, such as every day at 09:00; [`Pattern::after`] gives the instants, each with the local
//! date that it stands for. The answer depends on pattern, zone and instant alone, so nodes agree and a restart goes on
//! where it was: starting anywhere gives the tail of the same sequence. Zones come from the database that is compiled in,
//! never from the machine, so all nodes of one release know the same rules.
//!
//! Clocks are put forward and back, and a schedule has to say what it does then:
//!
//! - A local time that is skipped fires once, at the first instant after the gap, under the date that it was meant for.
//!   Several times skipped by one gap fire once together; if the instant itself is one of the pattern's, it is that one.
//! - A local time that comes twice fires once, the first time.
//! - A local date that does not exist, such as 30 December 2011 in Apia, makes no occurrence.
//!
//! Unlike the `cron` crate, which leaves out what falls into a gap and fires twice in an hour that comes twice; and unlike
//! `jiff-cron`, which loses the rest of the day of a transition.
//!
//! ```
//! use exactly::schedule::{Kind, Pattern, Zone};
//!
//! let nightly: Pattern = "daily 02:30".parse()?;
//! let new_york: Zone = "America/New_York".parse()?;
//! let saturday = "2027-03-13T12:00:00Z".parse()?;
//!
//! // On Sunday 02:30 does not exist: the clocks go from 02:00 to 03:00.
//! let mut occurrences = nightly.after(&new_york, saturday);
//! let sunday = occurrences.next().expect("there is a next night");
//! assert_eq!(sunday.instant.to_string(), "2027-03-14T07:00:00Z");
//! assert_eq!(sunday.local_date.to_string(), "2027-03-14");
//! assert_eq!(sunday.kind, Kind::Shifted);
//!
//! let monday = occurrences.next().expect("there is a next night");
//! assert_eq!(monday.instant.to_string(), "2027-03-15T06:30:00Z");
//! assert_eq!(monday.kind, Kind::Regular);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod calendar;
mod cron;
mod daily;
mod interval;
mod occurrence;
mod stretch;
mod zone;

use std::error;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

pub use self::cron::CronExpr;
pub use self::daily::TimeOfDay;
pub use self::interval::Interval;
pub use self::occurrence::{Kind, Occurrence, Occurrences};
pub use self::zone::{Zone, ZoneError, tzdb_version};

/// When something is due.
///
/// As text it is `daily 09:00`, `cron 0 9 * * MON-FRI` or `every 15m from 2027-01-01T00:00:00Z`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Once on every local date, at this time.
    Daily(TimeOfDay),
    /// At the local times that a cron expression names.
    Cron(CronExpr),
    /// After equal times, whatever the clocks on the walls do.
    Every(Interval),
}

/// Why a text or a number is no pattern. The message names what is wrong with it and what is accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct PatternError {
    message: String,
}

impl Pattern {
    /// The occurrences strictly later than `after`, in order, until the calendar ends with the year 9999.
    pub fn after<'a>(&'a self, zone: &'a Zone, after: Timestamp) -> Occurrences<'a> {
        Occurrences::new(self, zone, after)
    }

    /// The first occurrence strictly later than `after`.
    pub fn next_after(&self, zone: &Zone, after: Timestamp) -> Option<Occurrence> {
        self.after(zone, after).next()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daily(time) => write!(f, "daily {time}"),
            Self::Cron(expression) => write!(f, "cron {expression}"),
            Self::Every(interval) => write!(f, "every {interval}"),
        }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match word {
            "daily" => rest.parse().map(Self::Daily),
            "cron" => rest.parse().map(Self::Cron),
            "every" => rest.parse().map(Self::Every),
            _ => Err(PatternError::new(format!(
                "pattern {}: accepted are `daily HH:MM`, `cron EXPRESSION` and `every DURATION`",
                Quoted(text)
            ))),
        }
    }
}

impl PatternError {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PatternError({self})")
    }
}

impl error::Error for PatternError {}

/// A text in a message: quoted, and cut where nobody reads on.
struct Quoted<'a>(&'a str);

const QUOTED_CHARS_MAX: usize = 60;

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(QUOTED_CHARS_MAX) {
            Some((end, _)) => write!(f, "{:?}…", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}
