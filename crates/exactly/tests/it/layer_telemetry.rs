//! What dashboards and logs are told.

use std::sync::Arc;

use exactly::layer::Policy;
use exactly::telemetry;

use crate::app::{Ask, SECOND, answer, app, ask, counting, layer, memory};
use crate::counts::Counts;
use crate::rigged::{Fault, Rigged, Verb};

#[tokio::test(start_paused = true)]
async fn every_ending_is_counted_by_its_name() {
    let counts = Counts::default();
    let _here = metrics::set_default_local_recorder(&counts);
    let (app, _) = counting(memory(), Policy::ietf());
    Ask::bare().send(&app).await;
    assert_eq!(counts.of(telemetry::KEYED_REQUESTS), 0);
    ask("k1").send(&app).await;
    assert_eq!(counts.of("idempotency_created_total"), 1);
    ask("k1").send(&app).await;
    assert_eq!(counts.of("idempotency_replayed_total"), 1);
    assert_eq!(counts.of("idempotency_cache_hit"), 1);
    ask("k1").body("{}").send(&app).await;
    assert_eq!(counts.of("idempotency_key_reuse_conflict"), 1);
    assert_eq!(counts.of("idempotency_conflict_total reason=payload_mismatch"), 1);
    assert_eq!(counts.of("idempotency_keyed_requests_total"), 3);

    let answers = |status: u16| layered(Policy::ietf(), status);
    ask("k2").send(&answers(503)).await;
    assert_eq!(counts.of("idempotency_freed_total"), 1);
    let in_doubt = answers(504);
    ask("k3").send(&in_doubt).await;
    assert_eq!(counts.of("idempotency_in_doubt_total"), 1);
    ask("k3").send(&in_doubt).await;
    assert_eq!(counts.of("idempotency_conflict_total reason=in_doubt"), 1);
    assert_eq!(counts.of("idempotency_in_doubt_total"), 1);

    let store = Arc::new(Rigged::new());
    let (app, _) = counting(Arc::<Rigged>::clone(&store), Policy::ietf());
    store.break_with(Verb::Begin, Fault::Refuses);
    ask("k4").send(&app).await;
    assert_eq!(counts.of("idempotency_store_unavailable_total"), 1);
}

fn layered(policy: Policy, status: u16) -> axum::Router {
    app(&layer(memory(), policy), move |_| async move { answer(status, "") })
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_while_its_effect_runs_is_counted() {
    let counts = Counts::default();
    let _here = metrics::set_default_local_recorder(&counts);
    let store = Arc::new(Rigged::new());
    let policy = Policy::ietf()
        .guarantee(exactly::layer::Guarantee::Rerunnable)
        .lease(3 * SECOND);
    let runs = crate::app::Runs::default();
    let app = app(&layer(Arc::<Rigged>::clone(&store), policy), move |_| {
        let first = runs.count() == 1;
        async move {
            tokio::time::sleep(if first { 10 * SECOND } else { SECOND }).await;
            answer(200, "")
        }
    });
    store.break_with(Verb::Renew, Fault::Refuses);
    let zombie = tokio::spawn({
        let app = app.clone();
        async move { ask("k1").send(&app).await }
    });
    tokio::time::sleep(4 * SECOND).await;
    let next = tokio::spawn(async move { ask("k1").send(&app).await });
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(counts.of("idempotency_running"), 2_f64.to_bits());
    store.mend();
    next.await.unwrap();
    zombie.await.unwrap();
    assert_eq!(counts.of("idempotency_lease_lost_total"), 1);
    assert_eq!(counts.of("idempotency_running"), 0);
}
