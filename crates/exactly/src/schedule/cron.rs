//! Cron expressions, read as Vixie cron reads them.

mod field;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use self::field::{DAY, Field, HOUR, MINUTE, MONTH, WEEKDAY};
use super::calendar::Calendar;
use super::{PatternError, Quoted};

/// Five fields: minute, hour, day of the month, month, day of the week.
///
/// A field is `*` or a list of values and ranges, each of which may have a step: `0,30`, `9-17`, `*/15`, `8-18/2`. Months and
/// weekdays have names, `JAN` and `MON`; both 0 and 7 are Sunday. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are
/// short for the obvious.
///
/// If both day fields are restricted, a date needs only one of them: `0 9 1 * MON` is the first of each month and every
/// Monday. A field that begins with `*` is not restricted in this sense, even with a step, and then a date needs both.
///
/// Two expressions are equal if they mean the same, however they are written.
#[derive(Clone)]
pub struct CronExpr {
    /// As it was written, for people.
    text: String,
    calendar: Calendar,
}

/// More than anybody writes who means it.
const TEXT_BYTES_MAX: usize = 255;

const FIELDS: [&Field; 5] = [&MINUTE, &HOUR, &DAY, &MONTH, &WEEKDAY];

const SHORT: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

impl CronExpr {
    pub(super) fn calendar(&self) -> Calendar {
        self.calendar
    }
}

impl FromStr for CronExpr {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(PatternError::new(format!(
                "cron expression is {} bytes long, at most {TEXT_BYTES_MAX} are accepted",
                text.len()
            )));
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let calendar = match words[..] {
            [word] if word.starts_with('@') => return short(word),
            [minute, hour, day, month, weekday] => calendar([minute, hour, day, month, weekday])?,
            _ => return Err(miscounted(text, words.len())),
        };
        if !calendar.has_dates() {
            return Err(PatternError::new(format!(
                "cron expression {}: never fires, because none of its months has such a day",
                Quoted(text)
            )));
        }
        Ok(Self {
            text: words.join(" "),
            calendar,
        })
    }
}

fn short(word: &str) -> Result<CronExpr, PatternError> {
    let known = SHORT.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    let (name, fields) = known.ok_or_else(|| {
        PatternError::new(format!(
            "cron expression {}: accepted are @hourly, @daily, @weekly, @monthly, @yearly and five fields",
            Quoted(word)
        ))
    })?;
    let long: CronExpr = fields.parse()?;
    Ok(CronExpr {
        text: (*name).to_owned(),
        ..long
    })
}

fn calendar(words: [&str; 5]) -> Result<Calendar, PatternError> {
    let mut sets = [0; 5];
    for ((set, field), word) in sets.iter_mut().zip(FIELDS).zip(words) {
        *set = field.parse(word)?;
    }
    let [minutes, hours, days, months, weekdays] = sets;
    let is_restricted = |word: &str| !word.starts_with('*');
    Ok(Calendar {
        minutes,
        hours,
        days,
        months,
        // Sunday has two numbers.
        weekdays: (weekdays | weekdays >> 7) & 0x7f,
        either_day: is_restricted(words[2]) && is_restricted(words[4]),
    })
}

fn miscounted(text: &str, count: usize) -> PatternError {
    let text = Quoted(text.trim());
    let fields = FIELDS.map(|field| field.name).join(", ");
    let seconds = if count == 6 || count == 7 {
        "; seconds and years are not accepted"
    } else {
        ""
    };
    PatternError::new(format!(
        "cron expression {text}: has {count} fields, accepted are five ({fields}){seconds}"
    ))
}

impl fmt::Display for CronExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for CronExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CronExpr({self})")
    }
}

impl PartialEq for CronExpr {
    fn eq(&self, other: &Self) -> bool {
        self.calendar == other.calendar
    }
}

impl Eq for CronExpr {}

impl Hash for CronExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.calendar.hash(state);
    }
}
