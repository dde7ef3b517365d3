//! Events of one key arrive in the order in which they were published.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{InspectQueue as _, MemoryQueue, Queue as _, Task, TaskState};
use exactly::webhook::delivery::Course;
use exactly::webhook::{
    DELIVERY_KIND, DeliveryName, Enclosed, Endpoints, EventId, OrderKey, Outbox, PublishError, Published, Replay,
    ReplayId, Replays, TypeFilter, Which,
};
use exactly::worker::Worker;
use tokio::time::{sleep, timeout};

use super::{NEVER_PARKED, Post, Receiver, SOON, course, dispatcher, endpoint, event, id, started, work};
use crate::counts::Counts;

/// What goes before a delivery.
async fn after(post: &Post, event: &str, endpoint: &str) -> Option<String> {
    let view = post.delivery(event, endpoint).await;
    let after = Enclosed::read(&view.payload).unwrap().after().cloned();
    after.map(|after| after.to_string())
}

/// Attempts that are so far apart that everything else happens in between.
fn slowly() -> Post {
    Post::on_course(MemoryQueue::new(), NEVER_PARKED, course(Duration::from_millis(500)))
}

/// What fails holds up what is behind it under its key, and nothing else. Who waits for its turn uses up no attempt.
#[tokio::test]
async fn a_later_event_waits_for_the_earlier_one_of_its_key() {
    let (post, receiver) = (slowly(), Receiver::start().await);
    post.add("a", &receiver).await;
    receiver.refuse("evt_1", 2);
    post.publish_ordered("evt_1", "a.b", "inv-1").await;
    post.publish_ordered("evt_2", "a.b", "inv-1").await;
    post.publish_ordered("evt_3", "a.b", "inv-2").await;
    post.publish("evt_4", "a.b").await;
    post.becomes("evt_2", "a", TaskState::Done).await;
    let taken = receiver.taken();
    assert_eq!(taken[2..], ["evt_1", "evt_2"]);
    let mut others = taken[..2].to_vec();
    others.sort();
    assert_eq!(others, ["evt_3", "evt_4"]);
    let arrived = receiver.arrived();
    assert_eq!(arrived.iter().filter(|it| it.event() == "evt_2").count(), 1);
    let second = post.delivery("evt_2", "a").await;
    assert_eq!((second.failures, second.rescues), (0, 0));
    assert_eq!(post.attempts("evt_2", "a").await, []);
}

/// What is given up holds up nothing any more.
#[tokio::test]
async fn a_dead_one_lets_the_next_one_go() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    receiver.refuse("evt_1", 1000);
    for event in ["evt_1", "evt_2", "evt_3"] {
        post.publish_ordered(event, "a.b", "inv-1").await;
    }
    post.becomes("evt_3", "a", TaskState::Done).await;
    post.becomes("evt_1", "a", TaskState::Dead).await;
    assert_eq!(receiver.taken(), ["evt_2", "evt_3"]);
    let arrived = receiver.arrived();
    let first = arrived.iter().filter(|it| it.event() == "evt_1").count();
    // On a busy machine the last ones fall together at the window's end.
    assert!((2..=10).contains(&first), "{first}");
    assert!(arrived[..first].iter().all(|it| it.event() == "evt_1"), "{arrived:?}");
    // Sent again by hand, it is outside the order, and holds up nothing.
    receiver.refuse("evt_1", 0);
    let _ = post
        .queue
        .revive(&[post.delivery("evt_1", "a").await.id])
        .await
        .unwrap();
    post.becomes("evt_1", "a", TaskState::Done).await;
}

/// Each endpoint has an order of its own, of what it wants.
#[tokio::test]
async fn what_an_endpoint_does_not_want_is_not_waited_for() {
    let (post, some, all) = (slowly(), Receiver::start().await, Receiver::start().await);
    let mut picky = endpoint("some", &some.url());
    picky.types = vec!["a.*".parse::<TypeFilter>().unwrap()];
    post.endpoints.add(&picky).await.unwrap();
    post.add("all", &all).await;
    some.refuse("evt_1", 1);
    for (event, event_type) in [("evt_1", "a.b"), ("evt_2", "b.c"), ("evt_3", "a.d")] {
        post.publish_ordered(event, event_type, "inv-1").await;
    }
    post.becomes("evt_3", "some", TaskState::Done).await;
    post.becomes("evt_3", "all", TaskState::Done).await;
    assert_eq!(some.taken(), ["evt_1", "evt_3"]);
    assert_eq!(all.taken(), ["evt_1", "evt_2", "evt_3"]);
    assert_eq!(after(&post, "evt_3", "some").await.as_deref(), Some("evt_1"));
    assert_eq!(after(&post, "evt_3", "all").await.as_deref(), Some("evt_2"));
}

/// What a worker had leased before the lane had its cap is given back, and becomes deliveries in its turn.
#[tokio::test]
async fn what_was_leased_before_the_cap_is_given_back() {
    const EVENTS: usize = 50;
    let counts = Counts::default();
    let _here = metrics::set_default_local_recorder(&counts);
    let (queue, receiver) = (Arc::new(MemoryQueue::new()), Receiver::start().await);
    let outbox = Outbox::new(Arc::clone(&queue), "shop").unwrap();
    Endpoints::new(Arc::clone(&queue))
        .add(&endpoint("a", &receiver.url()))
        .await
        .unwrap();
    let key = OrderKey::new("inv-1").unwrap();
    let events: Vec<_> = (0..EVENTS)
        .map(|n| event(&format!("evt_{n:03}"), "a.b").ordered_by(key.clone()))
        .collect();
    for published in outbox.publish_all(&events).await.unwrap() {
        assert_eq!(published.unwrap(), Published::New);
    }
    // All of them are leased at once, by both.
    let _running = [work(&queue, NEVER_PARKED), work(&queue, NEVER_PARKED)];
    receiver.has(EVENTS).await;
    let expected: Vec<_> = events.iter().map(|event| event.id().to_string()).collect();
    assert_eq!(receiver.taken(), expected);
    let given_back = counts.of("jobs_total kind=exactly.event end=released");
    assert!(given_back >= u64::try_from(EVENTS).unwrap(), "{given_back}");
    let lanes = queue.lanes().await.unwrap();
    let lane = lanes.iter().find(|view| view.lane == key.lane()).unwrap();
    assert_eq!((lane.cap, lane.paused), (Some(1), false));
}

/// Who orders nothing has no lane with a cap for it, and none of its events lies elsewhere.
#[tokio::test]
async fn without_a_key_everything_is_as_it_was() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    post.publish("evt_1", "a.b").await;
    post.becomes("evt_1", "a", TaskState::Done).await;
    let lanes = post.queue.lanes().await.unwrap();
    assert!(
        lanes
            .iter()
            .all(|view| !view.lane.as_str().starts_with("exactly.event")),
        "{lanes:?}"
    );
    assert_eq!(after(&post, "evt_1", "a").await, None);
}

/// Two workers, and receivers that refuse much: each receiver takes the events of each key in the order of publishing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_workers_keep_the_order_of_every_key_at_every_endpoint() {
    const EVENTS: usize = 200;
    const KEYS: usize = 10;
    // Long enough for everybody's turn to come.
    let patient = Course::new((0..100).map(|n| n * Duration::from_millis(100)).collect::<Vec<_>>()).unwrap();
    let post = Post::on_course(MemoryQueue::new(), NEVER_PARKED, patient.clone());
    let other = dispatcher(&post.queue, NEVER_PARKED, Duration::from_secs(2)).with_course(patient);
    let _other = started(other, Worker::builder(Arc::<MemoryQueue>::clone(&post.queue)));
    let receivers = [
        Receiver::start().await,
        Receiver::start().await,
        Receiver::start().await,
    ];
    for (n, receiver) in receivers.iter().enumerate() {
        post.add(&format!("ep_{n}"), receiver).await;
    }
    for n in 0..EVENTS {
        let event = format!("evt_{n:03}");
        for (place, receiver) in receivers.iter().enumerate() {
            // Some never, some once, some a few times.
            receiver.refuse(
                &event,
                u32::try_from((n * 7 + place * 3) % 11).unwrap().saturating_sub(7),
            );
        }
        post.publish_ordered(&event, "a.b", &format!("inv-{}", n % KEYS)).await;
    }
    for receiver in &receivers {
        let all = async {
            while receiver.taken().len() < EVENTS {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(3 * SOON, all).await.unwrap();
        let mut by_key: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for event in receiver.taken() {
            let number: usize = event["evt_".len()..].parse().unwrap();
            by_key.entry(number % KEYS).or_default().push(event);
        }
        for (key, events) in by_key {
            assert_eq!(events.len(), EVENTS / KEYS, "key {key}");
            assert!(events.is_sorted(), "key {key}: {events:?}");
        }
    }
}

/// Whoever was killed after a delivery was made and before the line said so leaves nothing that is out of order.
#[tokio::test]
async fn a_fan_out_that_was_killed_half_way_is_gone_on_with() {
    let receiver = Receiver::start().await;
    let queue = Arc::new(MemoryQueue::new());
    let endpoints = Endpoints::new(Arc::clone(&queue));
    for name in ["a", "b"] {
        endpoints.add(&endpoint(name, &receiver.url())).await.unwrap();
    }
    // One of two deliveries is there, and no line.
    endpoints.pause(&id("a")).await.unwrap();
    let (evt_1, body) = (
        EventId::new("evt_1").unwrap(),
        "turn 1\n{\"eventId\":\"evt_1\",\"eventType\":\"a.b\"}",
    );
    let made = DeliveryName::new(evt_1, id("a")).to_string();
    let made = Task::new(DELIVERY_KIND, made, body).unwrap().in_lane(id("a").lane());
    assert!(queue.enqueue(&[made]).await.unwrap()[0].is_new());
    let outbox = Outbox::new(Arc::clone(&queue), "shop").unwrap();
    let key = OrderKey::new("inv-1").unwrap();
    for name in ["evt_1", "evt_2"] {
        let event = event(name, "a.b").ordered_by(key.clone());
        let _ = outbox.publish(&event).await.unwrap();
    }
    let post = Post {
        running: Some(work(&queue, NEVER_PARKED)),
        endpoints,
        outbox,
        queue,
    };
    for endpoint in ["a", "b"] {
        assert_eq!(after(&post, "evt_2", endpoint).await.as_deref(), Some("evt_1"));
        assert_eq!(after(&post, "evt_1", endpoint).await, None);
    }
    post.endpoints.resume(&id("a")).await.unwrap();
    for endpoint in ["a", "b"] {
        post.becomes("evt_2", endpoint, TaskState::Done).await;
    }
}

/// A copy is sent as the first one was, byte for byte, and waits for nobody.
#[tokio::test]
async fn a_copy_is_the_same_and_in_order_with_nothing() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    for event in ["evt_1", "evt_2"] {
        post.publish_ordered(event, "a.b", "inv-1").await;
    }
    post.becomes("evt_2", "a", TaskState::Done).await;
    let first = receiver.has(2).await;
    assert_eq!(after(&post, "evt_2", "a").await.as_deref(), Some("evt_1"));
    let mut replay = Replay::new(ReplayId::new("rp_1").unwrap(), Which::All);
    replay.types = vec!["a.b".parse().unwrap()];
    Replays::new(Arc::clone(&post.queue)).start(&replay).await.unwrap();
    let all = receiver.has(4).await;
    for copy in &all[2..] {
        let original = first.iter().find(|it| it.event() == copy.event()).unwrap();
        assert_eq!(copy.body, original.body);
        assert_eq!(copy.body[0], b'{');
    }
    let copy = post.delivery("evt_2", "a rp_1").await;
    let original = first.iter().find(|it| it.event() == "evt_2").unwrap();
    assert_eq!(copy.payload, original.body);
}

/// What it is in order with is part of an event, and told to nobody.
#[tokio::test]
async fn the_key_is_part_of_the_event_and_not_of_what_is_sent() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    post.publish_ordered("evt_1", "a.b", "inv-1").await;
    let body = receiver.has(1).await.remove(0).body;
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let names: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["data", "eventId", "eventType", "source", "timestamp"]);
    let ordered = |key: &str| event("evt_1", "a.b").ordered_by(OrderKey::new(key).unwrap());
    assert_eq!(post.outbox.publish(&ordered("inv-1")).await.unwrap(), Published::Before);
    for other in [ordered("inv-2"), event("evt_1", "a.b")] {
        let error = post.outbox.publish(&other).await.unwrap_err();
        assert!(matches!(error, PublishError::OtherContent(_)), "{error}");
    }
}
