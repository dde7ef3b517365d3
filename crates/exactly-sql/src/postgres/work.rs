//! A batch on its way through the database.

use exactly::clock::Timestamp;
use exactly::store::record::{self, Change, Record};
use exactly::{Call, CallId, Fenced, Verdict};

use crate::batch::Step;
use crate::error::Shared;

/// What a step's caller will be told.
#[derive(Debug)]
pub(super) enum Answer {
    Begun(Verdict),
    Peeked(Option<Verdict>),
    Fenced(Fenced),
    /// A transaction elsewhere holds the record. Nothing was done, and the caller is not told yet.
    Held,
    /// Only this step failed.
    Failed(Shared),
}

/// Steps, their answers as far as they are known, and who has to be woken for them.
#[derive(Debug)]
pub(super) struct Work<'s> {
    pub(super) steps: &'s [Step],
    pub(super) answers: Vec<Option<Answer>>,
    /// Records that changed so that whoever waits for them may go on.
    pub(super) settled: Vec<CallId>,
    /// Those of them that another process may wait for.
    pub(super) waited: Vec<CallId>,
    /// Records in flight that someone waits for from now on, and whose row does not say so yet.
    pub(super) unmarked: Vec<CallId>,
}

impl<'s> Work<'s> {
    pub(super) fn new(steps: &'s [Step]) -> Self {
        let answers = std::iter::repeat_with(|| None).take(steps.len()).collect();
        Self {
            steps,
            answers,
            settled: Vec::new(),
            waited: Vec::new(),
            unmarked: Vec::new(),
        }
    }

    /// Answers a begin or a look at `index` if that takes no change of the record.
    pub(super) fn answer_unchanged(&mut self, index: usize, found: Option<&Record>, waited: bool, now: Timestamp) {
        match &self.steps[index] {
            Step::Begin { call, .. } => {
                let (Change::Keep, verdict) = record::begin(found, call, now) else {
                    return;
                };
                if matches!(verdict, Verdict::InFlight { .. }) && !waited {
                    self.unmarked.push(*call.id());
                }
                self.answers[index] = Some(Answer::Begun(verdict));
            }
            Step::Peek { call, .. } => {
                self.answers[index] = Some(Answer::Peeked(record::peek(found, call, now)));
            }
            Step::Write { .. } | Step::GiveBack { .. } => {}
        }
    }

    pub(super) fn settle(&mut self, index: usize, fenced: Fenced, waited: bool) {
        self.answers[index] = Some(Answer::Fenced(fenced));
        let id = *self.steps[index].id();
        self.settled.push(id);
        if waited {
            self.waited.push(id);
        }
    }

    /// The steps that nobody answered yet, in the order they came.
    pub(super) fn unanswered(&self) -> Vec<usize> {
        (0..self.steps.len())
            .filter(|&index| self.answers[index].is_none())
            .collect()
    }
}

/// What becomes of a record by a step, by the state machine's word.
pub(super) fn transition(step: &Step, found: Option<&Record>, now: Timestamp) -> (Change, Answer) {
    match step {
        Step::Begin { call, .. } => {
            let (change, verdict) = record::begin(found, call, now);
            (change, Answer::Begun(verdict))
        }
        Step::Peek { call, .. } => (Change::Keep, Answer::Peeked(record::peek(found, call, now))),
        Step::Write { write, .. } | Step::GiveBack { abandon: write, .. } => {
            let (change, fenced) = write.transition(found, now);
            (change, Answer::Fenced(fenced))
        }
    }
}

/// The call of a begin.
pub(super) fn begun(step: &Step) -> Option<&Call> {
    match step {
        Step::Begin { call, .. } => Some(call),
        Step::Peek { .. } | Step::Write { .. } | Step::GiveBack { .. } => None,
    }
}
