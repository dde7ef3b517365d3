//! A job is known by its key, for good.

use serde_json::json;
use tokio::time::timeout;

use super::{Backend, Shop, api, get, post, put, requests_to};
use crate::PATIENCE;
use crate::server::{Server, until};
use crate::servers;
use crate::upstream::{Gate, Upstream, reply};

async fn a_job_that_is_enqueued_twice_is_one_request(backend: Backend) {
    let upstream = Upstream::answering(|_| async {
        reply(
            201,
            &[
                ("content-type", "application/json"),
                ("etag", "\"7\""),
                ("set-cookie", "a=b"),
            ],
            "{\"offer\": 1.10}",
        )
    })
    .await;
    let shop = Shop::open(backend, upstream).await;
    let job = json!({
        "key": "2026-02-19:user-7", "url": shop.url("/make?a=1"), "body": {"user": "user-7", "n": 1.0},
        "headers": {"x-tenant": "acme", "authorization": "Bearer s3cret"}, "version": 3,
    });
    let id = shop.new_job(job.clone()).await;
    let shown = shop.until_job(&id, "done").await;
    let (status, again) = shop.enqueue(job.clone()).await;
    assert_eq!(status, 200);
    assert_eq!(
        (&again["result"], &again["id"], &again["state"]),
        (&json!("found"), &json!(id), &json!("done"))
    );
    assert_eq!(again["differs"], false);
    assert_eq!(again["outcome"], shown["outcome"]);
    assert_eq!(shown["outcome"]["status"], 201);
    assert_eq!(shown["outcome"]["body"], json!({"offer": 1.10}));
    assert_eq!(
        shown["outcome"]["headers"],
        json!({"content-type": "application/json", "etag": "\"7\""})
    );
    let mut other = job;
    other["body"] = json!({"user": "user-8"});
    let (status, differs) = shop.enqueue(other).await;
    assert_eq!((status, &differs["differs"]), (200, &json!(true)), "{differs}");

    let request = shop.upstream.request();
    assert_eq!(request.start, "POST /make?a=1 HTTP/1.1");
    assert_eq!(request.header("idempotency-key"), Some(id.as_str()));
    assert_eq!(request.header("exactly-job-key"), Some("2026-02-19:user-7"));
    assert_eq!(request.header("exactly-attempt"), Some("1"));
    assert!(request.header("exactly-fence").is_some());
    assert_eq!(request.header("x-tenant"), Some("acme"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.text(), "{\"n\":1.0,\"user\":\"user-7\"}", "as it was written");

    // What opens other doors is sent and not shown.
    assert_eq!(request.header("authorization"), Some("Bearer s3cret"));
    assert!(!shown.to_string().contains("s3cret"), "{shown}");
    assert_eq!(shown["job"]["version"], 3);
    assert_eq!(shown["attempts"], json!([]));
}

#[tokio::test]
async fn a_job_that_is_enqueued_twice_is_one_request_on_postgres() {
    a_job_that_is_enqueued_twice_is_one_request(Backend::Postgres).await;
}

#[tokio::test]
async fn a_job_that_is_enqueued_twice_is_one_request_on_sqlite() {
    a_job_that_is_enqueued_twice_is_one_request(Backend::Sqlite).await;
}

async fn wrong_rows_do_not_keep_others_out(backend: Backend) {
    let shop = Shop::open(backend, Upstream::counting().await).await;
    let url = shop.url("/make");
    shop.new_job(json!({"key": "old", "url": url, "delay_ms": 600_000}))
        .await;
    let rows = json!({"jobs": [
        {"key": "a", "url": url},
        {"key": "old", "url": url, "delay_ms": 600_000},
        {"key": "b", "url": "ftp://files.example"},
        {"key": "c", "url": url, "methud": "POST"},
        {"url": url},
        7,
        {"key": "d", "url": url, "headers": {"Idempotency-Key": "mine"}},
        {"key": "e", "url": url, "body": {}, "body_text": "x"},
        {"key": "f\u{7}", "url": url},
        {"key": "g", "url": url, "method": "BREW"},
        {"key": "h", "url": url, "run_at": "soon"},
        {"key": "i", "url": url, "kind": "exactly.tick"},
        {"key": "a", "url": url},
        {"key": "j", "url": url, "run_at": "2020-01-01T00:00:00Z"},
        {"key": "k", "url": url, "delay_ms": 600_000},
        {"key": "l", "url": url, "run_at": "2999-01-01T00:00:00Z"},
        {"key": "m", "url": url, "run_at": "2999-01-01T00:00:00Z", "delay_ms": 1},
        {"key": "n", "url": url, "lane": "exactly.event/00"},
    ]});
    let (status, told) = post(shop.server.admin, "/v1/jobs", &rows).await;
    assert_eq!(status, 207, "{told}");
    let of = |name: &str| -> Vec<String> {
        let rows = told["rows"].as_array().unwrap().iter();
        rows.map(|row| row[name].as_str().unwrap_or("-").to_owned()).collect()
    };
    assert_eq!(
        of("result").join(" "),
        "new found invalid invalid invalid invalid invalid invalid invalid invalid invalid invalid found new new new invalid invalid"
    );
    assert_eq!(
        of("field").join(" "),
        "- - url methud key request headers.Idempotency-Key body_text key method run_at kind - - - - run_at lane"
    );
    assert_eq!(
        (&told["new"], &told["found"], &told["invalid"]),
        (&json!(4), &json!(2), &json!(12))
    );
    for row in told["rows"].as_array().unwrap() {
        assert_eq!(row["result"] == "invalid", row["reason"].is_string(), "{row}");
    }
    let sent = until(async || (requests_to(&shop.upstream, "/make").len() >= 2).then_some(()));
    timeout(PATIENCE, sent).await.expect("those that are right are sent");

    let right = json!({"jobs": [{"key": "a", "url": url}]});
    assert_eq!(post(shop.server.admin, "/v1/jobs", &right).await.0, 200);
    for (body, field) in [
        (json!({"jobs": []}), "jobs"),
        (json!({"jobs": vec![json!({"key": "x", "url": url}); 1001]}), "jobs"),
        (json!({"jobs": [], "more": 1}), "more"),
        (json!({"key": "x"}), "url"),
        (json!({"key": "x", "url": "nonsense"}), "url"),
    ] {
        let (status, problem) = post(shop.server.admin, "/v1/jobs", &body).await;
        assert_eq!((status, &problem["field"]), (422, &json!(field)), "{problem}");
    }
    assert_eq!(shop.upstream.effects(), 2);
}

#[tokio::test]
async fn wrong_rows_do_not_keep_others_out_on_postgres() {
    wrong_rows_do_not_keep_others_out(Backend::Postgres).await;
}

#[tokio::test]
async fn wrong_rows_do_not_keep_others_out_on_sqlite() {
    wrong_rows_do_not_keep_others_out(Backend::Sqlite).await;
}

#[tokio::test]
async fn jobs_are_listed_by_what_they_are() {
    let gate = Gate::default();
    let shop = Shop::open(Backend::Postgres, Upstream::held(&gate).await).await;
    let url = shop.url("/make");
    for number in 0..5 {
        let (lane, kind) = if number < 2 {
            ("slow", "offers")
        } else {
            ("fast", "http")
        };
        shop.new_job(json!({
            "key": format!("k{number}"), "url": url, "lane": lane, "kind": kind, "version": number, "delay_ms": 60_000
        }))
        .await;
    }
    let keys = async |query: &str| {
        let page = get(shop.server.admin, &format!("/v1/jobs?{query}")).await;
        let mut keys: Vec<_> = page["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["key"].to_string())
            .collect();
        keys.sort();
        keys.join(" ").replace('"', "")
    };
    assert_eq!(keys("").await, "k0 k1 k2 k3 k4");
    assert_eq!(keys("kind=offers").await, "k0 k1");
    assert_eq!(keys("lane=fast&state=waiting").await, "k2 k3 k4");
    assert_eq!(keys("version=3").await, "k3");
    assert_eq!(keys("state=dead").await, "");
    let first = get(shop.server.admin, "/v1/jobs?limit=3").await;
    let next = first["next"].as_str().unwrap();
    let rest = get(shop.server.admin, &format!("/v1/jobs?after={next}")).await;
    assert_eq!(rest["jobs"].as_array().unwrap().len(), 2);
    assert_eq!(rest["next"], json!(null));
    for (path, status) in [
        ("/v1/jobs?sate=dead", 422),
        ("/v1/jobs?state=ded", 422),
        ("/v1/jobs/nonsense", 422),
        ("/v1/jobs/00000000-0000-5000-8000-000000000000", 404),
    ] {
        assert_eq!(
            api(shop.server.admin, "GET", path, None).await.status(),
            status,
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_paused_lane_keeps_its_jobs_and_no_others() {
    let shop = Shop::open(Backend::Postgres, Upstream::counting().await).await;
    let lane = "/v1/lanes/slow%2Flane";
    let (status, shown) = put(shop.server.admin, lane, &json!({"paused": true, "cap": 1})).await;
    assert_eq!(
        (status, &shown["paused"], &shown["cap"]),
        (200, &json!(true), &json!(1)),
        "{shown}"
    );
    let held = shop
        .new_job(json!({"key": "held", "url": shop.url("/held"), "lane": "slow/lane"}))
        .await;
    let free = shop.new_job(json!({"key": "free", "url": shop.url("/free")})).await;
    shop.until_job(&free, "done").await;
    assert!(requests_to(&shop.upstream, "/held").is_empty());
    let lanes = get(shop.server.admin, "/v1/lanes").await;
    let shown = lanes["lanes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|shown| shown["lane"] == "slow/lane");
    assert_eq!(shown.unwrap()["waiting"], 1, "{lanes}");
    assert_eq!(put(shop.server.admin, lane, &json!({})).await.0, 422);
    assert_eq!(put(shop.server.admin, lane, &json!({"cap": 0})).await.0, 422);
    let (status, shown) = put(shop.server.admin, lane, &json!({"paused": false, "cap": null})).await;
    assert_eq!((status, &shown["cap"]), (200, &json!(null)));
    shop.until_job(&held, "done").await;
    // Who did it is in the trail.
    let trail = get(shop.server.admin, "/v1/trail").await.to_string();
    assert!(trail.contains("pause and cap at 1 lane"), "{trail}");
}

#[tokio::test]
async fn a_store_without_tasks_names_the_fix() {
    let upstream = Upstream::counting().await;
    let redis = Server::with(upstream.address, &format!("store = \"{}\"", servers::redis()));
    let off = Server::with(upstream.address, "[jobs]\nenabled = false");
    for (server, fix) in [
        (&redis, "jobs need a SQLite or PostgreSQL store"),
        (&off, "enabled = false"),
    ] {
        for (method, path) in [("GET", "/v1/jobs"), ("GET", "/v1/lanes"), ("GET", "/v1/schedules")] {
            let told = api(server.admin, method, path, None).await;
            assert_eq!(
                (told.status(), told.code().as_str()),
                (501, "UNSUPPORTED.jobs"),
                "{path}"
            );
            assert!(told.text().contains(fix), "{}", told.text());
        }
        let (status, _) = post(
            server.admin,
            "/v1/jobs",
            &json!({"key": "k", "url": "http://shop.example/"}),
        )
        .await;
        assert_eq!(status, 501);
    }
}
