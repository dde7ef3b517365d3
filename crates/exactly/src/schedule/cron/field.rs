//! One field of a cron expression.

use super::super::{PatternError, Quoted};

/// What a field accepts.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    min: u32,
    max: u32,
    /// Three letters each, beginning at `min`.
    names: &'static [&'static str],
}

pub(super) const MINUTE: Field = Field::numbers("minute", 0, 59);
pub(super) const HOUR: Field = Field::numbers("hour", 0, 23);
pub(super) const DAY: Field = Field::numbers("day-of-month", 1, 31);
pub(super) const MONTH: Field = Field {
    names: &[
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ],
    ..Field::numbers("month", 1, 12)
};
/// Up to 7, which is Sunday again.
pub(super) const WEEKDAY: Field = Field {
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    ..Field::numbers("day-of-week", 0, 7)
};

impl Field {
    const fn numbers(name: &'static str, min: u32, max: u32) -> Self {
        Self {
            name,
            min,
            max,
            names: &[],
        }
    }

    /// The values that `text` names, as bits.
    pub(super) fn parse(&self, text: &str) -> Result<u64, PatternError> {
        if text != "*" && text.split(',').any(|item| item == "*") {
            return Err(self.refuse(text, "has * in a list, which is everything; write only *"));
        }
        text.split(',').try_fold(0, |set, item| Ok(set | self.item(item)?))
    }

    /// One part of a list.
    fn item(&self, item: &str) -> Result<u64, PatternError> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (item, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.min, self.max),
            Some((first, last)) => self.range(range, first, last)?,
            None => {
                let value = self.value(range)?;
                if let Some(step) = step {
                    let max = self.max;
                    let why = format!("has a step without a range; write it as {value}-{max}/{step}");
                    return Err(self.refuse(item, &why));
                }
                (value, value)
            }
        };
        let every = (first..=last).step_by(step.unwrap_or(1));
        Ok(every.fold(0, |set, value| set | 1 << value))
    }

    fn range(&self, range: &str, first: &str, last: &str) -> Result<(u32, u32), PatternError> {
        let (start, mut end) = (self.value(first)?, self.value(last)?);
        // FRI-SUN ends with the Sunday after it, as 5-7 does.
        if self.max == 7 && last.eq_ignore_ascii_case("SUN") && start > 0 {
            end = 7;
        }
        if start > end {
            return Err(self.refuse(
                range,
                "runs backwards; write it as two ranges with a comma between them",
            ));
        }
        Ok((start, end))
    }

    fn value(&self, text: &str) -> Result<u32, PatternError> {
        if let Some(value) = number(text).filter(|value| (self.min..=self.max).contains(value)) {
            return Ok(value);
        }
        let named = (self.min..)
            .zip(self.names)
            .find(|(_, name)| text.eq_ignore_ascii_case(name));
        if let Some((value, _)) = named {
            return Ok(value);
        }
        let (min, max) = (self.min, self.max);
        let accepted = match self.names {
            [first, .., last] => format!("accepted are {min} to {max} and {first} to {last}"),
            _ => format!("accepted are {min} to {max}"),
        };
        let why = if number(text).is_some() {
            "is out of range"
        } else if text.contains(['L', 'W', '#', '?']) {
            "is not a value; L, W, # and ? are not supported"
        } else {
            "is not a value"
        };
        Err(self.refuse(text, &format!("{why}, {accepted}")))
    }

    fn step(&self, text: &str) -> Result<usize, PatternError> {
        number(text)
            .filter(|step| (1..=self.max).contains(step))
            .and_then(|step| usize::try_from(step).ok())
            .ok_or_else(|| self.refuse(text, &format!("is not a step, accepted are 1 to {}", self.max)))
    }

    fn refuse(&self, text: &str, why: &str) -> PatternError {
        PatternError::new(format!("cron field {}: {} {why}", self.name, Quoted(text)))
    }
}

/// One or two digits and nothing else, not even a sign.
fn number(text: &str) -> Option<u32> {
    let plain = text.len() <= 2 && text.bytes().all(|digit| digit.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}
