//! Stores that are down, slow or forgetful; handlers that panic.

use std::sync::Arc;

use exactly::layer::{CallInfo, Guarantee, IdempotencyLayer, Policy};
use exactly::once::Limits;
use exactly::{Fenced, MemoryStore, Store, Verdict};
use http::{Request, Response};
use tower::{Layer, ServiceExt};

use crate::app::{Runs, SECOND, answer, app, ask, builder, counting, layer, memory, settle_down};
use crate::rigged::{Fault, Rigged, Verb};

#[tokio::test(start_paused = true)]
async fn while_the_store_cannot_answer_nothing_runs() {
    for fault in [Fault::Refuses, Fault::LosesReply, Fault::Hangs] {
        let store = Arc::new(Rigged::new());
        let (app, runs) = counting(Arc::<Rigged>::clone(&store), Policy::playbook());
        store.break_with(Verb::Begin, fault);
        let before = tokio::time::Instant::now();
        let refused = ask("k1").send(&app).await;
        refused.assert_problem(503, "DEPENDENCY.unavailable");
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(before.elapsed() <= 5 * SECOND);
        assert_eq!(runs.get(), 0, "{fault:?}");

        // A claim that was made all the same is given back, so that a retry runs at once.
        store.mend();
        tokio::time::sleep(SECOND).await;
        assert_eq!(ask("k1").send(&app).await.text(), "run 1", "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_leaves_only_after_it_is_durable() {
    let store = Arc::new(Rigged::new());
    let (app, runs) = counting(Arc::<Rigged>::clone(&store), Policy::playbook());
    store.hold_completions();
    let first = tokio::spawn(async move { ask("k1").send(&app).await });
    settle_down().await;
    assert_eq!(runs.get(), 1);
    assert!(!first.is_finished());
    store.release_completions();
    assert_eq!(first.await.unwrap().key_status(), Some("stored"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_the_completion_is_not_a_lost_completion() {
    let store = Arc::new(Rigged::new());
    let (app, runs) = counting(Arc::<Rigged>::clone(&store), Policy::playbook());
    store.break_with(Verb::Complete, Fault::LosesReply);
    let first = tokio::spawn({
        let app = app.clone();
        async move { ask("k1").send(&app).await }
    });
    tokio::time::sleep(SECOND).await;
    store.mend();
    assert_eq!(first.await.unwrap().key_status(), Some("stored"));
    assert_eq!(ask("k1").send(&app).await.text(), "run 1");
    assert_eq!(runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_stored_is_unknown_until_the_store_takes_it() {
    for fault in [Fault::Refuses, Fault::Hangs] {
        let store = Arc::new(Rigged::new());
        let (app, runs) = counting(Arc::<Rigged>::clone(&store), Policy::playbook());
        store.break_with(Verb::Complete, fault);
        let first = ask("k1").send(&app).await;
        first.assert_problem(409, "OUTCOME.unknown");
        assert_eq!(
            (first.problem()["retryable"].as_bool(), first.header("retry-after")),
            (Some(true), Some("1"))
        );
        tokio::time::sleep(60 * SECOND).await;
        ask("k1").send(&app).await.assert_problem(409, "OUTCOME.unknown");
        store.mend();
        tokio::time::sleep(10 * SECOND).await;
        let settled = ask("k1").send(&app).await;
        assert_eq!((settled.text(), settled.key_status()), ("run 1", Some("replayed")));
        assert_eq!(runs.get(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_zombie_that_was_taken_over_shows_no_outcome_and_changes_none() {
    let store = Arc::new(Rigged::new());
    let policy = Policy::playbook().guarantee(Guarantee::Rerunnable).lease(3 * SECOND);
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(&layer(Arc::<Rigged>::clone(&store), policy), move |_| {
        let run = counted.count();
        async move {
            if run == 1 {
                tokio::time::sleep(20 * SECOND).await;
            }
            answer(200, format!("run {run}"))
        }
    });
    // The first owner cannot renew, as if it were paused.
    store.break_with(Verb::Renew, Fault::Refuses);
    let zombie = tokio::spawn({
        let app = app.clone();
        async move { ask("k1").send(&app).await }
    });
    tokio::time::sleep(4 * SECOND).await;
    assert_eq!(ask("k1").send(&app).await.text(), "run 2");
    zombie.await.unwrap().assert_problem(409, "OUTCOME.unknown");
    assert_eq!(ask("k1").send(&app).await.text(), "run 2");
}

#[tokio::test]
async fn a_handler_that_panics_leaves_its_outcome_in_doubt_unless_it_may_be_rerun() {
    for (guarantee, code) in [
        (Guarantee::AtMostOnce, "OUTCOME.unknown"),
        (Guarantee::Rerunnable, "TRANSIENT.handler_failed"),
    ] {
        let runs = Runs::default();
        let counted = runs.clone();
        let policy = Policy::playbook().guarantee(guarantee);
        let app = app(&layer(memory(), policy), move |request: axum::extract::Request| {
            let run = counted.count();
            let attempt = request.extensions().get::<CallInfo>().unwrap().claim.attempt;
            async move {
                assert!(run > 1, "the first run fails mid-operation");
                answer(200, format!("attempt {attempt}"))
            }
        });
        let first = ask("k1").send(&app).await;
        first.assert_problem(500, code);
        assert!(first.header("idempotency-expires").is_some());
        let second = ask("k1").send(&app).await;
        if guarantee == Guarantee::Rerunnable {
            // It may have happened, and whoever runs it again is told so.
            assert_eq!((second.text(), runs.get()), ("attempt 2", 2));
        } else {
            second.assert_problem(409, "OUTCOME.unknown");
            assert_eq!(runs.get(), 1);
        }
    }
}

#[tokio::test]
async fn retry_after_a_failure_mid_operation_completes_without_duplicates() {
    // The source's test case: the operation fails before it had an effect, and says so.
    let effects = Runs::default();
    let attempts = Runs::default();
    let (effect, attempt) = (effects.clone(), attempts.clone());
    let app = app(&layer(memory(), Policy::playbook()), move |_| {
        let fails = attempt.count() == 1;
        if !fails {
            effect.count();
        }
        async move {
            if fails {
                answer(503, "try again")
            } else {
                answer(201, "rf_123")
            }
        }
    });
    assert_eq!(ask("k1").send(&app).await.status, 503);
    assert_eq!(ask("k1").send(&app).await.text(), "rf_123");
    assert_eq!(ask("k1").send(&app).await.key_status(), Some("replayed"));
    assert_eq!((attempts.get(), effects.get()), (2, 1));
}

#[tokio::test]
async fn any_tower_service_can_be_protected_and_its_error_is_an_unknown_outcome() {
    let runs = Runs::default();
    let counted = runs.clone();
    let service = tower::service_fn(move |_request: Request<exactly::layer::Body>| {
        counted.count();
        async { Err::<Response<http_body_util::Empty<bytes::Bytes>>, _>(std::io::Error::other("reset")) }
    });
    let layer = IdempotencyLayer::builder(memory()).global_keys().build().unwrap();
    let service = layer.layer(service);
    let request = || {
        let body = http_body_util::Full::new(bytes::Bytes::from("pay"));
        Request::post("/").header("idempotency-key", "k1").body(body).unwrap()
    };
    let error = service.clone().oneshot(request()).await.unwrap_err();
    assert_eq!(error.to_string(), "reset");
    let second = service.oneshot(request()).await.unwrap();
    assert_eq!((second.status().as_u16(), runs.get()), (409, 1));
}

#[tokio::test]
async fn a_refused_duplicate_neither_frees_nor_overwrites_the_owners_record() {
    let store = memory();
    let (app, _) = counting(Arc::<MemoryStore>::clone(&store), Policy::ietf());
    let scope = exactly::Scope::new("ada", "POST /refunds");
    let key = exactly::Key::new("k1").unwrap();
    let owner = exactly::Call::new(scope, key, exactly::Fingerprint::of("the owner's"));
    let Verdict::Run(claim) = store.begin(&owner).await.unwrap() else {
        panic!("the key is fresh")
    };
    ask("k1")
        .send(&app)
        .await
        .assert_problem(422, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(store.renew(&claim, SECOND).await.unwrap(), Fenced::Applied);
    let done = bytes::Bytes::from("done");
    assert_eq!(
        store.complete(&claim, &done, exactly::Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
}

#[tokio::test]
async fn a_full_store_turns_requests_away_without_running_them() {
    let store = Arc::new(MemoryStore::new().with_entries_max(1));
    let (app, runs) = counting(store, Policy::playbook());
    assert_eq!(ask("k1").send(&app).await.status, 201);
    ask("k2").send(&app).await.assert_problem(503, "DEPENDENCY.unavailable");
    assert_eq!(ask("k1").send(&app).await.key_status(), Some("replayed"));
    assert_eq!(runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn claims_to_give_back_leave_room_for_outcomes_that_are_known() {
    let store = Arc::new(Rigged::new());
    let limits = Limits {
        late_max: 1,
        ..Limits::default()
    };
    let layer = builder(Arc::<Rigged>::clone(&store))
        .policy(Policy::ietf())
        .limits(limits)
        .build()
        .unwrap();
    let leave = Arc::new(tokio::sync::Notify::new());
    let wait = Arc::clone(&leave);
    let app = app(&layer, move |_| {
        let wait = Arc::clone(&wait);
        async move {
            wait.notified().await;
            answer(201, "done")
        }
    });
    let first = tokio::spawn({
        let app = app.clone();
        async move { ask("k1").send(&app).await }
    });
    settle_down().await;
    // Everything is down: the place for claims is taken, and then an outcome has to be kept.
    store.go_down();
    ask("k2").send(&app).await.assert_problem(503, "DEPENDENCY.unavailable");
    leave.notify_one();
    first.await.unwrap().assert_problem(409, "OUTCOME.unknown");
    store.mend();
    // A shutdown waits for it.
    layer.drain().await;
    assert_eq!(ask("k1").send(&app).await.key_status(), Some("replayed"));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_could_not_be_freed_is_not_called_free() {
    let store = Arc::new(Rigged::new());
    let app = app(&layer(Arc::<Rigged>::clone(&store), Policy::ietf()), |_| async {
        answer(503, "try again")
    });
    store.break_with(Verb::Abandon, Fault::Refuses);
    let refused = ask("k1").send(&app).await;
    assert_eq!((refused.status.as_u16(), refused.key_status()), (503, None));
    store.mend();
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(ask("k1").send(&app).await.key_status(), Some("freed"));
}

#[tokio::test]
async fn whoever_is_told_of_a_doubt_is_told_where_it_is_settled() {
    let layer = builder(memory())
        .settle_link("https://ops.example/calls/")
        .build()
        .unwrap();
    let panicking = app(&layer, |_| async { panic!("half way") });
    let timing_out = app(&layer, |_| async { answer(504, "") });
    for (key, app) in [("k1", panicking), ("k2", timing_out)] {
        for _ in 0..2 {
            let told = ask(key).send(&app).await;
            let link = told.header("link").unwrap();
            assert!(link.starts_with("<https://ops.example/calls/"), "{link}");
            assert!(told.header("idempotency-expires").is_some());
        }
    }
}
