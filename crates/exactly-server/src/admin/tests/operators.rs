//! Looking, settling, freeing, purging.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::layer::{Body, IdempotencyLayer, Policy, Settlement};
use exactly::store::Phase;
use exactly::{CallId, Inspect as _, Keep, Key, OnLost, Scope, Store as _, Verdict};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt as _, service_fn};

use super::super::input::HexBytes;
use super::Api;
use crate::config::{Config, Route};

const PHASES: [(&str, Phase); 4] = [
    ("in_flight", Phase::InFlight),
    ("in_doubt", Phase::InDoubt),
    ("lost", Phase::Lost),
    ("done", Phase::Done),
];

fn ids(page: &Value) -> Vec<&str> {
    let calls = page["calls"].as_array().unwrap();
    calls.iter().map(|call| call["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn calls_are_found_by_phase_operation_principal_and_age() {
    let api = Api::start().await;
    for (word, phase) in PHASES {
        api.call("POST /refunds", word, phase).await;
    }
    api.clock.advance(Duration::from_secs(10));
    let late = api.call("mail.welcome", "late", Phase::Done).await.to_string();
    for (word, _) in PHASES {
        let page = api
            .get(&format!("/v1/calls?phase={word}&operation=POST%20/refunds"))
            .await
            .ok();
        assert_eq!(ids(&page).len(), 1, "{page}");
        assert_eq!(page["calls"][0]["phase"], word);
    }
    assert_eq!(ids(&api.get("/v1/calls?operation=mail.welcome").await.ok()), [&late]);
    assert_eq!(ids(&api.get("/v1/calls?principal=ada").await.ok()).len(), 5);
    assert!(ids(&api.get("/v1/calls?principal=bob").await.ok()).is_empty());
    let old = api.get("/v1/calls?created_before=2026-01-01T00:00:05Z").await.ok();
    assert_eq!(ids(&old).len(), 4);
    assert!(!ids(&old).contains(&late.as_str()));
}

#[tokio::test]
async fn pages_show_every_call_once() {
    let api = Api::start().await;
    let mut made: Vec<String> = Vec::new();
    for n in 0..7 {
        made.push(api.call("o", &format!("k-{n}"), Phase::Done).await.to_string());
    }
    let mut seen: Vec<String> = Vec::new();
    let mut path = "/v1/calls?limit=3".to_owned();
    loop {
        let page = api.get(&path).await.ok();
        seen.extend(ids(&page).iter().map(|id| (*id).to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        assert_eq!(ids(&page).len(), 3);
        path = format!("/v1/calls?limit=3&after={next}");
    }
    made.sort();
    assert_eq!(seen, made);
}

#[tokio::test]
async fn a_call_is_shown_without_its_key_and_its_answer() {
    let api = Api::start().await;
    let id = api.call("POST /refunds", "secret-key", Phase::Done).await;
    let told = api.get(&format!("/v1/calls/{id}")).await;
    let text = String::from_utf8_lossy(&told.body).into_owned();
    assert!(!text.contains("secret-key") && !text.contains("an answer"), "{text}");
    let call = &told.ok()["call"];
    assert_eq!(call["id"], id.to_string());
    assert_eq!(call["key_digest"], Key::new("secret-key").unwrap().digest());
    assert_eq!(call["principal"], "ada");
    assert_eq!(call["operation"], "POST /refunds");
    assert_eq!(call["attempt"], 1);
    assert_eq!(call["created_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(call["expires_at"], "2026-01-02T00:00:00.000Z");
    assert_eq!(call["lease_ends_at"], Value::Null);
    assert_eq!(call["outcome_bytes"], 9);
    // The token is what completes a claim, so it is nowhere.
    let token = api.store.get(&id).await.unwrap().unwrap().claim.token;
    let hex = String::from(HexBytes(*token.as_bytes()));
    assert!(!text.contains(&hex));
}

#[tokio::test]
async fn the_history_tells_what_the_record_and_the_trail_know() {
    let api = Api::start().await;
    let id = api.call("POST /refunds", "r-1", Phase::InDoubt).await;
    api.clock.advance(Duration::from_mins(1));
    let path = format!("/v1/calls/{id}");
    let answer = json!({"outcome": "happened", "answer": {"status": 201}, "attempt": 7});
    api.post(&format!("{path}/resolve"), &answer)
        .await
        .problem(409, "CONFLICT.claim.superseded");
    let history = api.get(&path).await.ok()["history"].clone();
    let told: Vec<_> = history
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["what"].as_str().unwrap())
        .collect();
    assert_eq!(told, ["begun", "resolve", "resolve", "lease"]);
    assert_eq!(history[0]["at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(history[1]["actor"], "api");
    assert_eq!(history[1]["at"], "2026-01-01T00:01:00.000Z");
    assert!(history[3]["detail"].as_str().unwrap().contains("in doubt"), "{history}");
    api.get(&format!("/v1/calls/{}", "0".repeat(64)))
        .await
        .problem(404, "NOT_FOUND.call");
}

/// A gateway whose upstream breaks off, and the request that meets it.
async fn ask(api: &Api, answer: Option<&'static str>) -> (u16, String) {
    let store = Arc::<exactly::MemoryStore>::clone(&api.store);
    let layer = IdempotencyLayer::builder(store).global_keys().build().unwrap();
    let upstream = service_fn(move |_: Request<Body>| async move {
        Ok::<_, Infallible>(match answer {
            Some(text) => Response::new(Body::from(Bytes::from_static(text.as_bytes()))),
            None => Response::builder().status(502).body(Body::from(Bytes::new())).unwrap(),
        })
    });
    let request = Request::post("/refunds")
        .header("idempotency-key", "r-1")
        .body(Body::from(Bytes::new()))
        .unwrap();
    let gateway = ServiceBuilder::new().layer(layer).service(upstream);
    let response = gateway.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn a_doubt_that_happened_answers_as_the_operator_said() {
    let api = Api::start().await;
    ask(&api, None).await;
    assert_eq!(ask(&api, Some("never run")).await.0, 409);
    let page = api.get("/v1/calls?phase=in_doubt").await.ok();
    let (id, claim) = (page["calls"][0]["id"].as_str().unwrap(), &page["calls"][0]["claim"]);
    let resolve = json!({
        "outcome": "happened",
        "answer": {"status": 201, "headers": {"Location": "/refunds/1"}, "body": "{\"id\":\"rf_1\"}"},
        "attempt": 1,
        "claim": claim,
    });
    let settled = api.post(&format!("/v1/calls/{id}/resolve"), &resolve).await.ok();
    assert_eq!(settled, json!({"id": id, "was": "in_doubt", "now": "done"}));
    assert_eq!(
        ask(&api, Some("never run")).await,
        (201, "{\"id\":\"rf_1\"}".to_owned())
    );
    // Once is enough.
    let again = api.post(&format!("/v1/calls/{id}/resolve"), &resolve).await;
    let problem = again.problem(409, "CONFLICT.call.not_in_doubt");
    assert!(problem["detail"].as_str().unwrap().contains("done"), "{problem}");
}

#[tokio::test]
async fn a_doubt_that_did_not_happen_is_run_by_the_next_request() {
    let api = Api::start().await;
    ask(&api, None).await;
    let page = api.get("/v1/calls?phase=in_doubt").await.ok();
    let path = format!("/v1/calls/{}/resolve", page["calls"][0]["id"].as_str().unwrap());
    let settled = api.post(&path, &json!({"outcome": "did_not_happen"})).await.ok();
    assert_eq!(
        (&settled["was"], &settled["now"]),
        (&json!("in_doubt"), &json!("absent"))
    );
    assert_eq!(ask(&api, Some("run")).await, (200, "run".to_owned()));
}

#[tokio::test]
async fn a_doubt_of_a_worker_takes_the_bytes_that_it_would_have_stored() {
    let api = Api::start().await;
    let id = api.call("mail.welcome", "k-1", Phase::InDoubt).await;
    let path = format!("/v1/calls/{id}/resolve");
    let answer = json!({"outcome": "happened", "answer": {"status": 200}});
    let problem = api.post(&path, &answer).await.problem(409, "CONFLICT.call.kind");
    assert_eq!(problem["field"], "answer");
    let outcome = json!({"outcome": "happened", "outcome_base64": "AP8=", "keep_ms": null});
    api.post(&path, &outcome).await.ok();
    let view = api.store.get(&id).await.unwrap().unwrap();
    assert_eq!((view.phase, view.until, view.outcome_len), (Phase::Done, None, Some(2)));

    // And the other way round: bytes are no answer.
    let id = api.call("POST /refunds", "k-2", Phase::InDoubt).await;
    let problem = api
        .post(&format!("/v1/calls/{id}/resolve"), &outcome)
        .await
        .problem(409, "CONFLICT.call.kind");
    assert_eq!(problem["field"], "outcome_base64");
    assert_eq!(api.phase(&id).await, Some(Phase::InDoubt));
}

#[tokio::test]
async fn only_a_doubt_can_be_resolved() {
    let api = Api::start().await;
    for (word, phase) in PHASES {
        let id = api.call("POST /refunds", word, phase).await;
        let told = api
            .post(
                &format!("/v1/calls/{id}/resolve"),
                &json!({"outcome": "did_not_happen"}),
            )
            .await;
        if phase == Phase::InDoubt {
            told.ok();
        } else {
            told.problem(409, "CONFLICT.call.not_in_doubt");
            assert_eq!(api.phase(&id).await, Some(phase));
        }
    }
    let missing = format!("/v1/calls/{}/resolve", "0".repeat(64));
    api.post(&missing, &json!({"outcome": "did_not_happen"}))
        .await
        .problem(404, "NOT_FOUND.call");
}

/// The key was freed and used again while somebody looked into the first doubt: attempt one once more, another claim.
#[tokio::test]
async fn what_was_found_out_about_one_doubt_does_not_settle_another() {
    let api = Api::start().await;
    let id = api.call("POST /refunds", "r-1", Phase::InDoubt).await;
    let seen = api.get(&format!("/v1/calls/{id}")).await.ok()["call"].clone();
    api.delete(&format!("/v1/calls/{id}")).await.ok();
    api.call("POST /refunds", "r-1", Phase::InDoubt).await;
    let stale = json!({"outcome": "did_not_happen", "attempt": seen["attempt"], "claim": seen["claim"]});
    let told = api.post(&format!("/v1/calls/{id}/resolve"), &stale).await;
    told.problem(409, "CONFLICT.claim.superseded");
    let path = format!("/v1/calls/{id}?claim={}", seen["claim"].as_str().unwrap());
    api.delete(&path).await.problem(409, "CONFLICT.claim.superseded");
    assert_eq!(api.phase(&id).await, Some(Phase::InDoubt));
}

#[tokio::test]
async fn a_key_is_freed_unless_its_call_is_in_flight() {
    let api = Api::start().await;
    for (word, phase) in PHASES {
        let id = api.call("POST /refunds", word, phase).await;
        api.clock.advance(Duration::from_millis(9_500));
        let told = api.delete(&format!("/v1/calls/{id}")).await;
        if phase == Phase::InFlight {
            let problem = told.problem(409, "CONFLICT.call.in_flight");
            assert_eq!(problem["retryAfter"], 21);
            assert_eq!(told.headers["retry-after"], "21");
            assert_eq!(api.phase(&id).await, Some(Phase::InFlight));
        } else {
            assert_eq!(told.ok(), json!({"id": id.to_string(), "was": word, "now": "absent"}));
            assert_eq!(api.phase(&id).await, None);
        }
    }
}

#[tokio::test]
async fn a_purge_counts_first_and_forgets_what_is_done_only() {
    let api = Api::start().await;
    let mut made = Vec::new();
    for (word, phase) in PHASES {
        made.push((api.call("POST /refunds", word, phase).await, phase));
    }
    let other = api.call("POST /orders", "other", Phase::Done).await;
    let wanted = json!({"operation": "POST /refunds"});
    let dry = api.post("/v1/purge", &wanted).await.ok();
    assert_eq!(
        (&dry["dry_run"], &dry["matched"], &dry["purged"]),
        (&json!(true), &json!(1), &json!(0))
    );
    assert_eq!(dry["ids"], json!([made[3].0.to_string()]));
    assert_eq!(api.phase(&made[3].0).await, Some(Phase::Done));

    let wanted = json!({"operation": "POST /refunds", "dry_run": false});
    let wet = api.post("/v1/purge", &wanted).await.ok();
    assert_eq!((&wet["matched"], &wet["purged"]), (&json!(1), &json!(1)));
    for (id, phase) in made {
        assert_eq!(api.phase(&id).await, Some(phase).filter(|phase| *phase != Phase::Done));
    }
    assert_eq!(api.phase(&other).await, Some(Phase::Done));
    // Again: nothing is left to do.
    assert_eq!(api.post("/v1/purge", &wanted).await.ok()["matched"], 0);
}

#[tokio::test]
async fn a_purge_goes_on_where_it_stopped() {
    let api = Api::start().await;
    for n in 0..5 {
        api.call("o", &format!("old-{n}"), Phase::Done).await;
    }
    api.clock.advance(Duration::from_mins(1));
    let young = api.call("o", "young", Phase::Done).await;
    let mut after = Value::Null;
    let mut purged = 0;
    loop {
        let wanted = json!({"created_before": "2026-01-01T00:00:30Z", "limit": 2, "after": after, "dry_run": false});
        let told = api.post("/v1/purge", &wanted).await.ok();
        purged += told["purged"].as_u64().unwrap();
        after = told["next"].clone();
        if after.is_null() {
            break;
        }
    }
    assert_eq!(purged, 5);
    assert_eq!(api.phase(&young).await, Some(Phase::Done));
}

/// What `Settle` is for: each route's own policy decides what is stored and for how long.
#[tokio::test]
async fn a_settled_answer_is_kept_as_its_route_says() {
    let codes = Route {
        method: Method::POST,
        path: "/codes/{id}".to_owned(),
        policy: Policy::playbook().keep(Keep::For(Duration::from_mins(10))),
        reconcile: None,
    };
    let config = Config {
        routes: vec![codes],
        ..Config::default()
    };
    let api = Api::start().await;
    let operate: Arc<dyn exactly::Operate> = Arc::<exactly::MemoryStore>::clone(&api.store);
    let settle = super::settle::by_config(&operate, &config).unwrap();
    for (operation, kept) in [("POST /codes/{id}", 10), ("POST /other", 24 * 60)] {
        let scope = Scope::global(operation);
        let call = exactly::Call::new(scope, Key::new("k").unwrap(), exactly::Fingerprint::of("x"))
            .with_on_lost(OnLost::Doubt);
        let Verdict::Run(claim) = api.store.begin(&call).await.unwrap() else {
            panic!("the key is fresh")
        };
        let _ = api.store.lose(&claim).await.unwrap();
        let id: CallId = *call.id();
        let view = api.store.get(&id).await.unwrap().unwrap();
        let _ = settle(&view, Settlement::Happened(Response::new(Bytes::new())))
            .await
            .unwrap();
        let view = api.store.get(&id).await.unwrap().unwrap();
        assert_eq!(
            view.until.unwrap().since(view.created_at),
            Duration::from_mins(kept),
            "{operation}"
        );
    }
}
