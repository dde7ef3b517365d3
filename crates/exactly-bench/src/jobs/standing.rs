//! How the contenders of a scenario stand to each other, as a table for people and as JSON for programs.

use std::path::Path;

use serde::Serialize;

use crate::Result;
use crate::machine::Facts;
use crate::report::Finding;
use crate::versus::{Course, Ratio, Turn};

/// What became of one contender.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// How many jobs each of its turns had.
    pub(super) jobs: u64,
    pub(super) outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Measured(Course),
    NotMeasured(String),
}

/// One scenario, with all who took part.
#[derive(Debug, Serialize)]
pub(super) struct Standing {
    pub(super) scenario: &'static str,
    pub(super) what: String,
    pub(super) entries: Vec<Entry>,
}

impl Entry {
    pub(super) fn course(&self) -> Option<&Course> {
        match &self.outcome {
            Outcome::Measured(course) => Some(course),
            Outcome::NotMeasured(_) => None,
        }
    }
}

impl Standing {
    /// The fastest of those that were measured.
    fn fastest(&self) -> Option<&Course> {
        fastest(self.entries.iter().filter_map(Entry::course))
    }
}

pub(super) fn fastest<'a>(courses: impl Iterator<Item = &'a Course>) -> Option<&'a Course> {
    courses.max_by(|one, other| rate(one).median.total_cmp(&rate(other).median))
}

/// Jobs per second, over all turns.
fn rate(course: &Course) -> Ratio {
    Ratio::of(course.turns.iter().map(|turn| turn.per_second))
}

/// Progress, for who waits.
pub(super) fn print_turn(round: u32, name: &str, turn: &Turn) {
    eprintln!(
        "  {round}  {name:<34} {:>9.0} /s  {:>7.1} µs cpu  foreign {:>3.0} %",
        turn.per_second,
        turn.cpu_us,
        turn.foreign * 100.0
    );
}

pub(super) fn print(standings: &[Standing]) {
    let header = [
        "scenario",
        "contender",
        "jobs",
        "jobs/s",
        "min–max",
        "of the fastest",
        "worker µs",
        "database µs",
        "foreign",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    for standing in standings {
        let measured = standing
            .entries
            .iter()
            .filter_map(|entry| Some((entry, entry.course()?)));
        rows.extend(measured.map(|(entry, course)| row(standing, entry, course)));
    }
    let widths: Vec<usize> = (0..header.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    println!();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    for standing in standings {
        println!("\n{}: {}", standing.scenario, standing.what);
        for entry in &standing.entries {
            if let Outcome::NotMeasured(reason) = &entry.outcome {
                println!("  {}: not measured: {reason}", entry.name);
            }
        }
    }
}

fn row(standing: &Standing, entry: &Entry, course: &Course) -> [String; 9] {
    let rate = rate(course);
    let share = standing
        .fastest()
        .map_or(f64::NAN, |fastest| course.over(fastest, |turn| turn.per_second).median);
    [
        standing.scenario.to_owned(),
        entry.name.to_owned(),
        entry.jobs.to_string(),
        format!("{:.0}", rate.median),
        format!("{:.0}–{:.0}", rate.min, rate.max),
        format!("{share:.2}"),
        format!("{:.1}", course.median(|turn| turn.cpu_us - turn.database_cpu_us)),
        format!("{:.1}", course.median(|turn| turn.database_cpu_us)),
        format!("{:.0} %", course.foreign_max() * 100.0),
    ]
}

pub(super) fn write_json(path: &Path, facts: &Facts, standings: &[Standing], findings: &[Finding]) -> Result<()> {
    let report = serde_json::json!({ "machine": facts, "standings": standings, "findings": findings });
    std::fs::write(path, serde_json::to_string_pretty(&report)? + "\n")?;
    Ok(())
}
