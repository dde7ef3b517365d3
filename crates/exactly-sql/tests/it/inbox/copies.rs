//! Many copies of one event, genuine and forged.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use exactly::queue::{InspectQueue as _, Queue as _, TaskFilter, TaskId, TaskPage, TaskState};
use exactly::webhook::{Inbox, Receipt};
use exactly::worker::Worker;
use exactly_conformance::TransactionalQueueHarness;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Does, FORGED, Office, assert_rejected, on_both, signed, signed_by};

on_both! {
    fifty_copies_have_one_effect
    an_unverified_request_claims_nothing
    a_crash_before_the_commit_loses_nothing
    a_sender_that_hangs_up_at_any_moment_gets_one_effect
    another_body_under_the_same_id_is_quarantined
    of_two_bodies_at_once_one_is_applied
    an_event_is_forgotten_after_a_week
    an_id_or_body_that_cannot_be_kept_is_refused
}

/// Of two processes, at once.
async fn fifty_copies_have_one_effect<H: TransactionalQueueHarness>() {
    let here = Office::<H>::new().await;
    let there = Office::at(Arc::clone(&here.harness)).await;
    let mut copies = JoinSet::new();
    for n in 0..50 {
        let inbox = if n % 2 == 0 { &here.inbox } else { &there.inbox }.clone();
        copies.spawn(async move {
            inbox
                .receive(&signed("evt_1", "paid"), Bytes::from("paid"))
                .await
                .unwrap()
        });
    }
    let receipts = copies.join_all().await;
    let of = |receipt: &Receipt| receipts.iter().filter(|told| *told == receipt).count();
    assert_eq!(
        (of(&Receipt::Applied), of(&Receipt::Duplicate)),
        (1, 49),
        "{receipts:?}"
    );
    assert_eq!(here.effects("evt_1").await, 1);
    assert_eq!(here.runs() + there.runs(), 1);
}

/// Whoever sends a genuine event's id first, without being able to sign it, keeps nobody out.
async fn an_unverified_request_claims_nothing<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    let forged = signed_by(FORGED, "evt_1", "paid");
    let mut cut = signed("evt_1", "paid");
    cut.remove("webhook-signature");
    for headers in [forged, cut, signed("evt_1", "paid twice")] {
        let receipt = office.inbox.receive(&headers, Bytes::from("paid")).await.unwrap();
        assert_rejected(&receipt);
    }
    let page = TaskPage { after: None, limit: 10 };
    assert_eq!(office.queue.list(&TaskFilter::default(), page).await.unwrap(), []);
    assert_eq!(office.runs(), 0);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Applied);
    // Nor does it change anything, or learn anything, afterwards.
    let late = signed_by(FORGED, "evt_1", "other");
    assert_rejected(&office.inbox.receive(&late, Bytes::from("other")).await.unwrap());
    assert_eq!(office.effects("evt_1").await, 1);
    assert_eq!(office.queue.list(&TaskFilter::default(), page).await.unwrap().len(), 1);
}

/// The effect is made and the event is noted, and the process ends before both are committed.
async fn a_crash_before_the_commit_loses_nothing<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    office.script([Does::Hangs]);
    let (headers, body) = (signed("evt_1", "paid"), Bytes::from("paid"));
    let mut crashes = Box::pin(office.inbox.receive(&headers, body));
    while office.runs() == 0 {
        assert!(timeout(Duration::from_millis(10), &mut crashes).await.is_err());
    }
    assert_eq!(office.state("evt_1").await, None);
    drop(crashes);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Applied);
    assert_eq!((office.effects("evt_1").await, office.runs()), (1, 2));
}

/// The future is dropped at another await each time; then the sender tries again.
async fn a_sender_that_hangs_up_at_any_moment_gets_one_effect<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    let mut dropped = 0;
    for n in 0..60 {
        let (id, polls) = (format!("evt_{n}"), 1 + n % 12);
        let (headers, body) = (signed(&id, "paid"), Bytes::from("paid"));
        let first = polled(polls, office.inbox.receive(&headers, body.clone())).await;
        dropped += usize::from(first.is_none());
        let receipt = office.inbox.receive(&headers, body).await.unwrap();
        assert!(matches!(receipt, Receipt::Applied | Receipt::Duplicate), "{receipt:?}");
        assert_eq!(office.effects(&id).await, 1, "{receipt:?} after {polls} polls");
    }
    assert!(dropped > 0, "each was done before it could be dropped");
}

/// What the future comes to, if that takes no more polls.
async fn polled<F: Future>(most: usize, future: F) -> Option<F::Output> {
    let (mut future, mut polls) = (Box::pin(future), 0);
    poll_fn(|cx| {
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == most => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn another_body_under_the_same_id_is_quarantined<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    assert_eq!(office.receive("evt_1", "paid 10").await, Receipt::Applied);
    let first = office.view(office.task("evt_1")).await;
    for _ in 0..2 {
        assert_eq!(office.receive("evt_1", "paid 99").await, Receipt::Quarantined);
    }
    assert_eq!(office.receive("evt_1", "paid 10").await, Receipt::Duplicate);
    assert_eq!(office.view(office.task("evt_1")).await, first);
    assert_eq!((office.effects("evt_1").await, office.runs()), (1, 1));
    // It is kept once, with what it said, and nobody runs it.
    let quarantined = quarantined(&office).await;
    assert_eq!(quarantined.len(), 1);
    let held = office.view(quarantined[0]).await.unwrap();
    assert_eq!((held.state, &held.payload), (TaskState::Held, &Bytes::from("paid 99")));
    assert!(held.key.starts_with("evt_1 "), "{}", held.key);
    let why = held.failure.unwrap().message;
    assert!(why.contains(&office.task("evt_1").to_string()), "{why}");
    // Somebody has looked, and wants it applied.
    office.queue.revive(&[held.id]).await.unwrap();
    let worker = office
        .inbox
        .retried_by(Worker::builder(Arc::<H::Queue>::clone(&office.queue)))
        .start()
        .unwrap();
    office.becomes(held.id, |view| view.state == TaskState::Done).await;
    worker.drain().await;
    assert_eq!(office.effects("evt_1").await, 2);
}

async fn of_two_bodies_at_once_one_is_applied<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    for n in 0..5 {
        let id = format!("evt_{n}");
        let (one, other) = tokio::join!(office.receive(&id, "paid 10"), office.receive(&id, "paid 99"));
        let receipts = [one, other];
        assert!(receipts.contains(&Receipt::Applied), "{receipts:?}");
        assert!(receipts.contains(&Receipt::Quarantined), "{receipts:?}");
        assert_eq!(office.effects(&id).await, 1);
    }
    assert_eq!(quarantined(&office).await.len(), 5);
}

async fn an_event_is_forgotten_after_a_week<H: TransactionalQueueHarness>() {
    const DAY: Duration = Duration::from_hours(24);
    let office = Office::<H>::new().await;
    let week = Inbox::<H::Queue>::REMEMBERED_FOR;
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Applied);
    office.harness.elapse(6 * DAY).await;
    assert_eq!(office.queue.prune(TaskState::Done, week, 100).await.unwrap(), 0);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Duplicate);
    office.harness.elapse(2 * DAY).await;
    assert_eq!(office.queue.prune(TaskState::Done, week, 100).await.unwrap(), 1);
    assert_eq!(office.receive("evt_1", "paid").await, Receipt::Applied);
    assert_eq!(office.effects("evt_1").await, 2);
}

async fn an_id_or_body_that_cannot_be_kept_is_refused<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    let large = "x".repeat(Inbox::<H::Queue>::BODY_BYTES_MAX + 1);
    for (body, applied) in [(large[1..].to_owned(), true), (large, false)] {
        let id = format!("evt_{applied}");
        let receipt = office
            .inbox
            .receive(&signed(&id, &body), Bytes::from(body))
            .await
            .unwrap();
        assert_eq!(receipt == Receipt::Applied, applied);
        assert_eq!(matches!(receipt, Receipt::Rejected(_)), !applied);
        assert_eq!(office.state(&id).await.is_some(), applied);
    }
}

pub(super) async fn quarantined<H: TransactionalQueueHarness>(office: &Office<H>) -> Vec<TaskId> {
    let filter = TaskFilter {
        kind: Some(office.inbox.quarantine_kind().to_owned()),
        ..TaskFilter::default()
    };
    let page = TaskPage { after: None, limit: 10 };
    let listed = office.queue.list(&filter, page).await.unwrap();
    listed.into_iter().map(|view| view.id).collect()
}
