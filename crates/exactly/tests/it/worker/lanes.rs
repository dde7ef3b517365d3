//! A lane whose tasks take long, and what it leaves to others.

use std::sync::Arc;

use exactly::queue::{Lane, Queue as _, Task, TaskState};
use tokio::time::sleep;

use super::{Counting, RiggedQueue, SECOND, Verb, builder, count, enqueue, reach};

async fn quick(queue: &RiggedQueue, from: usize, to: usize) {
    let lane = Lane::new("quick").unwrap();
    let task = |number: usize| {
        Task::new("quick", number.to_string(), "")
            .unwrap()
            .in_lane(lane.clone())
    };
    let tasks: Vec<Task> = (from..to).map(task).collect();
    let _ = queue.inner.enqueue(&tasks).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_lane_leaves_places_to_others() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "work", 60).await;
    let (slow, other) = (Counting::taking(60 * SECOND), Counting::taking(SECOND / 10));
    let worker = builder(&queue, slow.clone()).handle("quick", other.clone());
    let running = worker.concurrency(16).prefetch(8).start().unwrap();
    sleep(10 * SECOND).await;
    assert_eq!((slow.now(), count(&queue, TaskState::Running).await), (12, 20));
    // There are places to be filled, and little to be had for them.
    let looked = queue.calls(Verb::Lease).len();
    assert!(looked <= 30, "looked {looked} times");
    for round in 0..20_usize {
        quick(&queue, 20 * round, 20 * (round + 1)).await;
        let took = reach(&queue, TaskState::Done, 20 * (round + 1)).await;
        assert!(took < 2 * SECOND, "round {round} took {took:?}");
    }
    assert_eq!(other.most(), 4);
    // The slow ones are all done in time, and never more than twelve at once.
    let took = reach(&queue, TaskState::Done, 460).await;
    assert!(took < 5 * 61 * SECOND, "took {took:?}");
    assert_eq!(slow.most(), 12);
    slow.assert_once_each(60);
    other.assert_once_each(400);
    running.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_at_its_share_is_filled_up_in_large_batches_and_in_order() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "work", 2000).await;
    let handler = Counting::taking(SECOND / 20);
    let running = builder(&queue, handler.clone()).concurrency(100).start().unwrap();
    let took = reach(&queue, TaskState::Done, 2000).await;
    // Twenty-seven rounds of 75, and a pause for none.
    assert!(took < 2 * SECOND, "took {took:?}");
    assert_eq!(handler.most(), 75);
    handler.assert_once_each(2000);
    running.drain().await;
    let leases = queue.calls(Verb::Lease).len();
    assert!(leases <= 80, "{leases} calls");
}
