//! What every store promises.

use std::sync::Arc;
use std::time::Duration;

use exactly_conformance::StoreHarness;
use exactly_redis::RedisStore;

use crate::{elapse, operator, prefix, shared_url, store_with};

struct Prefix(String);

impl StoreHarness for Prefix {
    type Store = RedisStore;

    const SWEEPS: bool = false;

    async fn fresh() -> Self {
        Self(prefix())
    }

    async fn open(&self) -> Arc<RedisStore> {
        Arc::new(store_with(&self.0).await)
    }

    async fn elapse(&self, by: Duration) {
        elapse::elapse(&mut operator(&shared_url()).await, &self.0, by).await;
    }

    async fn rewind(&self, by: Duration) {
        elapse::rewind(&mut operator(&shared_url()).await, &self.0, by).await;
    }
}

exactly_conformance::store_suite!(Prefix);
