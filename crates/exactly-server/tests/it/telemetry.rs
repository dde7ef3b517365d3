//! What the running server tells its operators: metrics, and log lines that carry no secret.

mod server;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use self::server::{Ask, Server, Shop};

const METRICS_PAGE: &str = include_str!("../../../../docs/metrics.md");
const ALERTS: &str = include_str!("../../../../docs/alerts/exactly.rules.yml");

const KEY: &str = "a-key-that-nobody-may-read";
const CREDENTIALS: &str = "Bearer a-credential-that-nobody-may-read";
const CONTENT: &str = r#"{"amount": 1000, "card": "a-body-that-nobody-may-read"}"#;
const QUERY: &str = "token=a-query-that-nobody-may-read";

/// A request that is told apart from others by its id, and full of secrets.
fn charge(correlation_id: &str) -> Ask {
    Ask::post(&format!("/charges?{QUERY}"), CONTENT)
        .header("authorization", CREDENTIALS)
        .header("idempotency-key", KEY)
        .header("x-request-id", correlation_id)
}

fn sha256(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// The lines about the request of this id with this message.
fn about<'a>(lines: &'a [Value], correlation_id: &str, message: &str) -> Vec<&'a Value> {
    let of_request = lines
        .iter()
        .filter(|line| line["span"]["correlation_id"] == correlation_id);
    of_request.filter(|line| line["message"] == message).collect()
}

#[tokio::test]
async fn a_keyed_request_is_in_the_logs_with_all_that_finds_it_and_none_of_its_secrets() {
    let shop = Shop::open().await;
    let server = Server::start(&shop, "trace");
    server.ask(&charge("first")).await.is(201);
    server.ask(&charge("again")).await.is(201);
    let other = charge("other").content(r#"{"amount": 2000}"#);
    server.ask(&other).await.is(409);
    let lines = server.stop();

    let moved = about(&lines, "first", "call moved");
    let [begun, done] = moved.as_slice() else {
        panic!("{moved:#?}");
    };
    assert_eq!((&begun["from"], &begun["to"]), (&"absent".into(), &"in flight".into()));
    assert_eq!((&done["from"], &done["to"]), (&"in flight".into(), &"done".into()));
    let replayed = about(&lines, "again", "call replayed");
    let refused = about(&lines, "other", "call refused");
    assert_eq!((replayed.len(), refused.len()), (1, 1));
    let (replayed, refused) = (replayed[0], refused[0]);
    for (line, status) in [(*done, 201), (replayed, 201), (refused, 409)] {
        assert_eq!(line["key"], sha256(KEY)[..12], "{line:#}");
        assert_eq!(line["operation"], "POST *", "{line:#}");
        assert_eq!(line["status"], status, "{line:#}");
        let request = &line["span"];
        assert_eq!(request["method"], "POST", "{line:#}");
        assert_eq!(request["path"], "/charges", "{line:#}");
    }
    assert_eq!(done["attempt"], 1);
    assert_eq!(done["payload"].as_str().unwrap().len(), 64);
    assert_eq!(done["payload"], replayed["payload"]);
    assert_ne!(done["payload"], refused["payload"]);
    assert_eq!(refused["code"], "CONFLICT.idempotency.payload_mismatch");
    let answered = about(&lines, "first", "answered");
    assert_eq!(answered[0]["span"]["status"], 201);
    assert!(answered[0]["took_ms"].is_u64());

    for line in &lines {
        let text = line.to_string();
        assert!(!text.contains("nobody-may-read"), "{text}");
    }
}

#[tokio::test]
async fn a_warning_names_the_request_also_where_only_warnings_are_shown() {
    let shop = Shop::open().await;
    let server = Server::start(&shop, "warn");
    server.ask(&charge("fine")).await.is(201);
    let broken = Ask::post("/break", "").header("x-request-id", "lost");
    server.ask(&broken).await.is(502);
    let lines = server.stop();
    let [line] = lines.as_slice() else {
        panic!("{lines:#?}");
    };
    assert_eq!(line["correlation_id"], "lost");
    assert_eq!(line["code"], "OUTCOME.unknown");
}

#[tokio::test]
async fn a_request_has_one_name_on_both_sides_of_the_gateway() {
    let shop = Shop::open().await;
    let server = Server::start(&shop, "off");
    let told = server.ask(&charge("mine").header("traceparent", "unreadable")).await;
    assert_eq!(told.headers["x-request-id"], "mine");
    let unnamed = server.ask(&Ask::get("/hello")).await;
    let made = unnamed.headers["x-request-id"].to_str().unwrap();
    let seen = shop.seen();
    assert_eq!(seen[0]["x-request-id"], "mine");
    assert_eq!(seen[0]["traceparent"], "unreadable");
    assert_eq!(seen[1]["x-request-id"], made);
    // A request that the gateway answers itself has a name too.
    let replayed = server.ask(&charge("again")).await;
    assert_eq!(replayed.headers["x-request-id"], "again");
    assert_eq!(shop.seen().len(), 2);
}

#[tokio::test]
async fn what_happens_is_counted_by_the_names_that_are_documented() {
    let shop = Shop::open().await;
    let server = Server::start(&shop, "off");
    let before = server.metrics().await;
    assert_eq!(before["idempotency_conflict_total{reason=\"in_progress\"}"], "0");
    server.ask(&charge("1")).await.is(201);
    server.ask(&charge("2")).await.is(201);
    server.ask(&charge("3").content("{}")).await.is(409);
    let lost = Ask::post("/break", "").header("idempotency-key", "lost");
    server.ask(&lost).await.is(409);
    server.ask(&Ask::get("/hello")).await.is(200);
    shop.close().await;
    server.ask(&Ask::get("/hello")).await.is(503);

    let metrics = server.metrics().await;
    for (name, value) in [
        ("idempotency_keyed_requests_total", "4"),
        ("idempotency_created_total", "1"),
        ("idempotency_replayed_total", "1"),
        ("idempotency_cache_hit", "1"),
        ("idempotency_key_reuse_conflict", "1"),
        ("idempotency_conflict_total{reason=\"payload_mismatch\"}", "1"),
        ("idempotency_conflict_total{reason=\"in_doubt\"}", "0"),
        ("idempotency_in_doubt_total", "1"),
        ("idempotency_lease_lost_total", "0"),
        ("idempotency_freed_total", "0"),
        ("idempotency_store_unavailable_total", "0"),
        ("idempotency_running", "0"),
        ("gateway_requests_in_flight", "0"),
        ("gateway_requests_total{status=\"2xx\"}", "3"),
        ("gateway_requests_total{status=\"4xx\"}", "2"),
        ("gateway_requests_total{status=\"5xx\"}", "1"),
        ("gateway_upstream_total{outcome=\"answered\"}", "2"),
        ("gateway_upstream_total{outcome=\"unreached\"}", "1"),
        ("gateway_upstream_total{outcome=\"unknown\"}", "1"),
    ] {
        assert_eq!(
            metrics.get(name).map(String::as_str),
            Some(value),
            "{name}\n{metrics:#?}"
        );
    }

    // The next one to open the store finds the doubt in it.
    let server = server.restart();
    assert_eq!(server.metric("idempotency_calls_in_doubt").await, "1");
    assert_eq!(server.metric("queue_readable").await, "1");
    let mut documented = documented();
    // There are no schedules, and so nothing to count of them.
    documented.retain(|name, _| !name.starts_with("schedule"));
    assert_eq!(server.described().await, documented);
}

/// Whether it is the name of something that the server counts, and not one of what clients do.
fn is_metric(name: &str) -> bool {
    let begins = [
        "idempotency_",
        "gateway_",
        "job_",
        "jobs_",
        "queue_",
        "schedule_",
        "scheduler_",
        "webhook_",
    ];
    begins.iter().any(|begin| name.starts_with(begin))
}

/// Name → type, as the page lists them.
fn documented() -> BTreeMap<String, String> {
    let rows = METRICS_PAGE.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.trim_end_matches('`');
        if !is_metric(name) {
            return None;
        }
        Some((name.to_owned(), cells.next()?.to_owned()))
    });
    rows.collect()
}

#[test]
fn alerts_are_about_metrics_that_there_are() {
    let words = ALERTS.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named: BTreeSet<_> = words
        .map(|word| word.trim_end_matches("_bucket"))
        .filter(|word| is_metric(word))
        .collect();
    assert!(named.len() > 5, "{named:?}");
    let documented = documented();
    for name in named {
        assert!(documented.contains_key(name), "{name} is nowhere counted");
    }
}
