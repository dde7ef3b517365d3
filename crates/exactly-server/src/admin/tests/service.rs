//! Calls over HTTP.

use std::time::Duration;

use exactly::store::Phase;
use serde_json::{Value, json};

use super::Api;

const TOKEN_A: &str = "5f2b8a0c9d3e4f61a7b8c9d0e1f2a3b4";

fn welcome() -> Value {
    json!({"principal": "ada", "operation": "mail.welcome", "key": "signup-1", "content": {"to": "ada", "n": 1}})
}

fn with(mut asked: Value, name: &str, value: Value) -> Value {
    asked[name] = value;
    asked
}

/// The path of a step on the call that `verdict` is about.
fn step(verdict: &Value, step: &str) -> String {
    format!("/v1/calls/{}/{step}", verdict["id"].as_str().unwrap())
}

fn held(verdict: &Value) -> Value {
    json!({"token": verdict["token"], "attempt": verdict["attempt"]})
}

async fn begin(api: &Api, asked: &Value) -> Value {
    api.post("/v1/calls/begin", asked).await.ok()
}

#[tokio::test]
async fn an_effect_is_run_once_and_replayed_ever_after() {
    let api = Api::start().await;
    let run = begin(&api, &welcome()).await;
    assert_eq!(run["verdict"], "run");
    assert_eq!(run["attempt"], 1);
    assert_eq!(run["lease_ms"], 30_000);
    let second = begin(&api, &welcome()).await;
    assert_eq!(second["verdict"], "in_flight");
    assert_eq!(second["retry_after_ms"], 30_000);

    let complete = with(held(&run), "outcome_base64", json!("MjUwIHF1ZXVlZA=="));
    let complete = with(complete, "keep_ms", json!(60_000));
    let told = api.post(&step(&run, "complete"), &complete).await.ok();
    assert_eq!(told, json!({"id": run["id"], "result": "applied"}));
    // A lost reply is not a lost write.
    api.post(&step(&run, "complete"), &complete).await.ok();

    let replay = begin(&api, &welcome()).await;
    assert_eq!(replay["verdict"], "replay");
    assert_eq!(replay["outcome_base64"], "MjUwIHF1ZXVlZA==");
    assert_eq!(replay["expires_in_ms"], 60_000);
    api.clock.advance(Duration::from_mins(1));
    assert_eq!(begin(&api, &welcome()).await["verdict"], "run");
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_found_again_by_its_token() {
    let api = Api::start().await;
    let asked = with(welcome(), "token", json!(TOKEN_A));
    let first = begin(&api, &asked).await;
    let again = begin(&api, &asked).await;
    assert_eq!(first, again);
    assert_eq!(first["token"], TOKEN_A);
    let other = with(welcome(), "token", json!("0".repeat(32)));
    assert_eq!(begin(&api, &other).await["verdict"], "in_flight");
}

#[tokio::test]
async fn content_is_the_same_whatever_its_order_and_white_space() {
    let api = Api::start().await;
    begin(&api, &welcome()).await;
    let post = async |content: &str| {
        let body = format!(r#"{{"principal":"ada","operation":"mail.welcome","key":"signup-1","content":{content}}}"#);
        let request = api
            .request("POST", "/v1/calls/begin")
            .header("content-type", "application/json");
        api.send(request, body).await
    };
    assert_eq!(
        post(r#" { "n" : 1 , "to" : "\u0061da" } "#).await.ok()["verdict"],
        "in_flight"
    );
    for other in [
        r#"{"to":"ada","n":2}"#,
        r#"{"to":"ada","n":1.0}"#,
        "null",
        "[]",
        r#""""#,
    ] {
        assert_eq!(post(other).await.ok()["verdict"], "mismatch", "{other}");
    }
    let twice = post(r#"{"to":"ada","n":1,"n":2}"#)
        .await
        .problem(422, "VALIDATION.request");
    assert_eq!(twice["field"], "content");
}

#[tokio::test]
async fn a_fingerprint_of_ones_own_stands_for_the_content() {
    let api = Api::start().await;
    let asked = |digit: &str| {
        let mut asked = with(welcome(), "fingerprint", json!(digit.repeat(64)));
        asked.as_object_mut().unwrap().remove("content");
        asked
    };
    assert_eq!(begin(&api, &asked("a")).await["verdict"], "run");
    assert_eq!(begin(&api, &asked("A")).await["verdict"], "in_flight");
    assert_eq!(begin(&api, &asked("b")).await["verdict"], "mismatch");
}

#[tokio::test]
async fn principals_do_not_share_keys() {
    let api = Api::start().await;
    for principal in [json!("ada"), json!("bob"), Value::Null] {
        assert_eq!(
            begin(&api, &with(welcome(), "principal", principal)).await["verdict"],
            "run"
        );
    }
}

#[tokio::test]
async fn a_lost_attempt_is_in_doubt_or_run_again_as_asked() {
    let api = Api::start().await;
    let run = begin(&api, &welcome()).await;
    api.post(&step(&run, "lose"), &held(&run)).await.ok();
    let doubt = begin(&api, &welcome()).await;
    assert_eq!(doubt["verdict"], "in_doubt");
    assert_eq!(doubt["attempt"], 1);
    let shown = api
        .get(&format!("/v1/calls/{}", run["id"].as_str().unwrap()))
        .await
        .ok();
    assert_eq!(shown["call"]["claim"], doubt["claim"]);

    let rerun = with(with(welcome(), "on_lost", json!("rerun")), "key", json!("signup-2"));
    let rerun = with(rerun, "lease_ms", json!(1_000));
    let first = begin(&api, &rerun).await;
    api.clock.advance(Duration::from_secs(1));
    let second = begin(&api, &rerun).await;
    assert_eq!((&second["verdict"], &second["attempt"]), (&json!("run"), &json!(2)));
    // The first is fenced off, whatever it tries.
    let complete = with(held(&first), "outcome_base64", json!(""));
    for (name, body) in [
        ("renew", &held(&first)),
        ("complete", &complete),
        ("abandon", &held(&first)),
        ("lose", &held(&first)),
    ] {
        let problem = api
            .post(&step(&first, name), body)
            .await
            .problem(409, "CONFLICT.claim.superseded");
        assert_eq!(problem["call"], first["id"], "{name}");
        assert_eq!(problem["retryable"], false, "{name}");
    }
    api.post(
        &step(&second, "complete"),
        &with(held(&second), "outcome_base64", json!("")),
    )
    .await
    .ok();
}

#[tokio::test]
async fn a_lease_is_renewed_and_a_key_is_freed() {
    let api = Api::start().await;
    let run = begin(&api, &welcome()).await;
    api.clock.advance(Duration::from_secs(29));
    let longer = with(held(&run), "lease_ms", json!(60_000));
    api.post(&step(&run, "renew"), &longer).await.ok();
    assert_eq!(begin(&api, &welcome()).await["retry_after_ms"], 60_000);
    api.post(&step(&run, "abandon"), &held(&run)).await.ok();
    // What is gone is as abandoned as can be.
    api.post(&step(&run, "abandon"), &held(&run)).await.ok();
    assert_eq!(begin(&api, &welcome()).await["verdict"], "run");
}

#[tokio::test]
async fn an_outcome_can_be_kept_for_ever() {
    let api = Api::start().await;
    let run = begin(&api, &welcome()).await;
    let complete = with(
        with(held(&run), "outcome_base64", json!("AP8=")),
        "keep_ms",
        Value::Null,
    );
    api.post(&step(&run, "complete"), &complete).await.ok();
    api.clock.advance(Duration::from_hours(24 * 365));
    let replay = begin(&api, &welcome()).await;
    assert_eq!(
        (&replay["outcome_base64"], &replay["expires_in_ms"]),
        (&json!("AP8="), &Value::Null)
    );
}

#[tokio::test]
async fn the_gateways_calls_cannot_be_reached_by_beginning_them() {
    let api = Api::start().await;
    api.call("POST /refunds", "r-1", Phase::Done).await;
    let asked = with(
        with(welcome(), "operation", json!("POST /refunds")),
        "key",
        json!("r-1"),
    );
    let problem = api
        .post("/v1/calls/begin", &asked)
        .await
        .problem(422, "VALIDATION.request");
    assert_eq!(problem["field"], "operation");
}
