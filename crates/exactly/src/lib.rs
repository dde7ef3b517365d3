//! Exactly-once effects in an at-least-once world: idempotent calls, their stores and a tower layer.

#[cfg(feature = "axum")]
mod axum;
mod call;
mod call_id;
pub mod clock;
mod digest;
mod error;
pub mod fingerprint;
pub mod gate;
pub mod key;
#[cfg(feature = "layer")]
pub mod layer;
pub mod once;
mod scope;
pub mod store;
pub mod sweep;
pub mod telemetry;

pub use call::{Attempt, Call, Claim, LEASE_DEFAULT, OnLost, Token};
pub use call_id::{CallId, InvalidCallId};
pub use error::{StoreError, StoreErrorKind};
pub use fingerprint::Fingerprint;
pub use key::Key;
pub use scope::Scope;
pub use store::{Fenced, Inspect, Keep, MemoryStore, Replay, Store, TransactionalStore, Verdict};
