//! What routes promise, as the configuration has it, and who shares a key with whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::time::{sleep, timeout};

use crate::client::{Ask, ask, get, post};
use crate::server::{Server, until};
use crate::upstream::{Gate, Upstream, reply};
use crate::wire::Message;
use crate::{PATIENCE, SHORT};

/// A route table with one route.
fn route(settings: &str) -> String {
    format!("[[routes]]\nmethod = \"POST\"\npath = \"/refunds\"\n{settings}\n")
}

/// Sends `request` twice, and says whether the second was answered by the first.
async fn is_replayed(request: &Ask, again: &Ask, server: &Server) -> bool {
    let first = request.to(server.listen).await;
    assert_eq!(first.status(), 201, "{first:?}");
    let again = again.to(server.listen).await;
    assert_eq!(again.status(), 201, "{again:?}");
    let is_replayed = again.key_status() == Some("replayed");
    assert_eq!(again.text() == first.text(), is_replayed, "{again:?}");
    is_replayed
}

#[tokio::test]
async fn without_a_route_table_a_key_protects_what_changes_something() {
    let upstream = Upstream::counting().await;
    let server = Server::start(upstream.address);
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let request = ask(method, "/refunds").body("x").key("k");
        assert!(is_replayed(&request, &request, &server).await, "{method}");
        let unkeyed = ask(method, "/refunds").body("x");
        assert!(!is_replayed(&unkeyed, &unkeyed, &server).await, "{method}");
        let other = ask(method, "/refunds").body("y").key("k").to(server.listen).await;
        assert_eq!(other.code(), "CONFLICT.idempotency.payload_mismatch", "{method}");
        let elsewhere = ask(method, "/refunds?x").body("x").key("k").to(server.listen).await;
        assert_eq!(elsewhere.code(), "CONFLICT.idempotency.payload_mismatch", "{method}");
    }
    for method in ["GET", "OPTIONS"] {
        let request = ask(method, "/refunds").key("k");
        assert!(!is_replayed(&request, &request, &server).await, "{method}");
    }
}

#[tokio::test]
async fn keys_are_looked_for_where_the_route_says() {
    let upstream = Upstream::counting().await;
    let settings = [
        // The first match counts.
        "[[routes]]\nmethod = \"POST\"\npath = \"/open/{id}\"\nkey = \"off\"\n",
        "[[routes]]\nmethod = \"POST\"\npath = \"/open/{*rest}\"\nkey = \"required\"\n",
        "[[routes]]\nmethod = \"POST\"\npath = \"/alias\"\nkey = \"required\"\nkey_headers = [\"x-request-key\"]\n",
        "[[routes]]\nmethod = \"POST\"\npath = \"/field\"\nkey = \"required\"\nkey_field = \"clientMutationId\"\n",
        "[[routes]]\nmethod = \"POST\"\npath = \"/uuid\"\nkey_format = \"uuid-v4\"\n",
        "[[routes]]\nmethod = \"POST\"\npath = \"/strict\"\nkey_syntax = \"strict\"\n",
    ];
    let server = Server::with(upstream.address, &settings.concat());
    let off = post("/open/1").key("k");
    assert!(!is_replayed(&off, &off, &server).await);
    for path in ["/open/1/2", "/alias", "/field"] {
        let refused = post(path).to(server.listen).await;
        assert_eq!(
            (refused.status(), refused.code().as_str()),
            (422, "IDEMPOTENCY_KEY_REQUIRED")
        );
    }
    let alias = post("/alias").header("X-Request-Key", "k");
    assert!(is_replayed(&alias, &alias, &server).await);
    assert!(
        is_replayed(
            &post("/alias").key("l"),
            &post("/alias").header("x-request-key", "\"l\""),
            &server
        )
        .await
    );
    let twice = post("/alias")
        .key("l")
        .header("x-request-key", "m")
        .to(server.listen)
        .await;
    assert_eq!(twice.code(), "IDEMPOTENCY_KEY_INVALID");
    let field = post("/field").body("{\"clientMutationId\":\"k\",\"a\":1}");
    let same = post("/field").body("{ \"a\": 1, \"clientMutationId\": \"k\" }");
    assert!(is_replayed(&field, &same, &server).await);
    let uuid = post("/uuid").key("6b6f2a4e-8f0e-4a53-9d2c-3a1b7c5d9e01");
    assert!(is_replayed(&uuid, &uuid, &server).await);
    for (path, key) in [("/uuid", "k"), ("/strict", "k"), ("/other", ""), ("/other", "a\tb")] {
        let refused = post(path).key(key).to(server.listen).await;
        assert_eq!(
            (refused.status(), refused.code().as_str()),
            (422, "IDEMPOTENCY_KEY_INVALID"),
            "{path} {key}"
        );
    }
    let quoted = post("/strict").key("\"k\"");
    assert!(is_replayed(&quoted, &quoted, &server).await);
}

#[tokio::test]
async fn presets_choose_the_statuses() {
    let upstream = Upstream::counting().await;
    for (preset, missing, invalid, mismatch) in [
        ("playbook", 422, 422, 409),
        ("ietf", 400, 400, 422),
        ("stripe", 400, 400, 400),
    ] {
        let settings = format!("[defaults]\npreset = \"{preset}\"\nkey = \"required\"\n");
        let server = Server::with(upstream.address, &settings);
        assert_eq!(post("/").to(server.listen).await.status(), missing, "{preset}");
        assert_eq!(post("/").key("").to(server.listen).await.status(), invalid, "{preset}");
        assert_eq!(post("/").key("k").to(server.listen).await.status(), 201, "{preset}");
        assert_eq!(
            post("/").key("k").body("other").to(server.listen).await.status(),
            mismatch,
            "{preset}"
        );
    }
}

#[tokio::test]
async fn an_answer_is_kept_as_long_as_the_route_says() {
    let upstream = Upstream::counting().await;
    let server = Server::with(upstream.address, &route("keep = \"1s\""));
    let request = post("/refunds").key("k");
    assert!(is_replayed(&request, &request, &server).await);
    let forgotten = until(async || {
        let answer = request.to(server.listen).await;
        (answer.key_status() == Some("stored")).then(|| answer.text())
    });
    assert_eq!(timeout(PATIENCE, forgotten).await.unwrap(), "effect 2");
    assert_eq!(upstream.effects(), 2);
}

#[tokio::test]
async fn a_duplicate_waits_as_long_as_the_route_says() {
    let gate = Gate::default();
    let upstream = Upstream::held(&gate).await;
    let server = Server::with(upstream.address, &route("wait = \"50ms\"\nlease = \"30s\""));
    let request = post("/refunds").key("k");
    let first = request.to(server.listen);
    let duplicate = async {
        until(async || (upstream.effects() == 1).then_some(())).await;
        let answer = request.to(server.listen).await;
        gate.open();
        answer
    };
    let (first, duplicate) = tokio::join!(first, duplicate);
    assert_eq!(duplicate.code(), "CONFLICT.idempotency.in_progress");
    let retry_after: u64 = duplicate.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&retry_after), "{retry_after}");
    assert_eq!(first.key_status(), Some("stored"));
    assert_eq!(request.to(server.listen).await.key_status(), Some("replayed"));
}

#[tokio::test]
async fn what_is_too_long_is_refused_or_not_kept_and_never_run_again() {
    let upstream = Upstream::answering(|request: Message| async move {
        let length = request.target().trim_start_matches("/refunds?").parse().unwrap();
        reply(201, &[], &"x".repeat(length))
    })
    .await;
    let server = Server::with(upstream.address, &route("body_max = 100\nanswer_max = \"1KiB\""));
    let request = post("/refunds?1024").key("k").body("x".repeat(100));
    assert_eq!(request.to(server.listen).await.key_status(), Some("stored"));
    assert_eq!(request.to(server.listen).await.body.len(), 1024);
    // With its length said before, and without.
    let long = post("/refunds?1").key("l").body("x".repeat(101));
    let chunked = "POST /refunds?1 HTTP/1.1\r\nhost: a\r\nidempotency-key: l\r\ntransfer-encoding: chunked\r\n\r\n\
                   65\r\n"
        .to_owned()
        + &"x".repeat(101)
        + "\r\n0\r\n\r\n";
    let mut wire = crate::wire::Wire::connect(server.listen).await;
    wire.send(chunked).await.unwrap();
    for refused in [long.to(server.listen).await, wire.answered().await.unwrap()] {
        assert_eq!(
            (refused.status(), refused.code().as_str()),
            (413, "VALIDATION.body_too_large")
        );
    }
    assert_eq!(upstream.effects(), 1);
    let request = post("/refunds?300000").key("m");
    assert_eq!(request.to(server.listen).await.body.len(), 300_000);
    let again = request.to(server.listen).await;
    assert_eq!(
        (again.status(), again.code().as_str()),
        (409, "OUTCOME.replay_unavailable")
    );
    assert_eq!(upstream.effects(), 2);
}

#[tokio::test]
async fn a_route_says_what_counts_as_the_same_request_and_the_same_answer() {
    let number = Arc::new(AtomicU16::new(0));
    let upstream = Upstream::answering(move |_| {
        let number = number.fetch_add(1, Ordering::SeqCst).to_string();
        async move {
            let headers = [
                ("x-secret", number.as_str()),
                ("set-cookie", "seen=1"),
                ("set-cookie", "user=2"),
                ("location", "/refunds/1"),
            ];
            reply(201, &headers, &number)
        }
    })
    .await;
    let settings = "leave_out = [\"/sentAt\"]\ncompared_headers = [\"x-version\"]\nwithheld_headers = [\"x-secret\"]";
    let other = "[[routes]]\nmethod = \"PUT\"\npath = \"/refunds\"\nreplayed_headers = [\"set-cookie\"]\n\
                 [[routes]]\nmethod = \"DELETE\"\npath = \"/refunds\"\nstore_answers = false\n";
    let server = Server::with(upstream.address, &(route(settings) + other));
    let sent = |at: u32| post("/refunds").key("k").body(format!("{{\"a\":1,\"sentAt\":{at}}}"));
    let first = sent(1).to(server.listen).await;
    let again = sent(2).to(server.listen).await;
    assert_eq!(again.key_status(), Some("replayed"));
    assert_eq!(first.all("set-cookie"), ["seen=1", "user=2"]);
    assert_eq!(first.header("x-secret"), Some("0"));
    assert_eq!(again.all("set-cookie"), [""; 0]);
    assert_eq!(again.header("x-secret"), None);
    assert_eq!(again.header("location"), Some("/refunds/1"));
    let other = sent(1).header("x-version", "2").to(server.listen).await;
    assert_eq!(other.code(), "CONFLICT.idempotency.payload_mismatch");
    for _ in 0..2 {
        let put = ask("PUT", "/refunds").key("k").to(server.listen).await;
        assert_eq!(put.all("set-cookie"), ["seen=1", "user=2"]);
    }
    let secret = ask("DELETE", "/refunds").key("k");
    assert_eq!(secret.to(server.listen).await.text(), "2");
    assert_eq!(secret.to(server.listen).await.code(), "OUTCOME.replay_unavailable");
    assert_eq!(upstream.effects(), 3);
}

#[tokio::test]
async fn callers_with_different_credentials_never_share_a_record() {
    let upstream = Upstream::counting().await;
    let settings = "[principal]\nheaders = [\"authorization\", \"x-api-key\"]\ncookies = [\"session\"]\n";
    let server = Server::with(upstream.address, settings);
    let plain = || post("/refunds").key("k");
    let callers = [
        plain(),
        plain().bearer("ada"),
        plain().bearer("bob"),
        plain().header("x-api-key", "ada"),
        plain().bearer("ada").header("x-api-key", "1"),
        plain().header("cookie", "session=ada"),
        plain().header("cookie", "theme=dark; session=bob"),
        plain().header("cookie", "session=ada; session=bob"),
        plain().bearer("ada").bearer("bob"),
    ];
    let mut seen = Vec::new();
    for caller in &callers {
        let answer = caller.to(server.listen).await;
        assert_eq!(answer.key_status(), Some("stored"), "{caller:?}");
        seen.push(answer.text());
    }
    for (caller, seen) in callers.iter().zip(seen) {
        let answer = caller.to(server.listen).await;
        assert_eq!((answer.key_status(), answer.text()), (Some("replayed"), seen));
    }
    // What is no credential makes no other caller.
    let same = plain()
        .header("cookie", "session=ada; theme=light")
        .header("user-agent", "b");
    assert_eq!(same.to(server.listen).await.text(), "effect 6");
    assert_eq!(upstream.effects(), callers.len());
}

#[tokio::test]
async fn a_revoked_caller_gets_no_replay() {
    let leave = Arc::new(AtomicU16::new(204));
    let given = Arc::clone(&leave);
    let upstream = Upstream::scripted(move |mut wire, upstream| {
        let given = Arc::clone(&given);
        async move {
            while let Some(request) = wire.request().await {
                upstream.note(&request);
                let answer = match (request.target(), given.load(Ordering::SeqCst)) {
                    ("/auth?strict=1", 0) => return,
                    ("/auth?strict=1", 204) => b"HTTP/1.1 204 Said\r\n\r\n".to_vec(),
                    ("/auth?strict=1", status) => reply(status, &[("www-authenticate", "Bearer")], "leave"),
                    _ => reply(201, &[], "done"),
                };
                wire.send(answer).await.unwrap();
            }
        }
    })
    .await;
    let server = Server::with(upstream.address, "authorize = \"/auth?strict=1\"\n");
    let request = post("/refunds?a=b").key("k").bearer("ada").header("x-other-key", "1");
    let seen = |status| upstream.effects_of(|request| request.target() == status);
    for (status, key_status) in [(204, "stored"), (200, "replayed")] {
        leave.store(status, Ordering::SeqCst);
        let answer = request.to(server.listen).await;
        assert_eq!(
            (answer.text().as_str(), answer.key_status()),
            ("done", Some(key_status))
        );
    }
    for (status, told) in [(401, 401), (403, 403), (404, 503), (500, 503), (302, 503), (0, 503)] {
        leave.store(status, Ordering::SeqCst);
        for request in [&request, &post("/refunds").key("new"), &post("/refunds")] {
            let answer = request.to(server.listen).await;
            assert_eq!((answer.status(), answer.key_status()), (told, None), "{status}");
            assert_ne!(answer.text(), "done");
            if told == status {
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                assert_eq!(answer.text(), "leave");
            }
        }
        // What changes nothing is not asked about.
        assert_eq!(get("/refunds").to(server.listen).await.text(), "done");
    }
    assert_eq!(seen("/refunds?a=b"), 1);
    assert_eq!(seen("/refunds"), 0);
    let question = upstream
        .requests()
        .into_iter()
        .find(|request| request.target().starts_with("/auth"))
        .unwrap();
    assert_eq!(question.method(), "GET");
    assert_eq!(question.header("authorization"), Some("Bearer ada"));
    assert_eq!(question.header("x-original-method"), Some("POST"));
    assert_eq!(question.header("x-original-uri"), Some("/refunds?a=b"));
    assert_eq!(question.header("host"), Some("shop.example"));
    for name in ["idempotency-key", "content-length", "content-type", "transfer-encoding"] {
        assert_eq!(question.header(name), None, "{name}");
    }
    leave.store(204, Ordering::SeqCst);
    assert_eq!(request.to(server.listen).await.key_status(), Some("replayed"));
}

#[tokio::test]
async fn asking_for_leave_costs_no_connection() {
    let upstream = Upstream::answering(|request: Message| async move { reply(200, &[], request.target()) }).await;
    let server = Server::with(upstream.address, "authorize = \"/auth\"\n");
    let mut wire = crate::wire::Wire::connect(server.listen).await;
    for n in 0..20 {
        wire.send(post("/refunds").key(&format!("k{n}")).bytes()).await.unwrap();
        assert_eq!(wire.answered().await.unwrap().text(), "/refunds");
        sleep(SHORT / 10).await;
    }
    assert_eq!(upstream.requests().len(), 40);
    // Leave is let go of beside the request, which may need a second connection for that.
    assert!(upstream.connections() <= 2, "{}", upstream.connections());
}

#[tokio::test]
async fn operators_need_their_token() {
    let upstream = Upstream::counting().await;
    let server = Server::start(upstream.address);
    for path in ["/v1/calls", "/metrics", "/v1/trail"] {
        for request in [
            get(path),
            get(path).bearer("wrong-token-of-some-length"),
            get(path).header("authorization", "Basic eDp5"),
        ] {
            assert_eq!(request.to(server.admin).await.status(), 401, "{path}");
        }
    }
    assert_eq!(
        get("/v1/calls")
            .bearer(crate::server::TOKEN)
            .to(server.admin)
            .await
            .status(),
        200
    );
    assert_eq!(get("/healthz").to(server.admin).await.status(), 200);
    // The clients' address knows nothing of operators: it is all the upstream's.
    assert_eq!(get("/v1/calls").to(server.listen).await.text(), "effect 1");
}
