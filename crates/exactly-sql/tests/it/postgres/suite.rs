//! The promises of every store.

use std::sync::Arc;
use std::time::Duration;

use exactly_conformance::StoreHarness;
use exactly_sql::PgStore;

use super::Place;

impl StoreHarness for Place {
    type Store = PgStore;

    async fn fresh() -> Self {
        Place::fresh()
    }

    async fn open(&self) -> Arc<PgStore> {
        Place::open(self).await
    }

    async fn elapse(&self, by: Duration) {
        self.shift('-', by).await;
    }

    async fn rewind(&self, by: Duration) {
        self.shift('+', by).await;
    }
}

exactly_conformance::store_suite!(Place);
