//! What has ended long ago is forgotten, and nothing else.

use std::time::Duration;

use exactly::queue::{End, Enqueued, InspectQueue as _, Queue as _, TaskState};

use crate::QueueHarness;
use crate::answers::answered;
use crate::work::{PLENTY, added, history, in_state, leased, must_apply, running, shown, task, the_one};

/// Long ago, but not long enough for a retry to be due.
const AGE: Duration = Duration::from_mins(20);

/// Only tasks in the state that was named, and in it for longer than that.
pub async fn only_what_ended_long_ago_is_pruned<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut ids = Vec::new();
    for state in TaskState::ALL {
        ids.push((state, in_state(&*queue, state.as_str(), state).await));
    }
    harness.elapse(AGE).await;
    for state in [TaskState::Done, TaskState::Dead] {
        let young = in_state(&*queue, &format!("young {state}"), state).await;
        assert_eq!(answered(queue.prune(state, AGE * 2, PLENTY).await), 0);
        assert_eq!(answered(queue.prune(state, AGE / 2, PLENTY).await), 1);
        assert_eq!(answered(queue.prune(state, AGE / 2, PLENTY).await), 0);
        assert_eq!(shown(&*queue, young).await.state, state);
    }
    for (state, id) in ids {
        let kept = answered(queue.show(id).await).map(|view| view.state);
        let ended = matches!(state, TaskState::Done | TaskState::Dead);
        assert_eq!(kept, (!ended).then_some(state));
    }
}

/// Work that is not over is never forgotten, whatever is asked for.
pub async fn undone_work_is_never_pruned<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let undone = [TaskState::Waiting, TaskState::Running, TaskState::Held];
    let mut ids = Vec::new();
    for state in undone {
        ids.push(in_state(&*queue, state.as_str(), state).await);
    }
    harness.elapse(AGE).await;
    for state in undone {
        // It may also be refused.
        let pruned = queue.prune(state, Duration::ZERO, PLENTY).await;
        assert_eq!(pruned.unwrap_or(0), 0);
    }
    for id in ids {
        let _ = shown(&*queue, id).await;
    }
}

/// A key that was forgotten is fresh: it is added, runs, and has no history.
pub async fn a_pruned_key_is_fresh<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    for state in [TaskState::Done, TaskState::Dead] {
        let id = in_state(&*queue, state.as_str(), state).await;
        harness.elapse(AGE).await;
        assert_eq!(answered(queue.prune(state, AGE / 2, PLENTY).await), 1);
        assert_eq!(answered(queue.show(id).await), None);
        assert_eq!(history(&*queue, id).await, []);
        assert_eq!(
            answered(other.enqueue(&[task(state.as_str())]).await),
            [Enqueued::New(id)]
        );
        assert_eq!(the_one(&*queue).await.failures, 0);
        assert_eq!(history(&*queue, id).await, []);
    }
}

/// Who remembers the fence of a task that was forgotten takes the one that has its key now for the later one.
pub async fn a_pruned_keys_fence_rises_on<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut fences = Vec::new();
    for _ in 0..3 {
        let lease = running(&*queue, "a").await.lease;
        fences.push(lease.fence);
        must_apply(&*queue, lease, End::Done("done".into())).await;
        harness.elapse(AGE).await;
        assert_eq!(answered(queue.prune(TaskState::Done, AGE / 2, PLENTY).await), 1);
    }
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
}

/// No more are forgotten than asked for.
pub async fn a_prune_honours_its_limit<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for n in 0..25 {
        let _ = in_state(&*queue, &n.to_string(), TaskState::Done).await;
    }
    harness.elapse(AGE).await;
    assert_eq!(answered(queue.prune(TaskState::Done, AGE / 2, 0).await), 0);
    for expected in [10, 10, 5, 0] {
        assert_eq!(answered(queue.prune(TaskState::Done, AGE / 2, 10).await), expected);
    }
}

/// Hundreds are forgotten in one call, and those beside them are not.
pub async fn hundreds_are_pruned_at_once<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let bulk = crate::work::tasks("bulk", 700);
    added(&*queue, &bulk).await;
    let done = leased(&*queue, 650).await.into_iter().map(|leased| {
        let outcome = exactly::queue::End::Done("done".into());
        exactly::queue::Settlement::new(leased.lease, outcome)
    });
    let done: Vec<_> = done.collect();
    let _ = answered(queue.settle(&done).await);
    harness.elapse(AGE).await;
    assert_eq!(answered(queue.prune(TaskState::Done, AGE / 2, PLENTY).await), 650);
    assert_eq!(leased(&*queue, 700).await.len(), 50);
}

/// A revived task is not as old as its death.
pub async fn a_revived_task_is_not_pruned<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let id = in_state(&*queue, "a", TaskState::Dead).await;
    harness.elapse(AGE).await;
    assert_eq!(answered(queue.revive(&[id]).await), [Some(TaskState::Dead)]);
    assert_eq!(answered(queue.prune(TaskState::Dead, Duration::ZERO, PLENTY).await), 0);
    let lease = the_one(&*queue).await.lease;
    crate::work::must_apply(&*queue, lease, exactly::queue::End::Bury(crate::work::failure("again"))).await;
    assert_eq!(answered(queue.prune(TaskState::Dead, AGE / 2, PLENTY).await), 0);
}
