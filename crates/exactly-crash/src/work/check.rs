//! Whether a round kept its promises.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// What was found when everything was over.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// What there must be: a trace per subject and local date.
    pub expected: BTreeSet<String>,
    /// Rows that transactions left: trace and nonce.
    pub effects: Vec<(String, String)>,
    /// What was written outside of them: trace and nonce, the last one only.
    pub letters: BTreeMap<String, String>,
    /// The outcome of each errand by its trace; `None` if it is not done.
    pub outcomes: BTreeMap<String, Option<String>>,
    /// How many rows of occurrences there must be.
    pub occurrences_expected: usize,
    /// How many there are.
    pub occurrences: usize,
    /// How many of them must be dead: those of a zone that is none.
    pub dead_expected: usize,
    /// How many are.
    pub dead: usize,
    /// What the dead held for too long: trace and time.
    pub stuck: BTreeMap<String, Duration>,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where.
    pub trace: String,
    /// How.
    pub fault: Fault,
}

/// How a promise was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It happened so often.
    Duplicate(usize),
    /// It did not happen.
    Lost,
    /// Nobody was to get it.
    Unexpected,
    /// It is not done although everything is over.
    Unfinished,
    /// The outcome that is stored is not of the attempt whose effect is there.
    OtherOutcome,
    /// Occurrences are missing, or there are too many: rows, and wanted.
    Occurrences(usize, usize),
    /// So many occurrences are dead, and so many should be.
    DeadOccurrences(usize, usize),
    /// Nobody took it from a dead worker for so long, after the lease had ended.
    Stuck(Duration),
}

/// What is wrong with these books, the gravest first.
pub fn check(books: &Books) -> Vec<Violation> {
    let mut made: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (trace, nonce) in &books.effects {
        made.entry(trace).or_default().push(nonce);
    }
    for (trace, nonce) in &books.letters {
        made.entry(trace).or_default().push(nonce);
    }
    let mut faults = Vec::new();
    let mut fault = |trace: &str, fault| {
        faults.push(Violation {
            trace: trace.to_owned(),
            fault,
        });
    };
    for (trace, nonces) in &made {
        if nonces.len() > 1 {
            fault(trace, Fault::Duplicate(nonces.len()));
        }
        if !books.expected.contains(*trace) {
            fault(trace, Fault::Unexpected);
        }
    }
    for trace in &books.expected {
        let nonces = made.get(trace.as_str()).map(Vec::as_slice).unwrap_or_default();
        match (nonces, books.outcomes.get(trace)) {
            ([], _) => fault(trace, Fault::Lost),
            (_, None | Some(None)) => fault(trace, Fault::Unfinished),
            (nonces, Some(Some(outcome))) if !nonces.contains(&outcome.as_str()) => fault(trace, Fault::OtherOutcome),
            _ => {}
        }
    }
    for trace in books.outcomes.keys().filter(|trace| !books.expected.contains(*trace)) {
        fault(trace, Fault::Unexpected);
    }
    if books.occurrences != books.occurrences_expected {
        fault(
            "occurrences",
            Fault::Occurrences(books.occurrences, books.occurrences_expected),
        );
    }
    if books.dead != books.dead_expected {
        fault("occurrences", Fault::DeadOccurrences(books.dead, books.dead_expected));
    }
    for (trace, time) in &books.stuck {
        fault(trace, Fault::Stuck(*time));
    }
    faults
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.trace)?;
        match &self.fault {
            Fault::Duplicate(times) => write!(f, "happened {times} times"),
            Fault::Lost => f.write_str("did not happen"),
            Fault::Unexpected => f.write_str("nobody was to get it"),
            Fault::Unfinished => f.write_str("happened and is not done"),
            Fault::OtherOutcome => f.write_str("has the outcome of another attempt than the one whose effect is there"),
            Fault::Occurrences(rows, wanted) => write!(f, "{rows} rows, not {wanted}"),
            Fault::DeadOccurrences(dead, wanted) => {
                write!(f, "{dead} are dead, not the {wanted} of a zone that is none")
            }
            Fault::Stuck(time) => write!(f, "held by a dead worker for {time:?} after its lease had ended"),
        }
    }
}
