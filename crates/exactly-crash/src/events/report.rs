//! What the rounds of events came to.

use serde::Serialize;

use super::check::Fault;
use super::{EventCell, EventOutcome, EventSabotage};
use crate::crew::Blows;
use crate::report::verdict;
use crate::trial::{Tally, Told as _, Trial as _};

#[derive(Debug, Serialize)]
pub(crate) struct EventRow {
    #[serde(flatten)]
    cell: EventCell,
    blows: Blows,
    counts: EventCounts,
    duplicates: usize,
    lost: usize,
    unexpected: usize,
    unnoted: usize,
    reopened: usize,
    violations: Vec<String>,
}

/// What there was to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct EventCounts {
    /// Events whose rows are there.
    pub(crate) committed: usize,
    /// Events that were rolled back, or died with their transaction.
    pub(crate) undone: usize,
    /// Requests on the wire.
    pub(crate) posts: usize,
    /// Those that came to harm there.
    pub(crate) harmed: usize,
    /// Attempts in the histories of deliveries, and those that succeeded.
    pub(crate) attempts: usize,
    /// How often a delivery was taken from the dead or the frozen.
    pub(crate) rescues: u64,
}

impl EventRow {
    pub(crate) const HEADER: [&str; 12] = [
        "",
        "kills",
        "freezes",
        "events",
        "undone",
        "requests",
        "harmed",
        "attempts",
        "rescues",
        "duplicates",
        "lost",
        "verdict",
    ];

    pub(crate) fn new(cell: EventCell) -> Self {
        Self {
            cell,
            blows: Blows::default(),
            counts: EventCounts::default(),
            duplicates: 0,
            lost: 0,
            unexpected: 0,
            unnoted: 0,
            reopened: 0,
            violations: Vec::new(),
        }
    }

    pub(crate) fn is_control(&self) -> bool {
        self.cell.is_control()
    }

    pub(crate) fn cells(&self) -> [String; 12] {
        let counts = &self.counts;
        [
            self.cell.to_string(),
            self.blows.kills.to_string(),
            self.blows.freezes.to_string(),
            counts.committed.to_string(),
            counts.undone.to_string(),
            counts.posts.to_string(),
            counts.harmed.to_string(),
            counts.attempts.to_string(),
            counts.rescues.to_string(),
            self.duplicates.to_string(),
            self.lost.to_string(),
            verdict(self.is_control(), self.is_green()).to_owned(),
        ]
    }
}

impl Tally<EventOutcome> for EventRow {
    fn add(&mut self, outcome: &EventOutcome) {
        let counts = outcome.counts;
        self.blows += outcome.blows;
        self.counts.committed += counts.committed;
        self.counts.undone += counts.undone;
        self.counts.posts += counts.posts;
        self.counts.harmed += counts.harmed;
        self.counts.attempts += counts.attempts;
        self.counts.rescues += counts.rescues;
        for violation in &outcome.violations {
            match violation.fault {
                Fault::Duplicate(_) => self.duplicates += 1,
                Fault::Lost => self.lost += 1,
                Fault::Unexpected => self.unexpected += 1,
                Fault::Unnoted(..) => self.unnoted += 1,
                Fault::Reopened => self.reopened += 1,
                _ => {}
            }
        }
        self.violations.extend(outcome.violations());
    }

    fn kills(&self) -> u32 {
        self.blows.kills
    }

    /// A control has to find what it was made for.
    fn is_green(&self) -> bool {
        match self.cell.sabotage {
            EventSabotage::None => self.violations.is_empty(),
            EventSabotage::NoNote => self.duplicates > 0,
            EventSabotage::LooseEvent => self.unexpected > 0,
            EventSabotage::NoHistory => self.unnoted > 0,
            EventSabotage::NoFence => self.reopened > 0,
        }
    }
}
