//! What is dead or held can be brought back.

use exactly::queue::{End, Queue as _, TaskId, TaskState};
use futures_util::future::join_all;

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::LEASE_AND_A_BIT;
use crate::work::{
    PLENTY, RESCUES_MAX, added, failure, history, in_state, leased, must_apply, retry, shown, task, the_one,
};

/// A dead or held task waits again, is due at once, and keeps what it was.
pub async fn dead_and_held_tasks_are_revived<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for state in [TaskState::Dead, TaskState::Held] {
        let id = in_state(&*queue, state.as_str(), state).await;
        assert_eq!(answered(queue.revive(&[id]).await), [Some(state)]);
        let view = shown(&*queue, id).await;
        assert_eq!((view.state, view.ended_at), (TaskState::Waiting, None));
        let leased = the_one(&*queue).await;
        assert_eq!((leased.lease.id, &*leased.key), (id, state.as_str()));
        assert_eq!(&leased.payload[..], format!("payload of {state}").as_bytes());
        must_apply(&*queue, leased.lease, End::Done("at last".into())).await;
    }
}

/// Only dead and held tasks are changed; of every other one it says what it is, and nothing of what is not there.
pub async fn only_dead_and_held_tasks_are_revived<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut ids = vec![TaskId::of("offer", "never enqueued")];
    for state in TaskState::ALL {
        ids.push(in_state(&*queue, state.as_str(), state).await);
    }
    let mut before = Vec::new();
    for id in &ids {
        before.push(answered(exactly::queue::InspectQueue::show(&*queue, *id).await));
    }
    let expected: Vec<_> = before.iter().map(|view| view.as_ref().map(|view| view.state)).collect();
    assert_eq!(answered(queue.revive(&ids).await), expected);
    for (id, before) in ids.iter().zip(before) {
        let after = answered(exactly::queue::InspectQueue::show(&*queue, *id).await);
        if before
            .as_ref()
            .is_some_and(|view| matches!(view.state, TaskState::Dead | TaskState::Held))
        {
            assert_eq!(after.map(|view| view.state), Some(TaskState::Waiting));
        } else {
            assert_eq!(after, before);
        }
    }
}

/// Reviving again finds it waiting, and changes nothing: what is asked for twice starts once.
pub async fn reviving_twice_is_reviving_once<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    let id = in_state(&*queue, "a", TaskState::Dead).await;
    let ids = [id];
    let answers = join_all([queue.revive(&ids), other.revive(&ids), queue.revive(&ids)]).await;
    let revived = answers
        .into_iter()
        .map(answered)
        .filter(|was| *was == [Some(TaskState::Dead)]);
    assert_eq!(revived.count(), 1);
    let before = shown(&*queue, id).await;
    assert_eq!(answered(other.revive(&[id]).await), [Some(TaskState::Waiting)]);
    assert_eq!(shown(&*queue, id).await, before);
    let _ = the_one(&*queue).await;
    assert_eq!(answered(queue.revive(&[id]).await), [Some(TaskState::Running)]);
    assert_eq!(leased(&*queue, 10).await, []);
    // In one call as well: who counts what was revived counts it once.
    for state in [TaskState::Dead, TaskState::Held] {
        let id = in_state(&*queue, &format!("{state} twice"), state).await;
        let twice = answered(queue.revive(&[id, id]).await);
        assert_eq!(twice, [Some(state), Some(TaskState::Waiting)]);
        assert_eq!(leased(&*queue, 10).await.len(), 1);
    }
}

/// Failures and rescues start anew; the history stays.
pub async fn a_revived_task_starts_anew_and_keeps_its_history<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    must_apply(&*queue, the_one(&*queue).await.lease, retry("first")).await;
    let _ = the_one(&*queue).await;
    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(answered(queue.rescue(RESCUES_MAX, PLENTY).await).len(), 1);
    must_apply(&*queue, the_one(&*queue).await.lease, End::Bury(failure("never"))).await;
    let id = task("a").id();
    let before = history(&*queue, id).await;
    assert_eq!(before.len(), 3);
    assert_eq!(answered(queue.revive(&[id]).await), [Some(TaskState::Dead)]);
    let view = shown(&*queue, id).await;
    assert_eq!((view.failures, view.rescues), (0, 0));
    assert_eq!(history(&*queue, id).await, before);
    let leased = the_one(&*queue).await;
    assert_eq!((leased.failures, leased.rescues), (0, 0));
    harness.elapse(LEASE_AND_A_BIT).await;
    let rescued = answered(queue.rescue(1, PLENTY).await);
    assert!(rescued.len() == 1 && rescued[0].waits, "{rescued:?}");
}
