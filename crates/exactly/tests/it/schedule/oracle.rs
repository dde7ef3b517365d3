//! What a schedule does, found by looking at a clock on the wall every minute.
//!
//! Nothing is shared with the engine but jiff's lookup of an offset: not its calendar, not its transitions, not its words
//! for gaps and folds.

use std::collections::{BTreeMap, HashMap, HashSet};

use exactly::schedule::Pattern;
use jiff::Timestamp;
use jiff::tz::TimeZone;

const DAY: i64 = 86_400;
/// So far beyond its ends a window is looked at: a local time may come again that much later.
const MARGIN: i64 = 27 * 3600;

/// A pattern in words that the engine does not know.
#[derive(Debug)]
pub(crate) struct Meant {
    pub(crate) text: String,
    minutes: Vec<bool>,
    hours: Vec<bool>,
    days: Vec<bool>,
    months: Vec<bool>,
    weekdays: Vec<bool>,
    either_day: bool,
}

/// What the clocks of a zone showed, minute by minute.
pub(crate) struct Wall {
    from: i64,
    until: i64,
    /// In the order in which they were shown.
    shown: Vec<(i64, Moment)>,
    /// Jumped over and never shown, with the instant right after the jump.
    skipped: Vec<(i64, Moment)>,
    /// The local times that were shown twice.
    again: HashSet<i64>,
    /// The instants at which one was shown the second time.
    repeats: HashSet<i64>,
    dates: HashSet<i64>,
}

/// What a clock and a calendar show when a minute begins.
#[derive(Clone, Copy, Debug)]
struct Moment {
    local: i64,
    minute: usize,
    hour: usize,
    day: usize,
    month: usize,
    weekday: usize,
}

/// The page of a calendar that is open, because turning to it takes longest.
struct Page {
    days: i64,
    month: i64,
    day: i64,
}

impl Meant {
    pub(crate) fn daily(hour: i64, minute: i64) -> Self {
        let all = |min, max| ("*".to_owned(), (min..=max).collect());
        let one = |value: i64| (value.to_string(), vec![value]);
        Self {
            text: format!("daily {hour:02}:{minute:02}"),
            ..Self::cron([one(minute), one(hour), all(1, 31), all(1, 12), all(0, 6)])
        }
    }

    /// Each field as a text and as the values that it means.
    pub(crate) fn cron(fields: [(String, Vec<i64>); 5]) -> Self {
        let texts: Vec<&str> = fields.iter().map(|(text, _)| &**text).collect();
        let text = format!("cron {}", texts.join(" "));
        let either_day = !texts[2].starts_with('*') && !texts[4].starts_with('*');
        let set = |values: &[i64]| (0..60).map(|value| values.contains(&value)).collect::<Vec<bool>>();
        let [minutes, hours, days, months, mut weekdays] = fields.map(|(_, values)| set(&values));
        weekdays[0] |= weekdays[7];
        Self {
            text,
            minutes,
            hours,
            days,
            months,
            weekdays,
            either_day,
        }
    }

    pub(crate) fn pattern(&self) -> Pattern {
        self.text.parse().unwrap()
    }

    fn has(&self, at: &Moment) -> bool {
        let (day, weekday) = (self.days[at.day], self.weekdays[at.weekday]);
        self.minutes[at.minute]
            && self.hours[at.hour]
            && self.months[at.month]
            && if self.either_day {
                day || weekday
            } else {
                day && weekday
            }
    }
}

impl Wall {
    /// Looks at the clocks from one instant to another, both in seconds since 1970.
    pub(crate) fn watch(zone: &TimeZone, from: i64, until: i64) -> Self {
        let offset = |instant| i64::from(zone.to_offset(Timestamp::from_second(instant).unwrap()).seconds());
        // Offsets of whole minutes show a new minute at whole minutes.
        let begin = (from - MARGIN).div_euclid(60) * 60;
        let odd = [begin, until + MARGIN].iter().any(|instant| offset(*instant) % 60 != 0);
        let step = if odd { 30 } else { 60 };
        let mut wall = Self {
            from,
            until,
            shown: Vec::new(),
            skipped: Vec::new(),
            again: HashSet::new(),
            repeats: HashSet::new(),
            dates: HashSet::new(),
        };
        let mut jumps = Vec::new();
        let mut page = Page::of(begin.div_euclid(DAY));
        let mut expected = begin + offset(begin);
        let mut latest = expected;
        let mut instant = begin;
        while instant < until + MARGIN {
            let local = instant + offset(instant);
            if local > expected {
                jumps.push((instant, expected, local));
            }
            if local % 60 == 0 {
                // Only where the clocks have been put back can a time come again.
                if local < latest {
                    wall.again.insert(local);
                    wall.repeats.insert(instant);
                }
                wall.dates.insert(local.div_euclid(DAY));
                wall.shown.push((instant, page.minute(local)));
            }
            latest = latest.max(local + 1);
            expected = local + step;
            instant += step;
        }
        for (instant, first, end) in jumps {
            let minutes = (first..end).filter(|local| local % 60 == 0);
            wall.skipped.extend(minutes.map(|local| (instant, page.minute(local))));
        }
        wall
    }

    /// When the pattern fires: instant, local date in days since 1970, kind.
    pub(crate) fn occurrences(&self, meant: &Meant) -> Vec<(i64, i64, &'static str)> {
        let mut fires: BTreeMap<i64, (i64, &'static str)> = BTreeMap::new();
        for (instant, minute) in &self.shown {
            if meant.has(minute) && !self.repeats.contains(instant) {
                let twice = self.again.contains(&minute.local);
                fires.insert(
                    *instant,
                    (minute.date(), if twice { "first_of_two" } else { "regular" }),
                );
            }
        }
        let mut shifted: HashMap<i64, i64> = HashMap::new();
        for (instant, minute) in &self.skipped {
            if meant.has(minute) && self.dates.contains(&minute.date()) {
                shifted.entry(*instant).or_insert(minute.date());
            }
        }
        for (instant, date) in shifted {
            fires.entry(instant).or_insert((date, "shifted"));
        }
        let within = fires
            .into_iter()
            .filter(|(instant, _)| (self.from..self.until).contains(instant));
        within.map(|(instant, (date, kind))| (instant, date, kind)).collect()
    }
}

impl Moment {
    fn date(&self) -> i64 {
        self.local.div_euclid(DAY)
    }
}

impl Page {
    fn of(days: i64) -> Self {
        let (month, day) = month_and_day(days);
        Self { days, month, day }
    }

    fn minute(&mut self, local: i64) -> Moment {
        let (days, seconds) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        if days != self.days {
            *self = Self::of(days);
        }
        let index = |number: i64| usize::try_from(number).unwrap();
        Moment {
            local,
            minute: index(seconds / 60 % 60),
            hour: index(seconds / 3600),
            day: index(self.day),
            month: index(self.month),
            // 1970 began on a Thursday.
            weekday: index((days + 4).rem_euclid(7)),
        }
    }
}

/// The Gregorian calendar, counted by hand.
fn month_and_day(days_since_1970: i64) -> (i64, i64) {
    let (mut year, mut left) = (1970, days_since_1970);
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while left < 0 {
        year -= 1;
        left += 365 + i64::from(is_leap(year));
    }
    while left >= 365 + i64::from(is_leap(year)) {
        left -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    for (month, days) in (1..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
        if left < days {
            return (month, left + 1);
        }
        left -= days;
    }
    unreachable!("a year has twelve months");
}
