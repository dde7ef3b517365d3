//! The promises of stores whose records commit with the effect, on PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use exactly_conformance::{StoreHarness, TransactionalHarness};
use exactly_sql::{PgStore, PgTransaction};
use sqlx::AssertSqlSafe;

use crate::postgres::Place;

/// A schema with records and a table of effects.
struct Shop(Place);

impl StoreHarness for Shop {
    type Store = PgStore;

    async fn fresh() -> Self {
        let place = Place::fresh();
        // The first store makes the schema.
        place.open().await;
        place
            .run(&format!("create table {}.effects (name text not null)", place.schema))
            .await;
        Self(place)
    }

    async fn open(&self) -> Arc<PgStore> {
        self.0.open().await
    }

    async fn elapse(&self, by: Duration) {
        self.0.shift('-', by).await;
    }

    async fn rewind(&self, by: Duration) {
        self.0.shift('+', by).await;
    }
}

impl TransactionalHarness for Shop {
    // Of its own process only: a notification serialises the commits that send it, and duplicates of a transaction wait
    // inside the database.
    const COMMITS_WAKE: bool = false;

    async fn effect(&self, tx: &mut PgTransaction, name: &str) {
        let sql = format!("insert into {}.effects values ($1)", self.0.schema);
        sqlx::query(AssertSqlSafe(sql))
            .bind(name)
            .execute(&mut **tx)
            .await
            .unwrap();
    }

    async fn effects(&self, name: &str) -> u64 {
        let sql = format!("select count(*) from {}.effects where name = $1", self.0.schema);
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(name)
            .fetch_one(&self.0.pool)
            .await
            .unwrap();
        count.try_into().unwrap()
    }
}

exactly_conformance::transactional_suite!(Shop);
