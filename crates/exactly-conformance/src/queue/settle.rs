//! How an attempt ends, once.

use std::sync::Arc;
use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{End, Failure, FailureKind, Fence, Lease, Queue as _, Ruling, Settlement, TaskState};
use futures_util::future::join_all;
use tokio::sync::Barrier;

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::{LEASE_AND_A_BIT, assert_about};
use crate::work::{
    BACKOFF, BACKOFF_AND_A_BIT, added, every_end, failure, history, leased, must_apply, must_be_superseded, retry,
    running, settled, shown, state_after, task, tasks, the_one,
};

/// A task that is done keeps its outcome, and is never leased again.
pub async fn done_stores_the_outcome<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    must_apply(&*queue, lease, End::Done("three offers".into())).await;
    let view = shown(&*queue, lease.id).await;
    assert_eq!(view.state, TaskState::Done);
    assert_eq!(view.outcome.as_deref(), Some(&b"three offers"[..]));
    assert!(view.ended_at >= view.started_at && view.ended_at.is_some(), "{view:?}");
    assert_eq!((view.due_at, view.failures), (None, 0));
    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(leased(&*queue, 10).await, []);
    assert_eq!(answered(queue.rescue(0, 10).await), []);
}

/// A retry waits as long as it was told to, counted from its settlement.
pub async fn a_retry_waits_its_time<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    harness.elapse(Duration::from_mins(10)).await;
    let (after, failure) = (BACKOFF, failure("the database was away"));
    let end = End::Retry {
        after,
        failure: failure.clone(),
    };
    must_apply(&*queue, lease, end).await;
    let view = shown(&*queue, lease.id).await;
    assert_eq!((view.state, view.failures), (TaskState::Waiting, 1));
    assert_eq!((view.failure, view.ended_at), (Some(failure), None));
    let now = answered(exactly::queue::InspectQueue::now(&*queue).await);
    assert_about(view.due_at.expect("it is due at some time").since(now), BACKOFF);
    harness.elapse(BACKOFF / 2).await;
    assert_eq!(leased(&*queue, 10).await, []);
    harness.elapse(BACKOFF_AND_A_BIT).await;
    assert_eq!(the_one(&*queue).await.failures, 1);
}

/// A buried task is dead with its reason, and is not leased again.
pub async fn a_buried_task_is_dead<H: QueueHarness>(harness: &H) {
    ends_for_good(harness, End::Bury(failure("never")), TaskState::Dead).await;
}

/// A held task stays with its reason, and is not leased before somebody revives it.
pub async fn a_held_task_stays<H: QueueHarness>(harness: &H) {
    ends_for_good(harness, End::Hold(failure("ask somebody")), TaskState::Held).await;
}

/// A released task is due at once; no attempt is used up, and none is noted.
pub async fn a_release_uses_up_no_attempt<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    must_apply(&*queue, lease, End::Release).await;
    let view = shown(&*queue, lease.id).await;
    assert_eq!((view.state, view.failures, view.rescues), (TaskState::Waiting, 0, 0));
    assert_eq!((view.failure, view.ended_at), (None, None));
    assert_eq!(history(&*queue, lease.id).await, []);
    let again = the_one(&*queue).await;
    assert_eq!((again.failures, again.rescues), (0, 0));
}

/// A deferred task waits as long as it was told to, counted from its settlement; no attempt is used up, and none is noted.
pub async fn a_deferral_waits_its_time_and_uses_up_no_attempt<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let first = running(&*queue, "a").await.lease;
    must_apply(&*queue, first, retry("again")).await;
    let second = the_one(&*queue).await;
    harness.elapse(Duration::from_mins(10)).await;
    let defer = || End::Defer { after: BACKOFF };
    must_apply(&*queue, second.lease, defer()).await;
    must_apply(&*queue, second.lease, defer()).await;
    let view = shown(&*queue, first.id).await;
    assert_eq!((view.state, view.failures, view.rescues), (TaskState::Waiting, 1, 0));
    assert_eq!((view.failure, view.ended_at), (Some(failure("again")), None));
    assert_eq!(history(&*queue, first.id).await.len(), 1);
    let now = answered(exactly::queue::InspectQueue::now(&*queue).await);
    assert_about(view.due_at.expect("it is due at some time").since(now), BACKOFF);
    harness.elapse(BACKOFF / 2).await;
    assert_eq!(leased(&*queue, 10).await, []);
    harness.elapse(BACKOFF_AND_A_BIT).await;
    let third = the_one(&*queue).await;
    assert_eq!((third.failures, third.rescues), (1, 0));
    assert!(third.lease.fence > second.lease.fence, "a fence rises with each lease");
}

/// Each failed attempt counts, and the next worker is told how many there were.
pub async fn failures_are_counted<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    for failures in 0..4 {
        let leased = the_one(&*queue).await;
        assert_eq!((leased.failures, leased.rescues), (failures, 0));
        must_apply(&*queue, leased.lease, retry("again")).await;
    }
    assert_eq!(shown(&*queue, task("a").id()).await.failures, 4);
}

/// What the task had no part in is noted, and uses up no retry.
pub async fn only_its_own_failures_are_counted<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut counted = 0;
    added(&*queue, &[task("a")]).await;
    for (noted, kind) in FailureKind::ALL.iter().enumerate() {
        let leased = the_one(&*queue).await;
        assert_eq!((leased.failures, leased.rescues), (counted, 0), "before {kind}");
        let failure = Failure::new(*kind, "again");
        let retry = End::Retry {
            after: Duration::ZERO,
            failure: failure.clone(),
        };
        must_apply(&*queue, leased.lease, retry).await;
        assert_eq!(shown(&*queue, leased.lease.id).await.failure, Some(failure));
        assert_eq!(history(&*queue, leased.lease.id).await.len(), noted + 1);
        let not_its_own = matches!(
            kind,
            FailureKind::Lost | FailureKind::Stopped | FailureKind::UnknownKind
        );
        counted += u32::from(!not_its_own);
    }
    assert_eq!(the_one(&*queue).await.failures, counted);
}

/// Every kind of failure comes back as it was told.
pub async fn every_kind_of_failure_is_kept<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for kind in FailureKind::ALL {
        let lease = running(&*queue, kind.as_str()).await.lease;
        let failure = Failure::new(*kind, format!("it was {kind}"));
        must_apply(&*queue, lease, End::Bury(failure.clone())).await;
        assert_eq!(shown(&*queue, lease.id).await.failure, Some(failure.clone()));
        assert_eq!(history(&*queue, lease.id).await[0].failure, failure);
    }
}

/// One batch with every end, and with leases that own nothing in between: a verdict for each, in order.
pub async fn a_batch_of_every_end_is_answered_in_order<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &tasks("mixed", 20)).await;
    let leases: Vec<_> = leased(&*queue, 20).await.iter().map(|leased| leased.lease).collect();
    let batch = leases.iter().enumerate().map(|(n, lease)| {
        let fence = if n % 4 == 3 {
            lease.fence.get() + 1
        } else {
            lease.fence.get()
        };
        let fence = Fence::new(fence);
        Settlement::new(Lease { fence, ..*lease }, every_end()[n % 6].clone())
    });
    let batch: Vec<_> = batch.rev().collect();
    let fenced = answered(queue.settle(&batch).await);
    assert_eq!(fenced.len(), batch.len());
    for ((n, settlement), fenced) in (0..batch.len()).rev().zip(&batch).zip(fenced) {
        let owns = n % 4 != 3;
        assert_eq!(fenced, if owns { Fenced::Applied } else { Fenced::Superseded }, "{n}");
        let view = shown(&*queue, settlement.lease.id).await;
        let expected = if owns {
            state_after(&settlement.end)
        } else {
            TaskState::Running
        };
        assert_eq!(view.state, expected, "{n}");
    }
}

/// Many at once are settled, each with its own outcome.
pub async fn thousands_are_settled_at_once<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let bulk = tasks("bulk", 2000);
    added(&*queue, &bulk).await;
    let leased = leased(&*queue, 2000).await;
    let done = leased.iter().map(|leased| {
        let outcome = format!("outcome of {}", leased.key);
        Settlement::new(leased.lease, End::Done(outcome.into()))
    });
    let done: Vec<_> = done.collect();
    assert!(
        answered(queue.settle(&done).await)
            .iter()
            .all(|fenced| *fenced == Fenced::Applied)
    );
    for (answer, task) in answered(queue.enqueue(&bulk).await).iter().zip(&bulk) {
        let exactly::queue::Enqueued::Found(found) = answer else {
            panic!("the key is taken, but: {answer:?}")
        };
        assert_eq!(found.outcome, Some(format!("outcome of {}", task.key()).into()));
    }
}

/// A lost reply is not a lost write: saying it again is applied, and changes nothing.
pub async fn settling_again_in_the_same_way_is_applied<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    for end in every_end() {
        added(&*queue, &[task(&format!("{end:?}"))]).await;
        let lease = leased(&*queue, 1).await[0].lease;
        must_apply(&*queue, lease, end.clone()).await;
        let (view, attempts) = (shown(&*queue, lease.id).await, history(&*queue, lease.id).await);
        must_apply(&*other, lease, end.clone()).await;
        must_apply(&*queue, lease, end).await;
        assert_eq!(shown(&*queue, lease.id).await, view);
        assert_eq!(history(&*queue, lease.id).await, attempts);
    }
}

/// What has ended one way does not end another way.
pub async fn settling_again_in_another_way_is_superseded<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let others = [
        End::Done("another outcome".into()),
        End::Done(Vec::new().into()),
        retry("another reason"),
        End::Bury(failure("another reason")),
        End::Hold(failure("another reason")),
        End::Bury(Failure::new(FailureKind::Logic, "buried")),
    ];
    for (n, first) in every_end().into_iter().enumerate() {
        added(&*queue, &[task(&n.to_string())]).await;
        let lease = leased(&*queue, 1).await[0].lease;
        must_apply(&*queue, lease, first.clone()).await;
        let view = shown(&*queue, lease.id).await;
        // How a task was given back leaves no trace.
        let is_same = |end: &End| *end == first || (end.is_given_back() && first.is_given_back());
        for second in every_end()
            .into_iter()
            .chain(others.clone())
            .filter(|end| !is_same(end))
        {
            must_be_superseded(&*queue, lease, second).await;
        }
        assert_eq!(shown(&*queue, lease.id).await, view);
    }
}

/// An attempt that was released is not taken for one that failed as the one before it did.
pub async fn a_release_is_not_taken_for_a_retry<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let first = running(&*queue, "a").await.lease;
    must_apply(&*queue, first, retry("again")).await;
    let second = the_one(&*queue).await.lease;
    must_apply(&*queue, second, End::Release).await;
    must_be_superseded(&*queue, second, retry("again")).await;
    must_apply(&*queue, second, End::Release).await;
    assert_eq!(shown(&*queue, first.id).await.failures, 1);
}

/// Two different ends of one lease in one batch: one of them counts, and the other is told so.
pub async fn of_two_ends_in_one_batch_one_applies<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    let batch = [
        Settlement::new(lease, End::Done("done".into())),
        Settlement::new(lease, End::Bury(failure("never"))),
    ];
    let fenced = answered(queue.settle(&batch).await);
    let applied = match fenced[..] {
        [Ruling::Applied, Ruling::Superseded] => TaskState::Done,
        [Ruling::Superseded, Ruling::Applied] => TaskState::Dead,
        _ => panic!("two ends of one lease answered {fenced:?}"),
    };
    assert_eq!(shown(&*queue, lease.id).await.state, applied);
}

/// Of ten different ends at once, through two queues, one is applied.
pub async fn of_ten_concurrent_settlements_one_applies<H: QueueHarness>(harness: &H) {
    let queues = [harness.open().await, harness.open().await];
    for round in 0..5 {
        let lease = running(&*queues[0], &round.to_string()).await.lease;
        let start = Arc::new(Barrier::new(10));
        let callers = (0..10).map(|n| {
            let (queue, start) = (Arc::clone(&queues[n % 2]), Arc::clone(&start));
            let reason = n.to_string();
            let end = if n % 2 == 0 {
                End::Bury(failure(&reason))
            } else {
                End::Done(reason.into())
            };
            tokio::spawn(async move {
                start.wait().await;
                settled(&*queue, lease, end).await
            })
        });
        let callers: Vec<_> = callers.collect();
        let fenced = join_all(callers)
            .await
            .into_iter()
            .map(|fenced| fenced.expect("a caller panicked"));
        assert_eq!(fenced.filter(|fenced| *fenced == Fenced::Applied).count(), 1);
    }
}

/// A worker that is late is not too late while nobody has rescued its task.
pub async fn a_late_settlement_is_applied_before_the_rescue<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    harness.elapse(LEASE_AND_A_BIT).await;
    must_apply(&*queue, lease, End::Done("late".into())).await;
    assert_eq!(answered(queue.rescue(5, 10).await), []);
}

/// A task that failed before it was done shows its outcome, and still why it had failed.
pub async fn done_comes_after_failures<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let first = running(&*queue, "a").await.lease;
    must_apply(&*queue, first, retry("again")).await;
    let second = the_one(&*queue).await.lease;
    must_apply(&*queue, second, End::Done("done".into())).await;
    must_apply(&*queue, second, End::Done("done".into())).await;
    let view = shown(&*queue, first.id).await;
    assert_eq!((view.state, view.failures), (TaskState::Done, 1));
    assert_eq!(
        (view.outcome, view.failure),
        (Some("done".into()), Some(failure("again")))
    );
}

async fn ends_for_good<H: QueueHarness>(harness: &H, end: End, state: TaskState) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    must_apply(&*queue, lease, end.clone()).await;
    let view = shown(&*queue, lease.id).await;
    assert_eq!((view.state, view.failures, view.due_at), (state, 1, None));
    assert!(view.ended_at >= view.started_at && view.ended_at.is_some(), "{view:?}");
    let (End::Bury(failure) | End::Hold(failure)) = end else {
        panic!("{end:?} is not for good")
    };
    assert_eq!((view.failure, view.outcome), (Some(failure), None));
    harness.elapse(Duration::from_hours(48)).await;
    assert_eq!(leased(&*queue, 10).await, []);
    assert_eq!(answered(queue.rescue(0, 10).await), []);
}
