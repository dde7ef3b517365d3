//! Looks at a queue while its workers die.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use exactly::queue::{InspectQueue, TaskFilter, TaskPage, TaskState, TaskView};
use tokio::time::{Instant, sleep};

use super::{Attendance, LEASE, SWEEP};
use crate::failure::{Failure, Result, failed};

/// How often somebody looks.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// What a sweep may be late on a machine with more processes than cores: its time is drawn up to a fifth longer, and its
/// statement has to run.
const GRACE: Duration = Duration::from_secs(3);

/// How long nothing may come to its end once nobody is killed any more.
const STANDSTILL_MAX: Duration = Duration::from_mins(1);

const PAGE: u32 = 1000;

/// What lies with the dead: the longest of it, and what lay too long.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) overdue: Duration,
    pub(crate) stuck: BTreeMap<String, Duration>,
}

/// Looks for what the dead still hold. Ends only if it cannot look.
pub(crate) async fn watch_over<Q: InspectQueue>(queue: &Q, attendance: &Attendance, left: &Mutex<Left>) -> Failure {
    loop {
        let running = match all(queue, None, Some(TaskState::Running)).await {
            Ok(running) => running,
            Err(failure) => return failure,
        };
        for task in running {
            let Some(worker) = task.worker else { continue };
            let overdue = attendance.overdue(&worker.to_string(), LEASE);
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            left.overdue = left.overdue.max(overdue);
            if overdue > SWEEP + GRACE {
                left.stuck.insert(format!("{}:{}", task.kind, task.key), overdue);
            }
        }
        sleep(LOOK).await;
    }
}

/// Sees to it that what is left changes all the time. How long all of it takes is up to the machine.
#[derive(Debug)]
pub(crate) struct Standstill<T> {
    seen: Option<T>,
    deadline: Instant,
}

impl<T: PartialEq> Standstill<T> {
    pub(crate) fn new() -> Self {
        Self {
            seen: None,
            deadline: Instant::now() + STANDSTILL_MAX,
        }
    }

    /// Fails if it has been the same for too long, with so many tasks that are not done.
    pub(crate) fn look(&mut self, seen: T, open: u64) -> Result<()> {
        if self.seen.as_ref() != Some(&seen) {
            (self.seen, self.deadline) = (Some(seen), Instant::now() + STANDSTILL_MAX);
        }
        if Instant::now() > self.deadline {
            return Err(Failure::new(format!(
                "{open} tasks are not done, and none was within {STANDSTILL_MAX:?} of the last kill or the last one done"
            )));
        }
        Ok(())
    }
}

/// All tasks of a kind, in a state.
pub(crate) async fn all<Q: InspectQueue>(
    queue: &Q,
    kind: Option<&str>,
    state: Option<TaskState>,
) -> Result<Vec<TaskView>> {
    let filter = TaskFilter {
        state,
        kind: kind.map(str::to_owned),
        ..TaskFilter::default()
    };
    let mut tasks: Vec<TaskView> = Vec::new();
    loop {
        let after = tasks.last().map(|task| task.id);
        let page = queue.list(&filter, TaskPage { after, limit: PAGE }).await;
        let mut page = page.map_err(failed("list tasks"))?;
        let last = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
        tasks.append(&mut page);
        if last {
            return Ok(tasks);
        }
    }
}
