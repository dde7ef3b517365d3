//! The table of retries, with a worker and a queue.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use exactly::job::{self, JobError};
use exactly::queue::{FailureKind, TaskId, TaskState};
use exactly::retry::{Jitter, Schedule};
use tokio::time::{Instant, sleep};

use super::{Offers, ended, error, jobs, worker};
use crate::worker::{RiggedQueue, SECOND, history, show};

/// Runs a job that always fails so, and returns its waits between attempts.
async fn waits(fail: impl Fn() -> JobError + Send + Sync + 'static) -> (Vec<Duration>, TaskState, Vec<FailureKind>) {
    let queue = Arc::new(RiggedQueue::new());
    let fail = Arc::new(fail);
    let handler = job::from_fn(move |_: Offers, _| {
        let error = fail();
        async { Err(error) }
    });
    let running = worker(&queue).job(handler).start().unwrap();
    let id = jobs(&queue).enqueue(&Offers::to("ada")).await.unwrap().id();
    let state = ended(&queue, id).await;
    running.drain().await;
    let (waits, kinds) = course(&queue, id).await;
    (waits, state, kinds)
}

async fn course(queue: &RiggedQueue, id: TaskId) -> (Vec<Duration>, Vec<FailureKind>) {
    let history = history(queue, id).await;
    let between = history
        .windows(2)
        .map(|pair| pair[1].started_at.since(pair[0].ended_at));
    (
        between.collect(),
        history.iter().map(|attempt| attempt.failure.kind).collect(),
    )
}

/// About so long: a tenth more or less, and a look of the worker later.
fn assert_about(waits: &[Duration], seconds: &[u32]) {
    assert_eq!(waits.len(), seconds.len(), "{waits:?}");
    for (wait, seconds) in waits.iter().zip(seconds) {
        let (least, most) = (SECOND * *seconds * 9 / 10, SECOND * *seconds * 11 / 10 + 2 * SECOND);
        assert!((least..=most).contains(wait), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_work_later_is_tried_three_times_more_and_is_dead_then() {
    for kind in [FailureKind::Transient, FailureKind::Timeout] {
        let (waits, state, kinds) = waits(move || error(kind)).await;
        assert_about(&waits, &[30, 120, 300]);
        assert_eq!((state, kinds), (TaskState::Dead, vec![kind; 4]));
    }
}

#[tokio::test(start_paused = true)]
async fn what_would_fail_again_is_dead_at_once() {
    for kind in [FailureKind::Logic, FailureKind::Inconsistent] {
        let (waits, state, kinds) = waits(move || error(kind).retry_after(SECOND)).await;
        assert_about(&waits, &[]);
        assert_eq!((state, kinds), (TaskState::Dead, vec![kind]));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_is_held() {
    let (waits, state, _) = waits(|| error(FailureKind::Unknown)).await;
    assert_about(&waits, &[]);
    assert_eq!(state, TaskState::Held);
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_made_earlier_than_asked_or_than_the_table_says() {
    let (longer, ..) = waits(|| error(FailureKind::Transient).retry_after(200 * SECOND)).await;
    assert!(longer.iter().all(|wait| *wait >= 200 * SECOND), "{longer:?}");
    assert!(longer[..2].iter().all(|wait| *wait <= 202 * SECOND), "{longer:?}");
    assert!(longer[2] >= 270 * SECOND, "{longer:?}");
    let (shorter, ..) = waits(|| error(FailureKind::Transient).retry_after(SECOND)).await;
    assert_about(&shorter, &[30, 120, 300]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_can_have_a_schedule_of_its_own() {
    let queue = Arc::new(RiggedQueue::new());
    let schedule = Schedule::Doubling {
        base: 10 * SECOND,
        jitter: Jitter::UpTo(Duration::ZERO),
        cap: 60 * SECOND,
    };
    let handler = job::from_fn(|_: Offers, _| async { Err(error(FailureKind::Transient)) }).retries(schedule, 5);
    let running = worker(&queue).job(handler).start().unwrap();
    let id = jobs(&queue).enqueue(&Offers::to("ada")).await.unwrap().id();
    assert_eq!(ended(&queue, id).await, TaskState::Dead);
    running.drain().await;
    assert_about(&course(&queue, id).await.0, &[10, 20, 40, 60, 60]);
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_stopped_and_tried_again() {
    let queue = Arc::new(RiggedQueue::new());
    let stopped = Arc::new(Mutex::new(None));
    let handler = job::from_fn({
        let stopped = Arc::clone(&stopped);
        move |offers: Offers, cx| {
            let stopped = Arc::clone(&stopped);
            async move {
                let slow = cx.attempt() == 1;
                // What was handed to another task learns of it.
                tokio::spawn(async move {
                    let started = Instant::now();
                    cx.stopped().cancelled().await;
                    stopped.lock().unwrap().get_or_insert(started.elapsed());
                });
                if slow {
                    sleep(3600 * SECOND).await;
                }
                Ok(vec![offers.user])
            }
        }
    });
    let running = worker(&queue).job(handler).start().unwrap();
    let id = jobs(&queue).enqueue(&Offers::to("ada")).await.unwrap().id();
    assert_eq!(ended(&queue, id).await, TaskState::Done);
    running.drain().await;
    let history = history(&queue, id).await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].failure.kind, FailureKind::Timeout);
    assert_eq!(history[0].failure.message, "no end within 300s");
    assert_eq!(history[0].ended_at.since(history[0].started_at).as_secs(), 300);
    assert_eq!(stopped.lock().unwrap().unwrap().as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_can_be_a_kinds_own() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = job::from_fn(|_: Offers, _| std::future::pending()).time_limit(7 * SECOND);
    let _running = worker(&queue).job(handler).start().unwrap();
    let id = jobs(&queue).enqueue(&Offers::to("ada")).await.unwrap().id();
    sleep(8 * SECOND).await;
    let failure = show(&queue, id).await.failure.unwrap();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::Timeout, "no end within 7s")
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_kept_with_all_that_lies_behind_it() {
    #[derive(Debug)]
    struct Outer(std::io::Error);
    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("ask the matchmaker")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let queue = Arc::new(RiggedQueue::new());
    let handler =
        job::from_fn(|_: Offers, _| async { Err(JobError::logic(Outer(std::io::Error::other("connection refused")))) });
    let _running = worker(&queue).job(handler).start().unwrap();
    let id = jobs(&queue).enqueue(&Offers::to("ada")).await.unwrap().id();
    assert_eq!(ended(&queue, id).await, TaskState::Dead);
    let failure = show(&queue, id).await.failure.unwrap();
    assert_eq!(failure.message, "ask the matchmaker: connection refused");
}
