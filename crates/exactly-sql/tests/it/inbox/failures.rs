//! Handlers that fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use exactly::queue::{FailureKind, InspectQueue as _, Queue as _, TaskState};
use exactly::webhook::Receipt;
use exactly::worker::{Running, Worker};
use exactly_conformance::TransactionalQueueHarness;
use tokio::task::JoinSet;

use super::{Does, Office, on_both, signed};

on_both! {
    what_fails_is_deferred_and_applied_once
    what_goes_on_failing_ends_in_the_dead_letter
    what_cannot_work_is_parked_at_once
    what_takes_too_long_is_deferred
    copies_of_an_event_that_fails_have_one_effect_at_the_end
}

/// The retries of the table, spread upwards as far as they may be.
const RETRIES: [Duration; 3] = [
    Duration::from_secs(30 * 11 / 10),
    Duration::from_secs(120 * 11 / 10),
    Duration::from_secs(300 * 11 / 10),
];

fn worker<H: TransactionalQueueHarness>(office: &Office<H>, alerts: &Arc<AtomicUsize>) -> Running {
    let alerts = Arc::clone(alerts);
    let worker = office
        .inbox
        .retried_by(Worker::builder(Arc::<H::Queue>::clone(&office.queue)));
    let worker = worker.poll_every(Duration::from_millis(20)).on_buried(move |_| {
        alerts.fetch_add(1, Ordering::SeqCst);
    });
    worker.start().unwrap()
}

/// A duplicate meanwhile changes nothing.
async fn what_fails_is_deferred_and_applied_once<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    office.script([Does::FailsForNow]);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Deferred);
    assert_eq!(office.effects("evt_1").await, 0);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Deferred);
    assert_eq!((office.effects("evt_1").await, office.runs()), (0, 1));
    let waits = office.view(office.task("evt_1")).await.unwrap();
    let wait = waits.due_at.unwrap().since(waits.started_at.unwrap());
    assert!((27..=33).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(
        (waits.failures, waits.failure.unwrap().kind),
        (1, FailureKind::Transient)
    );

    let worker = worker(&office, &Arc::default());
    office.harness.elapse(RETRIES[0]).await;
    let done = office.becomes(waits.id, |view| view.state == TaskState::Done).await;
    assert_eq!(done.outcome, Some("applied".into()));
    worker.drain().await;
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Duplicate);
    assert_eq!((office.effects("evt_1").await, office.runs()), (1, 2));
}

/// Four attempts in all, an alert, and somebody who revives it.
async fn what_goes_on_failing_ends_in_the_dead_letter<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    office.script([Does::FailsForNow; 4]);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Deferred);
    let (task, alerts) = (office.task("evt_1"), Arc::default());
    let worker = worker(&office, &alerts);
    for (failures, wait) in (2..).zip(RETRIES) {
        assert_eq!(office.state("evt_1").await, Some(TaskState::Waiting));
        office.harness.elapse(wait).await;
        office
            .becomes(task, |view| {
                view.failures == failures && view.state != TaskState::Running
            })
            .await;
    }
    assert_eq!(office.state("evt_1").await, Some(TaskState::Dead));
    assert_eq!(office.queue.attempts(task).await.unwrap().len(), 4);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Parked);
    assert_eq!((office.effects("evt_1").await, office.runs()), (0, 4));
    office.queue.revive(&[task]).await.unwrap();
    office.becomes(task, |view| view.state == TaskState::Done).await;
    worker.drain().await;
    assert_eq!(alerts.load(Ordering::SeqCst), 1);
    assert_eq!(office.effects("evt_1").await, 1);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Duplicate);
}

/// It is there for people, with the reason, and is not run again meanwhile.
async fn what_cannot_work_is_parked_at_once<H: TransactionalQueueHarness>() {
    let alerts: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&alerts);
    let office = Office::<H>::with(Arc::new(H::fresh().await), |inbox| {
        inbox.on_buried(move |buried| {
            let told = told.lock();
            told.unwrap()
                .push(format!("{} {} {}", buried.kind, buried.key, buried.failure.kind));
        })
    })
    .await;
    for (does, state, kind) in [
        (Does::FailsForGood, TaskState::Dead, FailureKind::Logic),
        (Does::Panics, TaskState::Dead, FailureKind::Panicked),
        (Does::CannotTell, TaskState::Held, FailureKind::Unknown),
    ] {
        let id = format!("evt_{kind}");
        office.script([does]);
        for _ in 0..2 {
            assert_eq!(office.receive(&id, "paid").await, Receipt::Parked);
        }
        let view = office.view(office.task(&id)).await.unwrap();
        assert_eq!((view.state, view.failure.unwrap().kind), (state, kind));
        assert_eq!(office.queue.attempts(view.id).await.unwrap().len(), 1);
        assert_eq!(office.effects(&id).await, 0);
    }
    assert_eq!(office.runs(), 3);
    // Once each, and nobody is alerted of what is held.
    assert_eq!(
        *alerts.lock().unwrap(),
        [
            "exactly.inbox/payments evt_logic logic",
            "exactly.inbox/payments evt_panicked panicked"
        ]
    );
}

/// The sender would give up, and the transaction would stay open.
async fn what_takes_too_long_is_deferred<H: TransactionalQueueHarness>() {
    let harness = Arc::new(H::fresh().await);
    let office = Office::with(harness, |inbox| inbox.time_limit(Duration::from_millis(50))).await;
    office.script([Does::Hangs]);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Deferred);
    let view = office.view(office.task("evt_1")).await.unwrap();
    assert_eq!(view.failure.unwrap().kind, FailureKind::Timeout);
    assert_eq!(office.effects("evt_1").await, 0);
}

/// Twenty copies at once, of which the first ones fail, and a worker that has it in its hands already.
async fn copies_of_an_event_that_fails_have_one_effect_at_the_end<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    let worker = worker(&office, &Arc::default());
    for n in 0..5 {
        let id = format!("evt_{n}");
        office.script(vec![Does::FailsForNow; n]);
        let mut copies = JoinSet::new();
        for _ in 0..20 {
            let (inbox, headers) = (office.inbox.clone(), signed(&id, "paid"));
            copies.spawn(async move { inbox.receive(&headers, Bytes::from("paid")).await.unwrap() });
        }
        office.harness.elapse(RETRIES[0]).await;
        let receipts = copies.join_all().await;
        let applied = receipts.iter().filter(|receipt| **receipt == Receipt::Applied).count();
        assert!(applied <= 1, "{receipts:?}");
        assert!(!receipts.contains(&Receipt::Parked), "{receipts:?}");
        office.script([]);
        office.harness.elapse(RETRIES[2]).await;
        office
            .becomes(office.task(&id), |view| view.state == TaskState::Done)
            .await;
        assert_eq!(office.effects(&id).await, 1, "{receipts:?}");
    }
    worker.drain().await;
}
