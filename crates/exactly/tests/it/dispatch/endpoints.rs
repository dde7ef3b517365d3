//! Endpoints as people change them.

use exactly::queue::{FailureKind, InspectQueue as _, Registry as _, TaskFilter, TaskPage, TaskState};
use exactly::webhook::{EndpointError, EndpointId, Standing, TypeFilter};
use tokio::time::sleep;

use super::{A_WHILE, Parking, Post, Receiver, endpoint, id, work};

/// Nothing is sent to an endpoint that is paused, and nothing of it is lost.
#[tokio::test]
async fn a_paused_endpoint_gets_everything_later() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    post.endpoints.pause(&id("a")).await.unwrap();
    for event in ["evt_1", "evt_2"] {
        post.publish(event, "a.b").await;
        post.delivery(event, "a").await;
    }
    sleep(A_WHILE).await;
    assert_eq!(receiver.arrived().len(), 0);
    let resumed = post.endpoints.resume(&id("a")).await.unwrap();
    assert_eq!(resumed.standing, Standing::Active);
    receiver.has(2).await;
}

/// Somebody may be stopped between changing an endpoint and its lane.
#[tokio::test]
async fn an_open_lane_of_a_paused_endpoint_is_closed_without_sending() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    post.endpoints.pause(&id("a")).await.unwrap();
    // What the other one would have left.
    exactly::queue::Queue::resume_lane(&*post.queue, &id("a").lane())
        .await
        .unwrap();
    post.publish("evt_1", "a.b").await;
    post.delivery("evt_1", "a").await;
    sleep(A_WHILE).await;
    assert_eq!(receiver.arrived().len(), 0);
    let waits = post.delivery("evt_1", "a").await;
    assert_eq!((waits.state, waits.failures), (TaskState::Waiting, 0));
    assert!(post.queue.lanes().await.unwrap().iter().any(|lane| lane.paused));
}

/// Whoever changes an endpoint may be stopped before its lane is changed, so somebody sees to that in any case.
#[tokio::test]
async fn every_change_of_an_endpoint_has_its_lane_looked_at_afterwards() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    let looks = async || {
        let filter = TaskFilter {
            kind: Some("exactly.mend".to_owned()),
            ..TaskFilter::default()
        };
        let page = TaskPage {
            after: None,
            limit: 100,
        };
        post.queue.list(&filter, page).await.unwrap().len()
    };
    post.add("a", &receiver).await;
    assert_eq!(looks().await, 1);
    post.endpoints.pause(&id("a")).await.unwrap();
    assert_eq!(looks().await, 2);
    // What somebody has left half done is mended by whoever says it again.
    exactly::queue::Queue::resume_lane(&*post.queue, &id("a").lane())
        .await
        .unwrap();
    post.endpoints.pause(&id("a")).await.unwrap();
    assert!(post.queue.lanes().await.unwrap().iter().any(|lane| lane.paused));
    post.endpoints.remove(&id("a")).await.unwrap();
    assert_eq!(looks().await, 3);
    assert_eq!(post.queue.lanes().await.unwrap(), []);
}

/// What was given up is not sent, and is there to be looked at.
#[tokio::test]
async fn what_is_discarded_ends_dead_and_what_comes_after_is_sent() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    post.endpoints.pause(&id("a")).await.unwrap();
    post.publish("evt_1", "a.b").await;
    post.delivery("evt_1", "a").await;
    // Discarding counts in milliseconds.
    sleep(std::time::Duration::from_millis(5)).await;
    post.endpoints.discard(&id("a")).await.unwrap();
    sleep(std::time::Duration::from_millis(5)).await;
    post.publish("evt_2", "a.b").await;
    post.endpoints.resume(&id("a")).await.unwrap();
    let dead = post.becomes("evt_1", "a", TaskState::Dead).await;
    assert!(dead.failure.unwrap().message.contains("discarded"));
    post.becomes("evt_2", "a", TaskState::Done).await;
    assert_eq!(receiver.arrived().len(), 1);
}

/// Deliveries to an endpoint that is no more say so.
#[tokio::test]
async fn what_waits_for_a_deleted_endpoint_ends_dead() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    post.endpoints.pause(&id("a")).await.unwrap();
    post.publish("evt_1", "a.b").await;
    post.delivery("evt_1", "a").await;
    post.endpoints.remove(&id("a")).await.unwrap();
    let dead = post.becomes("evt_1", "a", TaskState::Dead).await.failure.unwrap();
    assert_eq!(dead.kind, FailureKind::Logic);
    assert!(dead.message.contains("deleted"), "{dead}");
    assert!(matches!(
        post.endpoints.remove(&id("a")).await,
        Err(EndpointError::Gone(_))
    ));
    assert_eq!(receiver.arrived().len(), 0);
}

/// An endpoint that is there when an event is published is told of it, however recently it came.
#[tokio::test]
async fn an_endpoint_of_this_moment_is_told() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    for n in 0..20 {
        let name = format!("e{n}");
        post.add(&name, &receiver).await;
        post.publish(&format!("evt_{n}"), "a.b").await;
        post.becomes(&format!("evt_{n}"), &name, TaskState::Done).await;
    }
}

/// Two workers of one queue, and an event that each of them could take.
#[tokio::test]
async fn two_workers_send_each_delivery_once() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    let _other = work(&post.queue, Parking::default());
    post.add("a", &receiver).await;
    for n in 0..50 {
        post.publish(&format!("evt_{n}"), "a.b").await;
    }
    for n in 0..50 {
        post.becomes(&format!("evt_{n}"), "a", TaskState::Done).await;
    }
    assert_eq!(receiver.arrived().len(), 50);
}

/// Everything that is wrong is said at once, and nothing is changed.
#[tokio::test]
async fn an_endpoint_that_cannot_be_one_is_refused() {
    let post = Post::start();
    let mut wrong = endpoint("a", "ftp://example.com");
    wrong.concurrency = 0;
    wrong.per_second = Some(0);
    wrong.secrets[0].secret = "whsec_short".to_owned();
    wrong.headers.insert("Webhook-Id".to_owned(), "mine".to_owned());
    let error = post.endpoints.add(&wrong).await.unwrap_err().to_string();
    for part in ["url", "concurrency", "per_second", "secret 1", "webhook-id"] {
        assert!(error.to_lowercase().contains(part), "{part}: {error}");
    }
    assert_eq!(post.endpoints.list().await.unwrap(), []);
    let fine = endpoint("a", "https://example.com/hook");
    post.endpoints.add(&fine).await.unwrap();
    assert!(matches!(post.endpoints.add(&fine).await, Err(EndpointError::Taken(_))));
    let changed = post
        .endpoints
        .change(&id("a"), |endpoint| endpoint.concurrency = 0)
        .await;
    assert!(matches!(changed, Err(EndpointError::Invalid(_))));
    assert_eq!(post.endpoints.get(&id("a")).await.unwrap(), Some(fine));
    for name in ["", "a b", "a/b", &"x".repeat(65)] {
        assert!(EndpointId::new(name).is_err(), "{name:?}");
    }
    for filter in ["", "*", "a.*.b", ".*", "a..b", "a b"] {
        assert!(filter.parse::<TypeFilter>().is_err(), "{filter:?}");
    }
}

/// Nobody's change is lost.
#[tokio::test]
async fn changes_at_once_are_all_made() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    let changes = (0..8).map(|n| {
        let endpoints = post.endpoints.clone();
        tokio::spawn(async move {
            let set = |endpoint: &mut exactly::webhook::Endpoint| {
                endpoint.headers.insert(format!("x-{n}"), n.to_string());
            };
            endpoints.change(&id("a"), set).await.unwrap();
        })
    });
    for change in changes.collect::<Vec<_>>() {
        change.await.unwrap();
    }
    assert_eq!(post.endpoints.get(&id("a")).await.unwrap().unwrap().headers.len(), 8);
}

/// What something else has written in an endpoint's place stops nobody else, is told of everything, and is shown.
#[tokio::test]
async fn an_endpoint_that_cannot_be_read_stops_no_other_and_loses_nothing() {
    let (post, receiver, mended) = (Post::start(), Receiver::start().await, Receiver::start().await);
    let garbled = "{\"id\":\"bad\",\"url\":17}".into();
    post.queue.write_card("endpoint/bad", &garbled, None).await.unwrap();
    post.add("good", &receiver).await;
    post.publish("evt_1", "a.b").await;
    post.becomes("evt_1", "good", TaskState::Done).await;
    let lane = id("bad").lane();
    let paused = async {
        while !post
            .queue
            .lanes()
            .await
            .unwrap()
            .iter()
            .any(|it| it.lane == lane && it.paused)
        {
            sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::SOON, paused).await.unwrap();
    post.publish("evt_2", "a.b").await;
    post.becomes("evt_2", "good", TaskState::Done).await;
    sleep(A_WHILE).await;
    for event in ["evt_1", "evt_2"] {
        let waits = post.delivery(event, "bad").await;
        assert_eq!((waits.state, waits.failures), (TaskState::Waiting, 0));
    }
    let listed = post.endpoints.list().await.unwrap();
    assert_eq!(listed.iter().map(|it| &it.id).collect::<Vec<_>>(), [&id("good")]);
    assert_eq!(post.endpoints.unreadable().await.unwrap(), [id("bad")]);

    let whole = endpoint("bad", &mended.url());
    post.endpoints.add(&whole).await.unwrap();
    assert!(matches!(post.endpoints.add(&whole).await, Err(EndpointError::Taken(_))));
    mended.has(2).await;
    post.endpoints.remove(&id("bad")).await.unwrap();
    let card = post.queue.write_card("endpoint/bad", &garbled, None).await.unwrap();
    assert!(card.is_some());
    post.endpoints.remove(&id("bad")).await.unwrap();
    assert_eq!(post.endpoints.unreadable().await.unwrap(), []);
}

/// A delivery that waits for its turn goes where the endpoint is when that comes, and nowhere if it is paused by then.
#[tokio::test]
async fn what_waits_for_its_turn_is_not_sent_after_a_pause() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    let mut slow = endpoint("a", &receiver.url());
    slow.per_second = Some(1);
    post.endpoints.add(&slow).await.unwrap();
    for event in ["evt_1", "evt_2"] {
        post.publish(event, "a.b").await;
    }
    receiver.has(1).await;
    let running = async {
        loop {
            let depths = post.queue.depths().await.unwrap();
            if depths
                .iter()
                .any(|it| it.lane == id("a").lane() && it.state == TaskState::Running)
            {
                break;
            }
            sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(super::SOON, running).await.unwrap();
    post.endpoints.pause(&id("a")).await.unwrap();
    sleep(std::time::Duration::from_millis(2200)).await;
    assert_eq!(receiver.arrived().len(), 1);
    post.endpoints.resume(&id("a")).await.unwrap();
    receiver.has(2).await;
}
