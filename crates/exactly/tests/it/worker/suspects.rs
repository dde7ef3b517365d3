//! Tasks that may be what makes workers vanish, and those that were only there.

use std::sync::Arc;

use exactly::queue::{Ask, Lane, Queue as _, Task, TaskState, WorkerId};
use exactly::worker::from_fn;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::{Counting, RiggedQueue, SECOND, builder, count, done, enqueue, reach, show};

#[tokio::test(start_paused = true)]
async fn a_task_that_makes_workers_vanish_takes_no_other_with_it() {
    // With all that is leased begun, and with most of it leased ahead.
    for (concurrency, killer) in [(64, 10), (64, 0), (2, 0), (2, 20)] {
        let queue = Arc::new(RiggedQueue::new());
        let ids = enqueue(&queue, "work", 21).await;
        let mut vanished = 0;
        while count(&queue, TaskState::Dead).await + count(&queue, TaskState::Done).await < 21 {
            let killed = Arc::new(Notify::new());
            let handler = from_fn({
                let killed = Arc::clone(&killed);
                move |task| {
                    let (killed, kills) = (Arc::clone(&killed), *task.key == *killer.to_string());
                    Box::pin(async move {
                        if kills {
                            killed.notify_one();
                            std::future::pending::<()>().await;
                        }
                        sleep(SECOND).await;
                        done()
                    })
                }
            });
            let worker = builder(&queue, handler).concurrency(concurrency).prefetch(64);
            let running = worker.start().unwrap();
            tokio::select! {
                () = killed.notified() => vanished += 1,
                () = sleep(600 * SECOND) => {}
            }
            drop(running);
        }
        assert_eq!(vanished, 6);
        for (number, id) in ids.into_iter().enumerate() {
            let view = show(&queue, id).await;
            let (state, rescues) = if number == killer {
                (TaskState::Dead, 6..=6)
            } else {
                (TaskState::Done, 0..=3)
            };
            assert_eq!(view.state, state, "{number} of {concurrency} and {killer}");
            assert!(
                rescues.contains(&view.rescues),
                "{number} was rescued {} times",
                view.rescues
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn suspects_hold_up_each_other_and_nobody_else() {
    for (rescues, at_once) in [(1, 30), (2, 8), (3, 1)] {
        let queue = Arc::new(RiggedQueue::new());
        enqueue(&queue, "work", 30).await;
        for _ in 0..rescues {
            let ask = Ask::new(WorkerId::random(), 30).for_time(SECOND);
            assert_eq!(queue.inner.lease(&ask).await.unwrap().len(), 30);
            sleep(2 * SECOND).await;
            assert_eq!(queue.inner.rescue(5, 30).await.unwrap().len(), 30);
        }
        let suspects = Counting::taking(60 * SECOND);
        let worker = builder(&queue, suspects.clone()).handle("other", Counting::default());
        let _running = worker.start().unwrap();
        sleep(SECOND).await;
        assert_eq!(suspects.now(), at_once);
        // Those of the same lane that come later too.
        let others = |number: usize| Task::new("other", number.to_string(), "").unwrap();
        let others = (0..100).map(|number| others(number).in_lane(Lane::new("work").unwrap()));
        let _ = queue.inner.enqueue(&others.collect::<Vec<_>>()).await.unwrap();
        let took = reach(&queue, TaskState::Done, 100).await;
        assert!(took < SECOND, "took {took:?}");
        // What was given back has lost nothing by it.
        reach(&queue, TaskState::Done, 130).await;
        assert_eq!(suspects.most(), at_once);
        suspects.assert_once_each(30);
        assert_eq!(suspects.starts(), 30);
    }
}
