//! `exactly events`, `exactly endpoints` and `exactly deliveries`, straight on a store and through the API of a server.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};

use super::{News, OFTEN, quick, verified};
use crate::binary::{Ran, exactly};
use crate::jobs::Backend;
use crate::server::TOKEN;
use crate::upstream::{Upstream, reply};

/// The two ways to the same events.
pub(super) fn ways(news: &News) -> [Vec<String>; 2] {
    let admin = format!("http://{}", news.server.admin);
    let store = format!("sqlite:{}", news.server.file("exactly.db").display());
    let config = news.server.file("exactly.toml").display().to_string();
    [
        vec!["--admin".to_owned(), admin, "--token".to_owned(), TOKEN.to_owned()],
        vec!["--store".to_owned(), store, "--config".to_owned(), config],
    ]
}

pub(super) fn run(way: &[String], arguments: &[&str]) -> Ran {
    let way = way.iter().map(String::as_str);
    exactly(&arguments.iter().copied().chain(way).collect::<Vec<_>>())
}

async fn news(status: &Arc<AtomicU16>, settings: &str) -> News {
    let status = Arc::clone(status);
    let receiver = Upstream::answering(move |_| {
        let status = status.load(Ordering::SeqCst);
        async move { reply(status, &[], "heard") }
    })
    .await;
    News::with(Backend::Sqlite, receiver, settings).await
}

#[tokio::test]
async fn events_are_published_and_shown_both_ways() {
    let news = news(&Arc::new(AtomicU16::new(200)), &quick(OFTEN)).await;
    for (number, way) in ways(&news).iter().enumerate() {
        let (endpoint, event) = (format!("books-{number}"), format!("inv-{number}"));
        let url = news.url(&format!("/{endpoint}"));
        let made = run(
            way,
            &[
                "endpoints",
                "create",
                "--id",
                &endpoint,
                "--url",
                &url,
                "--type",
                "invoice.*",
            ],
        )
        .ok();
        assert!(made.contains("not shown again") && made.contains("active"), "{made}");
        let secret = made.split_whitespace().find(|word| word.starts_with("whsec_")).unwrap();
        let publish = [
            "events",
            "publish",
            "--id",
            &event,
            "--type",
            "invoice.paid",
            "--data",
            "{\"n\": 1.0}",
        ];
        let told = run(way, &[&publish[..], &["--json"]].concat()).json();
        assert_eq!(
            (&told["new"], &told["rows"][0]["id"]),
            (&json!(1), &json!(event)),
            "{told}"
        );
        news.until_delivery(&event, &endpoint, "done").await;
        let body: Value = serde_json::from_slice(&news.received(&endpoint)[0].body).unwrap();
        assert_eq!(body["source"], "shop", "as the settings say, both ways");
        assert!(verified(secret, &news.received(&endpoint)[0]).is_ok());
        let again = run(way, &publish).ok();
        assert!(again.contains("found"), "{again}");
        let other = run(
            way,
            &[
                "events",
                "publish",
                "--id",
                &event,
                "--type",
                "invoice.paid",
                "--data",
                "2",
            ],
        );
        assert_eq!(other.code, 1, "{other:?}");
        assert!(
            other.out.contains("conflict") && other.err.contains("1 of 1 events were not published"),
            "{other:?}"
        );
        let shown = run(way, &["events", "show", &event]).ok();
        for part in ["invoice.paid", "{\"n\": 1.0}", &endpoint, "done"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let listed = run(way, &["events", "list", "--type", "invoice.*"]).ok();
        assert!(listed.contains(&event), "{listed}");
        assert_eq!(run(way, &["events", "list", "--type", "parcel.*"]).ok(), "no events\n");
    }
}

#[tokio::test]
async fn what_is_in_order_is_published_and_shown_both_ways() {
    let news = news(&Arc::new(AtomicU16::new(200)), &quick(OFTEN)).await;
    news.endpoint("books", json!({})).await;
    let mut before = None;
    for (number, way) in ways(&news).iter().enumerate() {
        let event = format!("e{number}");
        let publish = ["events", "publish", "--id", &event, "--type", "a.b", "--data", "1"];
        run(way, &[&publish[..], &["--order-key", "invoice 17"]].concat()).ok();
        let delivery = news.until_delivery(&event, "books", "done").await;
        let shown = run(way, &["events", "show", &event]).ok();
        assert!(shown.contains("order key") && shown.contains("invoice 17"), "{shown}");
        let id = delivery["delivery"]["id"].as_str().unwrap();
        let shown = run(way, &["deliveries", "show", id]).ok();
        let after = shown.lines().find_map(|line| line.strip_prefix("goes after"));
        assert_eq!(after.map(|after| after.trim().to_owned()), before, "{shown}");
        before = Some(event.clone());
        run(way, &[&publish[..], &["--order-key", ""]].concat()).refused(1, "events were not published");
    }
}

#[tokio::test]
async fn what_is_told_wrongly_about_events_is_refused_both_ways() {
    let news = news(&Arc::new(AtomicU16::new(200)), &quick(OFTEN)).await;
    for way in &ways(&news) {
        run(way, &["events", "publish", "--type", "a"]).refused(2, "--data");
        run(way, &["events", "publish", "--type", "a", "--data", "{"]).refused(2, "--data is not JSON");
        run(way, &["events", "publish"]).refused(2, "--type");
        run(way, &["events", "show", "a.b"]).refused(2, "without a dot");
        run(way, &["events", "show", "nobody"]).refused(1, "no event has the id");
    }
}

#[tokio::test]
async fn a_file_of_events_is_published_line_by_line() {
    let news = news(&Arc::new(AtomicU16::new(200)), &quick(OFTEN)).await;
    let file = news.server.file("events.ndjson");
    let lines = [
        json!({"id": "a", "type": "invoice.paid", "data": 1}).to_string(),
        String::new(),
        json!({"id": "b", "type": "no type", "data": 1}).to_string(),
    ];
    fs::write(&file, lines.join("\n")).unwrap();
    let file = file.display().to_string();
    for way in &ways(&news) {
        let ran = run(way, &["events", "publish", "--file", &file]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.out.contains("type: ") && ran.err.contains("1 of 2 events"),
            "{ran:?}"
        );
    }
    fs::write(&file, "{\"id\": \n").unwrap();
    run(&ways(&news)[0], &["events", "publish", "--file", &file]).refused(2, "line 1: is not JSON");
}

#[tokio::test]
async fn endpoints_are_created_and_changed_both_ways() {
    let news = news(&Arc::new(AtomicU16::new(200)), &quick(OFTEN)).await;
    for (number, way) in ways(&news).iter().enumerate() {
        let id = format!("books-{number}");
        let url = news.url(&format!("/{id}"));
        let made = run(
            way,
            &[
                "endpoints",
                "create",
                "--id",
                &id,
                "--url",
                &url,
                "--scheme",
                "v1a",
                "--json",
            ],
        )
        .json();
        assert!(made["secret"].as_str().unwrap().starts_with("whsk_"), "{made}");
        run(way, &["endpoints", "create", "--id", &id, "--url", &url]).refused(1, "is there already");
        let changed = run(
            way,
            &[
                "endpoints",
                "change",
                &id,
                "--type",
                "invoice.*",
                "--per-second",
                "5",
                "--header",
                "Authorization: Bearer s3cret",
            ],
        )
        .ok();
        assert!(
            changed.contains("invoice.*") && changed.contains("whpk_") && !changed.contains("s3cret"),
            "{changed}"
        );
        let changed = run(
            way,
            &["endpoints", "change", &id, "--all-types", "--no-limit", "--json"],
        )
        .json();
        assert_eq!(
            (&changed["types"], &changed["per_second"]),
            (&json!([]), &json!(null)),
            "{changed}"
        );
        run(way, &["endpoints", "change", &id]).refused(1, "nothing is to be changed");
    }
}

#[tokio::test]
async fn endpoints_are_paused_tested_and_deleted_both_ways() {
    let news = news(&Arc::new(AtomicU16::new(200)), &quick(OFTEN)).await;
    for (number, way) in ways(&news).iter().enumerate() {
        let id = format!("books-{number}");
        news.endpoint(&id, json!({})).await;
        let paused = run(way, &["endpoints", "pause", &id]).ok();
        assert!(
            paused.contains("paused") && paused.contains(&format!("exactly endpoints resume {id}")),
            "{paused}"
        );
        run(way, &["endpoints", "test", &id]).refused(1, "resume it first");
        let disabled = run(way, &["endpoints", "disable", &id, "--reason", "not paid"]).ok();
        assert!(
            disabled.contains("disabled") && disabled.contains("not paid"),
            "{disabled}"
        );
        run(way, &["endpoints", "resume", &id]).ok();
        let tested = run(way, &["endpoints", "test", &id, "--data", "{\"a\": 1}", "--json"]).json();
        news.until_delivery(tested["event"].as_str().unwrap(), &id, "done")
            .await;
        run(way, &["endpoints", "discard", &id]).refused(2, "--yes");
        let discarded = run(way, &["endpoints", "discard", &id, "--yes"]).ok();
        assert!(discarded.contains("discards"), "{discarded}");
        let listed = run(way, &["endpoints", "list"]).ok();
        assert!(listed.contains(&id) && listed.contains("(everything)"), "{listed}");
        run(way, &["endpoints", "delete", &id]).refused(2, "--yes");
        assert_eq!(
            run(way, &["endpoints", "delete", &id, "--yes"]).ok(),
            format!("{id}: deleted\n")
        );
        run(way, &["endpoints", "show", &id]).refused(1, "no endpoint has the id");
        run(way, &["endpoints", "show", "a b"]).refused(2, "is no id");
    }
}

#[tokio::test]
async fn secrets_are_replaced_both_ways() {
    let news = news(&Arc::new(AtomicU16::new(200)), &quick(OFTEN)).await;
    for (number, way) in ways(&news).iter().enumerate() {
        let id = format!("books-{number}");
        news.endpoint(&id, json!({})).await;
        let rotated = run(way, &["endpoints", "rotate", &id, "--overlap", "1h", "--actor", "ada"]).ok();
        assert!(rotated.contains("whsec_") && rotated.contains("until"), "{rotated}");
        run(way, &["endpoints", "rotate", &id, "--overlap", "90d"]).refused(2, "--overlap");
        run(way, &["endpoints", "rotate", &id, "--secret", "hunter2"]).refused(1, "secret");
        let file = news.server.file("secret.txt").display().to_string();
        fs::write(&file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let rotated = run(way, &["endpoints", "rotate", &id, "--secret-file", &file]).ok();
        assert!(!rotated.contains("whsec_"), "one that was given is not told: {rotated}");
    }
    let trail = news.trail().await;
    assert!(
        trail.contains("\"ada\"") && !trail.contains("hunter2") && !trail.contains("whs"),
        "{trail}"
    );
}

#[tokio::test]
async fn deliveries_are_shown_and_retried_both_ways() {
    let status = Arc::new(AtomicU16::new(503));
    let settings = quick(r#""0s""#);
    let news = news(&status, &settings).await;
    news.endpoint("books", json!({})).await;
    for (number, way) in ways(&news).iter().enumerate() {
        status.store(503, Ordering::SeqCst);
        let event = format!("e{number}");
        news.publish(&event, "invoice.paid").await;
        let dead = news.until_delivery(&event, "books", "dead").await;
        let id = dead["delivery"]["id"].as_str().unwrap();
        let shown = run(way, &["deliveries", "show", id]).ok();
        for part in ["503", "heard", &event, "failed", "exactly deliveries retry"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let listed = run(way, &["deliveries", "list", "--state", "dead", "--endpoint", "books"]).ok();
        assert!(listed.contains(id), "{listed}");
        let would = run(way, &["deliveries", "retry", id, "--dry-run"]).ok();
        assert!(would.contains("was dead, its next attempt would be due now"), "{would}");
        status.store(200, Ordering::SeqCst);
        let told = run(way, &["deliveries", "retry", id, "--reason", "they are back"]).ok();
        assert!(told.contains("was dead, its next attempt is due now"), "{told}");
        news.until_delivery(&event, "books", "done").await;
        let shown = run(way, &["deliveries", "show", id]).ok();
        assert!(shown.contains("delivered") && shown.contains("200 in"), "{shown}");
        let left = run(way, &["deliveries", "retry", id]).ok();
        assert!(left.contains("left as it is: it is delivered"), "{left}");
        let none = run(way, &["deliveries", "list", "--event", "nothing"]).ok();
        assert_eq!(none, "no deliveries\n");
        run(way, &["deliveries", "show", "nonsense"]).refused(2, "a UUID");
    }
    assert_eq!(news.received("books").len(), 4);
}

#[tokio::test]
async fn a_store_that_keeps_no_events_says_so() {
    let redis = crate::servers::redis();
    for command in ["events", "endpoints", "deliveries", "replays"] {
        exactly(&[command, "list", "--store", &redis]).refused(1, "need a SQLite or PostgreSQL store");
    }
}
