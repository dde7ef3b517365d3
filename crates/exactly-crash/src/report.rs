//! The result, for people and for programs.

use std::fmt;

use serde::Serialize;

use crate::check::Counts;
use crate::events::EventRow;
use crate::keeper::Kills;
use crate::plan::Cell;
use crate::round::Outcome;
use crate::sabotaged::Sabotage;
use crate::trial::{Tally, Told as _, Trial as _};
use crate::work::WorkRow;

/// What all rounds came to.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) rows: Vec<Row>,
    pub(crate) work: Vec<WorkRow>,
    pub(crate) events: Vec<EventRow>,
}

/// What the rounds of one cell came to.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    pub(crate) kills: Kills,
    pub(crate) counts: Counts,
    violations: Vec<String>,
    green: bool,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            seconds: 0.0,
            rows: Vec::new(),
            work: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(crate) fn is_green(&self) -> bool {
        self.rows.iter().all(|row| row.green)
            && self.work.iter().all(WorkRow::is_green)
            && self.events.iter().all(EventRow::is_green)
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }
}

impl Row {
    pub(crate) fn new(cell: Cell) -> Self {
        Self {
            cell,
            kills: Kills::default(),
            counts: Counts::default(),
            violations: Vec::new(),
            green: is_green(cell, 0, Counts::default()),
        }
    }

    fn is_control(&self) -> bool {
        self.cell.is_control()
    }

    fn verdict(&self) -> &'static str {
        verdict(self.is_control(), self.green)
    }
}

impl Tally<Outcome> for Row {
    fn add(&mut self, outcome: &Outcome) {
        self.kills += outcome.kills;
        self.counts += outcome.findings.counts;
        self.violations.extend(outcome.violations());
        self.green = is_green(self.cell, self.violations.len(), self.counts);
    }

    fn kills(&self) -> u32 {
        self.kills.total()
    }

    fn is_green(&self) -> bool {
        self.green
    }
}

/// What a row is called in the end.
pub(crate) fn verdict(is_control: bool, is_green: bool) -> &'static str {
    match (is_control, is_green) {
        (false, true) => "green",
        (false, false) => "RED",
        (true, true) => "red, as it must be",
        (true, false) => "GREEN: the lab is blind",
    }
}

/// A control has to find what it was made for.
fn is_green(cell: Cell, violations: usize, counts: Counts) -> bool {
    match cell.sabotage {
        Sabotage::None => violations == 0,
        Sabotage::NoIndex | Sabotage::NoFence | Sabotage::EarlyEffect => counts.duplicates > 0,
        Sabotage::EarlyAnswer => violations > 0,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [
            "",
            "kills",
            "random",
            "named",
            "frozen",
            "requests",
            "keys",
            "acked",
            "effects",
            "duplicates",
            "lost",
            "in doubt",
            "settled",
            "late",
            "fenced",
            "verdict",
        ];
        let calls: Vec<_> = self.rows.iter().map(cells).collect();
        table(f, header, &calls)?;
        let work: Vec<_> = self.work.iter().map(WorkRow::cells).collect();
        table(f, WorkRow::HEADER, &work)?;
        let events: Vec<_> = self.events.iter().map(EventRow::cells).collect();
        table(f, EventRow::HEADER, &events)?;
        let kills = |control: bool| -> u32 {
            let rows = self.rows.iter().filter(|row| row.is_control() == control);
            let work = self.work.iter().filter(|row| row.is_control() == control);
            let events = self.events.iter().filter(|row| row.is_control() == control);
            let crews = work.map(WorkRow::kills).chain(events.map(EventRow::kills));
            rows.map(|row| row.kills.total()).chain(crews).sum()
        };
        let (kills, controls) = (kills(false), kills(true));
        write!(
            f,
            "{kills} kills and {controls} in controls, {:.0} s, seed {}: ",
            self.seconds, self.seed
        )?;
        let only_controls = self.rows.iter().all(Row::is_control)
            && self.work.iter().all(WorkRow::is_control)
            && self.events.iter().all(EventRow::is_control);
        f.write_str(match (self.is_green(), only_controls) {
            (true, true) => "every control turned red",
            (true, false) => "green",
            (false, _) => "RED",
        })
    }
}

/// Names on both sides, numbers between them. Nothing if there is no row.
fn table<const COLUMNS: usize>(
    f: &mut fmt::Formatter<'_>,
    header: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let header = header.map(str::to_owned);
    let lines = || std::iter::once(&header).chain(rows);
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let widths = lines().map(|line| line[column].chars().count());
        widths.max().unwrap_or_default()
    });
    for line in lines() {
        write!(f, "{:<width$}", line[0], width = widths[0])?;
        for (cell, width) in line.iter().zip(widths).take(COLUMNS - 1).skip(1) {
            write!(f, "  {cell:>width$}")?;
        }
        writeln!(f, "  {}", line[COLUMNS - 1])?;
    }
    Ok(())
}

fn cells(row: &Row) -> [String; 16] {
    let Row {
        cell, kills, counts, ..
    } = row;
    [
        cell.to_string(),
        kills.total().to_string(),
        kills.random.to_string(),
        kills.named.to_string(),
        kills.frozen.to_string(),
        counts.requests.to_string(),
        counts.keys.to_string(),
        counts.acknowledged.to_string(),
        counts.effects.to_string(),
        counts.duplicates.to_string(),
        counts.lost.to_string(),
        counts.in_doubt.to_string(),
        counts.settled.to_string(),
        counts.settled_late.to_string(),
        counts.fenced.to_string(),
        row.verdict().to_owned(),
    ]
}
