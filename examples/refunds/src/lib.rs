//! A small payment service whose every operation happens once, however often it is asked for.
//!
//! `POST /payments` and `POST /refunds` are transactional: the books and the record of the call commit together.
//! `POST /payouts` calls a provider across the network, where no transaction reaches: its claim is durable before the
//! call, and if the provider stays silent the payout is in doubt until the operator's `POST /doubts/{call}` asks the
//! provider what it did.

mod ledger;
mod provider;
mod service;

use std::sync::Arc;

use axum::Router;
use exactly::layer::IdempotencyLayer;
use exactly::{StoreError, StoreErrorKind};
use exactly_sql::{PgStore, SqliteStore};
use sqlx::AssertSqlSafe;

pub use self::ledger::Entry;
pub use self::provider::{Provider, Silent};
use self::service::router;

/// The service, ready to be served.
#[derive(Debug)]
pub struct App {
    /// Its routes.
    pub router: Router,
    /// To be drained before the process ends.
    pub layer: IdempotencyLayer,
}

/// The service on `database`, `sqlite:FILE` or `postgres://…`, where the user `operator` settles what is in doubt.
pub async fn app(database: &str, provider: Provider, operator: &str) -> Result<App, StoreError> {
    if database.starts_with("postgres") {
        let store = Arc::new(PgStore::open(database).await?);
        create(
            sqlx::raw_sql(AssertSqlSafe(ledger::schema(ledger::POSTGRES_ID)))
                .execute(store.pool())
                .await,
        )?;
        Ok(router::<PgStore>(store, provider, operator))
    } else if database.starts_with("sqlite:") {
        let store = Arc::new(SqliteStore::open(database).await?);
        create(
            sqlx::raw_sql(AssertSqlSafe(ledger::schema(ledger::SQLITE_ID)))
                .execute(store.pool())
                .await,
        )?;
        Ok(router::<SqliteStore>(store, provider, operator))
    } else {
        let context = format!("open database: {database:?} is neither sqlite:FILE nor postgres://…");
        Err(StoreError::new(StoreErrorKind::Refused, context))
    }
}

fn create<T>(created: sqlx::Result<T>) -> Result<(), StoreError> {
    created
        .map(drop)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, "create the books").with_source(error))
}
