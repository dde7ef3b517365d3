//! The suites that every store of exactly passes.
//!
//! A store is measured against one list of promises, not against its own tests: a suite copied per backend drifts, and
//! the copy that drifts is the one that hides the bug. A backend says how to make an empty place for records, how to
//! open a store on it and how to let time pass there ([`StoreHarness`]); the macro makes one test of every promise.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use exactly::MemoryStore;
//! use exactly::clock::{Clock, ManualClock, Timestamp, millis};
//! use exactly_conformance::StoreHarness;
//!
//! struct Memory {
//!     clock: Arc<ManualClock>,
//!     store: Arc<MemoryStore>,
//! }
//!
//! impl StoreHarness for Memory {
//!     type Store = MemoryStore;
//!
//!     async fn fresh() -> Self {
//!         let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
//!         let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock)));
//!         Self { clock, store }
//!     }
//!
//!     async fn open(&self) -> Arc<MemoryStore> {
//!         Arc::clone(&self.store)
//!     }
//!
//!     async fn elapse(&self, by: Duration) {
//!         self.clock.advance(by);
//!     }
//!
//!     async fn rewind(&self, by: Duration) {
//!         let now = self.clock.now().as_millis();
//!         self.clock.set(Timestamp::from_millis(now - millis(by)));
//!     }
//! }
//!
//! exactly_conformance::store_suite!(Memory);
//! ```
//!
//! Nothing here sleeps until a lease ends: [`elapse`](StoreHarness::elapse) moves a manual clock, or the rows. The only
//! real waits are for things that come from elsewhere (a wake-up, a claim given back), and each is bounded.
//!
//! [`store_suite!`] covers the promises of one call at a time, races between callers, every single and double fault
//! between a caller and its store ([`FaultyStore`]), and contended histories checked against the model in
//! [`exactly::store::record`] ([`mod@history`]). [`transactional_suite!`] covers stores whose records commit with the
//! effect. [`queue_suite!`], [`book_suite!`], [`registry_suite!`] and [`transactional_queue_suite!`] do the
//! same for queues ([`QueueHarness`]).

mod answers;
mod faulty;
mod harness;
pub mod history;
mod promises;
pub mod queue;
mod request;
mod scenario;
pub mod store;
pub mod transactional;
pub mod transactional_queue;
mod work;

pub use faulty::{Fault, FaultyStore, Plan};
pub use harness::{QueueHarness, StoreHarness, TransactionalHarness, TransactionalQueueHarness};
