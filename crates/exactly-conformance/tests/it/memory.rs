use std::sync::Arc;
use std::time::Duration;

use exactly::MemoryStore;
use exactly::clock::{Clock as _, ManualClock, Timestamp, millis};
use exactly_conformance::StoreHarness;

/// One store for everybody: nothing outside this process can open its records.
pub(crate) struct Memory {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
}

impl StoreHarness for Memory {
    type Store = MemoryStore;

    async fn fresh() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock)));
        Self { clock, store }
    }

    async fn open(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.store)
    }

    async fn elapse(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn rewind(&self, by: Duration) {
        let now = self.clock.now().as_millis();
        self.clock.set(Timestamp::from_millis(now - millis(by)));
    }
}

exactly_conformance::store_suite!(Memory);
