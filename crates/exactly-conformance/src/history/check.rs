//! Whether some order of atomic steps explains a history.
//!
//! The search is Wing and Gong's with Lowe's memory: take any step that was asked before every step not yet taken was
//! answered, let the model take it, compare the answers, go on; and never explore the same set of taken steps with the
//! same record twice.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::store::record::{self, Change, Record};
use exactly::{Call, CallId, Fenced, Verdict};

use super::workload::KEEP;
use super::{Answer, End, Event, Step};
use crate::request::SLACK;

/// The most steps on one key, time included: one bit each.
pub const STEPS_MAX: usize = u128::BITS as usize;

/// Where the model's clock starts. Durations alone matter.
const START: Timestamp = Timestamp::from_millis(1_000_000_000_000);

/// Checks each key's part of the history.
///
/// `Err` shows the part that nothing explains, and how far the best explanation gets.
pub fn check(history: &[Event]) -> Result<(), String> {
    let mut keys: BTreeMap<&CallId, Vec<&Event>> = BTreeMap::new();
    for event in history {
        if let Some(id) = event.step.id() {
            keys.entry(id).or_default().push(event);
        }
    }
    for (id, mut events) in keys {
        events.extend(history.iter().filter(|event| event.step.id().is_none()));
        events.sort_by_key(|event| event.asked);
        assert!(
            events.len() <= STEPS_MAX,
            "{} steps on one key are more than the search takes",
            events.len()
        );
        let mut search = Search {
            events: &events,
            seen: HashMap::new(),
            deepest: 0,
        };
        if !search.explains(0, None) {
            return Err(search.report(id));
        }
    }
    Ok(())
}

struct Search<'a> {
    events: &'a [&'a Event],
    /// Which records were met after taking which steps.
    seen: HashMap<u128, Vec<Option<Record>>>,
    /// The largest set of steps in an order that fits.
    deepest: u128,
}

impl Search<'_> {
    fn explains(&mut self, taken: u128, record: Option<Record>) -> bool {
        let left = |n: usize| taken & (1 << n) == 0;
        if taken.count_ones() > self.deepest.count_ones() {
            self.deepest = taken;
        }
        let answers = self
            .events
            .iter()
            .enumerate()
            .filter(|(n, _)| left(*n))
            .filter_map(|(_, event)| event.answered);
        // Steps that were given up may stay out for ever.
        let Some(first_answer) = answers.min() else { return true };
        let met = self.seen.entry(taken).or_default();
        if met.contains(&record) {
            return false;
        }
        met.push(record.clone());

        let now = self.now(taken);
        for (n, event) in self.events.iter().enumerate() {
            if left(n) && event.asked < first_answer {
                let after = take(event, record.as_ref(), now);
                if after.is_some_and(|after| self.explains(taken | 1 << n, after)) {
                    return true;
                }
            }
        }
        // What may be swept may be gone at any moment.
        record.is_some_and(|record| record::is_sweepable(&record, now)) && self.explains(taken, None)
    }

    /// The model's clock once these steps are taken.
    fn now(&self, taken: u128) -> Timestamp {
        let passed = self.events.iter().enumerate().filter(|(n, _)| taken & (1 << n) != 0);
        passed.fold(START, |now, (_, event)| match event.step {
            Step::Elapse(by) => now.after(by),
            _ => now,
        })
    }

    fn report(&self, id: &CallId) -> String {
        let mut report =
            format!("no order of these steps on {id} explains their answers (✓: in the longest that fits)\n");
        for (n, event) in self.events.iter().enumerate() {
            let mark = if self.deepest & (1 << n) == 0 { ' ' } else { '✓' };
            writeln!(report, "{mark} {event}").expect("writing to a string does not fail");
        }
        report
    }
}

/// The record after the model took the step, unless it answers differently.
#[expect(
    clippy::option_option,
    reason = "the outer one says whether the step fits, the inner one is the record"
)]
fn take(event: &Event, record: Option<&Record>, now: Timestamp) -> Option<Option<Record>> {
    let (change, fits) = match (&event.step, &event.answer) {
        (Step::Elapse(_) | Step::Sweep, _) => (Change::Keep, true),
        (Step::Begin(call), answer) => {
            let (change, expected) = record::begin(record, call, now);
            let fits = match answer {
                None => true,
                Some(Answer::Verdict(actual)) => same_verdict(actual, &expected),
                Some(_) => false,
            };
            (change, fits)
        }
        (Step::Peek(call), answer) => {
            let fits = match (answer, record::peek(record, call, now)) {
                (None, _) | (Some(Answer::Peeked(None)), None) => true,
                (Some(Answer::Peeked(Some(actual))), Some(expected)) => same_verdict(actual, &expected),
                _ => false,
            };
            (Change::Keep, fits)
        }
        (Step::Transact(call, outcome, end), answer) => transact(record, call, outcome, *end, answer.as_ref(), now),
        (Step::CompleteIn(claim, outcome, end), answer) => {
            let (change, fits) = fenced(record::complete(record, claim, outcome, KEEP, now), answer.as_ref());
            (if *end == End::Commit { change } else { Change::Keep }, fits)
        }
        (Step::Renew(claim, lease), answer) => fenced(record::renew(record, claim, *lease, now), answer.as_ref()),
        (Step::Complete(claim, outcome, keep), answer) => {
            fenced(record::complete(record, claim, outcome, *keep, now), answer.as_ref())
        }
        (Step::Abandon(claim), answer) => fenced(record::abandon(record, claim), answer.as_ref()),
        (Step::Lose(claim), answer) => fenced(record::lose(record, claim, now), answer.as_ref()),
    };
    fits.then(|| match change {
        Change::Keep => record.cloned(),
        Change::Put(record) => Some(record),
        Change::Delete => None,
    })
}

/// Begins and completes at one moment, which is what a transaction is for.
fn transact(
    record: Option<&Record>,
    call: &Call,
    outcome: &Bytes,
    end: End,
    answer: Option<&Answer>,
    now: Timestamp,
) -> (Change, bool) {
    let (begun, expected) = record::begin(record, call, now);
    let fits = answer.is_none_or(|answer| matches!(answer, Answer::Verdict(actual) if same_verdict(actual, &expected)));
    let change = match (begun, expected, end) {
        (_, Verdict::Run(_), End::Rollback) => Change::Keep,
        (Change::Put(claimed), Verdict::Run(claim), End::Commit) => {
            record::complete(Some(&claimed), &claim, outcome, KEEP, now).0
        }
        (begun, ..) => begun,
    };
    (change, fits)
}

fn fenced((change, expected): (Change, Fenced), answer: Option<&Answer>) -> (Change, bool) {
    let fits = answer.is_none_or(|answer| matches!(answer, Answer::Fenced(actual) if *actual == expected));
    (change, fits)
}

fn same_verdict(actual: &Verdict, expected: &Verdict) -> bool {
    match (actual, expected) {
        (Verdict::Run(actual), Verdict::Run(expected)) | (Verdict::InDoubt(actual), Verdict::InDoubt(expected)) => {
            actual == expected
        }
        (Verdict::Replay(actual), Verdict::Replay(expected)) => {
            actual.outcome == expected.outcome && same_end(actual.expires_in, expected.expires_in)
        }
        (Verdict::InFlight { retry_after: actual }, Verdict::InFlight { retry_after: expected }) => {
            about(*actual, *expected)
        }
        (Verdict::Mismatch { expires_in: actual }, Verdict::Mismatch { expires_in: expected }) => {
            same_end(*actual, *expected)
        }
        _ => false,
    }
}

fn same_end(actual: Option<Duration>, expected: Option<Duration>) -> bool {
    match (actual, expected) {
        (Some(actual), Some(expected)) => about(actual, expected),
        (None, None) => true,
        _ => false,
    }
}

/// The model's clock moves only when told to; a real one also moves while the history is made.
fn about(actual: Duration, expected: Duration) -> bool {
    actual <= expected + Duration::from_secs(1) && actual + SLACK >= expected
}
