//! A task's history: every attempt that ended without an outcome.

use std::time::Duration;

use exactly::queue::{AttemptView, End, FailureKind, InspectQueue as _, Queue as _, TaskId, TaskState};

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::LEASE_AND_A_BIT;
use crate::work::{PLENTY, added, failure, history, must_apply, retry, running, shown, task, the_one};

/// An attempt is noted with its fence, its worker, its times, its reason, and what became of the task.
pub async fn a_failed_attempt_is_noted<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for (end, then) in [
        (retry("why"), TaskState::Waiting),
        (End::Bury(failure("why")), TaskState::Dead),
        (End::Hold(failure("why")), TaskState::Held),
    ] {
        let lease = running(&*queue, then.as_str()).await.lease;
        let before = shown(&*queue, lease.id).await;
        must_apply(&*queue, lease, end).await;
        let now = answered(queue.now().await);
        let attempts = history(&*queue, lease.id).await;
        let [attempt] = &attempts[..] else {
            panic!("one attempt was made, but: {attempts:?}")
        };
        assert_eq!((attempt.fence, attempt.worker), (lease.fence, before.worker));
        assert_eq!(Some(attempt.started_at), before.started_at);
        assert!(attempt.started_at <= attempt.ended_at && attempt.ended_at <= now);
        assert_eq!((attempt.then, &attempt.failure), (then, &failure("why")));
        if then == TaskState::Waiting {
            must_apply(&*queue, the_one(&*queue).await.lease, End::Done("done".into())).await;
            assert_eq!(history(&*queue, lease.id).await, attempts);
        }
    }
}

/// Attempts that ended well, or were given back, leave no note.
pub async fn only_what_ended_without_an_outcome_is_noted<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    must_apply(&*queue, lease, End::Release).await;
    let defer = End::Defer { after: Duration::ZERO };
    must_apply(&*queue, the_one(&*queue).await.lease, defer).await;
    must_apply(&*queue, the_one(&*queue).await.lease, End::Done("done".into())).await;
    assert_eq!(history(&*queue, lease.id).await, []);
    assert_eq!(history(&*queue, TaskId::of("offer", "never enqueued")).await, []);
}

/// All lives of a task are in its history, oldest first, each with what became of it then.
pub async fn a_history_spans_all_lives<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    let id = task("a").id();
    for life in 0..3 {
        must_apply(
            &*queue,
            the_one(&*queue).await.lease,
            retry(&format!("first of {life}")),
        )
        .await;
        let _ = the_one(&*queue).await;
        harness.elapse(LEASE_AND_A_BIT).await;
        assert_eq!(answered(queue.rescue(1, PLENTY).await).len(), 1);
        let reason = failure(&format!("last of {life}"));
        let end = if life == 1 {
            End::Hold(reason)
        } else {
            End::Bury(reason)
        };
        must_apply(&*queue, the_one(&*queue).await.lease, end).await;
        let _ = answered(queue.revive(&[id]).await);
    }
    must_apply(&*queue, the_one(&*queue).await.lease, End::Done("at last".into())).await;
    let attempts = history(&*queue, id).await;
    let told = |attempt: &AttemptView| match attempt.failure.kind {
        FailureKind::Lost => ("lost".to_owned(), attempt.then),
        _ => (attempt.failure.message.clone(), attempt.then),
    };
    let mut expected = Vec::new();
    for (life, then) in [TaskState::Dead, TaskState::Held, TaskState::Dead]
        .into_iter()
        .enumerate()
    {
        expected.push((format!("first of {life}"), TaskState::Waiting));
        expected.push(("lost".to_owned(), TaskState::Waiting));
        expected.push((format!("last of {life}"), then));
    }
    assert_eq!(attempts.iter().map(told).collect::<Vec<_>>(), expected);
    assert!(attempts.is_sorted_by(|one, next| one.fence < next.fence && one.ended_at <= next.ended_at));
}

/// A history is of one task.
pub async fn histories_are_kept_apart<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for key in ["a", "b"] {
        let lease = running(&*queue, key).await.lease;
        must_apply(&*queue, lease, End::Bury(failure(key))).await;
    }
    for key in ["a", "b"] {
        let attempts = history(&*queue, task(key).id()).await;
        assert!(
            attempts.len() == 1 && attempts[0].failure.message == key,
            "{attempts:?}"
        );
    }
}
