//! Our own database brings nothing out of order, whatever it does.

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{InspectQueue as _, TaskId, TaskState};
use exactly::webhook::{DELIVERY_KIND, EVENT_KIND, Enclosed, Endpoints, EventId, OrderKey, Outbox, Published};
use exactly::worker::{Running, Worker};
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::{A_WHILE, NEVER_PARKED, Receiver, SOON, dispatcher, endpoint, event, started};
use crate::worker::{Fault, RiggedQueue, Verb};

const EVENTS: [&str; 3] = ["evt_1", "evt_2", "evt_3"];

/// A queue with an endpoint and events of one key, which nobody has looked at.
async fn published(receiver: &Receiver) -> Arc<RiggedQueue> {
    let queue = Arc::new(RiggedQueue::new());
    let endpoints = Endpoints::new(Arc::clone(&queue));
    endpoints.add(&endpoint("a", &receiver.url())).await.unwrap();
    let outbox = Outbox::new(Arc::clone(&queue), "shop").unwrap();
    for name in EVENTS {
        let event = event(name, "a.b").ordered_by(OrderKey::new("inv-1").unwrap());
        assert_eq!(outbox.publish(&event).await.unwrap(), Published::New);
    }
    queue
}

fn work(queue: &Arc<RiggedQueue>) -> Running {
    let worker = Worker::builder(Arc::<RiggedQueue>::clone(queue));
    started(dispatcher(queue, NEVER_PARKED, Duration::from_secs(2)), worker)
}

/// Each call of the fan-out, and of those who send, fails in each way: the events come in order, and nobody notes a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_fails_takes_nothing_from_its_place() {
    let verbs = [Verb::Cap, Verb::Show, Verb::ReadCard, Verb::Enqueue, Verb::WriteCard];
    let faults = [Fault::Refuses, Fault::LosesReply];
    let cases = verbs
        .into_iter()
        .flat_map(|verb| faults.into_iter().map(move |fault| (verb, fault)));
    let cases = cases.flat_map(|(verb, fault)| (0..3).map(move |place| (verb, fault, place)));
    join_all(cases.map(async |(verb, fault, place)| {
        let case = format!("{verb:?} {fault:?} {place}");
        let receiver = Receiver::start().await;
        let queue = published(&receiver).await;
        let mut script = vec![None; place];
        script.push(Some(fault));
        queue.script(verb, script);
        let _running = work(&queue);
        receiver.has(EVENTS.len()).await;
        assert_eq!(receiver.taken(), EVENTS, "{case}");
        for (n, event) in EVENTS.into_iter().enumerate() {
            let delivery = TaskId::of(DELIVERY_KIND, &format!("{event} a"));
            let view = queue.inner.show(delivery).await.unwrap().unwrap();
            let after = Enclosed::read(&view.payload).unwrap().after().cloned();
            let expected = n.checked_sub(1).map(|before| EVENTS[before]);
            // What was delivered before the line said so is not waited for.
            let after = after.as_ref().map(EventId::as_str);
            assert!(after.is_none() || after == expected, "{case}: {event} after {after:?}");
            for task in [delivery, TaskId::of(EVENT_KIND, event)] {
                assert_eq!(queue.inner.attempts(task).await.unwrap(), [], "{case}");
            }
        }
    }))
    .await;
}

/// While nobody can tell whether it is a delivery's turn, it is not sent, and has all its attempts afterwards.
#[tokio::test]
async fn what_may_not_be_in_its_turn_is_not_sent() {
    let receiver = Receiver::start().await;
    let queue = published(&receiver).await;
    receiver.hold();
    let _running = work(&queue);
    receiver.has(1).await;
    queue.break_with(Verb::Show, Fault::Refuses);
    receiver.let_go();
    sleep(A_WHILE).await;
    let arrived: Vec<_> = receiver.arrived().iter().map(|it| it.event().to_owned()).collect();
    assert_eq!(arrived, ["evt_1"]);
    queue.mend();
    receiver.has(3).await;
    assert_eq!(receiver.taken(), EVENTS);
    let third = TaskId::of(DELIVERY_KIND, "evt_3 a");
    let done = async {
        while queue.inner.show(third).await.unwrap().unwrap().state != TaskState::Done {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, done).await.unwrap();
    assert_eq!(queue.inner.attempts(third).await.unwrap(), []);
}
