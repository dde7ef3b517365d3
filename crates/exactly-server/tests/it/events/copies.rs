//! What replays have made: seen for what it is, and never on its way twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::News;
use super::replays::{is_done, news, until_replay};
use super::terminal::{run, ways};
use crate::PATIENCE;
use crate::jobs::Backend;
use crate::server::until;

/// Sends all of e1 again, and waits until its copy is in this state.
async fn again(news: &News, replay: &str, state: &str) -> String {
    let asked = json!({"id": replay, "which": "all", "event": "e1"});
    let (code, started) = news.post("/v1/replays", asked).await;
    assert_eq!(code, 201, "{started}");
    let done = until_replay(news, replay, is_done).await;
    assert_eq!(done["progress"]["sent_again"], 1, "{done}");
    let copy = until(async || {
        let page = news.get("/v1/deliveries?event=e1").await;
        let mut all = page["deliveries"].as_array()?.iter();
        all.find(|copy| copy["replay"] == replay && copy["state"] == state)
            .cloned()
    });
    match timeout(PATIENCE, copy).await {
        Ok(copy) => copy["id"].as_str().unwrap().to_owned(),
        Err(late) => panic!("not {state}, {late}: {}", news.get("/v1/deliveries?event=e1").await),
    }
}

/// An event that `books` has.
async fn delivered(status: &Arc<AtomicU16>) -> News {
    let news = news(Backend::Sqlite, status).await;
    news.endpoint("books", json!({})).await;
    news.publish("e1", "invoice.paid").await;
    news.until_delivery("e1", "books", "done").await;
    news
}

#[tokio::test]
async fn a_copy_is_shown_with_the_replay_that_made_it() {
    let news = delivered(&Arc::new(AtomicU16::new(200))).await;
    let copy = again(&news, "twice", "done").await;
    let replays = |page: &Value| -> Vec<Value> {
        let all = page["deliveries"].as_array().unwrap().iter();
        all.map(|delivery| delivery["replay"].clone()).collect()
    };
    for path in [
        "/v1/events/e1",
        "/v1/deliveries?event=e1",
        "/v1/deliveries?event=e1&endpoint=books",
    ] {
        let shown = news.get(path).await;
        assert_eq!(replays(&shown), [json!(null), json!("twice")], "{path}: {shown}");
    }
    let shown = news.get(&format!("/v1/deliveries/{copy}")).await;
    assert_eq!(shown["delivery"]["replay"], "twice", "{shown}");
    for way in ways(&news) {
        let listed = run(&way, &["events", "show", "e1"]).ok();
        assert!(listed.contains("twice"), "{listed}");
        let shown = run(&way, &["deliveries", "show", &copy]).ok();
        assert!(shown.contains("copied by replay"), "{shown}");
    }
}

#[tokio::test]
async fn a_retry_beside_a_copy_that_is_under_way_is_refused() {
    let status = Arc::new(AtomicU16::new(200));
    let news = delivered(&status).await;
    status.store(503, Ordering::SeqCst);
    let dead = again(&news, "first", "dead").await;
    news.act("/v1/endpoints/books/pause").await;
    let waiting = again(&news, "second", "waiting").await;

    let retry = format!("/v1/deliveries/{dead}/retry");
    for asked in [json!({"dry_run": true}), json!({})] {
        let (code, refused) = news.post(&retry, asked).await;
        assert_eq!(
            (code, &refused["code"]),
            (409, &json!("CONFLICT.delivery.under_way")),
            "{refused}"
        );
        let why = refused["detail"].as_str().unwrap();
        assert!(why.contains("replay second") && why.contains(&waiting), "{why}");
    }
    let shown = news.get(&format!("/v1/deliveries/{dead}")).await;
    assert_eq!(shown["delivery"]["state"], "dead", "nothing was changed");
    for way in ways(&news) {
        run(&way, &["deliveries", "retry", &dead]).refused(1, "replay second");
    }
    assert!(news.trail().await.contains("replay second"), "the trail says why");

    status.store(200, Ordering::SeqCst);
    news.act("/v1/endpoints/books/resume").await;
    let came = until(async || (news.received("books").len() == 3).then_some(()));
    timeout(PATIENCE, came).await.expect("the one that waited is sent");
    let ended = until(async || {
        let shown = news.get(&format!("/v1/deliveries/{waiting}")).await;
        (shown["delivery"]["state"] == "done").then_some(())
    });
    timeout(PATIENCE, ended).await.expect("it has it");
    let (code, retried) = news.post(&retry, json!({})).await;
    assert_eq!((code, &retried["retried"]), (200, &json!(true)), "{retried}");
}
