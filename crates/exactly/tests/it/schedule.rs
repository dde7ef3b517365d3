//! When schedules fire.

mod cron;
mod dates;
mod days;
mod every;
mod oracle;
mod random;
mod scan;
mod sequence;
mod zone;

use exactly::schedule::{Occurrence, Pattern, Zone};
use jiff::Timestamp;

fn zone(name: &str) -> Zone {
    name.parse().unwrap()
}

fn pattern(text: &str) -> Pattern {
    text.parse().unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// An occurrence as a line: instant, local date, kind.
fn line(occurrence: &Occurrence) -> String {
    let Occurrence {
        instant,
        local_date,
        kind,
        ..
    } = occurrence;
    format!("{instant} {local_date} {}", kind.as_str())
}
