//! The crash lab: real processes killed under load, checked against an independent ledger.
//!
//! A round puts two servers on one durable store and lets customers order effects from them, with double clicks, hang-ups
//! and tampered repetitions. The servers are killed with SIGKILL at random and at named points, frozen beyond their lease,
//! and restarted at once. Afterwards every key must have its last word, and [`check`](check::check) compares what the
//! customers were told with what the effects' own ledger says. It differs from the conformance suites in that it asks the
//! store nothing: a row of an SQL table without any constraint, or a line of a file, is what counts as an effect.
//!
//! [`work`] does the same to schedulers and workers of one queue, and [`events`] to services that publish events, send them
//! and apply them.
//!
//! A lab that finds nothing may be blind. Controls run the same lab with the protection taken away, and fail unless it
//! turns red.

mod arguments;
pub mod check;
mod crew;
mod customer;
pub mod events;
mod failure;
mod fused;
pub mod history;
mod keeper;
mod lab;
mod ledger;
mod line;
mod operator;
mod place;
mod plan;
mod point;
mod process;
mod register;
mod report;
mod round;
mod sabotaged;
mod trial;
mod victim;
pub mod work;

pub use arguments::Arguments;
pub use failure::Failure;
pub use lab::{Verdict, run};
