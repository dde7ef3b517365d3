//! `exactly jobs` and `exactly schedules`, straight on a store and through the API of a server.

use std::fs;

use serde_json::{Value, json};

use super::{Backend, QUICK, Shop};
use crate::binary::{Ran, exactly};
use crate::server::TOKEN;
use crate::upstream::{Upstream, reply};

/// The two ways to the same jobs.
fn ways(shop: &Shop) -> [Vec<String>; 2] {
    let admin = format!("http://{}", shop.server.admin);
    let store = format!("sqlite:{}", shop.server.file("exactly.db").display());
    [
        vec!["--admin".to_owned(), admin, "--token".to_owned(), TOKEN.to_owned()],
        vec!["--store".to_owned(), store],
    ]
}

fn run(way: &[String], arguments: &[&str]) -> Ran {
    let way = way.iter().map(String::as_str);
    exactly(&arguments.iter().copied().chain(way).collect::<Vec<_>>())
}

async fn shop() -> Shop {
    let upstream = Upstream::answering(|request| async move {
        let status = if request.target() == "/bad" { 422 } else { 200 };
        reply(status, &[("content-type", "application/json")], "{\"made\": 1}")
    })
    .await;
    Shop::with(Backend::Sqlite, upstream, QUICK).await
}

#[tokio::test]
async fn jobs_are_enqueued_shown_and_requeued_both_ways() {
    let shop = shop().await;
    for (number, way) in ways(&shop).iter().enumerate() {
        let (good, bad) = (format!("good-{number}"), format!("bad-{number}"));
        let url = shop.url("/good");
        let add = [
            "jobs",
            "enqueue",
            "--key",
            &good,
            "--url",
            &url,
            "--body",
            "{\"a\": 1}",
            "--job-version",
            "2",
        ];
        let told = run(way, &[&add[..], &["--header", "X-Tenant: acme", "--json"]].concat()).json();
        assert_eq!(
            (&told["new"], &told["rows"][0]["result"]),
            (&json!(1), &json!("new")),
            "{told}"
        );
        let id = told["rows"][0]["id"].as_str().unwrap();
        shop.until_job(id, "done").await;
        let again = run(way, &add).ok();
        assert!(again.contains("found") && again.contains("done"), "{again}");
        let shown = run(way, &["jobs", "show", "--key", &good]).ok();
        for part in [id, "done", "{\"made\": 1}", "{\"a\": 1}", "acme"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }

        let dead = run(
            way,
            &["jobs", "enqueue", "--key", &bad, "--url", &shop.url("/bad"), "--json"],
        )
        .json();
        let dead = dead["rows"][0]["id"].as_str().unwrap().to_owned();
        shop.until_job(&dead, "dead").await;
        let shown = run(way, &["jobs", "show", &dead]).ok();
        assert!(
            shown.contains("answered with status 422") && shown.contains("exactly jobs requeue"),
            "{shown}"
        );
        let listed = run(way, &["jobs", "list", "--state", "dead"]).ok();
        assert!(listed.contains(&bad) && !listed.contains(&good), "{listed}");
        run(way, &["jobs", "requeue", &dead]).refused(2, "--yes");
        run(way, &["jobs", "requeue", "--yes"]).refused(2, "--state dead or held");
        let dry = run(way, &["jobs", "requeue", "--state", "dead", "--dry-run"]).ok();
        assert!(dry.contains("jobs would wait again"), "{dry}");
        let dry = run(way, &["jobs", "requeue", &dead, "--dry-run"]).ok();
        assert!(dry.contains("is dead, would wait again"), "{dry}");
        let told = run(
            way,
            &["jobs", "requeue", &dead, "--yes", "--actor", "ada", "--reason", "fixed"],
        )
        .ok();
        assert!(told.contains("was dead, waits again"), "{told}");
        shop.until_job(&dead, "dead").await;
        let done = run(way, &["jobs", "requeue", id, "--yes"]).ok();
        assert!(done.contains("left as it is: it is done"), "{done}");
    }
    let trail = exactly(
        &[
            &["calls", "trail"][..],
            &ways(&shop)[1].iter().map(String::as_str).collect::<Vec<_>>(),
        ]
        .concat(),
    );
    let trail = trail.ok();
    assert!(trail.contains("ada") && trail.contains("reason: fixed"), "{trail}");
}

#[tokio::test]
async fn a_file_of_jobs_is_enqueued_line_by_line() {
    let shop = shop().await;
    let file = shop.server.file("jobs.ndjson");
    let line = |key: &str, url: &str| json!({"key": key, "url": url, "delay_ms": 600_000}).to_string();
    let url = shop.url("/good");
    fs::write(&file, format!("{}\n\n{}\n", line("a", &url), line("b", "nonsense"))).unwrap();
    let file = file.display().to_string();
    for way in &ways(&shop) {
        let ran = run(way, &["jobs", "enqueue", "--file", &file]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.out.contains("url: is no address"), "{ran:?}");
        assert!(ran.err.contains("1 of 2 jobs are wrong, and were left out"), "{ran:?}");
    }
    fs::write(&file, "{\"key\": \n").unwrap();
    run(&ways(&shop)[0], &["jobs", "enqueue", "--file", &file]).refused(2, "line 1: is not JSON");
    run(&ways(&shop)[0], &["jobs", "enqueue", "--key", "k"]).refused(2, "--url");
    run(&ways(&shop)[0], &["jobs", "show", "nonsense"]).refused(2, "a UUID");
    run(&ways(&shop)[0], &["jobs", "show", "--key", "nobody"]).refused(1, "no job has the id");
}

#[tokio::test]
async fn lanes_are_paused_capped_and_resumed_both_ways() {
    let shop = shop().await;
    for way in &ways(&shop) {
        let told = run(way, &["jobs", "pause", "a b/c"]).ok();
        assert_eq!(told, "lane a b/c: is paused, any number at once, 0 wait\n");
        let told = run(way, &["jobs", "cap", "a b/c", "3"]).ok();
        assert!(told.contains("at most 3 at once"), "{told}");
        let lanes = run(way, &["jobs", "lanes"]).ok();
        assert!(lanes.contains("a b/c  yes     3"), "{lanes}");
        run(way, &["jobs", "cap", "a b/c"]).refused(2, "--none");
        run(way, &["jobs", "cap", "a b/c", "--none"]).ok();
        run(way, &["jobs", "resume", "a b/c"]).ok();
        let lanes: Value = run(way, &["jobs", "lanes", "--json"]).json();
        let shown = lanes["lanes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|lane| lane["lane"] == "a b/c");
        assert_eq!(shown, None, "{lanes}");
    }
}

#[tokio::test]
async fn schedules_are_written_paused_and_deleted_both_ways() {
    let shop = shop().await;
    let file = shop.server.file("schedule.json");
    let job = json!({"url": shop.url("/good"), "headers": {"authorization": "Bearer s3cret"}});
    fs::write(&file, json!({"pattern": "every 1s", "job": job}).to_string()).unwrap();
    let file = file.display().to_string();
    for (number, way) in ways(&shop).iter().enumerate() {
        assert_eq!(run(way, &["schedules", "list"]).ok(), "no schedules\n");
        let name = format!("beat-{number}");
        let told = run(way, &["schedules", "put", &name, &file]).ok();
        assert!(told.contains("every 1s") && !told.contains("s3cret"), "{told}");
        let fired = crate::server::until(async || {
            let told = run(way, &["schedules", "occurrences", &name, "--json"]);
            let rows = told.json()["occurrences"].clone();
            rows.as_array()
                .unwrap()
                .iter()
                .any(|row| row["ended"] == "fired")
                .then_some(())
        });
        tokio::time::timeout(crate::PATIENCE, fired).await.expect("it fires");
        let paused = run(way, &["schedules", "pause", &name, "--json"]).json();
        assert_eq!(paused["paused"], true);
        // A pause and its end leave the secret in place.
        run(way, &["schedules", "resume", &name]).ok();
        let before = shop.upstream.requests().len();
        let again = crate::server::until(async || (shop.upstream.requests().len() > before).then_some(()));
        tokio::time::timeout(crate::PATIENCE, again)
            .await
            .expect("it fires again");
        let last = shop.upstream.requests().pop().unwrap();
        assert_eq!(last.header("authorization"), Some("Bearer s3cret"));
        let listed = run(way, &["schedules", "list"]).ok();
        assert!(listed.contains(&name) && listed.contains("every 1s"), "{listed}");
        run(way, &["schedules", "delete", &name]).refused(2, "--yes");
        assert_eq!(
            run(way, &["schedules", "delete", &name, "--yes"]).ok(),
            format!("{name}: deleted\n")
        );
        run(way, &["schedules", "show", &name]).refused(1, "no schedule is called");
    }
    fs::write(
        &file,
        "{\"pattern\": \"daily 09:00\", \"job\": {\"url\": \"http://x/\"}}",
    )
    .unwrap();
    for way in &ways(&shop) {
        run(way, &["schedules", "put", "bad", &file]).refused(1, "zone: say where the pattern is meant");
    }
}

#[tokio::test]
async fn a_store_that_keeps_no_jobs_says_so() {
    let redis = crate::servers::redis();
    exactly(&["jobs", "list", "--store", &redis]).refused(1, "need a SQLite or PostgreSQL store");
    exactly(&["schedules", "list", "--store", &redis]).refused(1, "need a SQLite or PostgreSQL store");
}
