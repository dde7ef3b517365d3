//! What goes on without being asked for.

use std::sync::Arc;
use std::time::Duration;

use exactly::Operate;
use exactly::layer::Reconciled;
use exactly::sweep;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::{Instant, interval, sleep};

use super::doubts;
use crate::config::Config;
use crate::gateway::Gateway;

/// How often connections and measurements that nobody needs any more are let go.
pub(super) const TIDY_EVERY: Duration = Duration::from_secs(2);

/// Not every store can find doubts quickly, so asking about them gets no more than one part in so many of the time…
const SHARE: u32 = 20;
/// …but is not put off for longer than this.
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// Starts forgetting what is past its retention, and counting and asking about what is in doubt.
pub(super) fn start(gateway: &Gateway, store: &Arc<dyn Operate>, config: &Config, metrics: PrometheusHandle) {
    let records = Arc::clone(store);
    sweep::hourly(records);
    doubts::start(Arc::clone(store));
    let (tidied, mut ticks) = (gateway.clone(), interval(TIDY_EVERY));
    tokio::spawn(async move {
        loop {
            ticks.tick().await;
            tidied.prune();
            metrics.run_upkeep();
        }
    });
    if config.routes.iter().any(|route| route.reconcile.is_some()) {
        let (gateway, store, every) = (gateway.clone(), Arc::clone(store), config.reconcile_every);
        tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                reconcile(&gateway, &*store).await;
                sleep(pause(begun.elapsed(), every)).await;
            }
        });
    }
}

/// How long to wait after a pass that took so long, if passes are wanted so often.
fn pause(took: Duration, every: Duration) -> Duration {
    took.saturating_mul(SHARE).min(PAUSE_MAX).max(every)
}

async fn reconcile(gateway: &Gateway, store: &dyn Operate) {
    match gateway.layer().reconcile_all(store).await {
        Ok(Reconciled {
            happened: 0,
            did_not_happen: 0,
            ..
        }) => {}
        Ok(Reconciled {
            happened,
            did_not_happen,
            unknown,
        }) => tracing::info!(happened, did_not_happen, unknown, "asked about calls in doubt"),
        Err(error) => tracing::warn!(%error, "could not ask about calls in doubt"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_pass_is_made_seldom() {
        let every = Duration::from_secs(10);
        assert_eq!(pause(Duration::from_millis(3), every), every);
        assert_eq!(pause(Duration::from_secs(2), every), Duration::from_secs(40));
        assert_eq!(pause(Duration::from_hours(1), every), PAUSE_MAX);
        let seldom = Duration::from_hours(1);
        assert_eq!(pause(Duration::from_mins(1), seldom), seldom);
    }
}
