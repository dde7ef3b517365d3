//! Telling dispatchers elsewhere that there is something to send.

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{Queue as _, TransactionalQueue as _};
use exactly::webhook::Outbox;
use exactly_conformance::QueueHarness as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::event;
use crate::postgres::queue::Yard;

const PUBLISHERS: u64 = 8;
const EVENTS: u64 = 50;

/// No more than one notification comes in this time.
const APART_MS: u128 = 5;

/// A notification in each transaction would have them commit one after the other. One stands for all of a few milliseconds.
#[tokio::test]
async fn many_events_make_few_notifications() {
    let yard = Yard::fresh().await;
    let (queue, elsewhere) = (yard.open().await, yard.open().await);
    let mut heard = elsewhere.arrivals();
    let (before, began) = (*heard.borrow_and_update(), Instant::now());
    let mut publishers = JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let queue = Arc::clone(&queue);
        publishers.spawn(async move {
            let outbox = Outbox::new(Arc::clone(&queue), "shop").unwrap();
            for n in 0..EVENTS {
                let mut tx = queue.open().await.unwrap();
                let event = event(&format!("evt_{publisher}_{n}"), n);
                let _ = outbox.publish_in(&mut tx, &event).await.unwrap();
                queue.commit(tx).await.unwrap();
            }
        });
    }
    publishers.join_all().await;
    heard.changed().await.unwrap();
    let most = began.elapsed().as_millis() / APART_MS + 3;
    // Long enough for all that were sent to arrive.
    sleep(Duration::from_millis(300)).await;
    let count = u128::from(*heard.borrow() - before);
    assert!(
        (1..=most).contains(&count),
        "{count} notifications, and {most} are the most"
    );
}
