//! What somebody found out about a held or dead task can be written into it.

use bytes::Bytes;
use exactly::Fenced;
use exactly::queue::{End, Enqueued, Fence, InspectQueue as _, Lease, Queue as _, TaskId, TaskState};

use crate::QueueHarness;
use crate::answers::answered;
use crate::work::{failure, history, in_state, leased, must_apply, shown, task, the_one};

const FOUND_OUT: Bytes = Bytes::from_static(b"{\"invoice\": 17}");

/// It is done with this outcome, keeps its history, and whoever enqueues its key is told. Saying it again changes nothing;
/// saying otherwise does not either.
pub async fn held_and_dead_tasks_are_concluded<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for state in [TaskState::Dead, TaskState::Held] {
        let id = in_state(&*queue, state.as_str(), state).await;
        let (before, attempts) = (shown(&*queue, id).await, history(&*queue, id).await);
        let seen = Lease {
            id,
            fence: before.fence,
        };
        assert_eq!(answered(queue.conclude(seen, &FOUND_OUT).await), Fenced::Applied);
        let after = shown(&*queue, id).await;
        assert_eq!(
            (after.state, after.outcome.as_ref()),
            (TaskState::Done, Some(&FOUND_OUT))
        );
        assert!(after.ended_at >= before.ended_at && after.due_at.is_none(), "{after:?}");
        assert_eq!(history(&*queue, id).await, attempts);
        assert_eq!(answered(queue.conclude(seen, &FOUND_OUT).await), Fenced::Applied);
        let otherwise = answered(queue.conclude(seen, &Bytes::from_static(b"null")).await);
        assert_eq!(otherwise, Fenced::Superseded);
        assert_eq!(shown(&*queue, id).await, after);
        let again = answered(queue.enqueue(&[task(state.as_str())]).await);
        assert!(
            matches!(&again[..], [Enqueued::Found(found)] if found.outcome.as_ref() == Some(&FOUND_OUT)),
            "{again:?}"
        );
        assert_eq!(answered(queue.revive(&[id]).await), [Some(TaskState::Done)]);
    }
    assert_eq!(leased(&*queue, 10).await, []);
}

/// The word is about what was seen. Whatever waits, runs or has another fence stays as it is, and nothing is made of a task
/// that is not there.
pub async fn what_was_revived_is_not_concluded<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut ids = Vec::new();
    for state in [TaskState::Waiting, TaskState::Running, TaskState::Done] {
        ids.push(in_state(&*queue, state.as_str(), state).await);
    }
    let id = in_state(&*queue, "revived", TaskState::Held).await;
    let seen = Lease {
        id,
        fence: shown(&*queue, id).await.fence,
    };
    assert_eq!(answered(queue.revive(&[id]).await), [Some(TaskState::Held)]);
    assert_eq!(answered(queue.conclude(seen, &FOUND_OUT).await), Fenced::Superseded);
    // Held once more, for what happened since, of which nobody has said anything.
    must_apply(&*queue, the_one(&*queue).await.lease, End::Hold(failure("ask again"))).await;
    let held = shown(&*queue, id).await;
    assert_eq!(answered(queue.conclude(seen, &FOUND_OUT).await), Fenced::Superseded);
    assert_eq!(shown(&*queue, id).await, held);
    assert_eq!(answered(queue.revive(&[id]).await), [Some(TaskState::Held)]);
    ids.push(id);
    for id in ids {
        let before = shown(&*queue, id).await;
        let now = Lease {
            id,
            fence: before.fence,
        };
        assert_eq!(answered(queue.conclude(now, &FOUND_OUT).await), Fenced::Superseded);
        assert_eq!(shown(&*queue, id).await, before);
    }
    let nowhere = Lease {
        id: TaskId::of("offer", "never enqueued"),
        fence: Fence::new(1),
    };
    assert_eq!(answered(queue.conclude(nowhere, &FOUND_OUT).await), Fenced::Superseded);
    assert_eq!(answered(queue.show(nowhere.id).await), None);
}
