//! The promises of stores whose records commit with the effect, on SQLite.

use std::sync::Arc;
use std::time::Duration;

use exactly_conformance::{StoreHarness, TransactionalHarness};
use exactly_sql::{SqliteStore, SqliteTransaction};

use crate::sqlite::{Place, run};

/// A file with records and a table of effects.
struct Shop(Place);

impl StoreHarness for Shop {
    type Store = SqliteStore;

    const WAKES_OTHER_STORES: bool = false;

    async fn fresh() -> Self {
        let place = Place::new();
        // The first store makes the file.
        place.open().await;
        run(&mut place.stranger().await, "create table effects (name text not null)").await;
        Self(place)
    }

    async fn open(&self) -> Arc<SqliteStore> {
        Arc::new(self.0.open().await)
    }

    async fn elapse(&self, by: Duration) {
        StoreHarness::elapse(&self.0, by).await;
    }

    async fn rewind(&self, by: Duration) {
        StoreHarness::rewind(&self.0, by).await;
    }
}

impl TransactionalHarness for Shop {
    const WRITES_IN_PARALLEL: bool = false;

    async fn effect(&self, tx: &mut SqliteTransaction, name: &str) {
        sqlx::query("insert into effects values (?)")
            .bind(name)
            .execute(&mut **tx)
            .await
            .unwrap();
    }

    async fn effects(&self, name: &str) -> u64 {
        let count = sqlx::query_scalar("select count(*) from effects where name = ?").bind(name);
        let count: i64 = count.fetch_one(&mut self.0.stranger().await).await.unwrap();
        count.try_into().unwrap()
    }
}

exactly_conformance::transactional_suite!(Shop);
