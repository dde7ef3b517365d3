//! Jobs outlive the servers that run them.

use serde_json::json;
use tokio::time::timeout;

use super::{Backend, QUICK, Shop, get, requests_to};
use crate::PATIENCE;
use crate::server::until;
use crate::upstream::{Gate, Upstream};

/// A service that does each key once, as any should: what it did for a key it answers again.
async fn sent(shop: &Shop, count: usize) {
    let sent = until(async || (requests_to(&shop.upstream, "/make").len() >= count).then_some(()));
    timeout(PATIENCE, sent).await.expect("it is sent");
}

async fn a_job_of_a_server_that_was_killed_is_run_again_with_the_same_key(backend: Backend) {
    let gate = Gate::default();
    let mut shop = Shop::open(backend, Upstream::held(&gate).await).await;
    let id = shop
        .new_job(json!({"key": "k", "url": shop.url("/make"), "body": {"a": 1}}))
        .await;
    sent(&shop, 1).await;
    shop.server.restart();
    sent(&shop, 2).await;
    gate.open();
    let shown = shop.until_job(&id, "done").await;
    assert_eq!(shown["attempts"][0]["failure"]["kind"], "lost", "{shown}");
    let requests = requests_to(&shop.upstream, "/make");
    let (first, second) = (&requests[0], &requests[1]);
    assert_eq!(first.header("idempotency-key"), Some(id.as_str()));
    assert_eq!(second.header("idempotency-key"), Some(id.as_str()));
    assert_eq!(first.body, second.body);
    assert_eq!(second.header("exactly-attempt"), Some("2"));
    let fence = |number: usize| {
        requests[number]
            .header("exactly-fence")
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(fence(0) < fence(1));
    assert_eq!(requests.len(), 2);
}

#[tokio::test]
async fn a_job_of_a_server_that_was_killed_is_run_again_with_the_same_key_on_postgres() {
    a_job_of_a_server_that_was_killed_is_run_again_with_the_same_key(Backend::Postgres).await;
}

#[tokio::test]
async fn a_job_of_a_server_that_was_killed_is_run_again_with_the_same_key_on_sqlite() {
    a_job_of_a_server_that_was_killed_is_run_again_with_the_same_key(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_job_that_may_not_be_repeated_is_held_if_its_server_is_killed() {
    let gate = Gate::default();
    let mut shop = Shop::open(Backend::Postgres, Upstream::held(&gate).await).await;
    let job = json!({"key": "k", "url": shop.url("/make"), "repeatable": false});
    let id = shop.new_job(job).await;
    sent(&shop, 1).await;
    shop.server.restart();
    let shown = shop.until_job(&id, "held").await;
    assert_eq!(shown["job"]["failure"]["kind"], "unknown", "{shown}");
    assert_eq!(requests_to(&shop.upstream, "/make").len(), 1);
    // A person has found out that it did not happen.
    gate.open();
    let path = format!("/v1/jobs/{id}/requeue");
    assert_eq!(super::post(shop.server.admin, &path, &json!({})).await.0, 200);
    shop.until_job(&id, "done").await;
    assert_eq!(requests_to(&shop.upstream, "/make").len(), 2);
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_finishes_its_jobs() {
    let gate = Gate::default();
    let mut shop = Shop::open(Backend::Postgres, Upstream::held(&gate).await).await;
    let id = shop.new_job(json!({"key": "k", "url": shop.url("/make")})).await;
    sent(&shop, 1).await;
    shop.server.terminate();
    tokio::time::sleep(crate::SHORT).await;
    assert!(shop.server.is_running(), "it waits for its job");
    gate.open();
    assert!(shop.server.stopped().await.success());
    shop.server.restart();
    let shown = shop.until_job(&id, "done").await;
    assert_eq!(
        (&shown["attempts"], &shown["outcome"]["status"]),
        (&json!([]), &json!(201))
    );
    assert_eq!(requests_to(&shop.upstream, "/make").len(), 1);
}

#[tokio::test]
async fn a_job_that_was_stopped_half_way_is_sent_again_unless_it_may_not_be() {
    let gate = Gate::default();
    let settings = format!("[timeouts]\ndrain = \"400ms\"\n{QUICK}");
    let mut shop = Shop::with(Backend::Postgres, Upstream::held(&gate).await, &settings).await;
    let again = shop.new_job(json!({"key": "again", "url": shop.url("/make")})).await;
    let once = shop
        .new_job(json!({"key": "once", "url": shop.url("/make"), "repeatable": false}))
        .await;
    sent(&shop, 2).await;
    shop.server.terminate();
    shop.server.stopped().await;
    gate.open();
    shop.server.restart();
    let held = shop.until_job(&once, "held").await;
    let why = held["job"]["failure"]["message"].as_str().unwrap();
    assert!(why.contains("shut down"), "{why}");
    let done = shop.until_job(&again, "done").await;
    assert_eq!(done["attempts"].as_array().unwrap().len(), 1, "{done}");
    let of = |id: &str| {
        let requests = requests_to(&shop.upstream, "/make");
        requests
            .iter()
            .filter(|request| request.header("idempotency-key") == Some(id))
            .count()
    };
    assert_eq!((of(&again), of(&once)), (2, 1));
}

#[tokio::test]
async fn what_happens_to_jobs_is_counted() {
    let shop = Shop::open(Backend::Postgres, Upstream::counting().await).await;
    let id = shop.new_job(json!({"key": "k", "url": shop.url("/make")})).await;
    shop.until_job(&id, "done").await;
    let bad = shop
        .new_job(json!({"key": "bad", "url": "http://127.0.0.1:1/", "timeout_ms": 5000}))
        .await;
    shop.until_job(&bad, "dead").await;
    let lane = json!({"paused": true});
    super::put(shop.server.admin, "/v1/lanes/later", &lane).await;
    shop.new_job(json!({"key": "later", "url": shop.url("/make"), "lane": "later"}))
        .await;
    let lines = [
        "jobs_total{kind=\"http\",end=\"done\"} 1",
        "jobs_total{kind=\"http\",end=\"retried\"} 2",
        "jobs_total{kind=\"http\",end=\"buried\"} 1",
        "jobs_buried_total{kind=\"http\",reason=\"transient\"} 1",
        "jobs_buried_total{kind=\"http\",reason=\"logic\"} 0",
        "job_duration_seconds_bucket{kind=\"http\",le=\"300\"} 4",
        "queue_depth{lane=\"later\",state=\"waiting\"} 1",
        "queue_depth{lane=\"http\",state=\"dead\"} 1",
        "queue_readable 1",
    ];
    let shown = until(async || {
        let told = super::api(shop.server.admin, "GET", "/metrics", None).await.text();
        lines
            .iter()
            .all(|line| told.lines().any(|shown| shown == *line))
            .then_some(())
    });
    if timeout(PATIENCE, shown).await.is_err() {
        let told = super::api(shop.server.admin, "GET", "/metrics", None).await.text();
        let missing: Vec<_> = lines
            .iter()
            .filter(|line| !told.lines().any(|shown| shown == **line))
            .collect();
        panic!("{missing:?} are not in\n{told}");
    }
    assert_eq!(
        get(shop.server.admin, "/v1/jobs?state=dead").await["jobs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}
