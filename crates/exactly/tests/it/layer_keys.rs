//! Which requests are protected, whose key is whose, and what is refused.

use std::sync::Arc;

use exactly::MemoryStore;
use exactly::Store;
use exactly::fingerprint::LeaveOut;
use exactly::key::{KeyFormat, KeySyntax};
use exactly::layer::{Guarantee, IdempotencyLayer, KeyRule, Policy};
use http::Method;

use crate::app::{Ask, Runs, answer, app, ask, builder, counting, layer, memory};

#[tokio::test]
async fn a_missing_key_is_refused_where_it_is_required_and_only_there() {
    let presets = [
        (Policy::playbook(), 422),
        (Policy::ietf(), 400),
        (Policy::stripe(), 400),
    ];
    for (preset, status) in presets {
        let (app, runs) = counting(memory(), preset.clone().key(KeyRule::Required));
        Ask::bare()
            .send(&app)
            .await
            .assert_problem(status, "IDEMPOTENCY_KEY_REQUIRED");
        assert_eq!(runs.get(), 0);
        let (app, runs) = counting(memory(), preset);
        for run in ["run 1", "run 2"] {
            let answer = Ask::bare().send(&app).await;
            assert_eq!((answer.text(), answer.key_status()), (run, None));
        }
        assert_eq!(runs.get(), 2);
    }
}

#[tokio::test]
async fn a_malformed_key_is_refused_and_nothing_runs() {
    let long = "k".repeat(256);
    let bad: Vec<Ask> = ["", "\"\"", "\"open", "a,b", "caf\u{e9}", "tab\there", long.as_str()]
        .map(ask)
        .into();
    let twice = ask("k1").header("idempotency-key", "k1");
    for (preset, status) in [
        (Policy::playbook(), 422),
        (Policy::ietf(), 400),
        (Policy::stripe(), 400),
    ] {
        let store = memory();
        let (app, runs) = counting(Arc::<MemoryStore>::clone(&store), preset);
        for ask in bad.iter().chain([&twice]) {
            let refused = ask.clone().send(&app).await;
            assert_eq!(refused.status.as_u16(), status, "{ask:?}");
            refused.assert_problem(status, "IDEMPOTENCY_KEY_INVALID");
            assert_eq!(refused.key_status(), None);
        }
        assert_eq!(runs.get(), 0);
        assert_eq!(
            exactly::Inspect::list(&*store, &exactly::store::Filter::default())
                .await
                .unwrap()
                .calls
                .len(),
            0
        );
    }
}

#[tokio::test]
async fn a_quoted_key_and_the_bare_form_are_the_same_key() {
    let (app, runs) = counting(memory(), Policy::playbook());
    ask("k1").send(&app).await;
    assert_eq!(ask("\"k1\"").send(&app).await.key_status(), Some("replayed"));
    assert_eq!(runs.get(), 1);
    let (strict, _) = counting(memory(), Policy::ietf().key_syntax(KeySyntax::Strict));
    ask("k1")
        .send(&strict)
        .await
        .assert_problem(400, "IDEMPOTENCY_KEY_INVALID");
    assert_eq!(ask("\"k1\"").send(&strict).await.status, 201);
}

#[tokio::test]
async fn a_key_of_255_bytes_works() {
    let (app, _) = counting(memory(), Policy::playbook());
    ask(&"k".repeat(255)).send(&app).await;
    assert_eq!(ask(&"k".repeat(255)).send(&app).await.key_status(), Some("replayed"));
}

#[tokio::test]
async fn keys_can_come_in_another_header_or_in_the_body() {
    let policy = Policy::playbook()
        .key(KeyRule::Required)
        .key_header("x-idempotency-key".parse().unwrap())
        .key_field("clientMutationId");
    let (app, runs) = counting(memory(), policy);
    Ask::bare().header("x-idempotency-key", "k1").send(&app).await;
    assert_eq!(ask("k1").send(&app).await.key_status(), Some("replayed"));
    assert_eq!(
        ask("k1")
            .header("x-idempotency-key", "k1")
            .send(&app)
            .await
            .key_status(),
        Some("replayed")
    );
    let disagree = ask("k1").header("x-idempotency-key", "k2").send(&app).await;
    disagree.assert_problem(422, "IDEMPOTENCY_KEY_INVALID");
    assert_eq!(runs.get(), 1);

    let in_body = Ask::bare().body(r#"{"clientMutationId":"m1"}"#);
    assert_eq!(in_body.clone().send(&app).await.key_status(), Some("stored"));
    assert_eq!(in_body.send(&app).await.key_status(), Some("replayed"));
    assert_eq!(runs.get(), 2);
    let number = Ask::bare().body(r#"{"clientMutationId":7}"#).send(&app).await;
    number.assert_problem(422, "IDEMPOTENCY_KEY_INVALID");
    for body in ["{}", "not json", "[]", ""] {
        Ask::bare()
            .body(body)
            .send(&app)
            .await
            .assert_problem(422, "IDEMPOTENCY_KEY_REQUIRED");
    }
    assert_eq!(runs.get(), 2);
}

#[tokio::test]
async fn a_route_can_ask_for_uuids() {
    let (app, runs) = counting(memory(), Policy::playbook().key_format(KeyFormat::UuidV4));
    ask("k1")
        .send(&app)
        .await
        .assert_problem(422, "IDEMPOTENCY_KEY_INVALID");
    ask("550e8400-e29b-41d4-a716-446655440000").send(&app).await;
    let upper = ask("550E8400-E29B-41D4-A716-446655440000").send(&app).await;
    assert_eq!((upper.key_status(), runs.get()), (Some("replayed"), 1));
}

#[tokio::test]
async fn keys_are_ignored_on_safe_methods_and_where_they_are_off() {
    let (app, runs) = counting(memory(), Policy::playbook().key(KeyRule::Required));
    for method in ["GET", "HEAD", "OPTIONS"] {
        assert_eq!(ask("k1").method(method).send(&app).await.key_status(), None);
        assert_eq!(ask("k1,").method(method).send(&app).await.status, 201);
    }
    assert_eq!(runs.get(), 6);
    let (app, runs) = counting(memory(), Policy::playbook().key(KeyRule::Off));
    ask("k1").send(&app).await;
    ask("k1").send(&app).await;
    assert_eq!(runs.get(), 2);
    let (app, runs) = counting(memory(), Policy::playbook());
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        ask("k1").method(method).send(&app).await;
        assert_eq!(
            ask("k1").method(method).send(&app).await.key_status(),
            Some("replayed"),
            "{method}"
        );
    }
    assert_eq!(runs.get(), 4);
}

#[tokio::test]
async fn another_user_method_or_route_never_sees_the_answer() {
    let (app, runs) = counting(memory(), Policy::playbook());
    let others = [
        ask("k1"),
        ask("k1").header("x-user", "bob"),
        ask("k1").method("PUT"),
        ask("k1").uri("/payments"),
    ];
    for (other, run) in others.iter().zip(1..) {
        let answer = other.clone().send(&app).await;
        assert_eq!(
            (answer.text(), answer.key_status()),
            (format!("run {run}").as_str(), Some("stored")),
            "{other:?}"
        );
    }
    assert_eq!(runs.get(), 4);
    let differing = [
        ask("k1").uri("/refunds?tenant=2"),
        ask("k1").body("{}"),
        ask("k1").body(""),
    ];
    for request in differing {
        request
            .send(&app)
            .await
            .assert_problem(409, "CONFLICT.idempotency.payload_mismatch");
    }
    ask("k9").uri("/orders/1").send(&app).await;
    let other_path = ask("k9").uri("/orders/2").send(&app).await;
    other_path.assert_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn a_different_key_with_the_same_body_is_a_new_operation() {
    let (app, runs) = counting(memory(), Policy::playbook());
    ask("k1").send(&app).await;
    assert_eq!(ask("k2").send(&app).await.key_status(), Some("stored"));
    assert_eq!(runs.get(), 2);
}

#[tokio::test]
async fn a_mismatch_is_told_by_the_presets_number_and_changes_nothing() {
    for (preset, status) in [
        (Policy::playbook(), 409),
        (Policy::ietf(), 422),
        (Policy::stripe(), 400),
    ] {
        let (app, runs) = counting(memory(), preset);
        ask("k1").send(&app).await;
        let refused = ask("k1").body(r#"{"amount":1}"#).send(&app).await;
        refused.assert_problem(status, "CONFLICT.idempotency.payload_mismatch");
        assert_eq!(refused.problem()["retryable"], false);
        assert_eq!(ask("k1").send(&app).await.text(), "run 1");
        assert_eq!(runs.get(), 1);
    }
}

#[tokio::test]
async fn another_encoding_of_the_same_request_is_the_same_request() {
    let (app, runs) = counting(memory(), Policy::playbook());
    ask("k1").body(r#"{"a":1,"b":[2,3]}"#).send(&app).await;
    let respelled = ask("k1").body("{ \"b\": [2, 3],\n \"a\": 1 }").send(&app).await;
    assert_eq!((respelled.key_status(), runs.get()), (Some("replayed"), 1));
    let leave_out = LeaveOut::nothing().pointer("/sentAt").unwrap();
    let (app, runs) = counting(memory(), Policy::playbook().leave_out(leave_out));
    ask("k1").body(r#"{"a":1,"sentAt":1}"#).send(&app).await;
    let later = ask("k1").body(r#"{"a":1,"sentAt":2}"#).send(&app).await;
    assert_eq!((later.key_status(), runs.get()), (Some("replayed"), 1));
}

#[tokio::test]
async fn a_body_that_is_not_what_it_says_reaches_the_handler_unchanged() {
    let app = app(
        &layer(memory(), Policy::playbook()),
        |request: axum::extract::Request| async {
            let body = axum::body::to_bytes(request.into_body(), 1000).await.unwrap();
            answer(400, body)
        },
    );
    let bodies: [(&str, &[u8]); 4] = [
        ("k1", b"{\"a\":"),
        ("k2", b"\xff\xfe"),
        ("k3", b"{\"a\":1,\"a\":2}"),
        ("k4", b"\xef\xbb\xbf{}"),
    ];
    for (key, body) in bodies {
        let first = ask(key).body(body).send(&app).await;
        assert_eq!((first.status.as_u16(), first.body.as_slice()), (400, body));
        assert_eq!(ask(key).body(body).send(&app).await.key_status(), Some("replayed"));
    }
    let charset = Ask::bare().header("idempotency-key", "k5").body("x");
    let charset = charset.header("content-type", "application/json; charset=klingon");
    assert_eq!(charset.clone().send(&app).await.key_status(), Some("stored"));
    assert_eq!(charset.send(&app).await.key_status(), Some("replayed"));
}

#[tokio::test]
async fn a_second_line_of_a_header_is_not_overlooked() {
    let (app, _) = counting(memory(), Policy::playbook());
    ask("k1").header("content-encoding", "identity").send(&app).await;
    let other = ask("k1")
        .header("content-encoding", "identity")
        .header("content-encoding", "gzip");
    other
        .send(&app)
        .await
        .assert_problem(409, "CONFLICT.idempotency.payload_mismatch");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_nothing_is_stored() {
    let (app, runs) = counting(memory(), Policy::playbook().body_max(16));
    ask("k1")
        .body("x".repeat(17))
        .send(&app)
        .await
        .assert_problem(413, "VALIDATION.body_too_large");
    assert_eq!(runs.get(), 0);
    assert_eq!(
        ask("k1").body("x".repeat(16)).send(&app).await.key_status(),
        Some("stored")
    );
}

#[tokio::test]
async fn a_request_without_an_authenticated_caller_is_refused() {
    let (app, runs) = counting(memory(), Policy::playbook());
    // An empty name is a name that somebody forgot to fill in, and would be everyone's.
    for user in ["nobody", ""] {
        ask("k1")
            .header("x-user", user)
            .send(&app)
            .await
            .assert_problem(401, "AUTH.principal_missing");
    }
    assert_eq!(runs.get(), 0);
}

#[tokio::test]
async fn only_who_sends_a_key_has_to_be_known() {
    let policy = Policy::playbook().key_field("clientMutationId");
    let (app, runs) = counting(memory(), policy);
    let stranger = Ask::bare().header("x-user", "nobody");
    assert_eq!(stranger.clone().send(&app).await.text(), "run 1");
    let keyed = stranger.body(r#"{"clientMutationId":"m1"}"#).send(&app).await;
    keyed.assert_problem(401, "AUTH.principal_missing");
    assert_eq!(runs.get(), 1);
}

#[tokio::test]
async fn keys_in_header_and_body_that_disagree_are_refused() {
    let policy = Policy::playbook().key_field("clientMutationId");
    let (app, runs) = counting(memory(), policy);
    let body = r#"{"clientMutationId":"k1"}"#;
    let refused = [
        ask("k2").body(body),
        Ask::bare().body(r#"{"clientMutationId":"k1","clientMutationId":"k2"}"#),
        Ask::bare().body(r#"{"clientMutationId":"k1","clientMutationId":"k1"}"#),
        Ask::bare().body(r#"{"clientMutationId":17}"#),
    ];
    for request in refused {
        request.send(&app).await.assert_problem(422, "IDEMPOTENCY_KEY_INVALID");
    }
    assert_eq!(runs.get(), 0);
    assert_eq!(ask("k1").body(body).send(&app).await.key_status(), Some("stored"));
    let by_body_alone = Ask::bare().body(body).send(&app).await;
    assert_eq!(by_body_alone.key_status(), Some("replayed"));
    // A header's key needs no body that can be read.
    assert_eq!(ask("k3").body("{").send(&app).await.key_status(), Some("stored"));
}

#[tokio::test]
async fn global_keys_are_shared_by_all_when_asked_for() {
    let layer = IdempotencyLayer::builder(memory()).global_keys().build().unwrap();
    let runs = Runs::default();
    let counted = runs.clone();
    let app = app(&layer, move |_| {
        counted.count();
        async { answer(200, "") }
    });
    ask("k1").header("x-user", "ada").send(&app).await;
    assert_eq!(
        ask("k1").header("x-user", "bob").send(&app).await.key_status(),
        Some("replayed")
    );
}

#[tokio::test]
async fn a_bad_configuration_names_every_mistake_at_once() {
    let store: Arc<dyn Store> = memory();
    let limits = exactly::once::Limits {
        poll: std::time::Duration::ZERO,
        record_patience: std::time::Duration::MAX,
        ..exactly::once::Limits::default()
    };
    let errors = IdempotencyLayer::builder(store)
        .limits(limits)
        .policy(Policy::playbook().guarantee(Guarantee::Transactional))
        .route(
            Method::POST,
            "refunds",
            Policy::playbook()
                .lease(std::time::Duration::ZERO)
                .replayed_header(http::header::TRANSFER_ENCODING),
        )
        .build()
        .unwrap_err();
    let text = errors.to_string();
    for part in [
        "principal is nothing",
        "global_keys()",
        "guarantee is transactional",
        "POST refunds: pattern",
        "lease is 0ns",
        "replayed_header is transfer-encoding",
        "limits: poll is 0ns, accepted is 10ms to 60s",
        "limits: record_patience is",
    ] {
        assert!(text.contains(part), "{part:?} in {text:?}");
    }
    assert_eq!(errors.iter().count(), 7);
}

#[tokio::test]
async fn the_first_matching_route_decides_the_policy() {
    let layer = builder(memory())
        .route(Method::POST, "/orders/{id}", Policy::playbook().key(KeyRule::Required))
        .route(Method::POST, "/{*rest}", Policy::playbook().key(KeyRule::Off))
        .build()
        .unwrap();
    let app = app(&layer, |_| async { answer(200, "") });
    Ask::bare()
        .uri("/orders/7")
        .send(&app)
        .await
        .assert_problem(422, "IDEMPOTENCY_KEY_REQUIRED");
    assert_eq!(ask("k1").send(&app).await.key_status(), None);
    let strict = layer.with_policy(Policy::playbook().key(KeyRule::Required)).unwrap();
    let app = crate::app::app(&strict, |_| async { answer(200, "") });
    assert_eq!(Ask::bare().uri("/refunds").method("PUT").send(&app).await.status, 422);
}
