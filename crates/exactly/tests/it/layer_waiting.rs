//! Duplicates in flight, hang-ups, leases, drains.

use std::sync::Arc;

use exactly::MemoryStore;
use exactly::layer::{CallInfo, Guarantee, KeyRule, Policy};
use exactly::once::Limits;
use http::Method;

use crate::app::{Runs, SECOND, answer, app, ask, builder, gated, layer, memory, settle_down};

#[tokio::test]
async fn of_ten_concurrent_requests_one_runs_and_nine_get_its_answer() {
    let gated = gated(layer(memory(), Policy::playbook()));
    let requests: Vec<_> = (0..10)
        .map(|_| {
            let app = gated.app.clone();
            tokio::spawn(async move { ask("k1").send(&app).await })
        })
        .collect();
    gated.until_started().await;
    settle_down().await;
    gated.leave.notify_waiters();
    let mut statuses = Vec::new();
    for request in requests {
        let answer = request.await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.text()), (201, "run 1"));
        statuses.push(answer.key_status().unwrap().to_owned());
    }
    statuses.sort();
    assert_eq!(statuses[..9], ["replayed"; 9]);
    assert_eq!(statuses[9], "stored");
    assert_eq!(gated.runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn past_the_wait_limit_a_duplicate_is_told_that_it_is_in_progress() {
    let gated = gated(layer(memory(), Policy::playbook().wait(3 * SECOND).lease(30 * SECOND)));
    let app = gated.app.clone();
    let first = tokio::spawn(async move { ask("k1").send(&app).await });
    gated.until_started().await;
    let before = tokio::time::Instant::now();
    let second = ask("k1").send(&gated.app).await;
    assert_eq!(before.elapsed().as_secs(), 3);
    second.assert_problem(409, "CONFLICT.idempotency.in_progress");
    assert_eq!(second.header("retry-after"), Some("27"), "the rest of the lease");
    assert_eq!(second.problem()["retryable"], true);
    gated.leave.notify_waiters();
    assert_eq!(first.await.unwrap().key_status(), Some("stored"));
    assert_eq!(ask("k1").send(&gated.app).await.text(), "run 1");
    assert_eq!(gated.runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_ietf_preset_answers_409_at_once() {
    let gated = gated(layer(memory(), Policy::ietf()));
    let app = gated.app.clone();
    let first = tokio::spawn(async move { ask("k1").send(&app).await });
    gated.until_started().await;
    let before = tokio::time::Instant::now();
    ask("k1")
        .send(&gated.app)
        .await
        .assert_problem(409, "CONFLICT.idempotency.in_progress");
    assert!(before.elapsed().is_zero());
    gated.leave.notify_waiters();
    first.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wrong_payload_is_told_so_while_the_first_request_is_in_flight() {
    let gated = gated(layer(memory(), Policy::playbook()));
    let app = gated.app.clone();
    let first = tokio::spawn(async move { ask("k1").send(&app).await });
    gated.until_started().await;
    ask("k1")
        .body("{}")
        .send(&gated.app)
        .await
        .assert_problem(409, "CONFLICT.idempotency.payload_mismatch");
    gated.leave.notify_waiters();
    assert_eq!(first.await.unwrap().key_status(), Some("stored"));
}

#[tokio::test(start_paused = true)]
async fn more_waiters_than_the_limit_are_told_at_once() {
    let limits = Limits {
        waiters_max: 2,
        ..Limits::default()
    };
    let gated = gated(builder(memory()).limits(limits).build().unwrap());
    let spawn = || {
        let app = gated.app.clone();
        tokio::spawn(async move { ask("k1").send(&app).await })
    };
    let first = spawn();
    gated.until_started().await;
    let waiters = [spawn(), spawn()];
    settle_down().await;
    let before = tokio::time::Instant::now();
    ask("k1")
        .send(&gated.app)
        .await
        .assert_problem(409, "CONFLICT.idempotency.in_progress");
    assert!(before.elapsed().is_zero());
    gated.leave.notify_waiters();
    first.await.unwrap();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().key_status(), Some("replayed"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_request_for_which_there_is_no_room_is_refused_until_there_is() {
    let policy = Policy::playbook().body_max(300_000);
    let layer = builder(memory()).policy(policy).held_max(300_000).build();
    let gated = gated(layer.unwrap());
    let large = format!("\"{}\"", "x".repeat(200_000));
    let (app, body) = (gated.app.clone(), large.clone());
    let first = tokio::spawn(async move { ask("k1").body(body).send(&app).await });
    gated.until_started().await;
    let refused = ask("k2").body(large.clone()).send(&gated.app).await;
    refused.assert_problem(503, "TRANSIENT.overloaded");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.problem()["retryable"], true);
    let app = gated.app.clone();
    let small = tokio::spawn(async move { ask("k3").send(&app).await });
    gated.until_started().await;
    gated.leave.notify_waiters();
    for carried_out in [first, small] {
        assert_eq!(carried_out.await.unwrap().key_status(), Some("stored"));
    }
    let app = gated.app.clone();
    let again = tokio::spawn(async move { ask("k2").body(large).send(&app).await });
    gated.until_started().await;
    gated.leave.notify_waiters();
    assert_eq!(again.await.unwrap().key_status(), Some("stored"));
    assert_eq!(gated.runs.get(), 3);
}

#[test]
fn less_room_than_one_request_may_take_is_refused() {
    let large = Policy::playbook().body_max(300_000);
    let built = |held_max: usize, policy: &Policy| {
        let builder = builder(memory()).policy(Policy::playbook().body_max(10));
        let builder = builder.route(Method::POST, "/large", policy.clone());
        builder.held_max(held_max).build()
    };
    for (held_max, policy, least) in [
        (0, &Policy::playbook().body_max(0), "10"),
        (299_999, &large, "300000"),
        (0, &large, "300000"),
    ] {
        let refused = built(held_max, policy).unwrap_err().to_string();
        let told = format!("layer: held_max is {held_max}, accepted is at least {least}, the largest body_max");
        assert_eq!(refused, told);
    }
    let layer = built(300_000, &large).unwrap();
    assert!(built(10, &large.key(KeyRule::Off)).is_ok());
    let larger = layer.with_policy(Policy::playbook().body_max(300_001)).unwrap_err();
    assert!(larger.to_string().contains("held_max is 300000"), "{larger}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_leaves_the_owner_alone() {
    let gated = gated(layer(memory(), Policy::playbook()));
    let spawn = || {
        let app = gated.app.clone();
        tokio::spawn(async move { ask("k1").send(&app).await })
    };
    let first = spawn();
    gated.until_started().await;
    let waiter = spawn();
    settle_down().await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    gated.leave.notify_waiters();
    assert_eq!(first.await.unwrap().key_status(), Some("stored"));
    assert_eq!(ask("k1").send(&gated.app).await.key_status(), Some("replayed"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_cancels_nothing_and_drain_waits_for_its_handler() {
    let gated = gated(layer(memory(), Policy::playbook()));
    let app = gated.app.clone();
    let first = tokio::spawn(async move { ask("k1").send(&app).await });
    gated.until_started().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let drained = tokio::spawn({
        let layer = gated.layer.clone();
        async move { layer.drain().await }
    });
    settle_down().await;
    assert!(!drained.is_finished());
    gated.leave.notify_waiters();
    drained.await.unwrap();
    let second = ask("k1").send(&gated.app).await;
    assert_eq!((second.text(), second.key_status()), ("run 1", Some("replayed")));
    assert_eq!(gated.runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_for_as_long_as_the_handler_runs() {
    for guarantee in [Guarantee::AtMostOnce, Guarantee::Rerunnable] {
        let policy = Policy::playbook().guarantee(guarantee).lease(3 * SECOND).wait(SECOND);
        let gated = gated(layer(memory(), policy));
        let app = gated.app.clone();
        let first = tokio::spawn(async move { ask("k1").send(&app).await });
        gated.until_started().await;
        for _ in 0..20 {
            tokio::time::sleep(SECOND).await;
            ask("k1")
                .send(&gated.app)
                .await
                .assert_problem(409, "CONFLICT.idempotency.in_progress");
        }
        gated.leave.notify_waiters();
        assert_eq!(first.await.unwrap().key_status(), Some("stored"));
        assert_eq!(gated.runs.get(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_process_died_is_in_doubt_or_rerun_as_the_route_says() {
    for (guarantee, rerun) in [(Guarantee::AtMostOnce, false), (Guarantee::Rerunnable, true)] {
        let store = memory();
        let attempts = Runs::default();
        let seen = attempts.clone();
        let policy = Policy::playbook().guarantee(guarantee).lease(30 * SECOND).wait(SECOND);
        let layer = layer(Arc::<MemoryStore>::clone(&store), policy);
        let app = app(&layer, move |request: axum::extract::Request| {
            let info = request.extensions().get::<CallInfo>().unwrap();
            assert_eq!(info.key.as_str(), "k1");
            let attempt = info.claim.attempt.get();
            let die = seen.count() == 1;
            async move {
                if die {
                    std::future::pending::<()>().await;
                }
                answer(200, format!("attempt {attempt}"))
            }
        });
        // A runtime of its own, shut down mid-handler, is as dead as a process.
        let doomed = app.clone();
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let request = tokio::spawn(async move { ask("k1").send(&doomed).await });
                settle_down().await;
                request.abort();
            });
        })
        .join()
        .unwrap();
        assert_eq!(attempts.get(), 1);
        ask("k1")
            .send(&app)
            .await
            .assert_problem(409, "CONFLICT.idempotency.in_progress");
        tokio::time::advance(31 * SECOND).await;
        let after = ask("k1").send(&app).await;
        if rerun {
            assert_eq!((after.text(), after.key_status()), ("attempt 2", Some("stored")));
        } else {
            after.assert_problem(409, "OUTCOME.unknown");
            tokio::time::advance(48 * 3600 * SECOND).await;
            ask("k1").send(&app).await.assert_problem(409, "OUTCOME.unknown");
            assert_eq!(attempts.get(), 1);
        }
    }
}
