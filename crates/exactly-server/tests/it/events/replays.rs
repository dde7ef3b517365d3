//! Sending again what failed, or all: over the API and from a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::terminal::{run, ways};
use super::{News, quick};
use crate::PATIENCE;
use crate::jobs::{Backend, api, json_of};
use crate::server::until;
use crate::upstream::{Upstream, reply};

/// A receiver that answers what it is told to, and deliveries that have one attempt.
pub(super) async fn news(backend: Backend, status: &Arc<AtomicU16>) -> News {
    let status = Arc::clone(status);
    let receiver = Upstream::answering(move |_| {
        let status = status.load(Ordering::SeqCst);
        async move { reply(status, &[], "") }
    })
    .await;
    let settings = quick("\"0s\"");
    News::with(backend, receiver, &settings).await
}

/// As many deliveries to `books` that failed for good.
async fn failed(news: &News, count: usize) {
    news.endpoint("books", json!({})).await;
    let events: Vec<_> = (0..count)
        .map(|n| json!({"id": format!("e{n}"), "type": "invoice.paid", "data": n}))
        .collect();
    let (status, rows) = news.post("/v1/events", json!({"events": events})).await;
    assert_eq!((status, &rows["new"]), (200, &json!(count)), "{rows}");
    until_count(news, "dead", count).await;
}

async fn until_count(news: &News, state: &str, count: usize) {
    let path = format!("/v1/deliveries?state={state}&limit=1000");
    let reached = until(async || {
        let page = news.get(&path).await;
        (page["deliveries"].as_array()?.len() == count).then_some(())
    });
    timeout(PATIENCE, reached).await.expect("the deliveries come to that");
}

/// Waits until a replay is as it should be.
pub(super) async fn until_replay(news: &News, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let path = format!("/v1/replays/{id}");
    let reached = until(async || Some(news.get(&path).await).filter(|shown| is_so(shown)));
    match timeout(PATIENCE, reached).await {
        Ok(shown) => shown,
        Err(late) => panic!("not so, {late}: {}", news.get(&path).await),
    }
}

pub(super) fn is_done(shown: &Value) -> bool {
    shown["state"] == "done"
}

async fn what_failed_is_sent_again_where_it_is_asked_for(backend: Backend) {
    let status = Arc::new(AtomicU16::new(503));
    let news = news(backend, &status).await;
    for endpoint in ["books", "stock"] {
        news.endpoint(endpoint, json!({})).await;
    }
    news.publish("e1", "invoice.paid").await;
    news.publish("e2", "parcel.sent").await;
    until_count(&news, "dead", 4).await;

    let look = json!({"id": "look", "which": "failed", "endpoint": "books", "dry_run": true});
    let (code, started) = news.post("/v1/replays", look).await;
    assert_eq!((code, &started["dry_run"]), (201, &json!(true)), "{started}");
    let looked = until_replay(&news, "look", is_done).await;
    let progress = &looked["progress"];
    assert_eq!(
        (&progress["seen"], &progress["revived"]),
        (&json!(2), &json!(2)),
        "{looked}"
    );
    assert_eq!(news.received("books").len(), 2, "a dry run sends nothing");

    status.store(200, Ordering::SeqCst);
    let fix =
        json!({"id": "fix", "which": "failed", "endpoint": "books", "types": ["invoice.*"], "reason": "they are back"});
    let (code, started) = news.post("/v1/replays", fix.clone()).await;
    assert_eq!((code, &started["id"]), (201, &json!("fix")), "{started}");
    let done = until_replay(&news, "fix", is_done).await;
    assert_eq!(
        (
            &done["progress"]["revived"],
            &done["progress"]["older"],
            &done["warning"]
        ),
        (&json!(1), &json!(0), &json!(null)),
        "{done}"
    );
    news.until_delivery("e1", "books", "done").await;
    until_count(&news, "dead", 3).await;

    let (code, again) = news.post("/v1/replays", fix).await;
    assert_eq!(
        (code, &again["state"], &again["progress"]["revived"]),
        (200, &json!("done"), &json!(1)),
        "{again}"
    );
    let (code, other) = news.post("/v1/replays", json!({"id": "fix", "which": "all"})).await;
    assert_eq!(
        (code, &other["code"], &other["field"]),
        (409, &json!("CONFLICT.replay.taken"), &json!("id")),
        "{other}"
    );
    assert_eq!(
        (news.received("books").len(), news.received("stock").len()),
        (3, 2),
        "nothing else was sent"
    );
    let trail = news.trail().await;
    for part in [
        "start replay fix of what failed, endpoint books, type invoice.*; reason: they are back",
        "done: it was started before",
        "refused: start replay: fix was started for something else",
    ] {
        assert!(trail.contains(part), "{part} is not in {trail}");
    }
}

#[tokio::test]
async fn what_failed_is_sent_again_where_it_is_asked_for_on_postgres() {
    what_failed_is_sent_again_where_it_is_asked_for(Backend::Postgres).await;
}

#[tokio::test]
async fn what_failed_is_sent_again_where_it_is_asked_for_on_sqlite() {
    what_failed_is_sent_again_where_it_is_asked_for(Backend::Sqlite).await;
}

#[tokio::test]
async fn what_was_delivered_is_sent_once_more_as_it_was() {
    let news = news(Backend::Sqlite, &Arc::new(AtomicU16::new(200))).await;
    news.endpoint("books", json!({})).await;
    for event in ["e1", "e2"] {
        news.publish(event, "invoice.paid").await;
        news.until_delivery(event, "books", "done").await;
    }
    let (code, started) = news
        .post(
            "/v1/replays",
            json!({"which": "all", "event": "e1", "endpoint": "books"}),
        )
        .await;
    assert_eq!(code, 201, "{started}");
    let done = until_replay(&news, started["id"].as_str().unwrap(), is_done).await;
    assert_eq!(done["progress"]["sent_again"], 1, "{done}");
    until_count(&news, "done", 3).await;
    let received = news.received("books");
    let of_e1 = received
        .iter()
        .filter(|request| request.header("webhook-id") == Some("e1"));
    let bodies: Vec<_> = of_e1.map(|request| &request.body).collect();
    assert_eq!((received.len(), bodies.len()), (3, 2));
    assert_eq!(bodies[0], bodies[1], "each byte of it");
}

#[tokio::test]
async fn a_replay_rests_goes_on_and_is_given_up_as_operators_say() {
    let status = Arc::new(AtomicU16::new(503));
    let news = news(Backend::Sqlite, &status).await;
    failed(&news, 40).await;
    status.store(200, Ordering::SeqCst);
    let slow = json!({"id": "slow", "which": "failed", "per_second": 1});
    let (code, started) = news.post("/v1/replays", slow).await;
    assert_eq!((code, &started["state"]), (201, &json!("running")), "{started}");
    let warning = started["warning"].as_str().unwrap();
    assert!(warning.contains("more than 7 days"), "{started}");
    let paused = news.act("/v1/replays/slow/pause?reason=lunch").await;
    assert_eq!(
        (&paused["state"], &paused["ended_at"]),
        (&json!("paused"), &json!(null)),
        "{paused}"
    );
    let resumed = news.act("/v1/replays/slow/resume").await;
    assert_eq!(resumed["state"], "running");
    let before = resumed["progress"]["revived"].as_u64().unwrap();
    let on = until_replay(&news, "slow", |shown| {
        shown["progress"]["revived"].as_u64().unwrap() > before
    })
    .await;
    assert_eq!(on["state"], "running");
    let canceled = news.act("/v1/replays/slow/cancel").await;
    assert_eq!(canceled["state"], "canceled", "{canceled}");
    assert!(canceled["ended_at"].is_string(), "{canceled}");
    let late = news.act("/v1/replays/slow/resume").await;
    assert_eq!(late["state"], "canceled", "what was given up stays so");
    assert!(news.received("books").len() < 80, "most of it was not set off");

    let later = json!({"id": "later", "which": "all", "since": "2100-01-01T00:00:00Z"});
    let (_, later) = news.post("/v1/replays", later).await;
    assert_eq!(later["warning"], json!(null), "{later}");
    let first = news.get("/v1/replays?limit=1").await;
    assert_eq!(
        (&first["replays"][0]["id"], &first["next"]),
        (&json!("later"), &json!("later"))
    );
    let rest = news.get("/v1/replays?after=later").await;
    assert_eq!(
        (&rest["replays"][0]["id"], &rest["next"]),
        (&json!("slow"), &json!(null))
    );
    let trail = news.trail().await;
    assert!(
        trail.contains("pause replay slow; reason: lunch") && trail.contains("cancel replay slow"),
        "{trail}"
    );
}

#[tokio::test]
async fn a_replay_goes_on_when_the_server_was_killed() {
    let status = Arc::new(AtomicU16::new(503));
    let mut news = news(Backend::Sqlite, &status).await;
    failed(&news, 6).await;
    status.store(200, Ordering::SeqCst);
    let (code, _) = news
        .post("/v1/replays", json!({"id": "fix", "which": "failed", "per_second": 2}))
        .await;
    assert_eq!(code, 201);
    until_replay(&news, "fix", |shown| shown["progress"]["revived"] != 0).await;
    news.server.restart();
    let done = until_replay(&news, "fix", is_done).await;
    assert_eq!(done["progress"]["seen"], 6, "{done}");
    until_count(&news, "done", 6).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_replay_is_named() {
    let news = news(Backend::Sqlite, &Arc::new(AtomicU16::new(200))).await;
    for (asked, field) in [
        (json!({}), "which"),
        (json!({"which": "some"}), "which"),
        (json!({"which": "all", "id": "a b"}), "id"),
        (json!({"which": "all", "event": "a.b"}), "event"),
        (json!({"which": "all", "endpoint": "nobody"}), "endpoint"),
        (json!({"which": "all", "endpoint": "a b"}), "endpoint"),
        (json!({"which": "all", "types": ["a", "a..b"]}), "types[1]"),
        (json!({"which": "all", "per_second": 0}), "per_second"),
        (json!({"which": "all", "since": "yesterday"}), "since"),
        (
            json!({"which": "all", "since": "2026-01-02T00:00:00Z", "until": "2026-01-02T00:00:00Z"}),
            "until",
        ),
        (json!({"which": "all", "whom": "books"}), "whom"),
    ] {
        let (code, told) = news.post("/v1/replays", asked.clone()).await;
        assert_eq!((code, &told["field"]), (422, &json!(field)), "{asked}: {told}");
    }
    let shown = api(news.server.admin, "GET", "/v1/replays/nothing", None).await;
    assert_eq!(
        (shown.status(), &json_of(&shown)["code"]),
        (404, &json!("NOT_FOUND.replay"))
    );
    for action in ["pause", "resume", "cancel"] {
        let told = api(
            news.server.admin,
            "POST",
            &format!("/v1/replays/nothing/{action}"),
            None,
        )
        .await;
        assert_eq!(told.status(), 404, "{action}: {}", told.text());
    }
    assert_eq!(news.get("/v1/replays").await, json!({"replays": [], "next": null}));
}

#[tokio::test]
async fn replays_are_started_and_shown_both_ways() {
    let status = Arc::new(AtomicU16::new(503));
    let news = news(Backend::Sqlite, &status).await;
    failed(&news, 40).await;
    for (number, way) in ways(&news).iter().enumerate() {
        let (look, slow) = (format!("look-{number}"), format!("slow-{number}"));
        run(way, &["replays", "start", "failed"]).refused(2, "--yes");
        run(way, &["replays", "start", "--yes"]).refused(2, "WHICH");
        run(way, &["replays", "start", "all", "--endpoint", "nobody", "--yes"]).refused(1, "no endpoint has the id");
        let started = run(
            way,
            &["replays", "start", "failed", "--id", &look, "--dry-run", "--json"],
        )
        .json();
        assert_eq!(started["id"], json!(look));
        until_replay(&news, &look, is_done).await;
        let shown = run(way, &["replays", "show", &look]).ok();
        for part in ["done", "would revive", "failed (dry run)"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let start = ["replays", "start", "failed", "--id", &slow, "--endpoint", "books"];
        let started = run(way, &[&start[..], &["--per-second", "1", "--yes"]].concat()).ok();
        for part in [
            "running",
            "warning: ",
            "7 days",
            &format!("exactly replays show {slow}"),
        ] {
            assert!(started.contains(part), "{part} is not in {started}");
        }
        run(way, &[&start[..], &["--yes"]].concat()).refused(1, "was started for something else");
        let paused = run(way, &["replays", "pause", &slow, "--reason", "lunch"]).ok();
        assert!(paused.contains(&format!("exactly replays resume {slow}")), "{paused}");
        let resumed = run(way, &["replays", "resume", &slow, "--json"]).json();
        assert_eq!(resumed["state"], "running");
        let canceled = run(way, &["replays", "cancel", &slow]).ok();
        assert!(canceled.contains("canceled"), "{canceled}");
        let listed = run(way, &["replays", "list"]).ok();
        assert!(
            listed.contains(&look) && listed.contains("failed, to books") && listed.contains("canceled"),
            "{listed}"
        );
        run(way, &["replays", "show", "nothing"]).refused(1, "no replay has the id");
        run(way, &["replays", "show", "a b"]).refused(2, "is no id");
    }
}
