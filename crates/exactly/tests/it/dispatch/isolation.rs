//! Endpoints beside one that never answers.

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{InspectQueue as _, MemoryQueue, TaskState};
use exactly::webhook::{Endpoint, Endpoints, Outbox};
use exactly::worker::Worker;
use tokio::time::sleep;

use super::{A_WHILE, Parking, Post, Receiver, endpoint, id, work_by};

const PLACES: usize = 16;
/// A quarter of them.
const SHARE: usize = 4;
const HEALTHY: usize = 5;
const EVENTS: usize = 20;

/// One that may have a thousand deliveries under way has a share of the worker's places and of what is leased ahead, and the others
/// have theirs while it answers none of them.
#[tokio::test]
async fn an_endpoint_that_never_answers_holds_its_share_and_nobody_up() {
    let queue = Arc::new(MemoryQueue::new());
    let worker = Worker::builder(Arc::<MemoryQueue>::clone(&queue)).concurrency(PLACES);
    let post = Post {
        running: Some(work_by(&queue, Parking::default(), worker, Duration::from_mins(2))),
        endpoints: Endpoints::new(Arc::clone(&queue)),
        outbox: Outbox::new(Arc::clone(&queue), "shop").unwrap(),
        queue,
    };
    let (hanging, healthy) = (Receiver::start().await, Receiver::start().await);
    hanging.hold();
    let wanting = |mut endpoint: Endpoint, filter: &str| {
        endpoint.types = vec![filter.parse().unwrap()];
        endpoint.concurrency = Endpoint::CONCURRENCY_MAX;
        endpoint
    };
    let slow = wanting(endpoint("hanging", &hanging.url()), "slow.*");
    post.endpoints.add(&slow).await.unwrap();
    for n in 0..HEALTHY {
        let fast = wanting(endpoint(&format!("healthy-{n}"), &healthy.url()), "fast.*");
        post.endpoints.add(&fast).await.unwrap();
    }
    for n in 0..300 {
        post.publish(&format!("slow_{n}"), "slow.thing").await;
    }
    post.delivery("slow_299", "hanging").await;
    hanging.has(SHARE).await;
    for n in 0..EVENTS {
        post.publish(&format!("fast_{n}"), "fast.thing").await;
    }
    for n in 0..EVENTS {
        for endpoint in 0..HEALTHY {
            post.becomes(&format!("fast_{n}"), &format!("healthy-{endpoint}"), TaskState::Done)
                .await;
        }
    }
    assert_eq!(healthy.arrived().len(), HEALTHY * EVENTS);
    sleep(A_WHILE).await;
    assert_eq!(hanging.arrived().len(), SHARE);
    let depths = post.queue.depths().await.unwrap();
    let held = depths
        .iter()
        .find(|depth| depth.lane == id("hanging").lane() && depth.state == TaskState::Running);
    // Those that are under way, and as large a share of what is leased ahead.
    assert_eq!(held.map(|depth| depth.tasks), Some((2 * SHARE).try_into().unwrap()));
    // It is not that nobody would send more: each that is answered makes room for the next.
    hanging.let_go();
    hanging.has(300).await;
}

/// No more requests are in flight than an endpoint may have at once, whoever has room for more.
#[tokio::test]
async fn an_endpoint_has_no_more_requests_at_once_than_it_may() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    receiver.hold();
    let mut two = endpoint("two", &receiver.url());
    two.concurrency = 2;
    post.endpoints.add(&two).await.unwrap();
    for n in 0..10 {
        post.publish(&format!("evt_{n}"), "a.b").await;
    }
    post.delivery("evt_9", "two").await;
    receiver.has(2).await;
    sleep(A_WHILE).await;
    assert_eq!(receiver.arrived().len(), 2);
    receiver.let_go();
    receiver.has(10).await;
}
