//! Exactly-once effects in an at-least-once world: idempotent calls, their stores and a tower layer.
//!
//! Networks fail, users double-click, processes crash half way, and the payment is still made once. Unlike a table of keys
//! that a handler checks first, this knows three endings: an effect *happened*, *did not happen*, or the outcome is
//! *unknown*, and unknown is never guessed away. Claims are durable before an effect starts, every later write is fenced,
//! and with a [`TransactionalStore`] record and effect commit together.
//!
//! - [`layer`]: the tower layer for HTTP services. Start here if effects come from requests.
//! - [`once`]: the same for effects that come from elsewhere.
//! - [`retry`]: when to send again, when to stop, and what is known then; `client` (a feature) does it over HTTP.
//! - `schedule` (a feature): when something is due, in every time zone; `scheduler` makes tasks of it.
//! - [`queue`]: work that outlives the request, known by its key for good; [`worker`] does it, and `job` (a feature) gives
//!   it types.
//! - `webhook` (a feature): events that go out with the change that they tell of, and come in once.
//! - [`store`]: what a store promises. This crate has the [`MemoryStore`]; `exactly-sql` has SQLite and PostgreSQL,
//!   `exactly-redis` Redis and Valkey.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use exactly::{Call, Fingerprint, Keep, Key, MemoryStore, Scope, Store, Verdict};
//!
//! let store = MemoryStore::new();
//! let request = |content: &str| {
//!     let scope = Scope::new("customer-7", "POST /refunds");
//!     Call::new(scope, Key::new("refund-17").unwrap(), Fingerprint::of(content))
//! };
//! let Verdict::Run(claim) = store.begin(&request("1000")).await? else { unreachable!("the key is fresh") };
//! // … the effect …
//! let _ = store.complete(&claim, &"rf_123".into(), Keep::DAY).await?;
//!
//! assert!(matches!(store.begin(&request("1000")).await?, Verdict::Replay(replay) if replay.outcome == "rf_123"));
//! assert!(matches!(store.begin(&request("9999")).await?, Verdict::Mismatch { .. }));
//! # Ok::<_, exactly::StoreError>(()) }).unwrap();
//! ```

#[cfg(feature = "axum")]
mod axum;
mod call;
mod call_id;
#[cfg(feature = "client")]
pub mod client;
pub mod clock;
mod digest;
mod error;
pub mod fingerprint;
pub mod gate;
#[cfg(feature = "jobs")]
pub mod job;
pub mod key;
#[cfg(feature = "layer")]
pub mod layer;
pub mod once;
pub mod queue;
pub mod retry;
#[cfg(feature = "schedule")]
pub mod schedule;
#[cfg(feature = "schedule")]
pub mod scheduler;
mod scope;
mod spread;
pub mod store;
pub mod sweep;
pub mod telemetry;
#[cfg(feature = "webhook")]
pub mod webhook;
pub mod worker;

pub use call::{Attempt, Call, Claim, LEASE_DEFAULT, OnLost, Token};
pub use call_id::{CallId, InvalidCallId};
pub use digest::Hex;
pub use error::{StoreError, StoreErrorKind};
pub use fingerprint::Fingerprint;
#[cfg(feature = "jobs")]
pub use job::{Job, JobError, Jobs};
pub use key::Key;
pub use scope::Scope;
pub use store::{Fenced, Inspect, Keep, MemoryStore, Operate, Replay, Store, TransactionalStore, Verdict};
pub use worker::Worker;
