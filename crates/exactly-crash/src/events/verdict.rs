//! What a round came to.

use std::collections::BTreeMap;

use exactly::queue::{AttemptView, InspectQueue as _, TaskState, TaskView, WorkerId};
use exactly::webhook::{DELIVERY_KIND, EVENT_KIND};

use super::EventOutcome;
use super::check::{Attempt, Books, Delivery, check};
use super::dispatcher::dialled_by;
use super::finished::Finished;
use super::network::Network;
use super::plan::ENDPOINTS;
use super::report::EventCounts;
use super::round::Sides;
use crate::crew::{Blows, Left, all};
use crate::failure::{Failure, Result, failed};

/// Reads the books of both sides, now that everything is over.
pub(super) async fn verdict(
    sides: &Sides<'_>,
    blows: Blows,
    network: &Network,
    left: Left,
    finished: Finished,
) -> Result<EventOutcome> {
    let queue = &*sides.outgoing;
    let (mut deliveries, mut rescues) = (BTreeMap::new(), 0);
    for task in all(queue, Some(DELIVERY_KIND), None).await? {
        let attempts = queue.attempts(task.id).await.map_err(failed("read history"))?;
        rescues += u64::from(task.rescues);
        let name = task.key.to_string();
        deliveries.insert(name, delivery(&task, &attempts));
    }
    let traffic = network.traffic();
    let posts = traffic.posts.into_iter();
    let committed = sides.shop.effects().await?;
    let begun = sides.shop.letters().await?.len();
    let books = Books {
        endpoints: ENDPOINTS.map(str::to_owned).into(),
        published: all(queue, Some(EVENT_KIND), None)
            .await?
            .iter()
            .map(|event| event.key.to_string())
            .collect(),
        applied: sides.partners.effects().await?,
        posts: posts
            .map(|((name, dialled), count)| ((name, dialled.to_string()), count))
            .collect(),
        changed: finished.changed(),
        stuck: left.stuck,
        committed: committed.into_iter().collect(),
        deliveries,
    };
    let counts = EventCounts {
        committed: books.committed.len(),
        undone: begun.saturating_sub(books.committed.len()),
        posts: books.posts.values().sum(),
        harmed: traffic.harmed,
        attempts: books.deliveries.values().map(|delivery| delivery.attempts.len()).sum(),
        rescues,
    };
    if counts.committed == 0 || counts.undone == 0 || counts.harmed == 0 {
        return Err(Failure::new(format!("there was nothing to look at: {counts:?}")));
    }
    Ok(EventOutcome {
        blows,
        counts,
        violations: check(&books),
    })
}

fn delivery(task: &TaskView, attempts: &[AttemptView]) -> Delivery {
    let sender = |worker: Option<WorkerId>| worker.map(|worker| dialled_by(worker).to_string()).unwrap_or_default();
    let is_done = task.state == TaskState::Done;
    let failed = attempts.iter().map(|attempt| Attempt {
        fence: attempt.fence.get(),
        sender: sender(attempt.worker),
    });
    let succeeded = is_done.then(|| Attempt {
        fence: task.fence.get(),
        sender: sender(task.worker),
    });
    Delivery {
        is_done,
        attempts: failed.chain(succeeded).collect(),
    }
}
