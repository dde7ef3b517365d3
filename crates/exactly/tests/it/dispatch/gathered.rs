//! Deliveries of events that are fanned out at the same time are made together.

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{InspectQueue as _, TaskId, TaskState};
use exactly::webhook::{DELIVERY_KIND, EVENT_KIND, Endpoints, Outbox};
use exactly::worker::Worker;
use tokio::time::{sleep, timeout};

use super::{NEVER_PARKED, SOON, dispatcher, endpoint, event, id, started};
use crate::worker::{Fault, RiggedQueue, Verb};

const EVENTS: usize = 40;
const ENDPOINTS: [&str; 3] = ["a", "b", "c"];

fn name(event: usize) -> String {
    format!("evt_{event}")
}

/// A queue with endpoints that get nothing for now, and events for them that nobody has looked at.
async fn published() -> Arc<RiggedQueue> {
    let queue = Arc::new(RiggedQueue::new());
    let endpoints = Endpoints::new(Arc::clone(&queue));
    for name in ENDPOINTS {
        endpoints.add(&endpoint(name, "http://127.0.0.1:9/")).await.unwrap();
        endpoints.pause(&id(name)).await.unwrap();
    }
    let events: Vec<_> = (0..EVENTS).map(|n| event(&name(n), "a.b")).collect();
    let outbox = Outbox::new(Arc::clone(&queue), "shop").unwrap();
    for published in outbox.publish_all(&events).await.unwrap() {
        let _ = published.unwrap();
    }
    queue
}

/// Has all of them fanned out, and tells how large each call was that enqueued something.
async fn fanned_out(queue: &Arc<RiggedQueue>) -> Vec<usize> {
    let before = queue.calls(Verb::Enqueue).len();
    let worker = Worker::builder(Arc::<RiggedQueue>::clone(queue));
    let running = started(dispatcher(queue, NEVER_PARKED, Duration::from_secs(2)), worker);
    for n in 0..EVENTS {
        let event = TaskId::of(EVENT_KIND, &name(n));
        let done = async {
            while queue.inner.show(event).await.unwrap().unwrap().state != TaskState::Done {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(SOON, done).await.expect("an event is not fanned out");
    }
    running.drain().await;
    queue.calls(Verb::Enqueue).split_off(before)
}

async fn assert_all_are_made(queue: &RiggedQueue) {
    for n in 0..EVENTS {
        for endpoint in ENDPOINTS {
            let delivery = TaskId::of(DELIVERY_KIND, &format!("{} {endpoint}", name(n)));
            let view = queue.inner.show(delivery).await.unwrap();
            assert!(
                view.is_some_and(|view| view.state == TaskState::Waiting),
                "{n} {endpoint}"
            );
        }
        let event = TaskId::of(EVENT_KIND, &name(n));
        let view = queue.inner.show(event).await.unwrap().unwrap();
        assert_eq!(view.failures, 0, "{n}");
    }
}

#[tokio::test]
async fn events_that_are_fanned_out_at_once_are_enqueued_by_few_calls() {
    let queue = published().await;
    queue.break_with(Verb::Enqueue, Fault::Lingers);
    let calls = fanned_out(&queue).await;
    assert_eq!(calls.iter().sum::<usize>(), EVENTS * ENDPOINTS.len(), "{calls:?}");
    assert!(calls.len() <= EVENTS / 4, "{calls:?}");
    assert_all_are_made(&queue).await;
}

/// What the queue does not take together each event tries alone, and none of them counts that as its failure.
#[tokio::test]
async fn a_call_for_many_that_fails_is_made_for_each() {
    for fault in [Fault::Refuses, Fault::LosesReply] {
        let queue = published().await;
        // While the first one lasts, the others gather.
        queue.script(Verb::Enqueue, [Some(Fault::Lingers), Some(fault)]);
        let calls = fanned_out(&queue).await;
        assert!(calls[1] > ENDPOINTS.len(), "{fault:?} {calls:?}");
        let alone = calls[2..].iter().filter(|size| **size == ENDPOINTS.len()).count();
        assert!(alone >= calls[1] / ENDPOINTS.len(), "{fault:?} {calls:?}");
        assert_all_are_made(&queue).await;
    }
}
