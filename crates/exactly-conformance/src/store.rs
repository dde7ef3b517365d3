//! The promises of every store, one function each.
//!
//! They are public for the sake of [`store_suite!`](crate::store_suite), and of tests that run one of them against a
//! store that must fail it.

pub mod begin;
pub mod cancel;
pub mod doubt;
pub mod durations;
pub mod faults;
pub mod fence;
pub mod forget;
pub mod histories;
pub mod inspect;
pub mod lease;
pub mod listing;
pub mod mismatch;
pub mod now;
pub mod once;
pub mod outcome;
pub mod races;
pub mod retention;
pub mod sources;
pub mod sweep;
pub mod text;
pub mod trail;
pub mod wake;
