//! A key is taken once, and found ever after.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{BATCH_MAX, End, Enqueued, Found, InspectQueue as _, Lane, Queue, Task, TaskId, TaskState};
use exactly::{StoreError, StoreErrorKind};
use futures_util::future::join_all;
use tokio::sync::Barrier;

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::{LEASE, assert_about};
use crate::work::{added, in_state, lane, leased, must_apply, running, shown, task, the_one};

/// A task that was just added shows what it was enqueued with, and that nothing has happened to it.
pub async fn a_new_task_waits<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let task = task("a").in_lane(lane("north")).with_version(7);
    let ids = added(&*queue, std::slice::from_ref(&task)).await;
    assert_eq!(ids, [task.id()]);
    let view = shown(&*queue, task.id()).await;
    assert_eq!((view.id, view.state), (task.id(), TaskState::Waiting));
    assert_eq!((&*view.kind, &*view.key, view.version), (task.kind(), task.key(), 7));
    assert_eq!((&view.lane, &view.payload), (task.lane(), task.payload()));
    assert_eq!((view.failures, view.rescues), (0, 0));
    assert_eq!((view.worker, view.started_at, view.ended_at), (None, None, None));
    assert_eq!((view.outcome, view.failure), (None, None));
    let now = answered(queue.now().await);
    assert_about(now.since(view.enqueued_at), Duration::ZERO);
    assert!(view.due_at.is_some_and(|due| due <= now), "it is due at once");
}

/// Enqueuing again says what has become of the task, and changes nothing.
pub async fn a_key_is_found_in_every_state<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    for state in TaskState::ALL {
        let key = state.as_str();
        let id = in_state(&*queue, key, state).await;
        let before = shown(&*queue, id).await;
        let found = found(&*other, task(key)).await;
        let outcome = (state == TaskState::Done).then(|| "outcome of done".into());
        let differs = false;
        assert_eq!(
            found,
            Found {
                id,
                state,
                outcome,
                differs
            }
        );
        assert_eq!(shown(&*queue, id).await, before);
    }
}

/// What came of the task is the answer, also if it was nothing at all.
pub async fn a_stored_outcome_is_returned<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for (key, outcome) in [
        ("none", vec![]),
        ("some", b"three offers".to_vec()),
        ("binary", vec![0, 255, 10]),
    ] {
        let lease = running(&*queue, key).await.lease;
        must_apply(&*queue, lease, End::Done(outcome.clone().into())).await;
        let stored = found(&*queue, task(key)).await.outcome.expect("it is done");
        assert_eq!(stored, outcome);
    }
}

/// A key that was first used for something else is found, and says so.
pub async fn another_payload_is_told<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let first = task("a");
    added(&*queue, std::slice::from_ref(&first)).await;
    let other = || Task::new("offer", "a", "something else").expect("the task is valid");
    assert!(found(&*queue, other()).await.differs);
    assert!(!found(&*queue, first.clone()).await.differs);
    let leased = the_one(&*queue).await;
    assert_eq!(leased.payload, *first.payload());
    must_apply(&*queue, leased.lease, End::Done("done".into())).await;
    assert!(found(&*queue, other()).await.differs);
    assert!(!found(&*queue, first).await.differs);
}

/// A task that is there stays in its lane, with its version, and is due when it was.
pub async fn a_task_that_is_found_is_not_moved<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    let before = shown(&*queue, task("a").id()).await;
    let moved = task("a").in_lane(lane("elsewhere")).after(LEASE).with_version(9);
    assert!(!found(&*queue, moved).await.differs);
    assert_eq!(shown(&*queue, task("a").id()).await, before);
}

/// Kinds have their own keys.
pub async fn the_same_key_of_another_kind_is_another_task<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let [one, other] = ["offer", "reminder"].map(|kind| Task::new(kind, "a", "same").expect("the task is valid"));
    added(&*queue, &[one, other]).await;
    assert_eq!(leased(&*queue, 10).await.len(), 2);
}

/// A key that comes twice in one call is added by the first and found by the others.
pub async fn duplicates_in_one_bulk_are_found<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let changed = Task::new("offer", "a", "something else").expect("the task is valid");
    let bulk = [task("a"), task("b"), task("a"), changed, task("b")];
    let answers = answered(queue.enqueue(&bulk).await);
    let told = answers.iter().map(|answer| match answer {
        Enqueued::New(_) => (true, false),
        Enqueued::Found(found) => {
            assert_eq!((found.state, &found.outcome), (TaskState::Waiting, &None));
            (false, found.differs)
        }
    });
    let told: Vec<_> = told.collect();
    assert_eq!(
        told,
        [
            (true, false),
            (true, false),
            (false, false),
            (false, true),
            (false, false)
        ]
    );
    let leased = leased(&*queue, 10).await;
    let payloads: Vec<_> = leased.iter().map(|leased| leased.payload.clone()).collect();
    assert_eq!(payloads, ["payload of a", "payload of b"]);
}

/// Each answer is about the task in its place.
pub async fn answers_come_in_order<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let bulk: Vec<_> = (0..60).map(|n| task(&format!("key-{}", n * 37 % 60))).collect();
    let early: Vec<_> = bulk.iter().step_by(3).cloned().collect();
    added(&*queue, &early).await;
    for (n, answer) in answered(queue.enqueue(&bulk).await).iter().enumerate() {
        assert_eq!(answer.id(), bulk[n].id());
        assert_eq!(answer.is_new(), n % 3 != 0, "{n}");
    }
}

/// Nothing to do is nothing to fail.
pub async fn an_empty_bulk_is_answered<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    assert_eq!(answered(queue.enqueue(&[]).await), []);
    assert!(answered(queue.settle(&[]).await).is_empty());
    assert!(answered(queue.renew(&[], LEASE).await).is_empty());
    assert_eq!(answered(queue.revive(&[]).await), []);
}

/// Thousands at once are added, found again, and leased in their order.
pub async fn a_bulk_of_five_thousand_is_added<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let bulk = crate::work::tasks("bulk", 5000);
    added(&*queue, &bulk).await;
    let again = answered(queue.enqueue(&bulk).await);
    assert!(
        again.iter().zip(&bulk).all(|(answer, task)| {
            matches!(answer, Enqueued::Found(found) if found.id == task.id() && !found.differs)
        })
    );
    let leased = leased(&*queue, 5000).await;
    assert_eq!(leased.len(), bulk.len());
    for (leased, task) in leased.iter().zip(&bulk) {
        assert_eq!((&*leased.key, &leased.payload), (task.key(), task.payload()));
    }
}

/// What is too much for one call is refused as a whole.
pub async fn more_than_a_batch_is_refused<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let bulk = crate::work::tasks("bulk", BATCH_MAX + 1);
    must_be_refused(queue.enqueue(&bulk).await);
    assert_eq!(answered(queue.show(bulk[0].id()).await), None);
    let ids: Vec<_> = bulk.iter().map(Task::id).collect();
    must_be_refused(queue.revive(&ids).await);
}

/// Callers that add the same keys at once, in different orders: each key is new to one of them.
pub async fn concurrent_bulks_add_each_key_once<H: QueueHarness>(harness: &H) {
    let queues = [harness.open().await, harness.open().await];
    let start = Arc::new(Barrier::new(10));
    let callers = (0..10).map(|caller: usize| {
        let (queue, start) = (Arc::clone(&queues[caller % 2]), Arc::clone(&start));
        let mut bulk: Vec<_> = (0..200).map(|n| task(&format!("key-{}", caller * 20 + n))).collect();
        if caller.is_multiple_of(3) {
            bulk.reverse();
        }
        tokio::spawn(async move {
            start.wait().await;
            answered(queue.enqueue(&bulk).await)
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut news: HashMap<TaskId, usize> = HashMap::new();
    for caller in join_all(callers).await {
        for answer in caller.expect("a caller panicked") {
            *news.entry(answer.id()).or_default() += usize::from(answer.is_new());
        }
    }
    assert_eq!(news.len(), 380);
    assert!(
        news.values().all(|news| *news == 1),
        "a key was new to none, or to several"
    );
}

/// A delay counts from when the task is enqueued.
pub async fn a_delay_is_kept<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a").after(LEASE)]).await;
    let view = shown(&*queue, task("a").id()).await;
    let due = view.due_at.expect("a task that waits is due at some time");
    assert_eq!(due.since(view.enqueued_at), LEASE);
}

/// The longest delay is longer than anybody waits.
pub async fn the_longest_delay_is_kept<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a").after(Duration::MAX), task("b")]).await;
    assert_eq!(&*the_one(&*queue).await.key, "b");
    harness.elapse(Duration::from_hours(24)).await;
    assert_eq!(leased(&*queue, 10).await, []);
}

/// A lane is the kind's unless the task says otherwise.
pub async fn a_task_waits_in_the_lane_of_its_kind<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    let own: Lane = lane("offer");
    assert_eq!(shown(&*queue, task("a").id()).await.lane, own);
    assert_eq!(the_one(&*queue).await.lane, own);
}

async fn found(queue: &impl Queue, task: Task) -> Found {
    match &answered(queue.enqueue(&[task]).await)[..] {
        [Enqueued::Found(found)] => found.clone(),
        other => panic!("the key is taken, but: {other:?}"),
    }
}

#[track_caller]
fn must_be_refused<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    match answer {
        Err(error) => assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}"),
        Ok(answer) => panic!("it is too much for one call, but: {answer:?}"),
    }
}
