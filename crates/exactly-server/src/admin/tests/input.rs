//! What is wrong with a request is told, with the field that is wrong.

use serde_json::{Value, json};

use super::super::extract::BODY_MAX;
use super::Api;

const TOKEN_A: &str = "5f2b8a0c9d3e4f61a7b8c9d0e1f2a3b4";

fn id() -> String {
    "0".repeat(64)
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
#[tokio::test]
async fn a_wrong_member_is_named() {
    let api = Api::start().await;
    let begin = json!({"operation": "o", "key": "k", "content": 1});
    let held = json!({"token": TOKEN_A, "attempt": 1});
    let complete = json!({"token": TOKEN_A, "attempt": 1, "outcome_base64": ""});
    let resolve = json!({"outcome": "happened", "answer": {"status": 200}});
    let purge = json!({"all": true});
    let cases: &[(&str, &Value, &str, Value)] = &[
        ("/v1/calls/begin", &begin, "operation", json!("")),
        ("/v1/calls/begin", &begin, "operation", json!("POST /x")),
        ("/v1/calls/begin", &begin, "operation", json!("x".repeat(256))),
        ("/v1/calls/begin", &begin, "key", json!("")),
        ("/v1/calls/begin", &begin, "key", json!("x".repeat(256))),
        ("/v1/calls/begin", &begin, "key", json!("line\nfeed")),
        ("/v1/calls/begin", &begin, "key", json!(7)),
        ("/v1/calls/begin", &begin, "principal", json!("")),
        ("/v1/calls/begin", &begin, "principal", json!("\u{0}")),
        ("/v1/calls/begin", &begin, "fingerprint", json!("abc")),
        ("/v1/calls/begin", &begin, "lease_ms", json!(0)),
        ("/v1/calls/begin", &begin, "lease_ms", json!(-1)),
        ("/v1/calls/begin", &begin, "lease_ms", json!(1.5)),
        ("/v1/calls/begin", &begin, "lease_ms", json!("1000")),
        ("/v1/calls/begin", &begin, "lease_ms", json!(86_400_001)),
        ("/v1/calls/begin", &begin, "on_lost", json!("panic")),
        ("/v1/calls/begin", &begin, "token", json!("abc")),
        ("/v1/calls/begin", &begin, "tokne", json!(TOKEN_A)),
        ("/v1/calls/{id}/lose", &held, "token", json!("abc")),
        ("/v1/calls/{id}/lose", &held, "attempt", json!(0)),
        ("/v1/calls/{id}/abandon", &held, "attempt", Value::Null),
        ("/v1/calls/{id}/renew", &held, "lease_ms", json!(1)),
        ("/v1/calls/{id}/complete", &complete, "outcome_base64", json!("Zh==")),
        ("/v1/calls/{id}/complete", &complete, "outcome_base64", json!("Zg")),
        ("/v1/calls/{id}/complete", &complete, "keep_ms", json!(999)),
        ("/v1/calls/{id}/resolve", &resolve, "outcome", json!("perhaps")),
        ("/v1/calls/{id}/resolve", &resolve, "outcome_base64", json!("")),
        ("/v1/calls/{id}/resolve", &resolve, "keep_ms", json!(60_000)),
        ("/v1/calls/{id}/resolve", &resolve, "reason", json!("x".repeat(501))),
        ("/v1/calls/{id}/resolve", &resolve, "claim", json!("abc")),
        (
            "/v1/calls/{id}/resolve",
            &resolve,
            "answer.status",
            json!({"status": 99}),
        ),
        (
            "/v1/calls/{id}/resolve",
            &resolve,
            "answer.status",
            json!({"status": 700}),
        ),
        ("/v1/calls/{id}/resolve", &resolve, "answer.status", json!({})),
        (
            "/v1/calls/{id}/resolve",
            &resolve,
            "answer.headers.a b",
            json!({"status": 200, "headers": {"a b": "c"}}),
        ),
        (
            "/v1/calls/{id}/resolve",
            &resolve,
            "answer.headers.a",
            json!({"status": 200, "headers": {"a": "\r\n"}}),
        ),
        (
            "/v1/calls/{id}/resolve",
            &resolve,
            "answer.headers.a",
            json!({"status": 200, "headers": {"a": 1}}),
        ),
        (
            "/v1/calls/{id}/resolve",
            &resolve,
            "answer.body_base64",
            json!({"status": 200, "body": "", "body_base64": ""}),
        ),
        (
            "/v1/calls/{id}/resolve",
            &resolve,
            "answer.body_base64",
            json!({"status": 200, "body_base64": "?"}),
        ),
        (
            "/v1/calls/{id}/resolve",
            &resolve,
            "answer.bdoy",
            json!({"status": 200, "bdoy": ""}),
        ),
        ("/v1/purge", &purge, "limit", json!(1001)),
        ("/v1/purge", &purge, "created_before", json!("yesterday")),
        ("/v1/purge", &purge, "dry_run", json!("no")),
        ("/v1/purge", &purge, "all", json!(false)),
        ("/v1/purge", &purge, "phase", json!("in_doubt")),
    ];
    for (path, good, field, value) in cases {
        let mut asked = (*good).clone();
        asked[field.split('.').next().unwrap()] = value.clone();
        let told = api.post(&path.replace("{id}", &id()), &asked).await;
        let problem = told.problem(422, "VALIDATION.request");
        assert_eq!(problem["field"], *field, "{path} {asked}: {problem}");
        assert!(problem["detail"].as_str().unwrap().starts_with(field), "{problem}");
    }
}

#[tokio::test]
async fn what_does_not_go_together_is_refused() {
    let api = Api::start().await;
    let resolve = format!("/v1/calls/{}/resolve", id());
    for (path, asked, field) in [
        ("/v1/calls/begin", json!({"operation": "o", "key": "k"}), "fingerprint"),
        (
            "/v1/calls/begin",
            json!({"operation": "o", "key": "k", "content": 1, "fingerprint": id()}),
            "content",
        ),
        ("/v1/calls/begin", json!({"key": "k", "content": 1}), "operation"),
        (&resolve, json!({"outcome": "happened"}), "answer"),
        (
            &resolve,
            json!({"outcome": "did_not_happen", "answer": {"status": 200}}),
            "answer",
        ),
        (
            &resolve,
            json!({"outcome": "did_not_happen", "outcome_base64": ""}),
            "outcome_base64",
        ),
        ("/v1/purge", json!({}), "all"),
        ("/v1/purge", json!({"dry_run": false, "operation": null}), "all"),
    ] {
        let problem = api.post(path, &asked).await.problem(422, "VALIDATION.request");
        assert_eq!(problem["field"], field, "{asked}: {problem}");
    }
}

#[tokio::test]
async fn a_wrong_parameter_is_named() {
    let api = Api::start().await;
    for (method, path, field) in [
        ("GET", "/v1/calls?phase=sleeping", "phase"),
        ("GET", "/v1/calls?pahse=done", "pahse"),
        ("GET", "/v1/calls?limit=0", "limit"),
        ("GET", "/v1/calls?limit=1001", "limit"),
        ("GET", "/v1/calls?limit=ten", "limit"),
        ("GET", "/v1/calls?limit=1&limit=2", "limit"),
        ("GET", "/v1/calls?after=abc", "after"),
        ("GET", "/v1/calls?operation=", "operation"),
        ("GET", "/v1/calls?created_before=soon", "created_before"),
        ("GET", "/v1/calls/abc", "id"),
        ("GET", "/v1/calls/{id}?reveal=1", "reveal"),
        ("DELETE", "/v1/calls/{id}?reason=%00", "reason"),
        ("DELETE", "/v1/calls/{id}?attempt=0", "attempt"),
        ("GET", "/v1/trail?after=-1", "after"),
        ("GET", "/v1/trail?after=18446744073709551615", "after"),
        ("GET", "/v1/trail?call=abc", "call"),
    ] {
        let path = path.replace("{id}", &id());
        let problem = api
            .send(api.request(method, &path), "")
            .await
            .problem(422, "VALIDATION.request");
        assert_eq!(problem["field"], field, "{path}: {problem}");
    }
}

#[tokio::test]
async fn a_body_that_is_no_json_is_not_read() {
    let api = Api::start().await;
    let post = |path: &str| api.request("POST", path).header("content-type", "application/json");
    for body in ["", "{", "nonsense", r#"{"all":true} trailing"#, "\u{feff}{}"] {
        api.send(post("/v1/purge"), body)
            .await
            .problem(400, "VALIDATION.syntax");
    }
    for body in ["[]", "null", "\"text\""] {
        api.send(post("/v1/purge"), body)
            .await
            .problem(422, "VALIDATION.request");
    }
    for media_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"] {
        let request = api.request("POST", "/v1/purge").header("content-type", media_type);
        api.send(request, "{}").await.problem(415, "VALIDATION.media_type");
    }
    api.send(api.request("POST", "/v1/purge"), "{}")
        .await
        .problem(415, "VALIDATION.media_type");
    let request = api
        .request("POST", "/v1/purge")
        .header("content-type", "Application/JSON; charset=utf-8");
    api.send(request, r#"{"all":true}"#).await.ok();
    let large = format!(r#"{{"reason":"{}"}}"#, "x".repeat(BODY_MAX));
    api.send(post("/v1/purge"), large)
        .await
        .problem(413, "VALIDATION.body_too_large");
}

#[tokio::test]
async fn an_actor_is_a_short_plain_name() {
    let api = Api::start().await;
    let delete = || api.request("DELETE", &format!("/v1/calls/{}", id()));
    for actor in ["", "two words", "<script>", &"x".repeat(65)] {
        let told = api.send(delete().header("x-exactly-actor", actor), "").await;
        assert_eq!(told.problem(422, "VALIDATION.request")["field"], "x-exactly-actor");
    }
    let twice = delete()
        .header("x-exactly-actor", "ada")
        .header("x-exactly-actor", "bob");
    api.send(twice, "").await.problem(422, "VALIDATION.request");
    assert_eq!(api.get("/v1/trail").await.ok()["entries"], json!([]));
    api.send(delete().header("x-exactly-actor", "ada+ops@example.org"), "")
        .await
        .problem(404, "NOT_FOUND.call");
}
