//! What the SQL stores promise, on real databases.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(feature = "postgres")]
mod conformance_postgres;
#[cfg(feature = "sqlite")]
mod conformance_sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod inbox;
#[cfg(all(feature = "axum", feature = "postgres", feature = "sqlite"))]
mod layer;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod outbox;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(all(feature = "axum", any(feature = "postgres", feature = "sqlite")))]
mod replay;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod scheduled;
#[cfg(feature = "sqlite")]
mod sqlite;
