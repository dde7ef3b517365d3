//! What goes on without being asked for.

use std::sync::Arc;
use std::time::Duration;

use exactly::Operate;
use exactly::layer::Reconciled;
use exactly::sweep;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::doubts;
use crate::config::Config;
use crate::gateway::Gateway;

/// How often connections and measurements that nobody needs any more are let go.
pub(super) const TIDY_EVERY: Duration = Duration::from_secs(2);

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
        let (gateway, store, mut ticks) = (gateway.clone(), Arc::clone(store), interval(config.reconcile_every));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::spawn(async move {
            loop {
                ticks.tick().await;
                reconcile(&gateway, &*store).await;
            }
        });
    }
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
