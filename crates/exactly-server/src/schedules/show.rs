//! Occurrences as people and programs read them.

use exactly::schedule::{Kind, Occurrence, Pattern, Zone, tzdb_version};
use jiff::civil::Time;
use jiff::tz::Offset;
use serde::Serialize;

use crate::calls::Table;

/// An occurrence in JSON.
#[derive(Debug, Serialize)]
struct Shown {
    instant: String,
    /// What the clocks show then, with their offset.
    local: String,
    local_date: String,
    kind: &'static str,
    zone: &'static str,
    tzdb: &'static str,
}

pub(super) fn json(zone: &Zone, occurrences: &[Occurrence]) -> serde_json::Result<String> {
    let shown: Vec<Shown> = occurrences
        .iter()
        .map(|occurrence| Shown {
            instant: occurrence.instant.to_string(),
            local: occurrence
                .instant
                .display_with_offset(offset(zone, occurrence))
                .to_string(),
            local_date: occurrence.local_date.to_string(),
            kind: occurrence.kind.as_str(),
            zone: zone.name(),
            tzdb: tzdb_version(),
        })
        .collect();
    serde_json::to_string_pretty(&shown)
}

pub(super) fn table(pattern: &Pattern, zone: &Zone, occurrences: &[Occurrence]) -> String {
    let mut table = Table::new(["LOCAL TIME", "UTC", "LOCAL DATE", "KIND", "NOTE"]);
    for occurrence in occurrences {
        let offset = offset(zone, occurrence);
        let local = offset.to_datetime(occurrence.instant);
        let fires = format!("{} {}", clock(local.time()), signed(offset));
        table.row([
            &format!("{} {fires}", local.date()),
            &occurrence.instant.to_string(),
            &occurrence.local_date.to_string(),
            occurrence.kind.as_str(),
            &note(occurrence, &fires),
        ]);
    }
    let heading = format!("{pattern} in {zone}, tz database {}", tzdb_version());
    if occurrences.is_empty() {
        return format!("{heading}: no occurrence before the calendar ends in the year 9999\n");
    }
    format!("{heading}\n\n{table}")
}

/// What is unusual, in words.
fn note(occurrence: &Occurrence, fires: &str) -> String {
    let (meant, date) = (clock(occurrence.local_time), occurrence.local_date);
    match occurrence.kind {
        Kind::Regular => String::new(),
        Kind::Shifted => format!("{meant} does not exist on {date}: fires at {fires}"),
        Kind::FirstOfTwo => format!("{meant} comes twice: fires the first time"),
    }
}

fn offset(zone: &Zone, occurrence: &Occurrence) -> Offset {
    zone.time_zone().to_offset(occurrence.instant)
}

/// With seconds only if there are some.
fn clock(time: Time) -> String {
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    if second == 0 {
        format!("{hour:02}:{minute:02}")
    } else {
        format!("{hour:02}:{minute:02}:{second:02}")
    }
}

/// `-04:00`, and `-00:44:30` where it was so.
fn signed(offset: Offset) -> String {
    let sign = if offset.is_negative() { '-' } else { '+' };
    let seconds = offset.seconds().unsigned_abs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if seconds == 0 {
        format!("{sign}{hours:02}:{minutes:02}")
    } else {
        format!("{sign}{hours:02}:{minutes:02}:{seconds:02}")
    }
}
