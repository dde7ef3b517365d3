//! The rows, and what can become of them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::Fenced;
use crate::clock::Timestamp;
use crate::queue::{
    Ask, AttemptView, Card, End, Enqueued, Entry, Failure, Fence, Found, Lane, LaneView, Lanes, Lease, Leased,
    RESCUED_FOR_EVER, Rescued, Settlement, Task, TaskFilter, TaskId, TaskState, TaskView, Walk,
};

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) rows: BTreeMap<TaskId, Row>,
    /// Waiting tasks by lane, as they are due; the number keeps those of one moment in the order in which they came.
    waiting: BTreeMap<Lane, BTreeSet<(Timestamp, u64, TaskId)>>,
    /// Which tasks run: far fewer than there are.
    running: BTreeSet<TaskId>,
    pub(super) lanes: BTreeMap<Lane, LaneView>,
    pub(super) schedules: BTreeMap<Box<str>, Entry>,
    pub(super) cards: BTreeMap<Box<str>, Card>,
    /// The lane that was served last.
    cursor: Option<Lane>,
    enqueued: u64,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) view: TaskView,
    number: u64,
    /// When it was due before it was leased, if it runs.
    ready_at: Timestamp,
    pub(super) history: Vec<AttemptView>,
}

impl Tables {
    pub(super) fn enqueue(&mut self, task: &Task, now: Timestamp) -> Enqueued {
        if let Some(row) = self.rows.get(&task.id()) {
            return Enqueued::Found(Found {
                id: task.id(),
                state: row.view.state,
                outcome: row.view.outcome.clone(),
                differs: row.view.payload != *task.payload(),
            });
        }
        self.enqueued += 1;
        let view = TaskView {
            id: task.id(),
            kind: task.kind().into(),
            key: task.key().into(),
            lane: task.lane().clone(),
            payload: task.payload().clone(),
            version: task.version(),
            state: TaskState::Waiting,
            failures: 0,
            rescues: 0,
            fence: Fence::first(now),
            worker: None,
            enqueued_at: now,
            due_at: None,
            started_at: None,
            ended_at: None,
            outcome: None,
            failure: None,
        };
        let row = Row {
            view,
            number: self.enqueued,
            ready_at: now,
            history: Vec::new(),
        };
        self.rows.insert(task.id(), row);
        self.wait(task.id(), now.after(task.delay()));
        Enqueued::New(task.id())
    }

    /// The task waits as it did before it was leased, at its place in its lane.
    fn wait_again(&mut self, id: TaskId) {
        if let Some(due) = self.rows.get(&id).map(|row| row.ready_at) {
            self.wait(id, due);
        }
    }

    /// The task waits until `due`.
    fn wait(&mut self, id: TaskId, due: Timestamp) {
        let row = self.rows.get_mut(&id).expect("only tasks that are there wait");
        row.view.state = TaskState::Waiting;
        row.view.due_at = Some(due);
        row.view.ended_at = None;
        let lane = self.waiting.entry(row.view.lane.clone()).or_default();
        lane.insert((due, row.number, id));
    }

    pub(super) fn lease(&mut self, ask: &Ask, now: Timestamp) -> Vec<Leased> {
        let mut leased = Vec::new();
        let most = usize::try_from(ask.most).unwrap_or(usize::MAX);
        let mut rooms: Vec<(Lane, bool, u64)> = self.open_lanes(ask);
        // One of each lane in turn, from where the last one ended.
        while leased.len() < most && !rooms.is_empty() {
            rooms.retain_mut(|(lane, is_capped, room)| {
                if leased.len() >= most {
                    return true;
                }
                let Some(task) = (*room > 0)
                    .then(|| self.lease_first(lane, *is_capped, ask, now))
                    .flatten()
                else {
                    return false;
                };
                *room -= 1;
                self.cursor = Some(lane.clone());
                leased.push(task);
                true
            });
        }
        leased
    }

    /// Lanes in which something waits, with whether they have a cap and how many more of their tasks may run, from the one after
    /// the cursor on.
    fn open_lanes(&self, ask: &Ask) -> Vec<(Lane, bool, u64)> {
        let wanted = |lane: &&Lane| match &ask.lanes {
            Lanes::All => true,
            Lanes::Only(lanes) => lanes.contains(lane),
        };
        let (mut later, mut first) = (Vec::new(), Vec::new());
        for lane in self.waiting.keys().filter(wanted) {
            let settings = self.lanes.get(lane);
            if settings.is_some_and(|settings| settings.paused) {
                continue;
            }
            let cap = settings.and_then(|settings| settings.cap);
            let room = cap.map_or(u64::MAX, |cap| {
                let running = self.running.iter().filter_map(|id| self.rows.get(id));
                let running = running.filter(|row| row.view.lane == *lane).count();
                u64::from(cap).saturating_sub(u64::try_from(running).unwrap_or(u64::MAX))
            });
            let room = room.min(ask.room(lane, cap.is_some()).into());
            let lanes = if self.cursor.as_ref() < Some(lane) {
                &mut later
            } else {
                &mut first
            };
            lanes.push((lane.clone(), cap.is_some(), room));
        }
        later.append(&mut first);
        later
    }

    fn lease_first(&mut self, lane: &Lane, is_capped: bool, ask: &Ask, now: Timestamp) -> Option<Leased> {
        let waiting = self.waiting.get_mut(lane)?;
        let rescues = |id: &TaskId| self.rows.get(id).map_or(0, |row| row.view.rescues);
        let asked_for = |(_, _, id): &&(Timestamp, u64, TaskId)| !ask.leaves_out(rescues(id));
        let mut due = waiting.iter().take_while(|(due, ..)| *due <= now);
        let first = if is_capped {
            due.next().filter(asked_for)
        } else {
            due.find(asked_for)
        };
        let first = *first?;
        let (due_at, _, id) = first;
        waiting.remove(&first);
        if waiting.is_empty() {
            self.waiting.remove(lane);
        }
        self.running.insert(id);
        let Row { view, ready_at, .. } = self.rows.get_mut(&id)?;
        *ready_at = due_at;
        view.state = TaskState::Running;
        view.fence = Fence::new(view.fence.get() + 1);
        view.worker = Some(ask.worker);
        view.started_at = Some(now);
        view.due_at = Some(now.after(ask.lease));
        Some(Leased {
            lease: Lease { id, fence: view.fence },
            kind: view.kind.clone(),
            key: view.key.clone(),
            lane: view.lane.clone(),
            is_capped,
            payload: view.payload.clone(),
            version: view.version,
            failures: view.failures,
            rescues: view.rescues,
            enqueued_at: view.enqueued_at,
            due_at,
        })
    }

    pub(super) fn running(&mut self, lease: &Lease) -> Option<&mut Row> {
        let row = self.rows.get_mut(&lease.id)?;
        (row.view.state == TaskState::Running && row.view.fence == lease.fence).then_some(row)
    }

    pub(super) fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> Fenced {
        let Settlement { lease, end } = settlement;
        if self.running(lease).is_none() {
            return self.repeated(lease, end);
        }
        self.running.remove(&lease.id);
        match end {
            End::Done(outcome) => self.done(lease.id, outcome, now),
            End::Retry { after, failure } => {
                self.fail(lease.id, failure, TaskState::Waiting, now);
                self.wait(lease.id, now.after(*after));
            }
            End::Bury(failure) => self.fail(lease.id, failure, TaskState::Dead, now),
            End::Hold(failure) => self.fail(lease.id, failure, TaskState::Held, now),
            End::Release => self.wait_again(lease.id),
            End::Defer { after } => self.wait(lease.id, now.after(*after)),
        }
        Fenced::Applied
    }

    /// Whether a settlement was applied before.
    fn repeated(&self, lease: &Lease, end: &End) -> Fenced {
        let Some(Row { view, history, .. }) = self.rows.get(&lease.id) else {
            return Fenced::Superseded;
        };
        // Of the ends that lead to waiting only the one that failed has a note.
        let noted = history.last().filter(|attempt| attempt.fence == lease.fence);
        let noted = noted.map(|attempt| &attempt.failure);
        let same = view.fence == lease.fence && end.left(view.state, view.outcome.as_deref(), noted);
        if same { Fenced::Applied } else { Fenced::Superseded }
    }

    /// At most `limit` tasks whose leases have ended.
    pub(super) fn lost(&self, limit: usize, now: Timestamp) -> Vec<TaskId> {
        let running = self.running.iter().filter_map(|id| self.rows.get(id));
        let lost = running.filter(|row| row.view.due_at <= Some(now));
        lost.map(|row| row.view.id).take(limit).collect()
    }

    fn done(&mut self, id: TaskId, outcome: &Bytes, now: Timestamp) {
        if let Some(Row { view, .. }) = self.rows.get_mut(&id) {
            view.state = TaskState::Done;
            view.outcome = Some(outcome.clone());
            view.due_at = None;
            view.ended_at = Some(now);
        }
    }

    fn fail(&mut self, id: TaskId, failure: &Failure, then: TaskState, now: Timestamp) {
        let Some(Row { view, history, .. }) = self.rows.get_mut(&id) else {
            return;
        };
        history.push(AttemptView {
            fence: view.fence,
            worker: view.worker,
            started_at: view.started_at.unwrap_or(now),
            ended_at: now,
            then,
            failure: failure.clone(),
        });
        view.failures += u32::from(failure.kind.is_counted());
        view.failure = Some(failure.clone());
        view.state = then;
        view.due_at = None;
        view.ended_at = Some(now);
    }

    pub(super) fn rescue(&mut self, id: TaskId, rescues_max: u32, now: Timestamp) -> Option<Rescued> {
        self.running.remove(&id);
        let view = &mut self.rows.get_mut(&id)?.view;
        view.rescues += 1;
        let waits = view.rescues <= rescues_max || RESCUED_FOR_EVER.contains(&&*view.kind);
        let then = if waits { TaskState::Waiting } else { TaskState::Dead };
        let failure = Failure::lost(view.rescues);
        self.fail(id, &failure, then, now);
        if waits {
            self.wait_again(id);
        }
        let view = &mut self.rows.get_mut(&id)?.view;
        // Whoever had the lease can write no more.
        view.fence = Fence::new(view.fence.get() + 1);
        Some(Rescued {
            id,
            kind: view.kind.clone(),
            key: view.key.clone(),
            waits,
        })
    }

    pub(super) fn revive(&mut self, id: TaskId, now: Timestamp) -> Option<TaskState> {
        let view = &mut self.rows.get_mut(&id)?.view;
        let was = view.state;
        if matches!(was, TaskState::Dead | TaskState::Held) {
            view.fence = Fence::new(view.fence.get() + 1);
            view.failures = 0;
            view.rescues = 0;
            self.wait(id, now);
        }
        Some(was)
    }

    pub(super) fn conclude(&mut self, seen: Lease, outcome: &Bytes, now: Timestamp) -> Fenced {
        let view = self.rows.get_mut(&seen.id).map(|row| &mut row.view);
        let Some(view) = view.filter(|view| view.fence == seen.fence) else {
            return Fenced::Superseded;
        };
        match view.state {
            TaskState::Dead | TaskState::Held => {
                view.state = TaskState::Done;
                view.outcome = Some(outcome.clone());
                view.ended_at = Some(now);
                Fenced::Applied
            }
            TaskState::Done if view.outcome.as_ref() == Some(outcome) => Fenced::Applied,
            _ => Fenced::Superseded,
        }
    }

    pub(super) fn hasten(&mut self, id: TaskId, now: Timestamp) -> Option<TaskState> {
        let row = self.rows.get(&id)?;
        let (was, number) = (row.view.state, row.number);
        if let (TaskState::Waiting, Some(due)) = (was, row.view.due_at.filter(|due| *due > now)) {
            if let Some(lane) = self.waiting.get_mut(&row.view.lane) {
                lane.remove(&(due, number, id));
            }
            self.wait(id, now);
        }
        Some(was)
    }

    pub(super) fn lane(&mut self, lane: &Lane, change: impl FnOnce(&mut LaneView)) {
        let settings = self.lanes.entry(lane.clone()).or_insert_with(|| LaneView {
            lane: lane.clone(),
            paused: false,
            cap: None,
        });
        change(settings);
        if !settings.paused && settings.cap.is_none() {
            self.lanes.remove(lane);
        }
    }
}

impl TaskFilter {
    pub(super) fn takes(&self, view: &TaskView) -> bool {
        self.state.is_none_or(|state| view.state == state)
            && self.kind.as_ref().is_none_or(|kind| **kind == *view.kind)
            && self.lane.as_ref().is_none_or(|lane| view.lane == *lane)
            && self.version.is_none_or(|version| view.version == version)
    }
}

impl Walk {
    pub(super) fn takes(&self, view: &TaskView) -> bool {
        self.filter.takes(view)
            && self.since.is_none_or(|since| view.enqueued_at >= since)
            && self.before.is_none_or(|before| view.enqueued_at < before)
    }
}
