//! What came in is remembered for as long as it has to be, and no longer.

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{TaskState, TransactionalQueue as _};
use exactly::sweep::{self, REMEMBERED_FOR, Retention};
use exactly::webhook::Receipt;
use exactly_conformance::TransactionalQueueHarness;
use tokio::time::{sleep, timeout};

use super::order::ordered;
use super::{Does, Office, PATIENCE, on_both};

on_both! {
    an_id_is_known_for_a_week_and_then_swept
    a_version_outlives_the_ids
    a_version_is_never_forgotten_within_a_week
    many_are_swept_in_batches
    one_call_sweeps_from_then_on
}

const DAY: Duration = Duration::from_hours(24);

async fn swept<H: TransactionalQueueHarness>(office: &Office<H>, keep: impl Into<Retention>) -> u64 {
    sweep::sweep_tasks(&*office.queue, keep).await.unwrap()
}

/// What failed is kept until somebody has looked, however old it is.
async fn an_id_is_known_for_a_week_and_then_swept<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    office.script([Does::FailsForGood]);
    assert_eq!(office.receive("evt_0", "paid").await, Receipt::Parked);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Applied);
    office.harness.elapse(6 * DAY).await;
    assert_eq!(swept(&office, REMEMBERED_FOR).await, 0);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Duplicate);
    assert_eq!(office.receive("evt_2", "paid").await, Receipt::Applied);
    office.harness.elapse(2 * DAY).await;
    assert_eq!(swept(&office, REMEMBERED_FOR).await, 1);
    assert_eq!(office.state("evt_1").await, None);
    assert_eq!(office.receive("evt_2", "paid").await, Receipt::Duplicate);
    assert_eq!(office.state("evt_0").await, Some(TaskState::Dead));
}

/// So that an event that is sent again by hand, after its id was forgotten, does not turn anything back.
async fn a_version_outlives_the_ids<H: TransactionalQueueHarness>() {
    let office = ordered::<H>().await;
    for (id, body) in [("evt_1", "ann 1"), ("evt_2", "ann 2")] {
        assert_eq!(office.receive(id, body).await, Receipt::Applied);
    }
    office.harness.elapse(8 * DAY).await;
    assert_eq!(swept(&office, REMEMBERED_FOR).await, 2);
    assert_eq!(office.receive("evt_1", "ann 1").await, Receipt::Stale);
    assert_eq!(office.receive("evt_3", "bob 3").await, Receipt::Applied);
    office.harness.elapse(83 * DAY).await;
    // Two ids, and what was known of ann.
    assert_eq!(swept(&office, REMEMBERED_FOR).await, 3);
    assert_eq!(office.receive("evt_1", "ann 1").await, Receipt::Applied);
    assert_eq!(office.receive("evt_4", "bob 2").await, Receipt::Stale);
}

async fn a_version_is_never_forgotten_within_a_week<H: TransactionalQueueHarness>() {
    let office = ordered::<H>().await;
    let at_once = Retention::of_done(Duration::ZERO).marks(Duration::ZERO);
    assert_eq!(office.receive("evt_2", "ann 2").await, Receipt::Applied);
    office.harness.elapse(6 * DAY).await;
    assert_eq!(swept(&office, at_once).await, 1, "the id alone");
    assert_eq!(sweep::prune_marks(&*office.queue, Duration::ZERO).await.unwrap(), 0);
    assert_eq!(office.receive("evt_1", "ann 1").await, Receipt::Stale);
    office.harness.elapse(2 * DAY).await;
    assert_eq!(swept(&office, at_once).await, 2);
    assert_eq!(office.receive("evt_1", "ann 1").await, Receipt::Applied);
    let never = Retention::of_done(REMEMBERED_FOR).marks(Duration::MAX);
    office.harness.elapse(1000 * DAY).await;
    assert_eq!(swept(&office, never).await, 1);
    assert_eq!(office.receive("evt_0", "ann 0").await, Receipt::Stale);
}

/// More than a batch has, of both.
async fn many_are_swept_in_batches<H: TransactionalQueueHarness>() {
    const MANY: i64 = 1200;
    let office = Office::<H>::new().await;
    let mut tx = office.queue.open().await.unwrap();
    for n in 0..MANY {
        let raised = office.queue.raise_in(&mut tx, &n.to_string(), n).await;
        assert!(raised.unwrap());
    }
    office.queue.commit(tx).await.unwrap();
    office.harness.elapse(91 * DAY).await;
    assert_eq!(swept(&office, REMEMBERED_FOR).await, MANY.unsigned_abs());
    assert_eq!(swept(&office, REMEMBERED_FOR).await, 0);
}

async fn one_call_sweeps_from_then_on<H: TransactionalQueueHarness>() {
    let office = ordered::<H>().await;
    assert_eq!(office.receive("evt_1", "ann 1").await, Receipt::Applied);
    office.harness.elapse(8 * DAY).await;
    assert_eq!(office.receive("evt_2", "ann 2").await, Receipt::Applied);
    let sweeping = sweep::hourly_tasks(Arc::<H::Queue>::clone(&office.queue), REMEMBERED_FOR);
    let forgotten = async {
        while office.state("evt_1").await.is_some() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, forgotten).await.expect("it is never forgotten");
    sweeping.abort();
    assert_eq!(office.receive("evt_2", "ann 2").await, Receipt::Duplicate);
}
