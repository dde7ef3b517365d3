//! Contended histories, checked against the model.
//!
//! Several callers work on a few keys at once, at random: they begin, renew, complete, abandon and lose, with their own
//! claims and with stale ones, give up half way, and time passes under them. Every question and every answer is
//! numbered. Afterwards [`check`](check::check) looks for an order of the steps on each key that agrees with those
//! numbers and in which [`exactly::store::record`] gives the same answers. If there is none, the store did something that
//! no sequence of atomic steps explains.

pub mod check;
pub mod workload;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exactly::{Call, CallId, Claim, Fenced, Keep, Verdict};

/// One step of one caller, from its question to its answer.
#[derive(Debug)]
pub struct Event {
    /// When it was asked, in the order of the whole history.
    pub asked: u64,
    /// When it was answered; `None` if the caller gave up, so that it may happen at any time later, or never.
    pub answered: Option<u64>,
    /// What was asked.
    pub step: Step,
    /// What was answered.
    pub answer: Option<Answer>,
}

/// What a caller asks of a store, or what happens to it.
#[derive(Clone, Debug)]
pub enum Step {
    /// [`Store::begin`](exactly::Store::begin).
    Begin(Call),
    /// [`Store::peek`](exactly::Store::peek).
    Peek(Call),
    /// [`Store::renew`](exactly::Store::renew).
    Renew(Claim, Duration),
    /// [`Store::complete`](exactly::Store::complete).
    Complete(Claim, Bytes, Keep),
    /// [`Store::abandon`](exactly::Store::abandon), and what becomes of a claim whose begin was given up.
    Abandon(Claim),
    /// [`Store::lose`](exactly::Store::lose).
    Lose(Claim),
    /// A transaction that begins and, if it may run, completes with this outcome; then commits, or rolls back.
    Transact(Call, Bytes, End),
    /// A transaction that completes a claim made before; then commits, or rolls back.
    CompleteIn(Claim, Bytes, End),
    /// [`Store::sweep`](exactly::Store::sweep), for all keys.
    Sweep,
    /// Time passes, for all keys.
    Elapse(Duration),
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// For good.
    Commit,
    /// As if it had never been.
    Rollback,
}

/// What a store answers.
#[derive(Debug)]
pub enum Answer {
    /// To a begin, and to a transaction that begins.
    Verdict(Verdict),
    /// To a peek.
    Peeked(Option<Verdict>),
    /// To a write.
    Fenced(Fenced),
    /// To what is about all keys.
    Done,
}

impl Step {
    /// The key that it is about; `None` if it is about all.
    pub fn id(&self) -> Option<&CallId> {
        match self {
            Self::Begin(call) | Self::Peek(call) | Self::Transact(call, ..) => Some(call.id()),
            Self::Renew(claim, _)
            | Self::Complete(claim, ..)
            | Self::Abandon(claim)
            | Self::Lose(claim)
            | Self::CompleteIn(claim, ..) => Some(&claim.id),
            Self::Sweep | Self::Elapse(_) => None,
        }
    }
}

/// Numbers questions and answers.
#[derive(Debug, Default)]
pub struct Sequence(AtomicU64);

impl Sequence {
    /// The next number.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.answered {
            Some(answered) => write!(f, "{:>4}..{answered:<4} ", self.asked)?,
            None => write!(f, "{:>4}..     ", self.asked)?,
        }
        match &self.step {
            Step::Begin(call) => write!(f, "begin {:?} {:?}", call.token(), call.on_lost())?,
            Step::Peek(call) => write!(f, "peek {:?}", call.token())?,
            Step::Renew(claim, lease) => write!(f, "renew {:?} {lease:?}", claim.token)?,
            Step::Complete(claim, outcome, keep) => write!(f, "complete {:?} {outcome:?} {keep:?}", claim.token)?,
            Step::Abandon(claim) => write!(f, "abandon {:?}", claim.token)?,
            Step::Lose(claim) => write!(f, "lose {:?}", claim.token)?,
            Step::Transact(call, outcome, end) => write!(f, "transact {:?} {outcome:?} {end:?}", call.token())?,
            Step::CompleteIn(claim, outcome, end) => write!(f, "complete in {:?} {outcome:?} {end:?}", claim.token)?,
            Step::Sweep => f.write_str("sweep")?,
            Step::Elapse(by) => write!(f, "elapse {by:?}")?,
        }
        match &self.answer {
            Some(Answer::Verdict(verdict) | Answer::Peeked(Some(verdict))) => write!(f, " → {}", Short(verdict)),
            Some(Answer::Peeked(None)) => f.write_str(" → would run"),
            Some(Answer::Fenced(fenced)) => write!(f, " → {fenced:?}"),
            Some(Answer::Done) => Ok(()),
            None => f.write_str(" → given up"),
        }
    }
}

/// A verdict without the id that every line would repeat.
struct Short<'a>(&'a Verdict);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Verdict::Run(claim) => write!(f, "run {:?} attempt {}", claim.token, claim.attempt),
            Verdict::InDoubt(claim) => write!(f, "in doubt {:?} attempt {}", claim.token, claim.attempt),
            Verdict::Replay(replay) => write!(f, "replay {:?} for {:?}", replay.outcome, replay.expires_in),
            Verdict::InFlight { retry_after } => write!(f, "in flight for {retry_after:?}"),
            Verdict::Mismatch { expires_in } => write!(f, "mismatch for {expires_in:?}"),
        }
    }
}
