//! SQLite and PostgreSQL stores for exactly: records that commit in the handler's own transaction.

// The readme's example compiles.
#[cfg(all(doctest, feature = "axum", feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod batch;
mod error;
mod name;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod prefix;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "axum")]
mod tx;

pub use name::{InvalidName, Name};
#[cfg(feature = "postgres")]
pub use postgres::{PgQueue, PgQueueBuilder, PgStore, PgStoreBuilder, PgTransaction};
#[cfg(feature = "journal")]
pub use sqlite::SqliteJournal;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteQueue, SqliteQueueBuilder, SqliteStore, SqliteStoreBuilder, SqliteTransaction};
#[cfg(all(feature = "axum", feature = "postgres"))]
pub use tx::PgTx;
#[cfg(all(feature = "axum", feature = "sqlite"))]
pub use tx::SqliteTx;
#[cfg(feature = "axum")]
pub use tx::Tx;
