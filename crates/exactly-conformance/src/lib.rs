//! The suites that every store of exactly passes.
//!
//! A store is measured against one list of promises, not against its own tests: a suite copied per backend drifts, and
//! the copy that drifts is the one that hides the bug. A backend says how to make an empty place for records, how to
//! open a store on it and how to let time pass there ([`StoreHarness`]); the macro makes one test of every promise.
//!
//! ```ignore
//! struct Rows { schema: String }
//!
//! impl exactly_conformance::StoreHarness for Rows { /* fresh, open, elapse, rewind */ }
//!
//! exactly_conformance::store_suite!(Rows);
//! ```
//!
//! Nothing here sleeps until a lease ends: [`elapse`](StoreHarness::elapse) moves a manual clock, or the rows. The only
//! real waits are for things that come from elsewhere (a wake-up, a claim given back), and each is bounded.
//!
//! [`store_suite!`] covers the promises of one call at a time, races between callers, every single and double fault
//! between a caller and its store ([`FaultyStore`]), and contended histories checked against the model in
//! [`exactly::store::record`] ([`mod@history`]). [`transactional_suite!`] covers stores whose records commit with the
//! effect.

mod answers;
mod faulty;
mod harness;
pub mod history;
mod promises;
mod request;
mod scenario;
pub mod store;
pub mod transactional;

pub use faulty::{Fault, FaultyStore, Plan};
pub use harness::{StoreHarness, TransactionalHarness};
