//! Forgetting what may be forgotten.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::Store;

/// How often [`hourly`] sweeps.
const EVERY: Duration = Duration::from_hours(1);

/// The most records per step: small enough that a step does not stand in the way of calls.
const BATCH: u32 = 1000;

/// Sweeps `store` now and every hour, in batches, until the handle is aborted. Every store with retention needs this
/// somewhere; several processes may do it at once.
pub fn hourly(store: Arc<dyn Store>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match sweep(&*store).await {
                Ok(0) => {}
                Ok(swept) => tracing::info!(swept, "expired records deleted"),
                Err(error) => tracing::warn!(%error, "sweep not finished; the next one goes on"),
            }
        }
    })
}

/// Deletes everything that has expired, batch by batch, with room for other work in between.
pub async fn sweep(store: &dyn Store) -> Result<u64, crate::StoreError> {
    let mut total = 0;
    loop {
        let swept = store.sweep(BATCH).await?;
        total += u64::from(swept);
        if swept < BATCH {
            return Ok(total);
        }
        tokio::task::yield_now().await;
    }
}
