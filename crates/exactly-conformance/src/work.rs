//! Tasks as the suites of queues use them, and the steps that most promises begin with.

use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{
    Ask, AttemptView, End, Failure, FailureKind, InspectQueue, Lane, Lease, Leased, Queue, Ruling, Settlement, Task,
    TaskId, TaskState, TaskView, WorkerId,
};

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::{LEASE, LEASE_AND_A_BIT};

/// How often tasks are rescued here before they are dead, where a promise is not about it.
pub(crate) const RESCUES_MAX: u32 = 5;

/// A limit that nothing here reaches.
pub(crate) const PLENTY: u32 = 10_000;

/// How long a retry waits here.
pub(crate) const BACKOFF: Duration = Duration::from_mins(30);

/// Past the end of a backoff.
pub(crate) const BACKOFF_AND_A_BIT: Duration = Duration::from_secs(30 * 60 + 1);

pub(crate) fn task(key: &str) -> Task {
    Task::new("offer", key, format!("payload of {key}")).expect("suites use valid tasks")
}

pub(crate) fn lane(name: &str) -> Lane {
    Lane::new(name).expect("suites use valid lanes")
}

/// So many tasks in the lane of this name, with keys that sort in their order.
pub(crate) fn tasks(name: &str, count: usize) -> Vec<Task> {
    let keys = (0..count).map(|n| format!("{name}-{n:05}"));
    keys.map(|key| task(&key).in_lane(lane(name))).collect()
}

/// Adds tasks whose keys are fresh.
#[track_caller]
pub(crate) fn all_new(enqueued: Result<Vec<exactly::queue::Enqueued>, exactly::StoreError>) -> Vec<TaskId> {
    let enqueued = answered(enqueued);
    for answer in &enqueued {
        assert!(answer.is_new(), "the key is fresh, but: {answer:?}");
    }
    enqueued.iter().map(exactly::queue::Enqueued::id).collect()
}

pub(crate) async fn added(queue: &impl Queue, tasks: &[Task]) -> Vec<TaskId> {
    all_new(queue.enqueue(tasks).await)
}

pub(crate) fn ask(most: u32) -> Ask {
    Ask::new(WorkerId::random(), most).for_time(LEASE)
}

pub(crate) async fn leased(queue: &impl Queue, most: u32) -> Vec<Leased> {
    answered(queue.lease(&ask(most)).await)
}

/// The only task that is due.
pub(crate) async fn the_one(queue: &impl Queue) -> Leased {
    let mut leased = leased(queue, 10).await;
    assert_eq!(leased.len(), 1, "one task is due, but: {leased:?}");
    leased.remove(0)
}

/// A fresh task that runs.
pub(crate) async fn running(queue: &impl Queue, key: &str) -> Leased {
    added(queue, &[task(key)]).await;
    the_one(queue).await
}

/// A fresh task that is in this state. Nothing else may be due.
pub(crate) async fn in_state(queue: &impl Queue, key: &str, state: TaskState) -> TaskId {
    let end = match state {
        TaskState::Waiting => End::Retry {
            after: BACKOFF,
            failure: failure("later"),
        },
        TaskState::Running => return running(queue, key).await.lease.id,
        TaskState::Held => End::Hold(failure("ask somebody")),
        TaskState::Done => End::Done(format!("outcome of {key}").into()),
        TaskState::Dead => End::Bury(failure("never")),
    };
    let lease = running(queue, key).await.lease;
    must_apply(queue, lease, end).await;
    lease.id
}

pub(crate) fn failure(message: &str) -> Failure {
    Failure::new(FailureKind::Transient, message)
}

pub(crate) fn retry(message: &str) -> End {
    End::Retry {
        after: Duration::ZERO,
        failure: failure(message),
    }
}

/// One of each end, all different in content.
pub(crate) fn every_end() -> [End; 6] {
    [
        End::Done("done".into()),
        End::Retry {
            after: BACKOFF,
            failure: failure("retried"),
        },
        End::Bury(failure("buried")),
        End::Hold(failure("held")),
        End::Release,
        End::Defer { after: BACKOFF },
    ]
}

/// What a task is after this end.
pub(crate) fn state_after(end: &End) -> TaskState {
    match end {
        End::Done(_) => TaskState::Done,
        End::Retry { .. } | End::Release | End::Defer { .. } => TaskState::Waiting,
        End::Bury(_) => TaskState::Dead,
        End::Hold(_) => TaskState::Held,
    }
}

pub(crate) async fn settled(queue: &impl Queue, lease: Lease, end: End) -> Fenced {
    let rulings = answered(queue.settle(&[Settlement::new(lease, end)]).await);
    let [ruling] = rulings[..] else {
        panic!("one settlement has one answer, not {rulings:?}")
    };
    ruled(ruling)
}

pub(crate) async fn must_apply(queue: &impl Queue, lease: Lease, end: End) {
    let fenced = settled(queue, lease, end.clone()).await;
    assert_eq!(fenced, Fenced::Applied, "the lease owns its task: {end:?}");
}

pub(crate) async fn must_be_superseded(queue: &impl Queue, lease: Lease, end: End) {
    let fenced = settled(queue, lease, end.clone()).await;
    assert_eq!(fenced, Fenced::Superseded, "the lease does not own the task: {end:?}");
}

pub(crate) async fn renewed(queue: &impl Queue, lease: Lease, by: Duration) -> Fenced {
    let rulings = answered(queue.renew(&[lease], by).await);
    let [ruling] = rulings[..] else {
        panic!("one lease has one answer, not {rulings:?}")
    };
    ruled(ruling)
}

/// What is ruled on a task that nobody has locked.
#[track_caller]
pub(crate) fn ruled(ruling: Ruling) -> Fenced {
    match ruling {
        Ruling::Applied => Fenced::Applied,
        Ruling::Superseded => Fenced::Superseded,
        Ruling::Busy => panic!("no transaction is open"),
    }
}

pub(crate) async fn shown(queue: &impl InspectQueue, id: TaskId) -> TaskView {
    answered(queue.show(id).await).expect("the task is there")
}

pub(crate) async fn history(queue: &impl InspectQueue, id: TaskId) -> Vec<AttemptView> {
    answered(queue.attempts(id).await)
}

/// Its lease ends without a word, and it is rescued.
pub(crate) async fn lost<H: QueueHarness>(harness: &H, queue: &H::Queue) {
    harness.elapse(LEASE_AND_A_BIT).await;
    let rescued = answered(queue.rescue(RESCUES_MAX, PLENTY).await);
    assert_eq!(rescued.len(), 1, "one lease has ended, but: {rescued:?}");
}

pub(crate) fn keys(leased: &[Leased]) -> Vec<&str> {
    leased.iter().map(|leased| &*leased.key).collect()
}
