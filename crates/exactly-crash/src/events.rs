//! Events under fire.
//!
//! Producers publish events with rows of their own, and roll some of them back. Dispatchers send them over a network that
//! loses, cuts, delays and doubles requests and answers, to consumers that apply them on a database of their own. All of them
//! are killed and frozen beyond their leases at random. Afterwards every event whose row is there must have been applied once
//! for each endpoint, and no other; every request that was on the wire must have an attempt of its sender in the history of its
//! delivery; and no delivery may have changed after it was done.

pub mod check;
mod consumer;
mod dispatcher;
mod fenceless;
mod finished;
mod network;
mod plan;
mod producer;
mod report;
mod round;
mod verdict;
mod victim;

pub(crate) use self::plan::{EventCell, EventSabotage};
pub(crate) use self::report::EventRow;
pub(crate) use self::round::EventOutcome;
pub(crate) use self::victim::{EventVictimArguments, serve};
