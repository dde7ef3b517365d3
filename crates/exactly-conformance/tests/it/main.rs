//! The suites, run for the store that comes with the library, and shown to fail for stores that break a promise.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod checker;
mod flaw;
mod flawed;
mod found_by;
mod ledger;
mod memory;
mod queue_memory;
mod self_test;
