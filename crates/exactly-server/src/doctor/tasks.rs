//! Whether the tasks beside the records can be worked on, and which of them wait for somebody.

use clap::ValueEnum as _;
use exactly::StoreErrorKind;
use exactly::queue::{Depth, TaskState};

use super::Check;
use crate::admin::desk::asked;
use crate::store::{Accept, StoreUrl};

const SCHEMA: &str = "tasks' schema";
const TASKS: &str = "tasks";

/// Everything about the tasks of the store at `url`, which is there; nothing where none are kept.
pub(super) async fn check(url: &StoreUrl) -> Vec<Check> {
    // Whatever it is like: that is told of the records.
    let queue = match Box::pin(url.open_existing_with_tasks(Accept::value_variants())).await {
        Ok((_, Some(queue))) => queue,
        Ok((_, None)) => return Vec::new(),
        Err(error) if error.kind() == StoreErrorKind::Refused => {
            let fix =
                "run `exactly migrate`; where no server runs jobs, say so: jobs.enabled = false in what --config names";
            return vec![Check::fail(SCHEMA, error, fix)];
        }
        Err(error) => return vec![Check::fail(TASKS, error, "see what it says")],
    };
    let counted = match asked("count tasks", queue.depths()).await {
        Ok(depths) => judged(&depths),
        Err(problem) => Check::fail(TASKS, problem, "see what it says"),
    };
    vec![Check::ok(SCHEMA, "up to date"), counted]
}

fn judged(depths: &[Depth]) -> Check {
    let count = |state| -> u64 {
        let of_state = depths.iter().filter(|depth| depth.state == state);
        of_state.map(|depth| depth.tasks).sum()
    };
    let [waiting, running, held, dead] =
        [TaskState::Waiting, TaskState::Running, TaskState::Held, TaskState::Dead].map(count);
    if held == 0 && dead == 0 {
        return Check::ok(TASKS, format!("{waiting} wait, {running} run, none is dead or held"));
    }
    let fix = "see why: `exactly jobs list --state dead`, or `--state held`, then `exactly jobs requeue`; for events \
               `exactly deliveries list --state dead`, then `exactly deliveries retry`";
    Check::warn(TASKS, format!("{dead} are dead, {held} are held"), fix)
}
