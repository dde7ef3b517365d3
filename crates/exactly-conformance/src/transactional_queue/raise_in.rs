//! Numbers that only rise, for what comes out of order.

use std::time::Duration;

use exactly::queue::{Queue as _, TransactionalQueue};
use tokio::time::timeout;

use super::A_WHILE;
use crate::TransactionalQueueHarness;
use crate::answers::answered;
use crate::request::PATIENCE;

/// A number is raised by a higher one only, each name by itself.
pub async fn only_a_higher_number_is_raised<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for (number, is_higher) in [
        (-5, true),
        (-5, false),
        (-6, false),
        (0, true),
        (i64::MAX, true),
        (i64::MIN, false),
    ] {
        assert_eq!(raised(&*queue, "a", number).await, is_higher, "{number}");
    }
    assert!(
        raised(&*harness.open().await, "A", i64::MIN).await,
        "names are compared byte by byte"
    );
    let mut tx = answered(queue.open().await);
    for (number, is_higher) in [(1, true), (1, false), (2, true)] {
        assert_eq!(answered(queue.raise_in(&mut tx, "b", number).await), is_higher);
    }
    answered(queue.commit(tx).await);
    assert!(!raised(&*queue, "b", 2).await);
}

/// It rises with the transaction, and not without.
pub async fn a_number_that_is_undone_was_never_raised<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    assert!(raised(&*queue, "a", 1).await);
    for _ in 0..2 {
        let mut tx = answered(queue.open().await);
        assert!(answered(queue.raise_in(&mut tx, "a", 9).await));
        assert!(answered(queue.raise_in(&mut tx, "b", 9).await));
        answered(queue.rollback(tx).await);
    }
    assert!(raised(&*queue, "a", 2).await);
    assert!(raised(&*queue, "b", 1).await);
}

/// Whoever raises what another transaction is about to raise waits for it.
pub async fn a_second_transaction_is_judged_by_what_the_first_left<H: TransactionalQueueHarness>(harness: &H) {
    for (name, before) in [("fresh", None), ("known", Some(1))] {
        for commits in [false, true] {
            let (queue, other) = (harness.open().await, harness.open().await);
            let name = format!("{name} {commits}");
            if let Some(before) = before {
                assert!(raised(&*queue, &name, before).await);
            }
            let mut tx = answered(queue.open().await);
            assert!(answered(queue.raise_in(&mut tx, &name, 3).await));
            let second = name.clone();
            let mut waiting = tokio::spawn(async move { raised(&*other, &second, 2).await });
            assert!(timeout(A_WHILE, &mut waiting).await.is_err(), "it does not wait");
            if commits {
                answered(queue.commit(tx).await);
            } else {
                answered(queue.rollback(tx).await);
            }
            let second = timeout(PATIENCE, waiting).await.expect("it still waits");
            assert_eq!(second.expect("the second panicked"), !commits, "{name}");
        }
    }
}

/// Long ago.
const AGE: Duration = Duration::from_hours(24);

/// A name that was forgotten is fresh, and one that was raised since is not forgotten.
pub async fn what_nobody_raises_is_forgotten<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for name in ["old", "raised", "lower"] {
        assert!(raised(&*queue, name, 5).await);
    }
    harness.elapse(AGE).await;
    assert!(raised(&*queue, "young", 5).await);
    assert!(raised(&*queue, "raised", 6).await);
    // Who is not higher has raised nothing.
    assert!(!raised(&*queue, "lower", 4).await);
    for age in [AGE * 2, Duration::MAX] {
        assert_eq!(answered(queue.prune_marks(age, 100).await), 0);
    }
    assert_eq!(answered(queue.prune_marks(AGE / 2, 100).await), 2);
    assert_eq!(answered(queue.prune_marks(AGE / 2, 100).await), 0);
    for (name, number, is_higher) in [
        ("young", 5, false),
        ("raised", 6, false),
        ("old", 1, true),
        ("lower", 1, true),
    ] {
        assert_eq!(raised(&*queue, name, number).await, is_higher, "{name}");
    }
}

/// No more are forgotten at once than was asked for.
pub async fn marks_are_forgotten_in_batches<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for n in 0..5 {
        assert!(raised(&*queue, &n.to_string(), 1).await);
    }
    harness.elapse(AGE).await;
    for forgotten in [2, 2, 1, 0] {
        assert_eq!(answered(queue.prune_marks(AGE / 2, 2).await), forgotten);
    }
}

async fn raised<Q: TransactionalQueue>(queue: &Q, name: &str, number: i64) -> bool {
    let mut tx = answered(queue.open().await);
    let raised = answered(queue.raise_in(&mut tx, name, number).await);
    answered(queue.commit(tx).await);
    raised
}
