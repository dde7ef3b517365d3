//! Numbers and patterns that look random and are the same in every run.

use super::oracle::Meant;

/// `SplitMix64`.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// From `min` to below `max`.
    pub(crate) fn between(&mut self, min: i64, max: i64) -> i64 {
        let span = u64::try_from(max - min).unwrap();
        min + i64::try_from(self.next() % span).unwrap()
    }

    pub(crate) fn one_in(&mut self, n: i64) -> bool {
        self.between(0, n) == 0
    }

    /// A time of day, most often at night, when clocks are changed.
    fn hour(&mut self) -> i64 {
        if self.one_in(3) {
            self.between(0, 24)
        } else {
            [23, 0, 1, 2, 3][usize::try_from(self.between(0, 5)).unwrap()]
        }
    }

    pub(crate) fn daily(&mut self) -> Meant {
        let (hour, minute) = (self.hour(), self.between(0, 12) * 5 + self.between(0, 2));
        Meant::daily(hour, minute)
    }

    pub(crate) fn cron(&mut self) -> Meant {
        let hours = [self.hour(), self.hour()];
        let minute = match self.between(0, 4) {
            0 => self.steps(0, 59, 30),
            1 => self.list(0, 59, 4),
            2 => self.range(0, 59),
            _ => self.list(0, 59, 1),
        };
        let hour = match self.between(0, 4) {
            0 => self.steps(0, 23, 6),
            1 => self.range(0, 23),
            2 => everything(0, 23),
            _ => listed(&hours),
        };
        let (mut day, mut month, mut weekday) = (everything(1, 31), everything(1, 12), everything(0, 6));
        match self.between(0, 6) {
            0 => day = self.list(1, 31, 8),
            1 => weekday = self.list(0, 7, 2),
            2 => (day, weekday) = (self.list(1, 28, 6), self.range(0, 7)),
            3 => (day, weekday) = (self.steps(1, 31, 3), self.list(0, 6, 3)),
            4 => month = self.range(1, 12),
            _ => {}
        }
        Meant::cron([minute, hour, day, month, weekday])
    }

    fn list(&mut self, min: i64, max: i64, count: i64) -> (String, Vec<i64>) {
        let values: Vec<i64> = (0..count).map(|_| self.between(min, max + 1)).collect();
        listed(&values)
    }

    fn range(&mut self, min: i64, max: i64) -> (String, Vec<i64>) {
        let (a, b) = (self.between(min, max + 1), self.between(min, max + 1));
        let (first, last) = (a.min(b), a.max(b));
        let step = self.between(1, 8.min(max));
        let values = (first..=last).filter(|value| (value - first) % step == 0);
        (format!("{first}-{last}/{step}"), values.collect())
    }

    fn steps(&mut self, min: i64, max: i64, most: i64) -> (String, Vec<i64>) {
        let step = self.between(1, most + 1);
        let values = (min..=max).filter(|value| (value - min) % step == 0);
        (format!("*/{step}"), values.collect())
    }
}

fn everything(min: i64, max: i64) -> (String, Vec<i64>) {
    ("*".to_owned(), (min..=max).collect())
}

fn listed(values: &[i64]) -> (String, Vec<i64>) {
    let texts: Vec<String> = values.iter().map(i64::to_string).collect();
    (texts.join(","), values.to_vec())
}
