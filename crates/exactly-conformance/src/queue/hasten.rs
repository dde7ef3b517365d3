//! What waits can be made due now.

use std::time::Duration;

use exactly::queue::{End, InspectQueue as _, Queue as _, TaskId, TaskState};

use crate::QueueHarness;
use crate::answers::answered;
use crate::work::{added, failure, in_state, leased, must_apply, shown, task, the_one};

/// It is leased at once, with the attempts that it has left; once, however often it was asked for.
pub async fn a_hastened_task_is_due_now_and_nothing_else_of_it_changes<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    let later = End::Retry {
        after: Duration::from_hours(1),
        failure: failure("later"),
    };
    must_apply(&*queue, the_one(&*queue).await.lease, later).await;
    assert_eq!(leased(&*queue, 10).await, []);
    let id = task("a").id();
    let before = shown(&*queue, id).await;
    for _ in 0..2 {
        assert_eq!(answered(queue.hasten(&[id]).await), [Some(TaskState::Waiting)]);
    }
    let mut after = shown(&*queue, id).await;
    assert!(after.due_at < before.due_at, "{after:?}");
    after.due_at = before.due_at;
    assert_eq!(after, before);
    let leased_now = the_one(&*queue).await;
    assert_eq!((leased_now.lease.id, leased_now.failures), (id, 1));
    assert_eq!(leased(&*queue, 10).await, []);
}

/// Of every other one it says what it is, and nothing of what is not there.
pub async fn only_waiting_tasks_are_hastened<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut ids = vec![TaskId::of("offer", "never enqueued")];
    for state in TaskState::ALL {
        ids.push(in_state(&*queue, state.as_str(), state).await);
    }
    let mut before = Vec::new();
    for id in &ids {
        before.push(answered(queue.show(*id).await));
    }
    let expected: Vec<_> = before.iter().map(|view| view.as_ref().map(|view| view.state)).collect();
    assert_eq!(answered(queue.hasten(&ids).await), expected);
    for (id, before) in ids.iter().zip(before) {
        let after = answered(queue.show(*id).await);
        if before.as_ref().is_some_and(|view| view.state == TaskState::Waiting) {
            assert!(after.map(|view| view.due_at) < before.map(|view| view.due_at));
        } else {
            assert_eq!(after, before);
        }
    }
}
