//! What dashboards and logs are told.

use std::io;
use std::sync::{Arc, Mutex};

use exactly::queue::{End, Failure, FailureKind, Queue, Settlement, TaskState};
use exactly::telemetry;
use exactly::worker::{Ran, from_fn};
use tokio::time::sleep;

use super::{Counting, Fault, RiggedQueue, SECOND, Verb, builder, done, enqueue, reach, show, transient};
use crate::counts::Counts;

#[tokio::test(start_paused = true)]
async fn every_end_is_counted_once_by_kind() {
    let counts = Counts::default();
    let _here = metrics::set_default_local_recorder(&counts);
    telemetry::describe_worker();
    let queue = Arc::new(RiggedQueue::new());
    // The replies are lost at first, so everything is told twice.
    queue.script(Verb::Settle, [Some(Fault::LosesReply); 3]);
    let handler = from_fn(|task| {
        Box::pin(async move {
            match &*task.key {
                "0" if task.failures == 0 => transient(60 * SECOND),
                "1" => Ran::End(End::Bury(Failure::new(FailureKind::Inconsistent, "odd"))),
                "2" => Ran::End(End::Hold(Failure::new(FailureKind::Unknown, "wait"))),
                _ => done(),
            }
        })
    });
    enqueue(&queue, "work", 4).await;
    enqueue(&queue, "strange", 1).await;
    let running = builder(&queue, handler).start().unwrap();
    assert_eq!(counts.of("jobs_total kind=work end=done"), 0);
    reach(&queue, TaskState::Done, 2).await;
    running.drain().await;
    for (name, count) in [
        ("jobs_total kind=work end=done", 2),
        ("jobs_total kind=work end=retried", 1),
        ("jobs_total kind=work end=buried", 1),
        ("jobs_total kind=work end=held", 1),
        ("jobs_total kind=work end=released", 0),
        ("jobs_total kind=unknown end=buried", 1),
        ("jobs_buried_total kind=work reason=inconsistent", 1),
        ("jobs_buried_total kind=unknown reason=unknown_kind", 1),
        ("job_duration_seconds kind=work", 5),
        ("job_lease_lost_total", 0),
        ("jobs_rescued_total", 0),
    ] {
        assert_eq!(counts.of(name), count, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_leases_and_rescues_are_counted() {
    let counts = Counts::default();
    let _here = metrics::set_default_local_recorder(&counts);
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 3).await;
    let running = builder(&queue, Counting::taking(15 * SECOND))
        .rescues_max(0)
        .start()
        .unwrap();
    sleep(SECOND).await;
    let lease = exactly::queue::Lease {
        id: ids[0],
        fence: show(&queue, ids[0]).await.fence,
    };
    let elsewhere = Settlement::new(lease, End::Done("elsewhere".into()));
    let _ = queue.inner.settle(&[elsewhere]).await.unwrap();
    reach(&queue, TaskState::Done, 3).await;
    assert_eq!(counts.of("job_lease_lost_total"), 1);
    assert_eq!(counts.of("jobs_total kind=work end=done"), 2);
    drop(running);

    enqueue(&queue, "later", 2).await;
    drop_while_running(&queue).await;
    let _running = builder(&queue, Counting::default()).rescues_max(0).start().unwrap();
    reach(&queue, TaskState::Dead, 2).await;
    assert_eq!(counts.of("jobs_rescued_total"), 2);
    assert_eq!(counts.of("jobs_buried_total kind=unknown reason=lost"), 2);
}

async fn drop_while_running(queue: &Arc<RiggedQueue>) {
    let stuck = builder(queue, Counting::default()).handle("later", Counting::taking(3600 * SECOND));
    let running = stuck.start().unwrap();
    sleep(SECOND).await;
    drop(running);
}

#[derive(Clone, Debug, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn listen(written: &Written) -> tracing::subscriber::DefaultGuard {
    let written = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || written.clone())
        .finish();
    tracing::subscriber::set_default(subscriber)
}

#[tokio::test(start_paused = true)]
async fn lines_tell_which_task_and_what_became_of_it_but_never_its_key() {
    let written = Written::default();
    let _here = listen(&written);
    let queue = Arc::new(RiggedQueue::new());
    let secret = exactly::queue::Task::new("work", "ada@example.org", "").unwrap();
    let _ = queue.enqueue(std::slice::from_ref(&secret)).await.unwrap();
    let handler = from_fn(|task| {
        Box::pin(async move {
            tracing::info!("at it");
            if task.failures == 0 {
                return transient(SECOND);
            }
            Ran::End(End::Bury(Failure::new(FailureKind::Logic, "no such user")))
        })
    });
    let running = builder(&queue, handler).start().unwrap();
    reach(&queue, TaskState::Dead, 1).await;
    running.drain().await;
    let text = written.text();
    assert!(!text.contains("ada@example.org"), "{text}");
    let find = |parts: &[&str]| {
        let found = text.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found.is_some(), "no line with {parts:?} in {text}");
    };
    let id = format!("task={}", secret.id());
    // printf %s ada@example.org | sha256sum | cut -c1-12
    let key = "key=cfe00dde46ef";
    find(&["at it", &id, "kind=\"work\"", "fence=1", "attempt=1", "cfe00dde46ef"]);
    find(&[
        "DEBUG",
        "task moved",
        &id,
        key,
        "fence=1",
        "from=\"waiting\" to=\"running\"",
    ]);
    find(&[
        "task moved",
        &id,
        "attempt=1",
        "from=\"running\" to=\"waiting\" failure=\"transient\" why=\"not now\"",
    ]);
    find(&[
        "ERROR",
        "task buried",
        &id,
        key,
        "attempt=2",
        "to=\"dead\" failure=\"logic\" why=\"no such user\"",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_down_is_logged_when_it_goes_and_when_it_comes_back() {
    let written = Written::default();
    let _here = listen(&written);
    let queue = Arc::new(RiggedQueue::new());
    let _running = builder(&queue, Counting::default()).start().unwrap();
    sleep(SECOND).await;
    for _ in 0..2 {
        queue.break_with(Verb::Lease, Fault::Refuses);
        sleep(60 * SECOND).await;
        queue.mend();
        sleep(60 * SECOND).await;
    }
    let text = written.text();
    let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("the queue does not answer"), 2, "{text}");
    assert_eq!(count("the queue answers again"), 2, "{text}");
}
