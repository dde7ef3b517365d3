//! Events that come out of order.

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::TaskState;
use exactly::webhook::{Receipt, Received, Version};
use exactly::worker::Worker;
use exactly_conformance::TransactionalQueueHarness;

use super::{Does, Office, on_both};

on_both! {
    an_older_event_is_stale
    what_was_not_applied_makes_nothing_stale
    a_deferred_event_is_stale_if_a_newer_one_was_applied
}

/// The body is an entity and a version with a space between.
fn version(event: &Received) -> Option<Version> {
    let body = std::str::from_utf8(event.body()).ok()?;
    let (entity, number) = body.split_once(' ')?;
    Some(Version::new(entity, number.parse().ok()?))
}

pub(super) async fn ordered<H: TransactionalQueueHarness>() -> Office<H> {
    Office::with(Arc::new(H::fresh().await), |inbox| inbox.versions(version)).await
}

async fn an_older_event_is_stale<H: TransactionalQueueHarness>() {
    let office = ordered::<H>().await;
    for (id, body, receipt) in [
        ("evt_1", "ann 1", Receipt::Applied),
        ("evt_3", "ann 3", Receipt::Applied),
        ("evt_2", "ann 2", Receipt::Stale),
        ("evt_3b", "ann 3", Receipt::Stale),
        ("evt_b", "bob 1", Receipt::Applied),
        ("evt_x", "about nobody", Receipt::Applied),
        // A duplicate is one, whatever its version.
        ("evt_1", "ann 1", Receipt::Duplicate),
        ("evt_2", "ann 2", Receipt::Duplicate),
        ("evt_3", "ann 3", Receipt::Duplicate),
        ("evt_3", "ann 4", Receipt::Quarantined),
        ("evt_4", "ann 4", Receipt::Applied),
    ] {
        assert_eq!(office.receive(id, body).await, receipt, "{id} {body}");
    }
    for (id, effects, outcome) in [("evt_2", 0, "stale"), ("evt_4", 1, "applied")] {
        assert_eq!(office.effects(id).await, effects);
        let view = office.view(office.task(id)).await.unwrap();
        assert_eq!(view.outcome, Some(outcome.into()));
    }
}

async fn what_was_not_applied_makes_nothing_stale<H: TransactionalQueueHarness>() {
    let office = ordered::<H>().await;
    office.script([Does::FailsForGood]);
    assert_eq!(office.receive("evt_2", "ann 2").await, Receipt::Parked);
    assert_eq!(office.receive("evt_1", "ann 1").await, Receipt::Applied);
}

async fn a_deferred_event_is_stale_if_a_newer_one_was_applied<H: TransactionalQueueHarness>() {
    let office = ordered::<H>().await;
    office.script([Does::FailsForNow]);
    assert_eq!(office.receive("evt_1", "ann 1").await, Receipt::Deferred);
    assert_eq!(office.receive("evt_2", "ann 2").await, Receipt::Applied);
    let worker = office
        .inbox
        .retried_by(Worker::builder(Arc::<H::Queue>::clone(&office.queue)));
    let worker = worker.poll_every(Duration::from_millis(20)).start().unwrap();
    office.harness.elapse(Duration::from_mins(1)).await;
    let task = office.task("evt_1");
    let view = office.becomes(task, |view| view.state == TaskState::Done).await;
    worker.drain().await;
    assert_eq!(view.outcome, Some("stale".into()));
    assert_eq!((office.effects("evt_1").await, office.runs()), (0, 2));
}
