//! A TOML table, read key by key, with every mistake written down.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::Faults;

/// One table of the file.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    /// The keys that lead here, with a dot after them.
    path: String,
    at: usize,
    keys: &'a DeTable<'a>,
    read: BTreeSet<&'a str>,
}

impl<'a> Table<'a> {
    pub(crate) fn root(table: &'a DeTable<'a>) -> Self {
        Self {
            path: String::new(),
            at: 0,
            keys: table,
            read: BTreeSet::new(),
        }
    }

    /// The table under `key`, if there is one.
    pub(crate) fn table(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Option<Table<'a>> {
        let value = self.get(key)?;
        if let DeValue::Table(table) = value.get_ref() {
            return Some(Self::below(format!("{}{key}.", self.path), value, table));
        }
        self.refuse(key, value, "a table", faults);
        None
    }

    /// The tables in this one, whose names are the user's.
    pub(crate) fn named(&mut self) -> Vec<(&'a str, Table<'a>)> {
        let mut tables = Vec::new();
        for (name, value) in self.keys {
            if let DeValue::Table(table) = value.get_ref() {
                let name: &'a str = name.get_ref();
                self.read.insert(name);
                tables.push((name, Self::below(format!("{}{name}.", self.path), value, table)));
            }
        }
        tables
    }

    /// The tables of the array under `key`.
    pub(crate) fn tables(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Vec<Table<'a>> {
        let Some(value) = self.get(key) else {
            return Vec::new();
        };
        let mut tables = Vec::new();
        if let DeValue::Array(array) = value.get_ref() {
            for (index, element) in array.iter().enumerate() {
                if let DeValue::Table(table) = element.get_ref() {
                    tables.push(Self::below(format!("{}{key}[{index}].", self.path), element, table));
                }
            }
            if tables.len() == array.len() {
                return tables;
            }
        }
        self.refuse(key, value, &format!("tables, each under [[{key}]]"), faults);
        tables
    }

    /// A text that `parse` can read.
    pub(crate) fn parsed<T: FromStr>(
        &mut self,
        key: &'static str,
        accepted: &str,
        faults: &mut Faults<'_>,
    ) -> Option<T> {
        self.read(key, accepted, faults, |value| text(value)?.parse().ok())
    }

    pub(crate) fn text(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Option<String> {
        let accepted = "a text that is not empty";
        self.read(key, accepted, faults, |value| {
            text(value).filter(|text| !text.is_empty()).map(str::to_owned)
        })
    }

    /// Whether `key` is just this text.
    pub(crate) fn is_text(&mut self, key: &'static str, wanted: &str) -> bool {
        self.get(key).is_some_and(|value| text(value.get_ref()) == Some(wanted))
    }

    pub(crate) fn flag(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Option<bool> {
        self.read(key, "true or false", faults, |value| match value {
            DeValue::Boolean(flag) => Some(*flag),
            _ => None,
        })
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
        faults: &mut Faults<'_>,
    ) -> Option<T> {
        let accepted: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        self.read(key, &accepted.join(" or "), faults, |value| {
            let found = words.iter().find(|(word, _)| text(value) == Some(word));
            found.map(|(_, meaning)| *meaning)
        })
    }

    /// Texts, each of which `parse` can read.
    pub(crate) fn list<T: FromStr>(
        &mut self,
        key: &'static str,
        accepted: &str,
        faults: &mut Faults<'_>,
    ) -> Option<Vec<T>> {
        self.read(key, &format!("a list of {accepted}"), faults, |value| match value {
            DeValue::Array(array) => array
                .iter()
                .map(|element| text(element.get_ref())?.parse().ok())
                .collect(),
            _ => None,
        })
    }

    pub(crate) fn duration(
        &mut self,
        key: &'static str,
        within: &RangeInclusive<Duration>,
        faults: &mut Faults<'_>,
    ) -> Option<Duration> {
        let accepted = format!(
            "a number and a unit (\"250ms\", \"10s\", \"5m\", \"24h\", \"7d\"), from {} to {}",
            shown(*within.start()),
            shown(*within.end())
        );
        self.read(key, &accepted, faults, |value| {
            duration(text(value)?).filter(|duration| within.contains(duration))
        })
    }

    pub(crate) fn bytes(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Option<usize> {
        let accepted = "a number of bytes, or \"64KiB\", \"1MiB\", \"1GiB\"";
        self.read(key, accepted, faults, |value| match value {
            DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix()).ok(),
            value => bytes(text(value)?),
        })
    }

    pub(crate) fn count(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Option<usize> {
        self.read(key, "a number that is at least 1", faults, |value| match value {
            DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix())
                .ok()
                .filter(|count| *count > 0),
            _ => None,
        })
    }

    /// Texts that are not to be shown, not even if they are wrong.
    pub(crate) fn secrets(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Option<Vec<String>> {
        let value = self.get(key)?;
        let texts = match value.get_ref() {
            DeValue::Array(array) => {
                let texts = array.iter().map(|element| text(element.get_ref()).map(str::to_owned));
                texts.collect::<Option<Vec<_>>>()
            }
            _ => None,
        };
        if texts.is_none() {
            let name = self.name_of(key);
            let what = format!("{name} is something else than a list of texts");
            faults.add(value.span().start, name, what);
        }
        texts
    }

    /// A text that is not to be shown, not even if it is wrong.
    pub(crate) fn secret(&mut self, key: &'static str, faults: &mut Faults<'_>) -> Option<String> {
        let value = self.get(key)?;
        let secret = text(value.get_ref()).map(str::to_owned);
        if secret.is_none() {
            let name = self.name_of(key);
            let what = format!("{name} is something else than a text");
            faults.add(value.span().start, name, what);
        }
        secret
    }

    /// Every key of a table whose keys are the user's, with its text.
    pub(crate) fn texts(&mut self, faults: &mut Faults<'_>) -> Vec<(&'a str, &'a str)> {
        let mut texts = Vec::new();
        for (name, value) in self.keys {
            match text(value.get_ref()) {
                Some(text) => texts.push((name.get_ref().as_ref(), text)),
                None => self.refuse(name.get_ref(), value, "a text", faults),
            }
        }
        texts
    }

    pub(crate) fn read<T>(
        &mut self,
        key: &'static str,
        accepted: &str,
        faults: &mut Faults<'_>,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(key)?;
        let found = read(value.get_ref());
        if found.is_none() {
            self.refuse(key, value, accepted, faults);
        }
        found
    }

    /// Says that the value of `key` cannot be.
    pub(crate) fn refuse_key(&self, key: &'static str, accepted: &str, faults: &mut Faults<'_>) {
        if let Some(value) = self.keys.get(key) {
            self.refuse(key, value, accepted, faults);
        }
    }

    /// Says that the value of `key` cannot be, without showing it.
    pub(crate) fn refuse_hidden(&self, key: &str, what: impl Into<String>, faults: &mut Faults<'_>) {
        faults.add(self.at_of(key), self.name_of(key), what);
    }

    /// Says that the table as a whole cannot be.
    pub(crate) fn refuse_whole(&self, what: impl Into<String>, faults: &mut Faults<'_>) {
        faults.add(self.at, self.path.trim_end_matches('.'), what);
    }

    /// A key with those that lead to it.
    pub(crate) fn name_of(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// Where the value of `key` stands in the file.
    pub(crate) fn at_of(&self, key: &str) -> usize {
        self.keys.get(key).map_or(self.at, |value| value.span().start)
    }

    /// Writes down the keys that nobody asked for.
    pub(crate) fn finish(self, faults: &mut Faults<'_>) {
        for key in self.keys.keys() {
            let name: &str = key.get_ref();
            if !self.read.contains(name) {
                let accepted: Vec<_> = self.read.iter().copied().collect();
                let name = self.name_of(name);
                let what = format!("{name} is not a setting; here are: {}", accepted.join(", "));
                faults.add(key.span().start, name, what);
            }
        }
    }

    fn get(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.read.insert(key);
        self.keys.get(key)
    }

    fn below(path: String, value: &'a Spanned<DeValue<'a>>, table: &'a DeTable<'a>) -> Table<'a> {
        Table {
            path,
            at: value.span().start,
            keys: table,
            read: BTreeSet::new(),
        }
    }

    fn refuse(&self, key: &str, value: &Spanned<DeValue<'_>>, accepted: &str, faults: &mut Faults<'_>) {
        let (name, shown) = (self.name_of(key), Shown(value.get_ref()));
        let what = format!("{name} is {shown}, accepted is {accepted}");
        faults.add(value.span().start, name, what);
    }
}

fn text<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    match value {
        DeValue::String(text) => Some(text),
        _ => None,
    }
}

/// `10s`, `250ms`, `24h`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    Some(match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        "h" => Duration::from_secs(number.checked_mul(3600)?),
        "d" => Duration::from_secs(number.checked_mul(86400)?),
        _ => return None,
    })
}

/// A duration as it could stand in the file.
fn shown(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if duration.subsec_millis() > 0 {
        return format!("{}ms", duration.as_millis());
    }
    let units = [(86400, "d"), (3600, "h"), (60, "m")];
    let whole = units
        .iter()
        .find(|(unit, _)| seconds > *unit && seconds.is_multiple_of(*unit));
    whole.map_or_else(
        || format!("{seconds}s"),
        |(unit, name)| format!("{}{name}", seconds / unit),
    )
}

fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    usize::try_from(number.checked_mul(factor)?).ok()
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// A value as it may be shown in a message.
struct Shown<'v>(&'v DeValue<'v>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DeValue::String(text) => write!(f, "{text:?}"),
            DeValue::Integer(number) => number.fmt(f),
            DeValue::Float(number) => number.fmt(f),
            DeValue::Boolean(flag) => flag.fmt(f),
            DeValue::Datetime(moment) => moment.fmt(f),
            DeValue::Array(array) => {
                f.write_str("[")?;
                for (index, element) in array.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { ", " })?;
                    Shown(element.get_ref()).fmt(f)?;
                }
                f.write_str("]")
            }
            DeValue::Table(_) => f.write_str("a table"),
        }
    }
}
