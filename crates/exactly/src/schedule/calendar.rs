//! Local times as sets of calendar fields, searched without walking through the minutes between them.

use jiff::civil::{Date, DateTime, Time};

/// The minutes of a calendar that a pattern means. Bit `n` of a field stands for the value `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Calendar {
    pub(super) minutes: u64,
    pub(super) hours: u64,
    /// 1 to 31.
    pub(super) days: u64,
    /// 1 to 12.
    pub(super) months: u64,
    /// 0 is Sunday, 6 is Saturday.
    pub(super) weekdays: u64,
    /// A date needs its day or its weekday, and not both.
    pub(super) either_day: bool,
}

/// 29 in February: there are such years.
const DAYS_MAX: [(u32, u32); 12] = [
    (1, 31),
    (2, 29),
    (3, 31),
    (4, 30),
    (5, 31),
    (6, 30),
    (7, 31),
    (8, 31),
    (9, 30),
    (10, 31),
    (11, 30),
    (12, 31),
];

impl Calendar {
    /// Every day at one time.
    pub(super) fn daily(hour: u8, minute: u8) -> Self {
        Self {
            minutes: 1 << minute,
            hours: 1 << hour,
            days: bits(1, 31),
            months: bits(1, 12),
            weekdays: bits(0, 6),
            either_day: false,
        }
    }

    /// Whether there is a date for it. A date that exists falls on every weekday sooner or later, 29 February too.
    pub(super) fn has_dates(&self) -> bool {
        let month_has_day =
            |(month, days_max): (u32, u32)| has(self.months, month) && self.days & bits(1, days_max) != 0;
        self.either_day || DAYS_MAX.into_iter().any(month_has_day)
    }

    /// The first of its local times that is not before `from`.
    pub(super) fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let date = self.date_from(from.date())?;
        if date == from.date() {
            if let Some(time) = self.time_from(from.time()) {
                return Some(date.to_datetime(time));
            }
            let date = self.date_from(date.tomorrow().ok()?)?;
            return Some(date.to_datetime(self.time_from(Time::midnight())?));
        }
        Some(date.to_datetime(self.time_from(Time::midnight())?))
    }

    /// Month by month, and day by day only in a month that is meant.
    fn date_from(&self, from: Date) -> Option<Date> {
        let mut date = from;
        loop {
            if !has(self.months, date.month()) {
                date = next_month(date)?;
            } else if self.has_day(date) {
                return Some(date);
            } else {
                date = date.tomorrow().ok()?;
            }
        }
    }

    fn has_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day {
            day || weekday
        } else {
            day && weekday
        }
    }

    fn time_from(&self, from: Time) -> Option<Time> {
        let begun = from.second() > 0 || from.subsec_nanosecond() > 0;
        let minute = i16::from(from.minute()) + i16::from(begun);
        if has(self.hours, from.hour())
            && let Some(minute) = lowest_from(self.minutes, minute)
        {
            return Time::new(from.hour(), minute, 0, 0).ok();
        }
        let hour = lowest_from(self.hours, i16::from(from.hour()) + 1)?;
        Time::new(hour, lowest_from(self.minutes, 0)?, 0, 0).ok()
    }
}

/// The bits from `first` to `last`, both included.
pub(super) fn bits(first: u32, last: u32) -> u64 {
    (first..=last).fold(0, |bits, bit| bits | 1 << bit)
}

fn has(bits: u64, bit: impl TryInto<u32>) -> bool {
    bit.try_into().is_ok_and(|bit: u32| bits >> bit & 1 == 1)
}

/// The lowest bit that is set and not below `from`, which is at most 60.
fn lowest_from(bits: u64, from: i16) -> Option<i8> {
    let left = bits & (u64::MAX << from);
    (left != 0).then(|| i8::try_from(left.trailing_zeros()).ok()).flatten()
}

fn next_month(date: Date) -> Option<Date> {
    if date.month() == 12 {
        Date::new(date.year().checked_add(1)?, 1, 1).ok()
    } else {
        Date::new(date.year(), date.month() + 1, 1).ok()
    }
}
