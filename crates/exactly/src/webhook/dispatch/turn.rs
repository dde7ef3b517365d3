//! Whether it is a delivery's turn.

use std::time::Duration;

use super::lines::is_over;
use super::{DeliveryName, Enclosed, EndpointId, Turn};
use crate::StoreError;
use crate::clock::Timestamp;
use crate::queue::{InspectQueue, TaskState, TaskView};

/// How soon after the one before it a delivery looks whether it is its turn.
const SOONEST: Duration = Duration::from_millis(20);

/// The longest wait for one that can end at any time.
const UNDER_WAY_MAX: Duration = Duration::from_secs(5);

/// The longest wait for one that is to be sent later, which somebody may do earlier by hand.
const LATER_MAX: Duration = Duration::from_mins(1);

/// How long this delivery waits until it looks again whether the one that goes first is delivered or given up. Nothing if it is.
pub(super) async fn waits_for<Q: InspectQueue + ?Sized>(
    queue: &Q,
    turn: &Turn,
    endpoint: &EndpointId,
) -> Result<Option<Duration>, StoreError> {
    let Some(after) = &turn.after else { return Ok(None) };
    let first = DeliveryName::new(after.clone(), endpoint.clone());
    let Some(first) = queue.show(first.task_id()).await? else {
        return Ok(None);
    };
    let place = Enclosed::read(&first.payload).ok().and_then(|first| first.turn);
    // One at a later place has only the name of the one that is meant, which is long forgotten. It may be behind this one.
    let is_before = place.is_some_and(|first| first.place < turn.place);
    if is_over(first.state) || !is_before {
        return Ok(None);
    }
    Ok(Some(wait(&first, queue.now().await?)))
}

fn wait(first: &TaskView, now: Timestamp) -> Duration {
    let since = match (first.state, first.due_at) {
        (TaskState::Waiting, Some(due)) if due > now => return (due.since(now) + SOONEST).min(LATER_MAX),
        (TaskState::Waiting, due) => due,
        (TaskState::Running, _) => first.started_at,
        _ => first.ended_at,
    };
    // What takes long takes longer.
    let waited = since.map_or(Duration::ZERO, |since| now.since(since));
    (waited / 2).clamp(SOONEST, UNDER_WAY_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::{Clock as _, ManualClock, WallClock};
    use crate::queue::{Ask, End, Failure, FailureKind, Leased, MemoryQueue, Queue as _, Settlement, WorkerId};
    use crate::webhook::EventId;
    use crate::webhook::dispatch::fan_out::delivery;

    const MILLIS: Duration = Duration::from_millis(1);

    fn endpoint() -> EndpointId {
        EndpointId::new("a").unwrap()
    }

    /// The second one, behind this event.
    fn behind(event: &str) -> Turn {
        let after = Some(EventId::new(event).unwrap());
        Turn { place: 2, after }
    }

    async fn enqueued(queue: &MemoryQueue, event: &str, place: u64) {
        let turn = Some(Turn { place, after: None });
        let body = "{}".into();
        let name = DeliveryName::new(EventId::new(event).unwrap(), endpoint());
        let task = delivery(&name, &Enclosed { turn, body }.written());
        assert!(queue.enqueue(&[task]).await.unwrap()[0].is_new());
    }

    async fn leased(queue: &MemoryQueue) -> Leased {
        let mut leased = queue.lease(&Ask::new(WorkerId::random(), 1)).await.unwrap();
        leased.remove(0)
    }

    async fn settled(queue: &MemoryQueue, task: &Leased, end: End) {
        let _ = queue.settle(&[Settlement::new(task.lease, end)]).await.unwrap();
    }

    #[tokio::test]
    async fn it_looks_again_when_the_first_one_may_be_over() {
        let clock = Arc::new(ManualClock::at(WallClock.now()));
        let queue = MemoryQueue::with_clock(Arc::clone(&clock));
        enqueued(&queue, "evt_1", 1).await;
        let first = leased(&queue).await;
        let waits = async || waits_for(&queue, &behind("evt_1"), &endpoint()).await.unwrap();
        assert_eq!(waits().await, Some(20 * MILLIS), "it has just begun");
        clock.advance(Duration::from_secs(4));
        assert_eq!(waits().await, Some(Duration::from_secs(2)));
        clock.advance(Duration::from_mins(4));
        assert_eq!(waits().await, Some(Duration::from_secs(5)));

        let failure = || Failure::new(FailureKind::Transient, "no");
        let after = Duration::from_secs(30);
        settled(
            &queue,
            &first,
            End::Retry {
                after,
                failure: failure(),
            },
        )
        .await;
        assert_eq!(waits().await, Some(after + 20 * MILLIS));
        clock.advance(after + 10 * MILLIS);
        assert_eq!(waits().await, Some(20 * MILLIS), "it is due");
        let again = leased(&queue).await;
        let after = Duration::from_hours(1);
        settled(
            &queue,
            &again,
            End::Retry {
                after,
                failure: failure(),
            },
        )
        .await;
        assert_eq!(waits().await, Some(Duration::from_mins(1)), "somebody may hasten it");
        clock.advance(after);
        let again = leased(&queue).await;
        settled(&queue, &again, End::Hold(failure())).await;
        assert!(waits().await.is_some(), "somebody decides on it");
        let _ = queue.revive(&[again.lease.id]).await.unwrap();
        let again = leased(&queue).await;
        settled(&queue, &again, End::Bury(failure())).await;
        assert_eq!(waits().await, None);
        assert_eq!(waits_for(&queue, &behind("evt_0"), &endpoint()).await.unwrap(), None);
    }

    /// Or two could wait for each other for good. No clock is asked, since one can go back.
    #[tokio::test]
    async fn one_that_has_taken_a_forgotten_name_is_not_waited_for() {
        let queue = MemoryQueue::new();
        for (place, waits) in [(1, true), (2, false), (3, false)] {
            let event = format!("evt_{place}");
            enqueued(&queue, &event, place).await;
            let waited = waits_for(&queue, &behind(&event), &endpoint()).await.unwrap();
            assert_eq!(waited.is_some(), waits, "{place}");
        }
        let unordered = DeliveryName::new(EventId::new("evt_4").unwrap(), endpoint());
        let _ = queue.enqueue(&[delivery(&unordered, &"{}".into())]).await.unwrap();
        assert_eq!(waits_for(&queue, &behind("evt_4"), &endpoint()).await.unwrap(), None);
    }
}
