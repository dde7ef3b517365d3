//! Whether what is done stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use exactly::queue::{TaskState, TaskView};
use exactly::webhook::DELIVERY_KIND;
use exactly_sql::PgQueue;
use tokio::time::sleep;

use super::check::Name;
use crate::crew::all;
use crate::failure::{Failure, Result};

/// How often somebody looks.
const LOOK: Duration = Duration::from_millis(500);

/// What was seen of deliveries that were done.
#[derive(Debug, Default)]
pub(super) struct Finished(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    last: BTreeMap<Name, TaskView>,
    changed: BTreeSet<Name>,
}

impl Finished {
    /// Looks again and again. Ends only if it cannot look.
    pub(super) async fn watch(&self, queue: &PgQueue) -> Failure {
        loop {
            if let Err(failure) = self.look(queue).await {
                return failure;
            }
            sleep(LOOK).await;
        }
    }

    /// Notes what was done and is not any more, or is done in another way: by another attempt, at another time, with another
    /// outcome.
    pub(super) async fn look(&self, queue: &PgQueue) -> Result<()> {
        let done = all(queue, Some(DELIVERY_KIND), Some(TaskState::Done)).await?;
        let done: BTreeMap<Name, TaskView> = done.into_iter().map(|task| (task.key.to_string(), task)).collect();
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Seen { last, changed } = &mut *seen;
        let others = last.iter().filter(|(name, task)| done.get(*name) != Some(*task));
        changed.extend(others.map(|(name, _)| name.clone()));
        last.extend(done);
        Ok(())
    }

    /// Everything that changed.
    pub(super) fn changed(self) -> BTreeSet<Name> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).changed
    }
}
