//! The promises of every queue, one function each.
//!
//! They are public for the sake of [`queue_suite!`](crate::queue_suite), and of tests that run one of them against a
//! queue that must fail it.

pub mod arrivals;
pub mod attempts;
pub mod book;
pub mod caps;
pub mod conclude;
pub mod enqueue;
pub mod fairness;
pub mod fence;
pub mod hasten;
pub mod lease;
pub mod listing;
pub mod pause;
pub mod prune;
pub mod registry;
pub mod renew;
pub mod rescue;
pub mod revive;
pub mod settle;
pub mod text;
