//! A job is known by its key, and its outcome stays.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use exactly::job::{self, Context, JobEnqueued, JobError, JobsError, Work};
use exactly::queue::{FailureKind, Queue, Task, TaskState};
use exactly::worker::Worker;

use super::{Offers, ended, jobs, worker};
use crate::worker::{RiggedQueue, SECOND, history, show};

#[tokio::test(start_paused = true)]
async fn a_job_that_is_enqueued_again_returns_the_outcome_that_it_had() {
    let queue = Arc::new(RiggedQueue::new());
    let runs = Arc::new(AtomicU32::new(0));
    let handler = job::from_fn({
        let runs = Arc::clone(&runs);
        move |offers: Offers, _| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            async move { Ok(vec![format!("{} by run {run}", offers.user)]) }
        }
    });
    let running = worker(&queue).job(handler).start().unwrap();
    let jobs = jobs(&queue);
    let first = jobs.enqueue(&Offers::to("ada")).await.unwrap();
    assert!(first.is_new());
    assert_eq!(ended(&queue, first.id()).await, TaskState::Done);
    let found = |differs| JobEnqueued::Found {
        id: first.id(),
        state: TaskState::Done,
        outcome: Some(vec!["ada by run 0".to_owned()]),
        differs,
    };
    assert_eq!(jobs.enqueue(&Offers::to("ada")).await.unwrap(), found(false));
    // She has moved, and it is still the same date.
    let moved = Offers {
        zone: "Asia/Kathmandu".into(),
        ..Offers::to("ada")
    };
    assert_eq!(jobs.enqueue(&moved).await.unwrap(), found(true));
    assert_eq!(
        jobs.outcome::<Offers>(first.id()).await.unwrap(),
        Some(vec!["ada by run 0".to_owned()])
    );
    let tomorrow = Offers {
        date: "2026-02-20".into(),
        ..Offers::to("ada")
    };
    assert!(jobs.enqueue(&tomorrow).await.unwrap().is_new());
    running.drain().await;
    assert_eq!(
        runs.load(Ordering::SeqCst),
        1 + u32::from(show(&queue, job::task(&tomorrow).unwrap().id()).await.state == TaskState::Done)
    );
}

#[tokio::test(start_paused = true)]
async fn many_jobs_get_an_answer_each() {
    let queue = Arc::new(RiggedQueue::new());
    let jobs = jobs(&queue);
    assert!(jobs.enqueue(&Offers::to("bob")).await.unwrap().is_new());
    let too_long = "x".repeat(Task::KEY_BYTES_MAX);
    let batch = [
        Offers::to("ada"),
        Offers::to(&too_long),
        Offers::to("bob"),
        Offers::to("ada"),
    ];
    let rows = jobs.enqueue_all(&batch).await.unwrap();
    assert!(matches!(&rows[0], Ok(JobEnqueued::New(_))));
    assert!(matches!(&rows[1], Err(JobsError::Invalid(_))), "{rows:?}");
    assert!(matches!(
        &rows[2],
        Ok(JobEnqueued::Found {
            state: TaskState::Waiting,
            differs: false,
            ..
        })
    ));
    assert!(matches!(&rows[3], Ok(JobEnqueued::Found { .. })));
    let many: Vec<Offers> = (0..12_000).map(|user| Offers::to(&user.to_string())).collect();
    let rows = jobs.enqueue_all(&many).await.unwrap();
    assert_eq!(rows.len(), 12_000);
    assert!(rows.iter().all(|row| row.as_ref().is_ok_and(JobEnqueued::is_new)));
    let stored = show(&queue, rows[7].as_ref().unwrap().id()).await;
    assert_eq!(
        (stored.version, stored.lane.as_str(), &*stored.key),
        (3, "offers-1", "2026-02-19:7")
    );
}

#[tokio::test(start_paused = true)]
async fn an_outcome_of_another_type_is_told_as_unreadable() {
    let queue = Arc::new(RiggedQueue::new());
    let task = job::task(&Offers::to("ada")).unwrap();
    let _ = queue.enqueue(std::slice::from_ref(&task)).await.unwrap();
    let leased = queue
        .lease(&exactly::queue::Ask::new(exactly::queue::WorkerId::random(), 1))
        .await
        .unwrap();
    let end = exactly::queue::End::Done("{\"not\": \"a list\"}".into());
    let _ = queue
        .settle(&[exactly::queue::Settlement::new(leased[0].lease, end)])
        .await
        .unwrap();
    let answer = jobs(&queue).enqueue(&Offers::to("ada")).await;
    assert!(matches!(answer, Err(JobsError::Unreadable(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_read_is_buried_and_costs_no_other_job() {
    let queue = Arc::new(RiggedQueue::new());
    let task = |key: &str, payload: &'static str| Task::new("offers", key, payload).unwrap();
    let tasks = [
        task("cut", "{\"date\": \"2026-"),
        task("short", "{\"date\": \"2026-02-19\",\n \"user\": \"ada\"}"),
        task("odd", "{\"date\": 7, \"user\": \"ada\", \"zone\": \"UTC\"}"),
    ];
    let _ = queue.enqueue(&tasks).await.unwrap();
    let fine = jobs(&queue).enqueue(&Offers::to("bob")).await.unwrap().id();
    let handler = job::from_fn(|_: Offers, _| async { Ok(Vec::new()) });
    let running = worker(&queue).job(handler).concurrency(1).start().unwrap();
    assert_eq!(ended(&queue, fine).await, TaskState::Done);
    for (task, why) in tasks.iter().zip([
        "EOF while parsing a string at line 1 column 15",
        "missing field `zone` at line 2 column 15",
        "invalid type: integer `7`, expected a string at line 1 column 10",
    ]) {
        assert_eq!(ended(&queue, task.id()).await, TaskState::Dead);
        let failure = show(&queue, task.id()).await.failure.unwrap();
        assert_eq!(failure.kind, FailureKind::Unreadable);
        assert!(
            failure.message.starts_with("read a job of the kind \"offers\""),
            "{failure}"
        );
        assert!(failure.message.contains(why), "{failure}");
    }
    running.drain().await;
}

/// Work with a state of its own.
#[derive(Debug, Default)]
struct Remembering(Arc<Mutex<Vec<Context>>>);

impl Work<Offers> for Remembering {
    async fn run(&self, offers: Offers, cx: Context) -> Result<Vec<String>, JobError> {
        self.0.lock().unwrap().push(cx.clone());
        if cx.attempt() < 3 {
            return Err(JobError::transient("not yet"));
        }
        Ok(vec![offers.zone])
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_knows_which_attempt_at_which_job_it_is() {
    let queue = Arc::new(RiggedQueue::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let task = job::task(&Offers::to("ada")).unwrap().with_version(2);
    let _ = queue.enqueue(std::slice::from_ref(&task)).await.unwrap();
    let enqueued_at = show(&queue, task.id()).await.enqueued_at;
    let running = worker(&queue)
        .job(job::of(Remembering(Arc::clone(&seen))))
        .start()
        .unwrap();
    assert_eq!(ended(&queue, task.id()).await, TaskState::Done);
    running.drain().await;
    let seen = seen.lock().unwrap();
    let known: Vec<_> = seen
        .iter()
        .map(|cx| (cx.id(), cx.attempt(), cx.version(), cx.enqueued_at()))
        .collect();
    let expected = |attempt| (task.id(), attempt, 2, enqueued_at);
    assert_eq!(known, [expected(1), expected(2), expected(3)]);
    assert!(seen.is_sorted_by(|one, other| one.fence() < other.fence()));
    assert!(seen.iter().all(|cx| cx.stopped().is_cancelled()));
}

#[tokio::test(start_paused = true)]
async fn a_dead_job_runs_again_when_it_is_revived_and_keeps_its_history() {
    let queue = Arc::new(RiggedQueue::new());
    let id = jobs(&queue).enqueue(&Offers::to("ada")).await.unwrap().id();
    let broken = job::from_fn(|_: Offers, _| async { Err(JobError::logic("a bug")) });
    let running = worker(&queue).job(broken).start().unwrap();
    assert_eq!(ended(&queue, id).await, TaskState::Dead);
    running.drain().await;
    let found = jobs(&queue).enqueue(&Offers::to("ada")).await.unwrap();
    assert!(matches!(
        found,
        JobEnqueued::Found {
            state: TaskState::Dead,
            outcome: None,
            ..
        }
    ));
    assert_eq!(queue.revive(&[id]).await.unwrap(), [Some(TaskState::Dead)]);
    let mended = job::from_fn(|_: Offers, _| async { Ok(vec!["at last".to_owned()]) });
    let running = Worker::builder(Arc::<RiggedQueue>::clone(&queue))
        .job(mended)
        .start()
        .unwrap();
    assert_eq!(ended(&queue, id).await, TaskState::Done);
    running.drain().await;
    let history = history(&queue, id).await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].failure.message, "a bug");
    tokio::time::sleep(SECOND).await;
}
