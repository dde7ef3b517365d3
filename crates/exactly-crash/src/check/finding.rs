//! What can be wrong with a round, and how much there was to look at.

use std::fmt;

use serde::Serialize;

use crate::history::Said;

/// What the checker found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Every promise that was broken.
    pub violations: Vec<Violation>,
    /// What there was to look at.
    pub counts: Counts,
}

/// A promise that was broken for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Whose.
    pub key: String,
    /// How.
    pub fault: Fault,
}

/// How a promise can be broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The effect was made so many times.
    Duplicate(usize),
    /// A customer was told that it happened, and it did not.
    Lost,
    /// The effect was made by another execution than the one that answered.
    OtherExecution,
    /// Two customers were told different things, both as final.
    AnswersDiffer,
    /// The effect is not what the customer asked for, or nobody asked for it.
    NotWished,
    /// A request that was sent after the final answer was told something else.
    Forgotten(Said),
    /// A request that was sent after the final answer was answered as if it were the first.
    AnsweredAnew,
    /// A request for something else under the same key was not refused.
    TamperedAccepted(Said),
    /// The customer's own request was refused as somebody else's.
    OwnRefused,
    /// A transactional route said that it does not know.
    DoubtInTransaction,
    /// The handler was started more often than it was allowed to.
    Rerun {
        /// How often it was started.
        starts: u32,
        /// How often it was allowed to.
        allowed: u32,
    },
    /// What an operator had settled was changed by someone else.
    SettlementOverwritten,
    /// The key has no last word, although everybody had time enough.
    NoLastWord,
    /// An answer that no client should ever see.
    Strange(String),
}

/// What there was to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Keys that were sent.
    pub keys: usize,
    /// Requests with them.
    pub requests: usize,
    /// Answers that were replays.
    pub replays: usize,
    /// Keys whose customers have a final answer.
    pub acknowledged: usize,
    /// Effects in the ledger.
    pub effects: usize,
    /// Keys with more than one.
    pub duplicates: usize,
    /// Keys with none, although a customer was told otherwise.
    pub lost: usize,
    /// Keys whose customers were told at some time that nobody knows.
    pub doubted: usize,
    /// Keys of which nobody knows at the end.
    pub in_doubt: usize,
    /// Keys that an operator settled.
    pub settled: usize,
    /// Keys that were in doubt until their owner came back and completed them.
    pub settled_late: usize,
    /// Outcomes of frozen victims that came too late.
    pub fenced: usize,
    /// Tampered requests that were refused.
    pub refused: usize,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.keys += other.keys;
        self.requests += other.requests;
        self.replays += other.replays;
        self.acknowledged += other.acknowledged;
        self.effects += other.effects;
        self.duplicates += other.duplicates;
        self.lost += other.lost;
        self.doubted += other.doubted;
        self.in_doubt += other.in_doubt;
        self.settled += other.settled;
        self.settled_late += other.settled_late;
        self.fenced += other.fenced;
        self.refused += other.refused;
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate(times) => write!(f, "the effect happened {times} times"),
            Self::Lost => f.write_str("acknowledged, but there is no effect"),
            Self::OtherExecution => f.write_str("the effect was made by another execution than the one that answered"),
            Self::AnswersDiffer => f.write_str("two different final answers"),
            Self::NotWished => f.write_str("an effect that nobody asked for"),
            Self::Forgotten(said) => write!(f, "sent after the final answer, and told {said:?}"),
            Self::AnsweredAnew => f.write_str("sent after the final answer, and answered as if it were the first"),
            Self::TamperedAccepted(said) => write!(f, "another request under the same key was told {said:?}"),
            Self::OwnRefused => f.write_str("the customer's own request was refused as a mismatch"),
            Self::DoubtInTransaction => f.write_str("in doubt on a transactional route"),
            Self::Rerun { starts, allowed } => {
                write!(f, "the handler was started {starts} times, allowed were {allowed}")
            }
            Self::SettlementOverwritten => f.write_str("settled by an operator, and overwritten"),
            Self::NoLastWord => f.write_str("no last word"),
            Self::Strange(what) => write!(f, "answered with {what}"),
        }
    }
}
