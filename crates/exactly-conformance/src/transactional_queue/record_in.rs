//! A task whose attempt is behind it when it is added, with the effect of that attempt.

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{
    End, Enqueued, Found, InspectQueue, Queue as _, Task, TaskFilter, TaskPage, TaskState, TransactionalQueue,
};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{A_WHILE, Tx};
use crate::TransactionalQueueHarness;
use crate::answers::answered;
use crate::request::PATIENCE;
use crate::work::{
    BACKOFF, BACKOFF_AND_A_BIT, PLENTY, added, every_end, failure, history, in_state, leased, must_apply, running,
    shown, state_after, task, the_one,
};

const AGE: Duration = Duration::from_hours(24);

fn done() -> End {
    End::Done("done".into())
}

/// Effect and outcome commit together, there is nothing to lease, and whoever enqueues the key finds the outcome.
pub async fn effect_and_record_commit_together<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let tx = recorded(harness, &*queue, "a").await;
    answered(queue.commit(tx).await);
    assert_eq!(harness.effects("a").await, 1);
    assert_eq!(leased(&*queue, 10).await, []);
    let again = answered(queue.enqueue(&[task("a")]).await);
    assert_eq!(found(&again[0]).outcome, Some("done".into()));
}

/// It cannot be told from a task that was enqueued, leased and settled, but for the worker, which there was none of. Its
/// lanes and lists know it as they know others.
pub async fn a_recorded_task_is_as_one_that_was_worked_off<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let versioned = |key: &str| task(key).with_version(7);
    let tx = recorded_as(harness, &*queue, &versioned("a"), &done()).await;
    answered(queue.commit(tx).await);
    added(&*queue, &[versioned("b")]).await;
    must_apply(&*queue, the_one(&*queue).await.lease, done()).await;
    let (recorded, worked) = (
        shown(&*queue, task("a").id()).await,
        shown(&*queue, task("b").id()).await,
    );
    let (now, worked_off) = (answered(queue.now().await), worked.clone());
    let ended_at = recorded.ended_at.expect("it has ended");
    assert!(now.since(ended_at) < Duration::from_mins(5), "{ended_at:?} is not now");
    assert!(recorded.started_at.is_some_and(|started| started <= ended_at));
    assert!(recorded.enqueued_at <= ended_at);
    assert!(
        recorded.fence.get() > recorded.enqueued_at.as_millis(),
        "its fence is that of a lease"
    );
    let mut alike = recorded.clone();
    (alike.id, alike.key, alike.payload) = (worked_off.id, worked_off.key, worked_off.payload);
    (alike.fence, alike.worker) = (worked_off.fence, worked_off.worker);
    (alike.enqueued_at, alike.started_at, alike.ended_at) =
        (worked_off.enqueued_at, worked_off.started_at, worked_off.ended_at);
    assert_eq!(alike, worked);
    let only = TaskFilter {
        state: Some(TaskState::Done),
        kind: Some("offer".to_owned()),
        ..TaskFilter::default()
    };
    let page = TaskPage { after: None, limit: 10 };
    let listed = answered(queue.list(&only, page).await);
    assert_eq!(listed.len(), 2);
    assert!(listed.contains(&recorded));
    assert_eq!(history(&*queue, recorded.id).await, []);
}

/// Every end leaves a task as settling it would.
pub async fn every_end_is_recorded<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for (n, end) in every_end().into_iter().enumerate() {
        let task = task(&n.to_string());
        let tx = recorded_as(harness, &*queue, &task, &end).await;
        answered(queue.commit(tx).await);
        let view = shown(&*queue, task.id()).await;
        assert_eq!(view.state, state_after(&end));
        assert_eq!(view.outcome.as_ref(), end.outcome());
        assert_eq!(view.failure.as_ref(), end.failure());
        assert_eq!(view.failures, u32::from(end.failure().is_some()));
        assert_eq!(view.due_at.is_some(), view.state == TaskState::Waiting, "{end:?}");
        assert_eq!(view.ended_at.is_none(), view.state == TaskState::Waiting, "{end:?}");
    }
    // What was released is due, and what waits for its retry is not.
    assert_eq!(&*the_one(&*queue).await.key, "4");
}

/// The attempt that failed is in the history, and what is dead or held can be revived.
pub async fn a_failure_is_recorded_with_its_history<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for (key, end) in [
        ("dead", End::Bury(failure("never"))),
        ("held", End::Hold(failure("ask"))),
    ] {
        let tx = recorded_as(harness, &*queue, &task(key), &end).await;
        answered(queue.commit(tx).await);
        let view = shown(&*queue, task(key).id()).await;
        let history = history(&*queue, view.id).await;
        assert_eq!(history.len(), 1);
        assert_eq!((history[0].fence, history[0].then), (view.fence, view.state));
        assert_eq!(Some(&history[0].failure), end.failure());
        assert_eq!(Some(history[0].ended_at), view.ended_at);
        assert_eq!(answered(queue.revive(&[view.id]).await), [Some(view.state)]);
        let lease = the_one(&*queue).await.lease;
        assert!(lease.fence > view.fence);
        must_apply(&*queue, lease, done()).await;
    }
}

/// A retry is not due before its time, and its failure counts.
pub async fn a_recorded_retry_waits_its_time<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let later = End::Retry {
        after: BACKOFF,
        failure: failure("later"),
    };
    let tx = recorded_as(harness, &*queue, &task("a"), &later).await;
    answered(queue.commit(tx).await);
    assert_eq!(leased(&*queue, 10).await, []);
    harness.elapse(BACKOFF_AND_A_BIT).await;
    let leased = the_one(&*queue).await;
    assert_eq!((leased.failures, leased.attempt()), (1, 2));
    must_apply(&*queue, leased.lease, done()).await;
}

/// It is forgotten as any task that is done, and its key is fresh.
pub async fn a_recorded_task_is_pruned<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let tx = recorded(harness, &*queue, "a").await;
    answered(queue.commit(tx).await);
    harness.elapse(AGE).await;
    assert_eq!(answered(queue.prune(TaskState::Done, AGE * 2, PLENTY).await), 0);
    assert_eq!(answered(queue.prune(TaskState::Done, AGE / 2, PLENTY).await), 1);
    let tx = recorded(harness, &*queue, "a").await;
    answered(queue.commit(tx).await);
    assert_eq!(harness.effects("a").await, 2);
}

/// Whatever has become of the key, it is told, and nothing is changed.
pub async fn a_key_is_found_in_every_state_and_left_alone<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for state in TaskState::ALL {
        let id = in_state(&*queue, state.as_str(), state).await;
        let before = shown(&*queue, id).await;
        let mut tx = answered(queue.open().await);
        let again = answered(
            queue
                .record_in(&mut tx, &task(state.as_str()), &End::Bury(failure("no")))
                .await,
        );
        let expected = Found {
            id,
            state,
            outcome: before.outcome.clone(),
            differs: false,
        };
        assert_eq!(again, Enqueued::Found(expected));
        answered(queue.commit(tx).await);
        assert_eq!(shown(&*queue, id).await, before);
    }
}

/// So is another payload.
pub async fn another_payload_is_told_in_a_transaction<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let other = Task::new("offer", "a", "another payload").expect("suites use valid tasks");
    let mut tx = recorded(harness, &*queue, "a").await;
    for _ in 0..2 {
        // In the transaction that has recorded it, and in a later one.
        assert!(!found(&answered(queue.record_in(&mut tx, &task("a"), &done()).await)).differs);
        assert!(found(&answered(queue.record_in(&mut tx, &other, &done()).await)).differs);
        answered(queue.commit(tx).await);
        tx = answered(queue.open().await);
    }
    answered(queue.rollback(tx).await);
    assert_eq!(shown(&*queue, other.id()).await.payload, *task("a").payload());
}

/// A rollback undoes effect and record, and the key is fresh.
pub async fn a_rolled_back_record_was_never_there<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let tx = recorded(harness, &*queue, "a").await;
    answered(queue.rollback(tx).await);
    never_there(harness, &*queue).await;
}

/// So does dropping the transaction.
pub async fn a_dropped_record_was_never_there<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    drop(recorded(harness, &*queue, "a").await);
    never_there(harness, &*queue).await;
}

/// A second transaction with the same key waits for the first, and finds what that one committed.
pub async fn a_second_record_waits_and_finds<H: TransactionalQueueHarness>(harness: &H) {
    assert!(!second_is_new(harness, true).await);
    assert_eq!(harness.effects("a").await, 1);
}

/// If the first is undone, the second records in its place.
pub async fn a_second_record_waits_and_adds<H: TransactionalQueueHarness>(harness: &H) {
    assert!(second_is_new(harness, false).await);
    assert_eq!(harness.effects("a").await, 0);
}

/// Whoever enqueues without a transaction waits as well, and finds the outcome.
pub async fn enqueuing_waits_for_a_record<H: TransactionalQueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    let tx = recorded(harness, &*queue, "a").await;
    let mut waiting = tokio::spawn(async move { answered(other.enqueue(&[task("a")]).await) });
    assert!(timeout(A_WHILE, &mut waiting).await.is_err(), "it does not wait");
    answered(queue.commit(tx).await);
    let answers = timeout(PATIENCE, waiting).await.expect("it still waits");
    let answers = answers.expect("the caller panicked");
    assert_eq!(found(&answers[0]).outcome, Some("done".into()));
}

/// And the other way round: a task that is about to be enqueued is not done by somebody else meanwhile.
pub async fn a_record_waits_for_what_is_enqueued<H: TransactionalQueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    let mut tx = answered(queue.open().await);
    assert!(answered(queue.enqueue_in(&mut tx, &[task("a")]).await)[0].is_new());
    let mut waiting = tokio::spawn(async move {
        let mut tx = answered(other.open().await);
        let recorded = answered(other.record_in(&mut tx, &task("a"), &done()).await);
        answered(other.rollback(tx).await);
        recorded
    });
    assert!(timeout(A_WHILE, &mut waiting).await.is_err(), "it does not wait");
    answered(queue.commit(tx).await);
    let recorded = timeout(PATIENCE, waiting).await.expect("it still waits");
    let recorded = recorded.expect("the second panicked");
    assert_eq!(found(&recorded).state, TaskState::Waiting);
    assert_eq!(&*the_one(&*queue).await.key, "a");
}

/// Ten transactions at once with one key: one record, and the effect of the one that made it.
pub async fn of_ten_transactions_one_records<H: TransactionalQueueHarness>(harness: &H) {
    let queues = [harness.open().await, harness.open().await];
    let attempts = (0..10).map(|n| {
        let queue = Arc::clone(&queues[n % 2]);
        async move {
            let mut tx = answered(queue.open().await);
            let is_new = answered(queue.record_in(&mut tx, &task("a"), &done()).await).is_new();
            if is_new {
                harness.effect(&mut tx, "a").await;
            }
            tokio::task::yield_now().await;
            answered(queue.commit(tx).await);
            is_new
        }
    });
    let news = timeout(PATIENCE * 3, join_all(attempts))
        .await
        .expect("they wait for each other");
    assert_eq!(news.into_iter().filter(|is_new| *is_new).count(), 1);
    assert_eq!(harness.effects("a").await, 1);
}

/// What is recorded as waiting wakes who waits for something to lease, after the commit.
pub async fn a_record_that_waits_wakes_watchers<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    // Something ran before, so that there is nothing left to tell of.
    must_apply(&*queue, running(&*queue, "before").await.lease, done()).await;
    let mut arrivals = queue.arrivals();
    let tx = recorded_as(harness, &*queue, &task("a"), &End::Release).await;
    arrivals.mark_unchanged();
    assert!(
        timeout(A_WHILE, arrivals.changed()).await.is_err(),
        "it wakes before the commit"
    );
    answered(queue.commit(tx).await);
    let woken = timeout(PATIENCE, arrivals.changed()).await;
    woken.expect("nobody wakes").expect("the queue is there");
}

#[track_caller]
fn found(enqueued: &Enqueued) -> &Found {
    match enqueued {
        Enqueued::Found(found) => found,
        Enqueued::New(id) => panic!("the key of {id} was there before"),
    }
}

/// An open transaction with an effect and a new task that is done.
async fn recorded<H: TransactionalQueueHarness>(harness: &H, queue: &H::Queue, key: &str) -> Tx<H> {
    recorded_as(harness, queue, &task(key), &done()).await
}

async fn recorded_as<H: TransactionalQueueHarness>(harness: &H, queue: &H::Queue, task: &Task, end: &End) -> Tx<H> {
    let mut tx = answered(queue.open().await);
    let recorded = answered(queue.record_in(&mut tx, task, end).await);
    assert_eq!(recorded, Enqueued::New(task.id()), "the key is fresh");
    harness.effect(&mut tx, task.key()).await;
    tx
}

async fn never_there<H: TransactionalQueueHarness>(harness: &H, queue: &H::Queue) {
    // Who waits for the rollback asks by adding the key.
    let tx = recorded(harness, queue, "a").await;
    answered(queue.rollback(tx).await);
    assert_eq!(harness.effects("a").await, 0);
    assert_eq!(answered(queue.show(task("a").id()).await), None);
}

/// Whether the key is new to a transaction that waited for another one to commit, or to be undone.
async fn second_is_new<H: TransactionalQueueHarness>(harness: &H, commits: bool) -> bool {
    let (queue, other) = (harness.open().await, harness.open().await);
    let tx = recorded(harness, &*queue, "a").await;
    let mut waiting = tokio::spawn(async move {
        let mut tx = answered(other.open().await);
        let second = answered(other.record_in(&mut tx, &task("a"), &done()).await);
        answered(other.commit(tx).await);
        second.is_new()
    });
    assert!(
        timeout(A_WHILE, &mut waiting).await.is_err(),
        "it does not wait for the first transaction"
    );
    if commits {
        answered(queue.commit(tx).await);
    } else {
        answered(queue.rollback(tx).await);
    }
    let is_new = timeout(PATIENCE, waiting).await.expect("it still waits");
    is_new.expect("the second panicked")
}
