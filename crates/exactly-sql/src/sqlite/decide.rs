//! What becomes of a batch, decided in memory.
//!
//! One id may come several times in a batch: ten duplicates at once, or a begin and the completion that follows it. The
//! steps are decided in their order, each on the record as the step before it left it, and each record is written once.

use std::collections::HashMap;

use exactly::clock::Timestamp;
use exactly::store::record::{self, Change, Record, State};
use exactly::{Call, CallId, Fenced, Key, Scope, Verdict};

use super::table::{Saved, Stored};
use crate::batch::{Step, Write};
use crate::error::Shared;

/// The rows of a batch's ids, as far as there are any. One that cannot be read fails only the steps about it.
pub(super) type Rows = HashMap<CallId, Result<Stored, Shared>>;

/// The batch's answers, and what has to be written before they may be given.
#[derive(Debug)]
pub(super) struct Plan {
    /// One per step, in their order.
    pub(super) answers: Vec<Decided>,
    entries: Vec<Entry>,
}

/// One step's answer.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) answer: Result<Answer, Shared>,
    /// Whether it rests on a change of this batch, and so must not be given before the commit.
    pub(super) waits: bool,
}

impl Decided {
    /// The answer to a write whose claim held.
    pub(super) fn applied() -> Self {
        Self {
            answer: Ok(Answer::Write(Fenced::Applied)),
            waits: true,
        }
    }
}

#[derive(Debug)]
pub(super) enum Answer {
    Begin(Verdict),
    Peek(Option<Verdict>),
    Write(Fenced),
}

/// A record as the steps so far left it.
#[derive(Debug)]
pub(super) struct Entry {
    id: CallId,
    record: Option<Record>,
    created_at: Timestamp,
    /// Who asked for what, known from a begin.
    call: Option<(Scope, Key)>,
    /// Whether there is a row.
    stored: bool,
    changed: bool,
}

/// Decides every step at `now`.
pub(super) fn decide(steps: &[Step], mut rows: Rows, now: Timestamp) -> Plan {
    let mut places: HashMap<CallId, usize> = HashMap::with_capacity(steps.len());
    let mut entries: Vec<Entry> = Vec::with_capacity(steps.len());
    let mut answers = Vec::with_capacity(steps.len());
    for step in steps {
        let id = *step.id();
        if let Some(Err(error)) = rows.get(&id) {
            answers.push(Decided {
                answer: Err(error.clone()),
                waits: false,
            });
            continue;
        }
        let place = *places.entry(id).or_insert_with(|| {
            entries.push(Entry::new(id, rows.remove(&id).and_then(Result::ok), now));
            entries.len() - 1
        });
        let entry = &mut entries[place];
        let answer = Ok(entry.step(step, now));
        answers.push(Decided {
            answer,
            waits: entry.changed,
        });
    }
    Plan { answers, entries }
}

impl Plan {
    /// Records to write.
    pub(super) fn saves(&self, now: Timestamp) -> impl Iterator<Item = Saved<'_>> {
        self.entries.iter().filter_map(move |entry| entry.saved(now))
    }

    /// Rows to delete.
    pub(super) fn deletes(&self) -> impl Iterator<Item = &CallId> {
        let gone = self
            .entries
            .iter()
            .filter(|entry| entry.changed && entry.stored && entry.record.is_none());
        gone.map(|entry| &entry.id)
    }
}

impl Entry {
    pub(super) fn new(id: CallId, row: Option<Stored>, now: Timestamp) -> Self {
        let stored = row.is_some();
        let (record, created_at) = row.map_or((None, now), |row| (Some(row.record), row.created_at));
        Self {
            id,
            record,
            created_at,
            call: None,
            stored,
            changed: false,
        }
    }

    /// What to write, if anything changed.
    pub(super) fn saved(&self, now: Timestamp) -> Option<Saved<'_>> {
        let record = self.record.as_ref().filter(|_| self.changed)?;
        let call = self.call.as_ref().map(|(scope, key)| (scope, key));
        Some(Saved {
            id: &self.id,
            call,
            record,
            created_at: self.created_at,
            now,
            stored: self.stored,
        })
    }

    fn step(&mut self, step: &Step, now: Timestamp) -> Answer {
        match step {
            Step::Begin { call, .. } => Answer::Begin(self.begin(call, now)),
            Step::Peek { call, .. } => Answer::Peek(record::peek(self.record.as_ref(), call, now)),
            Step::Write { write, .. } | Step::GiveBack { abandon: write, .. } => Answer::Write(self.write(write, now)),
        }
    }

    pub(super) fn begin(&mut self, call: &Call, now: Timestamp) -> Verdict {
        let (change, verdict) = record::begin(self.record.as_ref(), call, now);
        if matches!(change, Change::Put(_)) {
            // An outcome whose retention has ended leaves the key to another operation, which is first used here.
            if self
                .record
                .as_ref()
                .is_none_or(|record| matches!(record.state, State::Done { .. }))
            {
                self.created_at = now;
            }
            self.call = Some((call.scope().clone(), call.key().clone()));
        }
        self.apply(change);
        verdict
    }

    pub(super) fn write(&mut self, write: &Write, now: Timestamp) -> Fenced {
        let (change, fenced) = write.transition(self.record.as_ref(), now);
        self.apply(change);
        fenced
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Keep => return,
            Change::Put(record) => self.record = Some(record),
            Change::Delete => self.record = None,
        }
        self.changed = true;
    }
}
