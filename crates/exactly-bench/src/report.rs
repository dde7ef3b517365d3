//! What was found, as a table for people and as JSON for programs.

use std::path::Path;

use serde::Serialize;

use crate::Result;
use crate::machine::Facts;
use crate::versus::{Course, Ratio};

/// What a figure has to be.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

/// One figure, with all it was taken from.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) scenario: &'static str,
    pub(crate) what: String,
    pub(crate) against: String,
    pub(crate) theirs: String,
    pub(crate) ours: String,
    pub(crate) ratio: Ratio,
    /// How many times less CPU time ours takes, where that was measured.
    pub(crate) cpu_ratio: Option<Ratio>,
    pub(crate) wanted: Wanted,
    pub(crate) foreign_max: f64,
    pub(crate) notes: Vec<String>,
    pub(crate) courses: Vec<Course>,
}

impl Wanted {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {least:.2}"),
            Self::AtMost(most) => format!("≤ {most:.2}"),
        }
    }
}

impl Finding {
    /// Requests per second of the last course against the fastest of the others.
    pub(crate) fn throughput(scenario: &'static str, what: &str, wanted: Wanted, courses: Vec<Course>) -> Self {
        let (ours, others) = courses.split_last().expect("ours is measured");
        let rate = |course: &Course| course.median(|turn| turn.per_second);
        let theirs = others
            .iter()
            .max_by(|one, other| rate(one).total_cmp(&rate(other)))
            .expect("something is measured beside ours");
        let shown = |course: &Course| format!("{:.0}/s {:.1}µs", rate(course), course.median(|turn| turn.cpu_us));
        let mut notes: Vec<String> = courses.iter().map(Course::describe).collect();
        if others.len() > 1 {
            notes.push(format!("compared with the fastest of the others: {}", theirs.name));
        }
        Self {
            scenario,
            what: what.to_owned(),
            against: theirs.name.clone(),
            theirs: shown(theirs),
            ours: shown(ours),
            ratio: ours.over(theirs, |turn| turn.per_second),
            cpu_ratio: Some(theirs.over(ours, |turn| turn.cpu_us)),
            wanted,
            foreign_max: courses.iter().map(Course::foreign_max).fold(0.0, f64::max),
            notes,
            courses,
        }
    }

    /// A figure of ours that is held against nobody's.
    pub(crate) fn alone(scenario: &'static str, what: &str, unit: &str, figure: Ratio, wanted: Wanted) -> Self {
        // Large ones are counts, and small ones would otherwise be all alike.
        let digits = if figure.median < 10.0 { 2 } else { 0 };
        Self {
            scenario,
            what: what.to_owned(),
            against: "—".to_owned(),
            theirs: String::new(),
            ours: format!("{:.digits$} {unit}", figure.median),
            ratio: figure,
            cpu_ratio: None,
            wanted,
            foreign_max: 0.0,
            notes: Vec::new(),
            courses: Vec::new(),
        }
    }

    pub(crate) fn is_met(&self) -> bool {
        self.wanted.is_met(self.ratio.median)
    }
}

pub(crate) fn print(facts: &Facts, findings: &[Finding]) {
    facts.print();
    let header = [
        "scenario",
        "against",
        "theirs",
        "ours",
        "ratio",
        "min–max",
        "wanted",
        "",
        "cpu ratio",
        "foreign",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(findings.iter().map(row));
    let widths: Vec<usize> = (0..header.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    println!();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    for finding in findings {
        println!("\n{}: {}", finding.scenario, finding.what);
        finding.notes.iter().for_each(|note| println!("  {note}"));
    }
}

fn row(finding: &Finding) -> [String; 10] {
    let ratio = finding.ratio;
    [
        finding.scenario.to_owned(),
        finding.against.clone(),
        finding.theirs.clone(),
        finding.ours.clone(),
        format!("{:.2}", ratio.median),
        format!("{:.2}–{:.2}", ratio.min, ratio.max),
        finding.wanted.text(),
        if finding.is_met() { "met" } else { "MISSED" }.to_owned(),
        finding
            .cpu_ratio
            .map_or_else(String::new, |ratio| format!("{:.2}", ratio.median)),
        format!("{:.0} %", finding.foreign_max * 100.0),
    ]
}

pub(crate) fn write_json(path: &Path, facts: &Facts, findings: &[Finding]) -> Result<()> {
    let report = serde_json::json!({ "machine": facts, "findings": findings });
    std::fs::write(path, serde_json::to_string_pretty(&report)? + "\n")?;
    Ok(())
}
