//! A task that is enqueued with the change that it belongs to.

use std::sync::Arc;

use exactly::queue::{Enqueued, InspectQueue as _, Queue as _, TransactionalQueue};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{A_WHILE, Tx};
use crate::TransactionalQueueHarness;
use crate::answers::answered;
use crate::request::PATIENCE;
use crate::work::{added, all_new, leased, task, tasks, the_one};

/// Effect and task commit together, and the task is there to lease.
pub async fn effect_and_task_commit_together<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let tx = enqueued_in(harness, &*queue, "a").await;
    answered(queue.commit(tx).await);
    assert_eq!(harness.effects("a").await, 1);
    assert_eq!(&*the_one(&*queue).await.key, "a");
}

/// A rollback undoes both, and the key is fresh.
pub async fn a_rollback_undoes_effect_and_task<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let tx = enqueued_in(harness, &*queue, "a").await;
    answered(queue.rollback(tx).await);
    nothing_happened(harness, &*queue).await;
}

/// So does dropping the transaction.
pub async fn a_dropped_transaction_adds_nothing<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let tx = enqueued_in(harness, &*queue, "a").await;
    drop(tx);
    nothing_happened(harness, &*queue).await;
}

/// Before the commit nobody else sees the task, or can lease it.
pub async fn nothing_is_leased_before_the_commit<H: TransactionalQueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    added(&*queue, &tasks("early", 1)).await;
    let tx = enqueued_in(harness, &*queue, "a").await;
    assert_eq!(answered(other.show(task("a").id()).await), None);
    if H::WRITES_IN_PARALLEL {
        assert_eq!(&*the_one(&*other).await.key, "early-00000");
    }
    answered(queue.commit(tx).await);
    let last = leased(&*other, 10).await.pop();
    assert_eq!(last.map(|leased| leased.lease.id), Some(task("a").id()));
}

/// A transaction finds what was there, and what it has added itself.
pub async fn a_transaction_finds_tasks<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    let mut tx = answered(queue.open().await);
    let answers = answered(queue.enqueue_in(&mut tx, &[task("a"), task("b"), task("b")]).await);
    assert_eq!(
        answers.iter().map(Enqueued::is_new).collect::<Vec<_>>(),
        [false, true, false]
    );
    let again = answered(queue.enqueue_in(&mut tx, &[task("b")]).await);
    assert!(!again[0].is_new());
    harness.effect(&mut tx, "a").await;
    answered(queue.commit(tx).await);
    assert_eq!(harness.effects("a").await, 1);
    assert_eq!(leased(&*queue, 10).await.len(), 2);
}

/// A second transaction with the same key waits for the first, and finds what that one committed.
pub async fn a_second_transaction_waits_and_finds<H: TransactionalQueueHarness>(harness: &H) {
    assert!(!second_is_new(harness, true).await);
    assert_eq!(harness.effects("a").await, 1);
}

/// If the first is undone, the second adds the task in its place.
pub async fn a_second_transaction_waits_and_adds<H: TransactionalQueueHarness>(harness: &H) {
    assert!(second_is_new(harness, false).await);
    assert_eq!(harness.effects("a").await, 0);
}

/// Whoever enqueues without a transaction waits as well, and finds the task.
pub async fn enqueuing_waits_for_a_transaction<H: TransactionalQueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    let tx = enqueued_in(harness, &*queue, "a").await;
    let mut waiting = tokio::spawn(async move { answered(other.enqueue(&[task("b"), task("a")]).await) });
    assert!(
        timeout(A_WHILE, &mut waiting).await.is_err(),
        "it does not wait for the transaction"
    );
    answered(queue.commit(tx).await);
    let answers = timeout(PATIENCE, waiting).await.expect("it still waits");
    let answers = answers.expect("the caller panicked");
    assert_eq!(answers.iter().map(Enqueued::is_new).collect::<Vec<_>>(), [true, false]);
}

/// Ten transactions at once with one key: one task, and the effect of the one that added it.
pub async fn of_ten_transactions_one_adds_the_task<H: TransactionalQueueHarness>(harness: &H) {
    let queues = [harness.open().await, harness.open().await];
    let attempts = (0..10).map(|n| {
        let queue = Arc::clone(&queues[n % 2]);
        async move {
            let mut tx = answered(queue.open().await);
            let is_new = answered(queue.enqueue_in(&mut tx, &[task("a")]).await)[0].is_new();
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
    assert_eq!(leased(&*queues[0], 10).await.len(), 1);
}

/// A commit wakes who waits for something to lease, and what is not committed does not.
pub async fn a_commit_wakes_watchers<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut arrivals = queue.arrivals();
    arrivals.mark_unchanged();
    let tx = enqueued_in(harness, &*queue, "a").await;
    assert!(
        timeout(A_WHILE, arrivals.changed()).await.is_err(),
        "it wakes before the commit"
    );
    answered(queue.commit(tx).await);
    let woken = timeout(PATIENCE, arrivals.changed()).await;
    woken.expect("nobody wakes").expect("the queue is there");
}

/// Transactions that come to nothing leave nothing behind: the next ones open as the first did.
pub async fn transactions_do_not_run_out<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for n in 0..40 {
        let tx = enqueued_in(harness, &*queue, &n.to_string()).await;
        match n % 3 {
            0 => drop(tx),
            1 => answered(queue.rollback(tx).await),
            _ => answered(queue.commit(tx).await),
        }
    }
    assert_eq!(leased(&*queue, 100).await.len(), 13);
}

/// An open transaction with an effect and a new task.
async fn enqueued_in<H: TransactionalQueueHarness>(harness: &H, queue: &H::Queue, key: &str) -> Tx<H> {
    let mut tx = answered(queue.open().await);
    harness.effect(&mut tx, key).await;
    let _ = all_new(queue.enqueue_in(&mut tx, &[task(key)]).await);
    tx
}

async fn nothing_happened<H: TransactionalQueueHarness>(harness: &H, queue: &H::Queue) {
    let answers = answered(queue.enqueue(&[task("a")]).await);
    assert!(answers[0].is_new(), "the task was undone, but: {answers:?}");
    assert_eq!(harness.effects("a").await, 0);
    assert_eq!(leased(queue, 10).await.len(), 1);
}

/// Whether the key is new to a transaction that waited for another one to commit, or to be undone.
async fn second_is_new<H: TransactionalQueueHarness>(harness: &H, commits: bool) -> bool {
    let (queue, other) = (harness.open().await, harness.open().await);
    let tx = enqueued_in(harness, &*queue, "a").await;
    let mut waiting = tokio::spawn(async move {
        let mut tx = answered(other.open().await);
        let answers = answered(other.enqueue_in(&mut tx, &[task("a")]).await);
        answered(other.commit(tx).await);
        answers[0].is_new()
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
    assert_eq!(leased(&*queue, 10).await.len(), 1);
    is_new.expect("the second panicked")
}
