//! Events that go out, from real databases.

#[cfg(all(feature = "axum", feature = "postgres", feature = "sqlite"))]
mod attempts;
#[cfg(feature = "postgres")]
mod function;
#[cfg(feature = "postgres")]
mod notified;
#[cfg(all(feature = "axum", feature = "postgres", feature = "sqlite"))]
mod ordered;
#[cfg(all(feature = "axum", feature = "postgres", feature = "sqlite"))]
mod through;

use exactly::queue::{Ask, InspectQueue as _, Queue as _, TaskId, TransactionalQueue as _, WorkerId};
use exactly::webhook::{EVENT_KIND, Event, EventId, EventType, Outbox, PublishError, Published};
use exactly_conformance::TransactionalQueueHarness;
use serde_json::json;

fn event(id: &str, total: u64) -> Event {
    let (id, paid) = (EventId::new(id).unwrap(), EventType::new("invoice.paid").unwrap());
    Event::with_id(id, paid, &json!({ "total": total })).unwrap()
}

/// Rolled back, it was never there. Committed, it is there with the change that it tells of.
async fn an_event_is_there_with_its_change<H: TransactionalQueueHarness>() {
    let harness = H::fresh().await;
    let queue = harness.open().await;
    let outbox = Outbox::new(std::sync::Arc::clone(&queue), "shop").unwrap();
    for (id, commits) in [("evt_1", false), ("evt_2", true)] {
        let mut tx = queue.open().await.unwrap();
        harness.effect(&mut tx, id).await;
        assert_eq!(outbox.publish_in(&mut tx, &event(id, 1)).await.unwrap(), Published::New);
        if commits {
            queue.commit(tx).await.unwrap();
        } else {
            queue.rollback(tx).await.unwrap();
        }
        let there = queue.show(TaskId::of(EVENT_KIND, id)).await.unwrap().is_some();
        assert_eq!((harness.effects(id).await, there), (u64::from(commits), commits));
    }
    let waits = queue.lease(&Ask::new(WorkerId::random(), 10)).await.unwrap();
    assert_eq!(waits.iter().map(|task| &*task.key).collect::<Vec<_>>(), ["evt_2"]);
}

/// The second time it is the same event, or it is refused and the transaction goes on.
async fn an_event_is_published_once<H: TransactionalQueueHarness>() {
    let harness = H::fresh().await;
    let queue = harness.open().await;
    let outbox = Outbox::new(std::sync::Arc::clone(&queue), "shop").unwrap();
    assert_eq!(outbox.publish(&event("evt_1", 1)).await.unwrap(), Published::New);
    let mut tx = queue.open().await.unwrap();
    let events = [event("evt_1", 1), event("evt_1", 2), event("evt_2", 3)];
    let published = outbox.publish_all_in(&mut tx, &events).await.unwrap();
    assert!(
        matches!(
            &published[..],
            [Ok(Published::Before), Err(PublishError::OtherContent(id)), Ok(Published::New)] if id.as_str() == "evt_1"
        ),
        "{published:?}"
    );
    queue.commit(tx).await.unwrap();
    assert_eq!(outbox.publish(&event("evt_2", 3)).await.unwrap(), Published::Before);
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use crate::postgres::queue::Yard;

    #[tokio::test]
    async fn an_event_is_there_with_its_change() {
        super::an_event_is_there_with_its_change::<Yard>().await;
    }

    #[tokio::test]
    async fn an_event_is_published_once() {
        super::an_event_is_published_once::<Yard>().await;
    }
}

#[cfg(feature = "sqlite")]
mod on_sqlite {
    use crate::sqlite::queue::Shop;

    #[tokio::test]
    async fn an_event_is_there_with_its_change() {
        super::an_event_is_there_with_its_change::<Shop>().await;
    }

    #[tokio::test]
    async fn an_event_is_published_once() {
        super::an_event_is_published_once::<Shop>().await;
    }
}
