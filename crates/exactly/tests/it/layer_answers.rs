//! What is stored of an answer, what comes back, and what frees the key.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use exactly::clock::{Clock, WallClock};
use exactly::layer::{Guarantee, KeyRing, NothingHappened, Policy, Settlement};
use exactly::store::{Filter, Phase};
use exactly::{Fenced, Inspect, Keep, MemoryStore, Store};
use http::StatusCode;

use crate::app::{Answer, Ask, Runs, SECOND, answer, app, ask, builder, counting, layer, memory};

#[tokio::test]
async fn a_duplicate_request_gets_the_first_answer_byte_for_byte() {
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(&layer(memory(), Policy::playbook()), move |_| {
        counted.count();
        async {
            Response::builder()
                .status(201)
                .header("location", "/refunds/rf_123")
                .header("etag", "\"v1\"")
                .header("cache-control", "no-store")
                .header("x-two", "a")
                .header("x-two", "b")
                .header("content-type", "application/octet-stream")
                .body(Body::from(vec![0, 159, 146, 150, 255]))
                .unwrap()
        }
    });
    let first = ask("k1").send(&app).await;
    let second = ask("k1").send(&app).await;
    assert_eq!(runs.get(), 1);
    assert_eq!(first.key_status(), Some("stored"));
    assert_eq!(second.key_status(), Some("replayed"));
    assert_eq!(second.status, StatusCode::CREATED);
    assert_eq!(second.body, vec![0, 159, 146, 150, 255]);
    let without_status = |mut answer: Answer| {
        answer.headers.remove("idempotency-status");
        answer.headers.remove("idempotency-expires");
        answer
    };
    assert_eq!(without_status(first), without_status(second));
}

#[tokio::test]
async fn an_empty_answer_replays_as_an_empty_answer() {
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(&layer(memory(), Policy::playbook()), move |_| {
        counted.count();
        async { StatusCode::NO_CONTENT.into_response() }
    });
    ask("k1").send(&app).await;
    let second = ask("k1").send(&app).await;
    assert_eq!(
        (second.status, second.body.len(), runs.get()),
        (StatusCode::NO_CONTENT, 0, 1)
    );
    assert_eq!(second.key_status(), Some("replayed"));
}

#[tokio::test]
async fn what_belongs_to_the_first_caller_or_connection_is_not_replayed() {
    let withheld = [
        ("set-cookie", "session=1"),
        ("www-authenticate", "Basic"),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("access-control-allow-origin", "https://first.example"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("x-secret", "1"),
    ];
    let policy = Policy::playbook().withheld_header("x-secret".parse().unwrap());
    let app = app(&layer(memory(), policy), move |_| async move {
        let builder = withheld.iter().fold(Response::builder(), |builder, (name, value)| {
            builder.header(*name, *value)
        });
        builder.header("x-kept", "1").body(Body::empty()).unwrap()
    });
    let first = ask("k1").send(&app).await;
    let second = ask("k1").send(&app).await;
    for (name, value) in withheld {
        assert_eq!(first.header(name), Some(value));
        assert_eq!(second.header(name), None, "{name}");
    }
    assert_eq!(second.header("x-kept"), Some("1"));

    let policy = Policy::playbook().replayed_header(http::header::SET_COOKIE);
    let app = crate::app::app(&layer(memory(), policy), |_| async {
        Response::builder()
            .header("set-cookie", "cart=1")
            .body(Body::empty())
            .unwrap()
    });
    for _ in 0..2 {
        assert_eq!(ask("k1").send(&app).await.header("set-cookie"), Some("cart=1"));
    }
}

#[tokio::test]
async fn every_keyed_answer_says_when_its_key_expires_and_shows_it_to_browsers() {
    let (app, _) = counting(memory(), Policy::playbook());
    for _ in 0..2 {
        let answer = ask("k1").header("origin", "https://shop.example").send(&app).await;
        let expires = httpdate::parse_http_date(answer.header("idempotency-expires").unwrap()).unwrap();
        let now = std::time::UNIX_EPOCH + std::time::Duration::from_millis(WallClock.now().as_millis());
        let left = expires.duration_since(now).unwrap();
        assert!((23 * 3600..=24 * 3600).contains(&left.as_secs()), "{left:?}");
        assert!(
            answer
                .header("access-control-expose-headers")
                .unwrap()
                .contains("idempotency-status")
        );
    }
    let mismatch = ask("k1").body("{}").send(&app).await;
    assert!(mismatch.header("idempotency-expires").is_some());
    // Others read every header there is, and what has no key is none of the layer's business.
    let without_origin = ask("k1").send(&app).await;
    let without_key = Ask::bare().header("origin", "https://shop.example").send(&app).await;
    for answer in [without_origin, without_key] {
        assert_eq!(answer.header("access-control-expose-headers"), None);
    }

    let (app, _) = counting(memory(), Policy::playbook().keep(Keep::Forever));
    assert_eq!(ask("k1").send(&app).await.header("idempotency-expires"), Some("never"));
    assert_eq!(ask("k1").send(&app).await.header("idempotency-expires"), Some("never"));
}

#[tokio::test(start_paused = true)]
async fn after_its_retention_a_key_is_a_new_operation() {
    let (app, runs) = counting(memory(), Policy::playbook().keep(Keep::For(60 * SECOND)));
    ask("k1").send(&app).await;
    tokio::time::advance(59 * SECOND).await;
    assert_eq!(ask("k1").send(&app).await.text(), "run 1");
    tokio::time::advance(SECOND).await;
    assert_eq!(ask("k1").send(&app).await.text(), "run 2");
    assert_eq!(runs.get(), 2);
}

/// What a second request sees after the handler answered the first with `status`.
async fn second_after(policy: Policy, status: u16) -> (Answer, Answer, u32) {
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(&layer(memory(), policy), move |_| {
        let status = if counted.count() == 1 { status } else { 200 };
        async move { answer(status, "said so") }
    });
    let first = ask("k1").send(&app).await;
    let second = ask("k1").send(&app).await;
    (first, second, runs.get())
}

#[tokio::test]
async fn statuses_that_say_nothing_happened_free_the_key() {
    for guarantee in [Guarantee::AtMostOnce, Guarantee::Rerunnable] {
        for status in [408, 425, 429, 503] {
            let (first, second, runs) = second_after(Policy::playbook().guarantee(guarantee), status).await;
            assert_eq!((first.status.as_u16(), first.key_status()), (status, Some("freed")));
            assert_eq!(
                (second.status.as_u16(), second.key_status(), runs),
                (200, Some("stored"), 2)
            );
        }
    }
}

#[tokio::test]
async fn a_500_of_an_at_most_once_route_is_replayed_and_marked_as_not_worth_repeating() {
    let (first, second, runs) = second_after(Policy::playbook(), 500).await;
    assert_eq!(
        (first.key_status(), first.header("idempotency-retryable")),
        (Some("stored"), Some("false"))
    );
    assert_eq!((second.status.as_u16(), second.text(), runs), (500, "said so", 1));
    assert_eq!(
        (second.key_status(), second.header("idempotency-retryable")),
        (Some("replayed"), Some("false"))
    );
}

#[tokio::test]
async fn a_502_or_504_of_an_at_most_once_route_is_in_doubt() {
    for status in [502, 504] {
        let (first, second, runs) = second_after(Policy::playbook(), status).await;
        assert_eq!((first.status.as_u16(), first.key_status()), (status, Some("unknown")));
        second.assert_problem(409, "OUTCOME.unknown");
        assert_eq!(runs, 1);
    }
}

#[tokio::test]
async fn a_5xx_of_a_rerunnable_route_frees_the_key() {
    for status in [500, 502, 504, 599] {
        let policy = Policy::playbook().guarantee(Guarantee::Rerunnable);
        let (_, second, runs) = second_after(policy, status).await;
        assert_eq!((second.status.as_u16(), runs), (200, 2));
    }
}

#[tokio::test]
async fn every_other_answer_is_stored_whatever_its_status() {
    for status in [200, 202, 301, 400, 401, 403, 404, 409, 412, 422] {
        let (_, second, runs) = second_after(Policy::playbook(), status).await;
        assert_eq!(
            (second.status.as_u16(), second.key_status(), runs),
            (status, Some("replayed"), 1)
        );
    }
}

#[tokio::test]
async fn a_handler_can_say_that_nothing_happened() {
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(&layer(memory(), Policy::playbook()), move |_| {
        counted.count();
        async { (NothingHappened, StatusCode::CONFLICT).into_response() }
    });
    assert_eq!(ask("k1").send(&app).await.key_status(), Some("freed"));
    assert_eq!(ask("k1").send(&app).await.key_status(), Some("freed"));
    assert_eq!(runs.get(), 2);
}

#[tokio::test]
async fn an_answer_too_large_to_keep_reaches_its_caller_and_is_never_run_again() {
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(&layer(memory(), Policy::playbook().answer_max(1000)), move |_| {
        counted.count();
        let chunks = futures_util::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(vec![7; 100])));
        async { answer(200, Body::from_stream(chunks)) }
    });
    let first = ask("k1").send(&app).await;
    assert_eq!((first.body.len(), first.key_status()), (10_000, Some("stored")));
    let second = ask("k1").send(&app).await;
    second.assert_problem(409, "OUTCOME.replay_unavailable");
    assert_eq!(second.problem()["answeredStatus"], 200);
    assert_eq!(runs.get(), 1);
}

#[tokio::test]
async fn an_answer_of_exactly_the_limit_is_kept() {
    let app = app(&layer(memory(), Policy::playbook().answer_max(1000)), move |_| async {
        answer(200, vec![7; 1000])
    });
    ask("k1").send(&app).await;
    assert_eq!(ask("k1").send(&app).await.body.len(), 1000);
}

#[tokio::test]
async fn a_streamed_answer_is_replayed_whole() {
    let app = app(&layer(memory(), Policy::playbook()), move |_| {
        let chunks = futures_util::stream::iter((0..100_u8).map(|n| Ok::<_, std::io::Error>(vec![n; 100])));
        async { answer(200, Body::from_stream(chunks)) }
    });
    let first = ask("k1").send(&app).await;
    assert_eq!(ask("k1").send(&app).await.body, first.body);
    assert_eq!(first.body.len(), 10_000);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_in_doubt() {
    let app = app(&layer(memory(), Policy::playbook()), move |_| {
        let chunks = futures_util::stream::iter([Ok("half"), Err(std::io::Error::other("cut"))]);
        async { answer(200, Body::from_stream(chunks)) }
    });
    ask("k1").send(&app).await.assert_problem(409, "OUTCOME.unknown");
    ask("k1").send(&app).await.assert_problem(409, "OUTCOME.unknown");
}

#[tokio::test]
async fn a_route_marked_never_stored_keeps_no_answer_and_consumes_the_key() {
    let store = memory();
    let (app, runs) = counting(
        Arc::<MemoryStore>::clone(&store),
        Policy::playbook().never_store_answers(),
    );
    assert_eq!(ask("k1").send(&app).await.text(), "run 1");
    ask("k1")
        .send(&app)
        .await
        .assert_problem(409, "OUTCOME.replay_unavailable");
    assert_eq!(runs.get(), 1);
    assert!(store.list(&Filter::default()).await.unwrap().calls[0].outcome_len < Some(8));
}

#[tokio::test]
async fn a_sealed_answer_survives_key_rotation_and_is_unavailable_without_its_key() {
    let store = memory();
    let app_with = |ring: KeyRing| {
        let policy = Policy::playbook().sealed_by(Arc::new(ring));
        counting(Arc::<MemoryStore>::clone(&store), policy)
    };
    let (app, _) = app_with(KeyRing::new(1, &[1; 32]));
    ask("k1").send(&app).await;
    let (rotated, runs) = app_with(KeyRing::new(2, &[2; 32]).with_retired(1, &[1; 32]));
    assert_eq!(ask("k1").send(&rotated).await.text(), "run 1");
    let (forgetful, _) = app_with(KeyRing::new(3, &[3; 32]));
    ask("k1")
        .send(&forgetful)
        .await
        .assert_problem(409, "OUTCOME.replay_unavailable");
    let (unsealed, _) = counting(Arc::<MemoryStore>::clone(&store), Policy::playbook());
    ask("k1")
        .send(&unsealed)
        .await
        .assert_problem(409, "OUTCOME.replay_unavailable");
    assert_eq!(runs.get(), 0);
}

#[tokio::test]
async fn what_is_sealed_cannot_be_read_in_the_store() {
    let store = memory();
    let policy = Policy::playbook().sealed_by(Arc::new(KeyRing::new(1, &[1; 32])));
    let app = app(&layer(Arc::<MemoryStore>::clone(&store), policy), |_| async {
        answer(200, "one-time-token")
    });
    ask("k1").send(&app).await;
    let call = store.list(&Filter::default()).await.unwrap().calls.remove(0);
    let call = exactly::Call::new(call.scope, call.key, call.fingerprint);
    let Some(exactly::Verdict::Replay(replay)) = store.peek(&call).await.unwrap() else {
        panic!("it is done")
    };
    assert!(!replay.outcome.windows(14).any(|window| window == b"one-time-token"));
}

#[tokio::test]
async fn the_precondition_of_an_update_is_an_outcome_like_any_other() {
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(
        &layer(memory(), Policy::playbook()),
        move |request: axum::extract::Request| {
            counted.count();
            let current = request.headers()["if-match"] == "\"v1\"";
            async move { answer(if current { 200 } else { 412 }, "") }
        },
    );
    let put = |key, tag| ask(key).method("PUT").uri("/orders/1").header("if-match", tag);
    assert_eq!(put("k1", "\"v0\"").send(&app).await.status, 412);
    assert_eq!(put("k1", "\"v0\"").send(&app).await.key_status(), Some("replayed"));
    put("k1", "\"v1\"")
        .send(&app)
        .await
        .assert_problem(409, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(put("k2", "\"v1\"").send(&app).await.status, 200);
    assert_eq!(runs.get(), 2);
}

#[tokio::test]
async fn the_rendering_of_refusals_can_be_replaced() {
    let layer = builder(memory())
        .policy(Policy::playbook().key(exactly::layer::KeyRule::Required))
        .render(|problem| {
            let envelope = format!(r#"{{"ok":false,"error":"{}"}}"#, problem.code);
            let mut response = http::Response::new(bytes::Bytes::from(envelope).into());
            *response.status_mut() = problem.status;
            response
        })
        .build()
        .unwrap();
    let app = app(&layer, |_| async { answer(200, "") });
    let refused = Ask::bare().send(&app).await;
    assert_eq!(
        (refused.status.as_u16(), refused.text()),
        (422, r#"{"ok":false,"error":"IDEMPOTENCY_KEY_REQUIRED"}"#)
    );
}

#[tokio::test]
async fn a_doubt_links_to_where_it_is_settled_and_settling_it_ends_it() {
    let store = memory();
    let layer = builder(Arc::<MemoryStore>::clone(&store))
        .settle_link("https://ops.example/v1/calls/")
        .build()
        .unwrap();
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(&layer, move |_| {
        let status = if counted.count() == 1 { 504 } else { 200 };
        async move { answer(status, "") }
    });
    ask("k1").send(&app).await;
    let doubt = ask("k1").send(&app).await;
    let call = doubt.problem()["call"].as_str().unwrap().to_owned();
    assert_eq!(
        doubt.problem()["settle"],
        format!("https://ops.example/v1/calls/{call}")
    );
    assert!(doubt.header("link").unwrap().contains("rel=\"settle\""));
    assert_eq!(doubt.problem()["retryable"], false);

    let view = store.get(&call.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(view.phase, Phase::InDoubt);
    assert_eq!(
        layer.settle(&view.claim, Settlement::DidNotHappen).await.unwrap(),
        Fenced::Applied
    );
    assert_eq!(ask("k1").send(&app).await.status, 200);
    assert_eq!(runs.get(), 2);
    let too_late = Settlement::Happened(http::Response::new("late".into()));
    assert_eq!(layer.settle(&view.claim, too_late).await.unwrap(), Fenced::Superseded);
}

#[tokio::test]
async fn a_doubt_settled_as_happened_replays_the_answer_it_was_settled_with() {
    let store = memory();
    let layer = layer(Arc::<MemoryStore>::clone(&store), Policy::playbook());
    let app = app(&layer, |_| async { answer(504, "") });
    ask("k1").send(&app).await;
    let doubt = store
        .list(&Filter {
            phase: Some(Phase::InDoubt),
            ..Filter::default()
        })
        .await
        .unwrap()
        .calls
        .remove(0);
    let found_out = http::Response::builder()
        .status(201)
        .header("location", "/x")
        .body("po_1".into())
        .unwrap();
    let settled = layer
        .settle(&doubt.claim, Settlement::Happened(found_out))
        .await
        .unwrap();
    assert_eq!(settled, Fenced::Applied);
    let replay = ask("k1").send(&app).await;
    assert_eq!(
        (replay.status.as_u16(), replay.text(), replay.key_status()),
        (201, "po_1", Some("replayed"))
    );
    assert_eq!(replay.header("location"), Some("/x"));
}
