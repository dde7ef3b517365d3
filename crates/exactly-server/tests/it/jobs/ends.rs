//! What an answer, or none, means for a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{Backend, Shop, api, get, post, requests_to};
use crate::PATIENCE;
use crate::server::until;
use crate::servers;
use crate::upstream::{Upstream, reply};
use crate::wire::Message;

/// Answers by path: `/503` with 503 and so on; `/cut` not at all.
async fn moody() -> Upstream {
    Upstream::scripted(|mut wire, upstream| async move {
        while let Some(request) = wire.request().await {
            upstream.note(&request);
            let path = request.target().trim_start_matches('/').to_owned();
            let answer = match path.as_str() {
                "cut" => return,
                "half" => b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_vec(),
                "unknown" => problem(409, "OUTCOME.unknown"),
                "duplicate" => problem(409, "PROVIDER.duplicate"),
                "busy" => problem(409, "CONFLICT.idempotency.in_progress"),
                "wait" => reply(503, &[("retry-after", "1000")], ""),
                "elsewhere" => reply(307, &[("location", "/200")], ""),
                "long" => reply(200, &[("content-type", "text/plain")], &"ä".repeat(50_000)),
                status => reply(status.parse().unwrap(), &[], "said so"),
            };
            if wire.send(answer).await.is_err() || path == "half" {
                return;
            }
        }
    })
    .await
}

fn problem(status: u16, code: &str) -> Vec<u8> {
    let body = json!({"code": code, "detail": "it is so"}).to_string();
    reply(status, &[("content-type", "application/problem+json")], &body)
}

/// Enqueues a job to `path`, and waits until it is in `state`.
async fn ended(shop: &Shop, path: &str, more: Value, state: &str) -> Value {
    let mut job = json!({"key": format!("{path} {more}"), "url": shop.url(path), "body": {"a": 1}});
    for (name, value) in more.as_object().unwrap() {
        job[name] = value.clone();
    }
    let id = shop.new_job(job).await;
    shop.until_job(&id, state).await
}

fn kinds(shown: &Value) -> Vec<&str> {
    let attempts = shown["attempts"].as_array().unwrap().iter();
    attempts
        .map(|attempt| attempt["failure"]["kind"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn what_may_work_later_is_tried_by_the_table_with_one_key_and_then_dead() {
    let shop = Shop::open(Backend::Postgres, moody().await).await;
    for path in ["/500", "/503", "/429", "/408", "/425", "/busy", "/cut", "/half"] {
        let shown = ended(&shop, path, json!({}), "dead").await;
        assert_eq!(kinds(&shown), ["transient"; 3], "{path} {shown}");
        let requests = requests_to(&shop.upstream, path);
        assert_eq!(requests.len(), 3, "{path}");
        let id = shown["job"]["id"].as_str();
        assert!(
            requests.iter().all(|request| request.header("idempotency-key") == id),
            "{path}"
        );
        let attempts: Vec<_> = requests
            .iter()
            .map(|request| request.header("exactly-attempt").unwrap())
            .collect();
        assert_eq!(attempts, ["1", "2", "3"], "{path}");
        let fences = |request: &Message| request.header("exactly-fence").unwrap().parse::<u64>().unwrap();
        assert!(
            requests.iter().is_sorted_by(|one, next| fences(one) < fences(next)),
            "{path}"
        );
    }
}

#[tokio::test]
async fn what_would_fail_again_is_dead_at_once_and_what_happened_is_done() {
    let shop = Shop::open(Backend::Postgres, moody().await).await;
    for path in ["/400", "/401", "/404", "/409", "/422", "/302", "/elsewhere"] {
        let shown = ended(&shop, path, json!({}), "dead").await;
        assert_eq!(kinds(&shown), ["logic"], "{path} {shown}");
        assert_eq!(requests_to(&shop.upstream, path).len(), 1, "{path}");
    }
    // The answer pointed there, and nobody went.
    assert!(requests_to(&shop.upstream, "/200").is_empty());
    for (path, status) in [("/200", 200), ("/duplicate", 409)] {
        let shown = ended(&shop, path, json!({}), "done").await;
        assert_eq!(shown["outcome"]["status"], status, "{shown}");
    }
    let long = ended(&shop, "/long", json!({}), "done").await;
    assert_eq!(long["outcome"]["cut"], true);
    let kept = long["outcome"]["body_text"].as_str().unwrap();
    assert_eq!((kept.len(), kept.trim_end_matches('ä')), (65_536, ""));
}

#[tokio::test]
async fn what_is_not_known_is_held_until_somebody_requeues_it() {
    let shop = Shop::open(Backend::Postgres, moody().await).await;
    let held = ended(&shop, "/unknown", json!({}), "held").await;
    assert_eq!(kinds(&held), ["unknown"], "{held}");
    for path in ["/cut", "/half", "/500", "/502"] {
        let shown = ended(&shop, path, json!({"repeatable": false}), "held").await;
        assert_eq!(kinds(&shown), ["unknown"], "{path} {shown}");
        assert_eq!(requests_to(&shop.upstream, path).len(), 1, "{path}");
    }
    // Nothing happened, so there is nothing that nobody knows.
    let refused = ended(&shop, "/503", json!({"repeatable": false}), "dead").await;
    assert_eq!(kinds(&refused), ["transient"; 3], "{refused}");
    let id = held["job"]["id"].as_str().unwrap();
    let (status, row) = post(shop.server.admin, &format!("/v1/jobs/{id}/requeue"), &json!({})).await;
    assert_eq!(
        (status, &row["requeued"], &row["was"]),
        (200, &json!(true), &json!("held")),
        "{row}"
    );
    let again = shop.until_job(id, "held").await;
    assert_eq!(kinds(&again).len(), 2, "its history is kept: {again}");
    // Nothing has to be said to requeue it.
    let told = api(shop.server.admin, "POST", &format!("/v1/jobs/{id}/requeue"), None).await;
    assert_eq!(told.status(), 200, "{}", told.text());
    shop.until_job(id, "held").await;
}

#[tokio::test]
async fn what_has_happened_after_all_is_resolved_and_never_runs_again() {
    let shop = Shop::open(Backend::Postgres, moody().await).await;
    let admin = shop.server.admin;
    let held = ended(&shop, "/unknown", json!({}), "held").await;
    let (id, fence) = (held["job"]["id"].as_str().unwrap(), &held["job"]["fence"]);
    let path = format!("/v1/jobs/{id}/resolve");
    let stale = json!({"fence": fence.as_u64().unwrap() - 1});
    let (status, left) = post(admin, &path, &stale).await;
    assert_eq!((status, &left["resolved"]), (200, &json!(false)), "{left}");
    let said = json!({"outcome": {"invoice": 17}, "fence": fence, "reason": "it is in the books"});
    for was in ["held", "done"] {
        let (status, row) = post(admin, &path, &said).await;
        assert_eq!(
            (status, &row["resolved"], &row["was"]),
            (200, &json!(true), &json!(was)),
            "{row}"
        );
    }
    let shown = get(admin, &format!("/v1/jobs/{id}")).await;
    assert_eq!(
        (&shown["job"]["state"], &shown["outcome"], kinds(&shown)),
        (&json!("done"), &json!({"invoice": 17}), vec!["unknown"]),
        "{shown}"
    );
    let (_, row) = post(admin, &format!("/v1/jobs/{id}/requeue"), &json!({})).await;
    assert_eq!(row["requeued"], false, "{row}");
    let (_, other) = post(admin, &path, &json!({"outcome": 18})).await;
    assert_eq!(other["resolved"], false, "{other}");
    let job = json!({"key": "/unknown {}", "url": shop.url("/unknown"), "body": {"a": 1}});
    let (_, found) = post(admin, "/v1/jobs", &job).await;
    assert_eq!(found["outcome"], json!({"invoice": 17}), "{found}");
    assert_eq!(requests_to(&shop.upstream, "/unknown").len(), 1);
    let trail = get(admin, "/v1/trail").await.to_string();
    assert!(
        trail.contains("has happened") && trail.contains("it is in the books"),
        "{trail}"
    );
}

#[tokio::test]
async fn a_job_that_is_dead_is_told_of_by_an_event() {
    let settings = "[jobs]\ndead_event = \"job.dead\"\n[events]\nsource = \"shop\"\nallow = [\"127.0.0.1\"]\n";
    let shop = Shop::with(Backend::Sqlite, moody().await, settings).await;
    // One that takes events, and one that takes none: what cannot be delivered is no job.
    for (id, path) in [("pager", "/200"), ("broken", "/410")] {
        let endpoint = json!({"id": id, "url": shop.url(path), "types": ["job.dead"]});
        let (status, made) = post(shop.server.admin, "/v1/endpoints", &endpoint).await;
        assert_eq!(status, 201, "{made}");
    }
    let shown = ended(&shop, "/400", json!({"kind": "offers"}), "dead").await;
    let told = until(async || requests_to(&shop.upstream, "/200").pop());
    let told = timeout(PATIENCE, told).await.expect("somebody is told of it");
    let event: Value = serde_json::from_slice(&told.body).unwrap();
    assert_eq!(
        (&event["eventType"], &event["source"], &event["data"]["id"]),
        (&json!("job.dead"), &json!("shop"), &shown["job"]["id"]),
        "{event}"
    );
    assert_eq!(
        (&event["data"]["kind"], &event["data"]["failure"]),
        (&json!("offers"), &shown["job"]["failure"]),
        "{event}"
    );
    let worker = &shown["attempts"][0]["worker"];
    assert!(worker.is_string() && *worker == shown["job"]["worker"], "{shown}");
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_whether_it_may_be_repeated_or_not() {
    let shop = Shop::open(Backend::Postgres, moody().await).await;
    // Held, so that nobody else gets it; not listened on, so that it refuses.
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let job = json!({"key": "away", "url": format!("http://{address}/"), "repeatable": false});
    let id = shop.new_job(job).await;
    let shown = shop.until_job(&id, "dead").await;
    assert_eq!(kinds(&shown), ["transient"; 3], "{shown}");
    let message = shown["attempts"][0]["failure"]["message"].as_str().unwrap();
    assert!(message.starts_with("nothing was sent"), "{message}");
}

async fn a_job_waits_30_seconds_and_never_less_than_asked(backend: Backend) {
    let shop = Shop::with(backend, moody().await, "").await;
    let seconds = async |path: &str| {
        let id = shop.new_job(json!({"key": path, "url": shop.url(path)})).await;
        let waits = until(async || {
            let shown = shop.job(&id).await;
            (shown["job"]["failures"] == 1 && shown["job"]["state"] == "waiting").then_some(shown)
        });
        let shown = timeout(PATIENCE, waits).await.unwrap();
        let at = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let due = at(&shown["job"]["due_at"]).duration_since(at(&shown["attempts"][0]["ended_at"]));
        due.as_secs_f64()
    };
    let by_table = seconds("/503").await;
    assert!((27.0..=33.0).contains(&by_table), "{by_table}");
    let asked = seconds("/wait").await;
    assert!((1000.0..=1001.0).contains(&asked), "{asked}");
}

#[tokio::test]
async fn a_job_waits_30_seconds_and_never_less_than_asked_on_postgres() {
    a_job_waits_30_seconds_and_never_less_than_asked(Backend::Postgres).await;
}

#[tokio::test]
async fn a_job_waits_30_seconds_and_never_less_than_asked_on_sqlite() {
    a_job_waits_30_seconds_and_never_less_than_asked(Backend::Sqlite).await;
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_stopped() {
    let upstream = Upstream::answering(|_| std::future::pending()).await;
    let shop = Shop::open(Backend::Postgres, upstream).await;
    let shown = ended(&shop, "/slow", json!({"timeout_ms": 100}), "dead").await;
    assert_eq!(kinds(&shown), ["timeout"; 3], "{shown}");
}

async fn dead_jobs_are_requeued_once_what_was_wrong_is_fixed(backend: Backend) {
    let broken = Arc::new(AtomicUsize::new(1));
    let fixed = Arc::clone(&broken);
    let upstream = Upstream::answering(move |_| {
        let status = if broken.load(Ordering::SeqCst) > 0 { 404 } else { 200 };
        async move { reply(status, &[], "") }
    })
    .await;
    let shop = Shop::open(backend, upstream).await;
    let mut ids = Vec::new();
    for number in 0..3 {
        let job = json!({"key": format!("k{number}"), "url": shop.url("/make"), "kind": "offers"});
        ids.push(shop.new_job(job).await);
    }
    let other = shop.new_job(json!({"key": "other", "url": shop.url("/make")})).await;
    for id in ids.iter().chain([&other]) {
        shop.until_job(id, "dead").await;
    }
    let all = "/v1/jobs/requeue";
    let dry = json!({"state": "dead", "kind": "offers", "dry_run": true});
    let (status, told) = post(shop.server.admin, all, &dry).await;
    assert_eq!((status, &told["requeued"]), (200, &json!(3)), "{told}");
    assert_eq!(shop.job(&ids[0]).await["job"]["state"], "dead", "it was only looked at");
    fixed.store(0, Ordering::SeqCst);
    let (_, told) = post(
        shop.server.admin,
        all,
        &json!({"state": "dead", "kind": "offers", "reason": "fixed"}),
    )
    .await;
    assert_eq!(told["requeued"], 3, "{told}");
    for id in &ids {
        let shown = shop.until_job(id, "done").await;
        assert_eq!(kinds(&shown), ["logic"], "its history is kept");
    }
    // Again changes nothing, and says why; what fits no longer is not even meant.
    let named = json!({"ids": [ids[0], other, "00000000-0000-5000-8000-000000000000"]});
    let (_, told) = post(shop.server.admin, all, &named).await;
    assert_eq!(told["requeued"], 1, "{told}");
    assert!(
        told["rows"][0]["why"].as_str().unwrap().contains("it is done"),
        "{told}"
    );
    assert_eq!(told["rows"][1], json!({"id": other, "requeued": true, "was": "dead"}));
    assert!(
        told["rows"][2]["why"].as_str().unwrap().contains("no such job"),
        "{told}"
    );
    shop.until_job(&other, "done").await;
    for wrong in [
        json!({}),
        json!({"state": "done"}),
        json!({"ids": []}),
        json!({"ids": [other], "state": "dead"}),
    ] {
        assert_eq!(post(shop.server.admin, all, &wrong).await.0, 422, "{wrong}");
    }
    let trail = get(shop.server.admin, "/v1/trail").await.to_string();
    assert!(
        trail.contains("requeue 3 jobs that are dead of kind") && trail.contains("reason: fixed"),
        "{trail}"
    );
}

#[tokio::test]
async fn dead_jobs_are_requeued_once_what_was_wrong_is_fixed_on_postgres() {
    dead_jobs_are_requeued_once_what_was_wrong_is_fixed(Backend::Postgres).await;
}

#[tokio::test]
async fn dead_jobs_are_requeued_once_what_was_wrong_is_fixed_on_sqlite() {
    dead_jobs_are_requeued_once_what_was_wrong_is_fixed(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_task_that_is_no_request_is_buried_and_stops_no_other() {
    let database = servers::postgres_database().await;
    let upstream = Upstream::counting().await;
    let settings = format!("store = \"{database}\"\n{}", super::QUICK);
    let server = crate::server::Server::with(upstream.address, &settings);
    let shop = Shop { server, upstream };
    let queue = exactly_sql::PgQueue::open(&database).await.unwrap();
    let tasks = [("http", "a", "{\"url\": 7}"), ("offers", "b", "\u{0}")]
        .map(|(kind, key, payload)| exactly::queue::Task::new(kind, key, payload).unwrap());
    let enqueued = exactly::queue::Queue::enqueue(&queue, &tasks).await.unwrap();
    let id = shop.new_job(json!({"key": "k", "url": shop.url("/make")})).await;
    shop.until_job(&id, "done").await;
    for (task, kind) in enqueued.iter().zip(["unreadable", "unknown_kind"]) {
        let shown = shop.until_job(&task.id().to_string(), "dead").await;
        assert_eq!(kinds(&shown), [kind], "{shown}");
    }
}
