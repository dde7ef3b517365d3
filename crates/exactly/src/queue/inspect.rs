//! Looking at tasks, for operators and metrics.

use bytes::Bytes;

use super::{Failure, Fence, Lane, Queue, TaskId, TaskState, WorkerId};
use crate::clock::Timestamp;
use crate::store::Reply;

/// A queue that shows what it holds. Looking changes nothing.
pub trait InspectQueue: Queue {
    /// One task, if it is there.
    fn show(&self, id: TaskId) -> Reply<'_, Option<TaskView>>;

    /// Its attempts that ended without an outcome, and those that were lost, oldest first, over all its lives.
    fn attempts(&self, id: TaskId) -> Reply<'_, Vec<AttemptView>>;

    /// A page of tasks, by id.
    fn list<'a>(&'a self, filter: &'a TaskFilter, page: TaskPage) -> Reply<'a, Vec<TaskView>>;

    /// Goes on over tasks by id, and shows those that are wanted. For whoever goes over all of them: each call looks at so many
    /// and no more, however rare the wanted ones are.
    fn walk<'a>(&'a self, walk: &'a Walk) -> Reply<'a, Walked>;

    /// Every lane that is paused or capped, by name.
    fn lanes(&self) -> Reply<'_, Vec<LaneView>>;

    /// How many tasks there are by lane and state, except done ones, which are too many to count.
    fn depths(&self) -> Reply<'_, Vec<Depth>>;

    /// The present instant on the clock that judges tasks.
    fn now(&self) -> Reply<'_, Timestamp>;
}

/// A task as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// What its kind and key come to.
    pub id: TaskId,
    /// Which handler it is for.
    pub kind: Box<str>,
    /// What it is known by, among its kind.
    pub key: Box<str>,
    /// The lane that it is in.
    pub lane: Lane,
    /// What its handler gets.
    pub payload: Bytes,
    /// The version of its algorithm.
    pub version: u32,
    /// Where it is on its way.
    pub state: TaskState,
    /// How many attempts have failed since it was enqueued or revived.
    pub failures: u32,
    /// How often it was taken from a worker that vanished, since it was enqueued or revived.
    pub rescues: u32,
    /// Its present fence.
    pub fence: Fence,
    /// Who leased it last.
    pub worker: Option<WorkerId>,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// When it is due if it waits, and when its lease ends if it runs.
    pub due_at: Option<Timestamp>,
    /// When its last attempt was leased.
    pub started_at: Option<Timestamp>,
    /// When it was done, buried or held.
    pub ended_at: Option<Timestamp>,
    /// What came of it, if it is done.
    pub outcome: Option<Bytes>,
    /// Why its last attempt failed, if one did.
    pub failure: Option<Failure>,
}

/// An attempt that ended without an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptView {
    /// The fence that it had.
    pub fence: Fence,
    /// Who made it.
    pub worker: Option<WorkerId>,
    /// When it was leased.
    pub started_at: Timestamp,
    /// When it was settled, or found lost.
    pub ended_at: Timestamp,
    /// What became of the task.
    pub then: TaskState,
    /// Why.
    pub failure: Failure,
}

/// Which tasks to list; all conditions have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// In this state.
    pub state: Option<TaskState>,
    /// Of this kind.
    pub kind: Option<String>,
    /// In this lane.
    pub lane: Option<Lane>,
    /// Of this version of their algorithm.
    pub version: Option<u32>,
}

/// Which part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPage {
    /// After this one.
    pub after: Option<TaskId>,
    /// The most tasks to list.
    pub limit: u32,
}

/// A part of the way over all tasks, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Which of them to show.
    pub filter: TaskFilter,
    /// Only those that were enqueued at this time or later.
    pub since: Option<Timestamp>,
    /// Only those that were enqueued before this time.
    pub before: Option<Timestamp>,
    /// From the one after this.
    pub after: Option<TaskId>,
    /// The most tasks to look at. A queue that has those that are held or dead by themselves looks only at them, if the filter
    /// asks for such a state.
    pub steps: u32,
    /// The most tasks to show, at least one.
    pub limit: u32,
}

impl Walk {
    /// Whether only what is held or dead is wanted.
    pub fn is_over_parked(&self) -> bool {
        matches!(self.filter.state, Some(TaskState::Held | TaskState::Dead))
    }

    /// What is told of a walk that showed these, and looked as far as `end`, or to the last one. For whoever makes a queue.
    pub fn walked(&self, tasks: Vec<TaskView>, end: Option<TaskId>) -> Walked {
        let is_full = u32::try_from(tasks.len()).is_ok_and(|count| count >= self.limit.max(1));
        let last = tasks.last().map(|view| view.id);
        Walked {
            next: if is_full { last } else { end },
            tasks,
        }
    }
}

/// What a walk came by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Those that were wanted, by id.
    pub tasks: Vec<TaskView>,
    /// The task after which to go on; none at the end of the way.
    pub next: Option<TaskId>,
}

/// A lane that somebody has set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Which one.
    pub lane: Lane,
    /// Whether its tasks stay where they are.
    pub paused: bool,
    /// How many of its tasks run at once at most.
    pub cap: Option<u32>,
}

/// How many tasks of a lane are in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    /// The lane.
    pub lane: Lane,
    /// The state.
    pub state: TaskState,
    /// How many.
    pub tasks: u64,
}
