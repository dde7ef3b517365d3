//! What the rounds of one queue came to.

use serde::Serialize;

use super::check::Fault;
use super::{WorkCell, WorkOutcome, WorkSabotage};
use crate::crew::Blows;
use crate::report::verdict;
use crate::trial::{Tally, Told as _, Trial as _};

#[derive(Debug, Serialize)]
pub(crate) struct WorkRow {
    #[serde(flatten)]
    cell: WorkCell,
    blows: Blows,
    tasks: usize,
    rescues: u64,
    duplicates: usize,
    lost: usize,
    /// The longest that something lay with a dead worker after its lease had ended.
    overdue_ms: u128,
    violations: Vec<String>,
}

impl WorkRow {
    pub(crate) const HEADER: [&str; 10] = [
        "",
        "kills",
        "freezes",
        "tasks",
        "rescues",
        "duplicates",
        "lost",
        "overdue",
        "violations",
        "verdict",
    ];

    pub(crate) fn new(cell: WorkCell) -> Self {
        Self {
            cell,
            blows: Blows::default(),
            tasks: 0,
            rescues: 0,
            duplicates: 0,
            lost: 0,
            overdue_ms: 0,
            violations: Vec::new(),
        }
    }

    pub(crate) fn is_control(&self) -> bool {
        self.cell.is_control()
    }

    pub(crate) fn cells(&self) -> [String; 10] {
        [
            self.cell.to_string(),
            self.blows.kills.to_string(),
            self.blows.freezes.to_string(),
            self.tasks.to_string(),
            self.rescues.to_string(),
            self.duplicates.to_string(),
            self.lost.to_string(),
            format!("{} ms", self.overdue_ms),
            self.violations.len().to_string(),
            verdict(self.is_control(), self.is_green()).to_owned(),
        ]
    }
}

impl Tally<WorkOutcome> for WorkRow {
    fn add(&mut self, outcome: &WorkOutcome) {
        self.blows += outcome.blows;
        self.tasks += outcome.tasks;
        self.rescues += outcome.rescues;
        self.overdue_ms = self.overdue_ms.max(outcome.overdue.as_millis());
        for violation in &outcome.violations {
            self.duplicates += usize::from(matches!(violation.fault, Fault::Duplicate(_)));
            self.lost += usize::from(violation.fault == Fault::Lost);
        }
        self.violations.extend(outcome.violations());
    }

    fn kills(&self) -> u32 {
        self.blows.kills
    }

    /// A control has to find what it was made for.
    fn is_green(&self) -> bool {
        match self.cell.sabotage {
            WorkSabotage::None => self.violations.is_empty(),
            WorkSabotage::LooseEffect => self.duplicates > 0,
            WorkSabotage::NoFence => !self.violations.is_empty(),
        }
    }
}
