//! What jobs promise: types, the table of retries, outcomes that stay, effects that commit with them.

mod ledger;
mod names;
mod outcomes;
mod retries;
mod shared;
mod transactional;

use std::sync::Arc;
use std::time::Duration;

use exactly::job::{self, Job, JobError, Jobs};
use exactly::queue::{FailureKind, Lane, TaskId, TaskState};
use exactly::worker::{Builder, Worker};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::worker::{RiggedQueue, SECOND, show};

/// The job of these tests: offers for a user on a date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Offers {
    date: String,
    user: String,
    zone: String,
}

impl Offers {
    fn to(user: &str) -> Self {
        Self {
            date: "2026-02-19".into(),
            user: user.into(),
            zone: "Europe/London".into(),
        }
    }
}

impl Job for Offers {
    const KIND: &'static str = "offers";
    const VERSION: u32 = 3;
    type Outcome = Vec<String>;

    fn key(&self) -> String {
        job::daily_key(&self.date, &self.user)
    }

    fn lane(&self) -> Option<Lane> {
        Lane::new(format!("offers-{}", self.user.len() % 2)).ok()
    }
}

fn worker(queue: &Arc<RiggedQueue>) -> Builder {
    Worker::builder(Arc::<RiggedQueue>::clone(queue))
}

fn jobs(queue: &Arc<RiggedQueue>) -> Jobs<RiggedQueue> {
    Jobs::new(Arc::clone(queue))
}

async fn ended(queue: &RiggedQueue, id: TaskId) -> TaskState {
    let ended = timeout(24 * 3600 * SECOND, async {
        loop {
            let state = show(queue, id).await.state;
            if !matches!(state, TaskState::Waiting | TaskState::Running) {
                return state;
            }
            sleep(Duration::from_millis(100)).await;
        }
    });
    ended.await.unwrap()
}

/// An error of this kind.
fn error(kind: FailureKind) -> JobError {
    match kind {
        FailureKind::Transient => JobError::transient("away"),
        FailureKind::Timeout => JobError::timeout("slow"),
        FailureKind::Logic => JobError::logic("wrong"),
        FailureKind::Inconsistent => JobError::inconsistent("odd"),
        FailureKind::Unknown => JobError::unknown("no answer"),
        kind => panic!("no job fails as {kind}"),
    }
}
