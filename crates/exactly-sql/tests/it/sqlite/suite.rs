//! The promises of every store.

use std::sync::Arc;
use std::time::Duration;

use exactly_conformance::StoreHarness;
use exactly_sql::SqliteStore;

use super::{Place, run};

impl Place {
    /// Moves every record's times at once, instead of waiting. What the clocks do is the subject of the tests in `time`.
    async fn shift(&self, sign: char, by: Duration) {
        let by = by.as_millis();
        let columns = ["lease_until", "created_at", "completed_at", "expires_at"];
        let moves = columns
            .map(|column| format!("{column} = max(0, {column} {sign} {by})"))
            .join(", ");
        let stranger = &mut self.stranger().await;
        run(stranger, &format!("update exactly_calls set {moves}")).await;
        run(
            stranger,
            &format!("update exactly_trail set noted_at = max(0, noted_at {sign} {by})"),
        )
        .await;
    }
}

impl StoreHarness for Place {
    type Store = SqliteStore;

    // There is no way to send word to another process; its callers poll.
    const WAKES_OTHER_STORES: bool = false;

    async fn fresh() -> Self {
        Place::new()
    }

    async fn open(&self) -> Arc<SqliteStore> {
        Arc::new(Place::open(self).await)
    }

    async fn elapse(&self, by: Duration) {
        self.shift('-', by).await;
        // As it would if somebody had waited.
        self.steady.advance(Duration::from_millis(1));
    }

    async fn rewind(&self, by: Duration) {
        self.shift('+', by).await;
    }
}

exactly_conformance::store_suite!(Place);
