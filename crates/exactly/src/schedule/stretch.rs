//! Time cut where a zone's offset changes.
//!
//! Between two changes local time is instants plus a constant, and nothing is hard. All that is hard is at the cuts: what a
//! change skips, and what it brings a second time. In every zone of the database changes are more than three days apart, and
//! no offset is over 26 hours, so no local time is ever touched by two of them; a test holds this for the data that is
//! compiled in.

use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::calendar::Calendar;
use super::occurrence::{Kind, Occurrence};

/// From one change of the offset to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    offset: Offset,
    opens: Option<Change>,
    closes: Option<Change>,
}

/// A change of the offset. What it opens begins at its instant.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: Timestamp,
    before: Offset,
    after: Offset,
}

/// What a stretch has for a pattern.
pub(super) enum Search {
    Found(Occurrence),
    /// Nothing; go on from this instant.
    Later(Timestamp),
    /// Nothing, here or later.
    Never,
}

/// Local time is never further from UTC than this.
const OFFSET_MAX: SignedDuration = SignedDuration::from_hours(26);
/// Changes are at whole seconds, so what holds at one second holds until the next.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

impl Stretch {
    /// The one that `instant` is in.
    pub(super) fn around(zone: &TimeZone, instant: Timestamp) -> Self {
        let second = whole_second(instant);
        let offset = zone.to_offset(second);
        let next_second = second.checked_add(SECOND).unwrap_or(Timestamp::MAX);
        let opens = zone.preceding(next_second).next().map(|change| Change {
            at: change.timestamp(),
            before: zone.to_offset(change.timestamp().checked_sub(SECOND).unwrap_or(Timestamp::MIN)),
            after: offset,
        });
        let closes = zone.following(second).next().map(|change| Change {
            at: change.timestamp(),
            before: offset,
            after: change.offset(),
        });
        Self { offset, opens, closes }
    }

    pub(super) fn contains(&self, instant: Timestamp) -> bool {
        self.opens.is_none_or(|change| change.at <= instant) && self.closes.is_none_or(|change| instant < change.at)
    }

    /// The first occurrence in this stretch that is not before `from`, an instant in it.
    pub(super) fn search(&self, calendar: &Calendar, from: Timestamp) -> Search {
        let mut local_from = self.offset.to_datetime(from);
        if let Some(change) = self.opens {
            if change.at == from
                && let Some(meant) = change.first_skipped(calendar)
            {
                return Search::Found(Occurrence::new(from, meant, Kind::Shifted));
            }
            // What the change has brought back has been there already.
            local_from = local_from.max(change.before.to_datetime(change.at));
        }
        let Some(local) = calendar.first_from(local_from) else {
            return Search::Never;
        };
        match (self.offset.to_timestamp(local), self.closes) {
            (Ok(instant), None) => Search::Found(Occurrence::new(instant, local, Kind::Regular)),
            (Ok(instant), Some(change)) if instant < change.at => {
                Search::Found(Occurrence::new(instant, local, change.kind_before(local)))
            }
            (Err(_), None) => Search::Never,
            (_, Some(change)) => Search::Later(change.at.max(long_before(local))),
        }
    }
}

impl Change {
    /// How a local time before the change comes: it may come again after it.
    fn kind_before(&self, local: DateTime) -> Kind {
        if local >= self.after.to_datetime(self.at) {
            Kind::FirstOfTwo
        } else {
            Kind::Regular
        }
    }

    /// The first of the pattern's times that this change skips, unless the change itself is at one of its times.
    fn first_skipped(&self, calendar: &Calendar) -> Option<DateTime> {
        let (from, until) = (self.before.to_datetime(self.at), self.after.to_datetime(self.at));
        if from >= until || calendar.first_from(until) == Some(until) {
            return None;
        }
        let mut meant = calendar.first_from(from)?;
        while meant < until {
            if !is_all_within(meant.date(), from, until) {
                return Some(meant);
            }
            meant = calendar.first_from(midnight_after(meant.date())?)?;
        }
        None
    }
}

/// Whether the whole date is skipped, so that nobody ever wrote it on a letter.
fn is_all_within(date: Date, from: DateTime, until: DateTime) -> bool {
    date.at(0, 0, 0, 0) >= from && midnight_after(date).is_some_and(|end| end <= until)
}

fn midnight_after(date: Date) -> Option<DateTime> {
    Some(date.tomorrow().ok()?.at(0, 0, 0, 0))
}

/// The second that `instant` is in. Zones are asked for whole seconds only: of a fraction before 1970 jiff 0.2.39 says what
/// holds at the end of its second, which may be after a change.
fn whole_second(instant: Timestamp) -> Timestamp {
    let fraction = i64::from(instant.subsec_nanosecond() < 0);
    Timestamp::from_second(instant.as_second() - fraction).unwrap_or(Timestamp::MIN)
}

/// An instant before `local` in every zone. There is nothing to be found before it, so years without an occurrence are
/// passed in one step.
fn long_before(local: DateTime) -> Timestamp {
    let as_utc = Offset::UTC.to_timestamp(local).unwrap_or(Timestamp::MIN);
    as_utc.checked_sub(OFFSET_MAX).unwrap_or(Timestamp::MIN)
}
