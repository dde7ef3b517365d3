//! Doing tasks: how many, in what batches, and what one bad task costs the others.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{End, Enqueued, FailureKind, Lane, Lanes, MemoryQueue, Queue, Settlement, Task, TaskState};
use exactly::worker::{Ran, Worker, from_fn};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{Counting, RiggedQueue, SECOND, Verb, builder, count, done, enqueue, history, reach, show};

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_and_no_more_tasks_are_leased_than_allowed() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = Counting::taking(SECOND);
    enqueue(&queue, "work", 50).await;
    let running = builder(&queue, handler.clone())
        .concurrency(4)
        .lane_concurrency(4)
        .prefetch(3)
        .start()
        .unwrap();
    for _ in 0..20 {
        sleep(SECOND / 4).await;
        assert!(count(&queue, TaskState::Running).await <= 7);
    }
    assert_eq!(handler.now(), 4);
    reach(&queue, TaskState::Done, 50).await;
    assert_eq!(handler.most(), 4);
    handler.assert_once_each(50);
    running.drain().await;
}

#[tokio::test(start_paused = true)]
async fn all_places_are_used() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = Counting::taking(10 * SECOND);
    enqueue(&queue, "work", 64).await;
    // Fewer places are free than are worth a call on their own, and still no task waits for one of them.
    let _running = builder(&queue, handler.clone())
        .concurrency(8)
        .lane_concurrency(8)
        .prefetch(0)
        .start()
        .unwrap();
    sleep(SECOND).await;
    assert_eq!(handler.now(), 8);
    let took = reach(&queue, TaskState::Done, 64).await;
    assert!(took < 80 * SECOND, "took {took:?}");
}

/// What is asked for is begun when all of it is there, so a worker with nothing to do does not wait for all that it may lease.
#[tokio::test(start_paused = true)]
async fn few_tasks_are_asked_for_first_and_then_half_as_many_again() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "work", 200).await;
    let _running = builder(&queue, Counting::taking(3600 * SECOND))
        .concurrency(4)
        .lane_concurrency(4)
        .prefetch(196)
        .start()
        .unwrap();
    sleep(SECOND).await;
    // By then there is room for a few only.
    assert_eq!(queue.calls(Verb::Lease), [32, 48, 72]);
}

#[tokio::test(start_paused = true)]
async fn one_free_place_is_not_left_empty_for_long() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = from_fn(|task| {
        Box::pin(async move {
            let long = task.key.parse::<u32>().unwrap() < 15;
            sleep(if long { 3600 * SECOND } else { SECOND }).await;
            done()
        })
    });
    enqueue(&queue, "work", 26).await;
    let _running = builder(&queue, handler)
        .concurrency(16)
        .lane_concurrency(16)
        .prefetch(0)
        .lease(30 * SECOND)
        .start()
        .unwrap();
    // Fifteen places are taken for an hour, and the last one does a task a second.
    let took = reach(&queue, TaskState::Done, 11).await;
    assert!(took < 12 * SECOND, "took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stuck_handler_holds_up_nobody() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = Counting::stuck_at("0");
    enqueue(&queue, "work", 1000).await;
    let _running = builder(&queue, handler.clone()).concurrency(2).start().unwrap();
    let took = reach(&queue, TaskState::Done, 999).await;
    assert!(took < SECOND, "took {took:?}");
    assert_eq!(handler.now(), 1);
}

#[tokio::test(start_paused = true)]
async fn tasks_are_leased_and_settled_in_large_batches() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = Counting::default();
    enqueue(&queue, "work", 20_000).await;
    let running = builder(&queue, handler.clone()).concurrency(500).start().unwrap();
    reach(&queue, TaskState::Done, 20_000).await;
    handler.assert_once_each(20_000);
    running.drain().await;
    let leases = queue.calls(Verb::Lease);
    assert!(leases.iter().all(|asked| *asked >= 250), "{leases:?}");
    assert!(leases.len() <= 120, "{} calls", leases.len());
    let settles = queue.calls(Verb::Settle);
    assert!(settles.iter().all(|told| *told <= 1000), "{settles:?}");
    assert!(settles.len() <= 150, "{} calls", settles.len());
}

#[tokio::test(start_paused = true)]
async fn leasing_waits_until_it_is_worth_a_call() {
    let queue = Arc::new(RiggedQueue::new());
    // They end one by one.
    let handler = from_fn(|task| {
        let number: u64 = task.key.parse().unwrap();
        Box::pin(async move {
            sleep(Duration::from_millis(10 + number * 7 % 100)).await;
            done()
        })
    });
    enqueue(&queue, "work", 2000).await;
    let worker = builder(&queue, handler).concurrency(100).prefetch(100);
    let running = worker.start().unwrap();
    let took = reach(&queue, TaskState::Done, 2000).await;
    assert!(took < 3 * SECOND, "took {took:?}");
    running.drain().await;
    let leases = queue.calls(Verb::Lease);
    assert!(leases[..40].iter().all(|asked| *asked >= 50), "{leases:?}");
}

#[tokio::test(start_paused = true)]
async fn a_capped_lane_does_not_wait_for_the_next_look() {
    let queue = Arc::new(RiggedQueue::deaf());
    let lane = Lane::new("work").unwrap();
    queue.cap_lane(&lane, Some(1)).await.unwrap();
    enqueue(&queue, "work", 20).await;
    let handler = Counting::default();
    let _running = builder(&queue, handler.clone()).start().unwrap();
    let took = reach(&queue, TaskState::Done, 20).await;
    assert!(took < SECOND, "took {took:?}");
    assert_eq!(handler.most(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_cannot_be_heard_is_looked_at_now_and_then() {
    let queue = Arc::new(RiggedQueue::deaf());
    let _running = builder(&queue, Counting::default()).start().unwrap();
    sleep(20 * SECOND).await;
    let looked = queue.calls(Verb::Lease).len();
    assert!((15..=25).contains(&looked), "looked {looked} times");
    enqueue(&queue, "work", 1).await;
    let took = reach(&queue, TaskState::Done, 1).await;
    assert!(took < 2 * SECOND, "took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_thousand_tasks_run_once_each() {
    const TASKS: usize = 200_000;
    let queue = Arc::new(MemoryQueue::new());
    let tasks = |from: usize, to: usize| -> Vec<Task> {
        let task = |number: usize| Task::new("work", number.to_string(), "").unwrap();
        (from..to).map(task).collect()
    };
    for from in (0..TASKS).step_by(10_000) {
        let _ = queue.enqueue(&tasks(from, from + 10_000)).await.unwrap();
    }
    let runs: Arc<Vec<AtomicU8>> = Arc::new((0..TASKS).map(|_| AtomicU8::new(0)).collect());
    let all = Arc::new(Semaphore::new(0));
    let handler = from_fn({
        let (runs, all) = (Arc::clone(&runs), Arc::clone(&all));
        move |task| {
            runs[task.key.parse::<usize>().unwrap()].fetch_add(1, Ordering::Relaxed);
            all.add_permits(1);
            Box::pin(async { done() })
        }
    });
    let worker = Worker::builder(Arc::<MemoryQueue>::clone(&queue)).handle("work", handler);
    let running = worker.concurrency(1000).start().unwrap();
    let _all = all.acquire_many(u32::try_from(TASKS).unwrap()).await.unwrap();
    let drained = running.drain().await;
    assert_eq!((drained.stopped, drained.left), (0, 0));
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    let found = queue.enqueue(&tasks(TASKS - 1000, TASKS)).await.unwrap();
    let is_done = |found: &Enqueued| matches!(found, Enqueued::Found(found) if found.state == TaskState::Done);
    assert!(found.iter().all(is_done));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_buried_with_its_message_and_costs_no_other_task() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 100).await;
    let handler = from_fn(|task| {
        assert!(&*task.key != "7", "the {}th", task.key);
        Box::pin(async move {
            assert!(&*task.key != "8", "the {}th, later", task.key);
            done()
        })
    });
    let buried = Arc::new(Mutex::new(Vec::new()));
    let running = builder(&queue, handler)
        .concurrency(1)
        .on_buried({
            let buried = Arc::clone(&buried);
            move |dead| buried.lock().unwrap().push(dead.clone())
        })
        .start()
        .unwrap();
    reach(&queue, TaskState::Done, 98).await;
    running.drain().await;
    for (key, message) in [(7, "the 7th"), (8, "the 8th, later")] {
        let view = show(&queue, ids[key]).await;
        assert_eq!(view.state, TaskState::Dead);
        let failure = view.failure.unwrap();
        assert_eq!(
            (failure.kind, failure.message.as_str()),
            (FailureKind::Panicked, message)
        );
    }
    let mut buried: Vec<_> = buried
        .lock()
        .unwrap()
        .iter()
        .map(|dead| (dead.key.to_string(), dead.id))
        .collect();
    buried.sort();
    assert_eq!(buried, [("7".to_owned(), ids[7]), ("8".to_owned(), ids[8])]);
}

#[tokio::test(start_paused = true)]
async fn a_task_of_an_unknown_kind_is_buried_by_name_and_costs_no_other_task() {
    let queue = Arc::new(RiggedQueue::new());
    let strange = enqueue(&queue, "strange", 3).await;
    enqueue(&queue, "work", 10).await;
    let handler = Counting::default();
    let running = builder(&queue, handler.clone()).concurrency(1).start().unwrap();
    reach(&queue, TaskState::Done, 10).await;
    reach(&queue, TaskState::Dead, 3).await;
    running.drain().await;
    let failure = show(&queue, strange[1]).await.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::UnknownKind);
    assert!(failure.message.contains("\"strange\""), "{}", failure.message);
    assert_eq!(history(&queue, strange[1]).await.len(), 1);
}

/// A release that knows it may be on its way, so what this crate makes itself is not given up by one that does not.
#[tokio::test(start_paused = true)]
async fn a_kind_of_our_own_waits_for_a_worker_that_knows_it() {
    let queue = Arc::new(RiggedQueue::new());
    let ours = enqueue(&queue, "exactly.news", 1).await[0];
    let older = builder(&queue, Counting::default()).start().unwrap();
    while history(&queue, ours).await.len() < 3 {
        sleep(SECOND).await;
    }
    older.drain().await;
    let waits = show(&queue, ours).await;
    assert_eq!((waits.state, waits.failures), (TaskState::Waiting, 0));
    let newer = builder(&queue, Counting::default()).handle("exactly.news", Counting::default());
    let newer = newer.start().unwrap();
    reach(&queue, TaskState::Done, 1).await;
    newer.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_does_not_end_the_worker() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "strange", 2).await;
    let running = builder(&queue, Counting::default())
        .on_buried(|dead| panic!("no alert for {}", dead.key))
        .start()
        .unwrap();
    reach(&queue, TaskState::Dead, 2).await;
    enqueue(&queue, "work", 10).await;
    reach(&queue, TaskState::Done, 10).await;
    running.drain().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_looks_seldom_and_hears_arrivals_at_once() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = Counting::default();
    let _running = builder(&queue, handler.clone())
        .poll_every(10 * SECOND)
        .sweep_every(3600 * SECOND)
        .start()
        .unwrap();
    sleep(100 * SECOND).await;
    let looked = queue.calls(Verb::Lease).len();
    assert!((9..=13).contains(&looked), "looked {looked} times");
    assert_eq!(queue.calls(Verb::Renew), [0; 0]);
    sleep(SECOND).await;
    enqueue(&queue, "work", 1).await;
    let took = reach(&queue, TaskState::Done, 1).await;
    assert!(took < Duration::from_millis(50), "took {took:?}");
    // Its own settlement is an arrival too, and is followed by one more look, not by many.
    sleep(5 * SECOND).await;
    assert!(queue.calls(Verb::Lease).len() <= looked + 4);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_due_later_is_found_by_looking() {
    let queue = Arc::new(RiggedQueue::new());
    let _running = builder(&queue, Counting::default()).start().unwrap();
    let later = Task::new("work", "later", "").unwrap().after(60 * SECOND);
    let _ = queue.enqueue(&[later]).await.unwrap();
    let took = reach(&queue, TaskState::Done, 1).await;
    assert!((60 * SECOND..=62 * SECOND).contains(&took), "took {took:?}");
}

/// A task that settles itself makes room in its lane, of which the queue says nothing here.
#[tokio::test(start_paused = true)]
async fn a_capped_lane_of_tasks_that_settle_themselves_waits_for_no_look() {
    let queue = Arc::new(RiggedQueue::deaf());
    queue.cap_lane(&Lane::new("work").unwrap(), Some(1)).await.unwrap();
    enqueue(&queue, "work", 20).await;
    let own = Arc::clone(&queue);
    let handler = from_fn(move |task| {
        let (own, lease) = (Arc::clone(&own), task.lease);
        Box::pin(async move {
            let done = Settlement::new(lease, End::Done("done".into()));
            assert_eq!(own.inner.settle(&[done]).await.unwrap(), [Fenced::Applied]);
            Ran::Settled
        })
    });
    let _running = builder(&queue, handler).start().unwrap();
    let took = reach(&queue, TaskState::Done, 20).await;
    assert!(took < SECOND, "took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_serves_its_lanes_only() {
    let queue = Arc::new(RiggedQueue::new());
    let lane = |name: &str| Lane::new(name).unwrap();
    for (key, name) in [("a", "fast"), ("b", "slow"), ("c", "fast")] {
        let _ = queue
            .enqueue(&[Task::new("work", key, "").unwrap().in_lane(lane(name))])
            .await
            .unwrap();
    }
    let lanes = Lanes::Only(vec![lane("fast")]);
    let _running = builder(&queue, Counting::default()).lanes(lanes).start().unwrap();
    reach(&queue, TaskState::Done, 2).await;
    let more = timeout(60 * SECOND, reach(&queue, TaskState::Done, 3)).await;
    assert!(more.is_err(), "the other lane was served too");
}

#[tokio::test]
async fn every_mistake_in_the_settings_is_told_at_once() {
    let queue = Arc::new(RiggedQueue::new());
    let error = Worker::builder(queue)
        .handle("a", Counting::default())
        .handle("a", Counting::default())
        .concurrency(0)
        .prefetch(10_001)
        .lease(SECOND)
        .heartbeat(SECOND)
        .poll_every(Duration::ZERO)
        .lane_concurrency(0)
        .start()
        .unwrap_err()
        .to_string();
    for part in [
        "concurrency is 0, and 1..=10000 is accepted",
        "prefetch is 10001, and 0..=10000 is accepted",
        "heartbeat is 1s, and 10ms..=500ms is accepted",
        "poll_every is 0ns",
        "lane_concurrency is 0, and 1 or more is accepted",
        "two handlers for the kind \"a\"",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let nobody = Worker::builder(Arc::new(RiggedQueue::new())).start().unwrap_err();
    assert!(nobody.to_string().contains("no handler"), "{nobody}");
}
