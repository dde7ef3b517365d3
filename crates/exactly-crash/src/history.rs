//! What customers asked for and were told, and what the effects' own ledger says.

use std::collections::BTreeMap;

use bytes::Bytes;
use clap::ValueEnum;
use exactly::CallId;
use serde::Serialize;

/// What the route under test promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Record and effect commit together.
    Transactional,
    /// A lost attempt is in doubt.
    AtMostOnce,
}

impl Guarantee {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transactional => "transactional",
            Self::AtMostOnce => "at-most-once",
        }
    }
}

/// Everything that one round of customers saw, by key.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// One entry per key that was ever sent.
    pub keys: BTreeMap<String, KeyHistory>,
}

/// What happened around one key.
#[derive(Clone, Debug)]
pub struct KeyHistory {
    /// What the customer wants under this key.
    pub wish: Wish,
    /// Every request with it.
    pub exchanges: Vec<Exchange>,
    /// What an operator said about it.
    pub settlements: Vec<Settlement>,
}

/// What a customer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// How much.
    pub amount: u32,
    /// The handler is to answer without making the effect.
    pub declined: bool,
}

impl Wish {
    /// What somebody asks for who tampers with it.
    pub fn tampered_amount(self) -> u32 {
        self.amount + 1000
    }
}

/// One request and what came of it. The moments are of one counter, so they order requests of all customers.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Before the first byte went out.
    pub sent: u64,
    /// After the last byte came in, or the customer gave up.
    pub received: u64,
    /// It asked for something else under the same key.
    pub tampered: bool,
    /// What was answered.
    pub said: Said,
}

/// An answer, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The handler's answer, first hand or replayed.
    Done(Answer),
    /// It happened, but the answer cannot be shown: an operator settled it.
    Settled,
    /// Nobody knows whether it happened.
    InDoubt(Option<CallId>),
    /// The first request is still running.
    InProgress,
    /// Nothing happened, and the key is free again.
    Freed,
    /// The store could not answer.
    Unavailable,
    /// The key was used for another request.
    Mismatch,
    /// No answer, or not all of it.
    Lost,
    /// Something that no client should ever see.
    Strange(String),
}

/// What a handler answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status line's number.
    pub status: u16,
    /// Every byte of the body.
    pub body: Bytes,
    /// Which execution of the handler made it.
    pub nonce: String,
    /// The layer says that it is a replay.
    pub replayed: bool,
}

impl Answer {
    /// Whether both are the same answer to their customer.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.status == other.status && self.body == other.body
    }
}

/// What an operator, who looked at the ledger, told the store about a call in doubt. Only what the store accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The effect is in the ledger.
    Happened,
    /// It is not, and nobody is left who could still make it.
    DidNotHappen,
}

/// What really happened, read from where the effects are and not from the store.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Every effect, in any order.
    pub effects: Vec<Effect>,
    /// How often the handler was started for a key. Not kept for transactional routes, where starting again is right.
    pub starts: BTreeMap<String, u32>,
    /// How often the handler said for a key that nothing happened.
    pub frees: BTreeMap<String, u32>,
    /// How many outcomes came too late and were refused. Proof that the fence was put to the test, no more.
    pub fences: usize,
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The key that it was made for.
    pub key: String,
    /// Which execution of the handler made it.
    pub nonce: String,
    /// How much.
    pub amount: u32,
}
