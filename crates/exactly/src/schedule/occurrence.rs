//! Occurrences, one after the other.

use std::iter::FusedIterator;

use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::calendar::Calendar;
use super::stretch::{Search, Stretch};
use super::{Interval, Pattern, Zone};

/// One time at which a pattern fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Occurrence {
    /// When.
    pub instant: Timestamp,
    /// The local date that it stands for. If it is shifted, the date that was meant, which may be the day before.
    pub local_date: Date,
    /// The local time that was meant. If it is shifted, no clock showed it on that date.
    pub local_time: Time,
    /// What the clocks do there.
    pub kind: Kind,
}

/// What the clocks do where an occurrence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The local time comes once.
    Regular,
    /// The local time is skipped; this is the first instant after the gap.
    Shifted,
    /// The local time comes twice; this is the first.
    FirstOfTwo,
}

/// The occurrences of a pattern after an instant, in order. From [`Pattern::after`].
#[derive(Clone, Debug)]
pub struct Occurrences<'a> {
    zone: &'a Zone,
    source: Source,
    /// None once there are no more.
    after: Option<Timestamp>,
}

#[derive(Clone, Debug)]
enum Source {
    /// With the stretch of the latest occurrence, which the next one is most likely in too.
    Local(Calendar, Stretch),
    Interval(Interval),
}

impl<'a> Occurrences<'a> {
    pub(super) fn new(pattern: &Pattern, zone: &'a Zone, after: Timestamp) -> Self {
        let local = |calendar| Source::Local(calendar, Stretch::around(zone.time_zone(), after));
        Self {
            zone,
            source: match pattern {
                Pattern::Daily(time) => local(time.calendar()),
                Pattern::Cron(expression) => local(expression.calendar()),
                Pattern::Every(interval) => Source::Interval(*interval),
            },
            after: Some(after),
        }
    }

    fn first_after(&mut self, after: Timestamp) -> Option<Occurrence> {
        let zone = self.zone.time_zone();
        let (calendar, stretch) = match &mut self.source {
            Source::Local(calendar, stretch) => (calendar, stretch),
            Source::Interval(interval) => {
                let instant = interval.first_after(after)?;
                return Some(Occurrence::new(instant, zone.to_datetime(instant), Kind::Regular));
            }
        };
        let mut from = after.checked_add(SignedDuration::from_nanos(1)).ok()?;
        loop {
            if !stretch.contains(from) {
                *stretch = Stretch::around(zone, from);
            }
            match stretch.search(calendar, from) {
                Search::Found(occurrence) => return Some(occurrence),
                Search::Later(instant) => from = instant,
                Search::Never => return None,
            }
        }
    }
}

impl Iterator for Occurrences<'_> {
    type Item = Occurrence;

    fn next(&mut self) -> Option<Occurrence> {
        let found = self.after.and_then(|after| self.first_after(after));
        self.after = found.map(|occurrence| occurrence.instant);
        found
    }
}

impl FusedIterator for Occurrences<'_> {}

impl Occurrence {
    pub(super) fn new(instant: Timestamp, meant: DateTime, kind: Kind) -> Self {
        Self {
            instant,
            local_date: meant.date(),
            local_time: meant.time(),
            kind,
        }
    }
}

impl Kind {
    /// As it is written in JSON and in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Shifted => "shifted",
            Self::FirstOfTwo => "first_of_two",
        }
    }
}
