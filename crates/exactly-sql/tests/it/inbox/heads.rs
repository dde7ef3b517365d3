//! What is kept of a request's head.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use exactly::JobError;
use exactly::queue::{Queue as _, TaskState, TransactionalQueue};
use exactly::webhook::{Inbox, InboxBuilder, Receipt, Received, Refused, SharedSecret, Verifier};
use exactly::worker::Worker;
use exactly_conformance::TransactionalQueueHarness;

use super::copies::quarantined;
use super::{Does, Office, SOURCE, on_both, signed};

on_both! {
    each_attempt_sees_the_headers_that_are_kept
    the_same_body_with_another_header_is_a_duplicate
    what_is_quarantined_keeps_its_headers
    an_event_from_before_headers_were_kept_is_known
    of_githubs_events_the_type_is_kept
    a_head_that_is_too_large_is_refused
    an_inbox_that_keeps_what_is_no_header_is_refused
}

/// What each run of a handler saw: the attempt, and the header.
type Seen = Arc<Mutex<Vec<(u32, Option<String>)>>>;

/// An inbox that keeps `X-Kind`, whose handler notes it, and fails as often as it says.
async fn keeping<H: TransactionalQueueHarness>(failures: u32) -> (Office<H>, Seen) {
    let seen: Seen = Arc::default();
    let noted = Arc::clone(&seen);
    let office = Office::with(Arc::new(H::fresh().await), |inbox| noting(inbox, &noted, failures)).await;
    (office, seen)
}

fn noting<Q: TransactionalQueue>(inbox: InboxBuilder<Q>, seen: &Seen, failures: u32) -> InboxBuilder<Q> {
    let seen = Arc::clone(seen);
    inbox.keep_headers(["X-Kind"]).handler(move |_, event: &Received| {
        let header = event.header("x-kind").map(str::to_owned);
        seen.lock().unwrap().push((event.attempt(), header));
        let ended = if event.attempt() <= failures {
            Err(JobError::transient("a service was busy"))
        } else {
            Ok(())
        };
        Box::pin(async move { ended })
    })
}

fn with(mut headers: HeaderMap, name: &'static str, value: &str) -> HeaderMap {
    headers.insert(name, value.parse().unwrap());
    headers
}

async fn receive<H: TransactionalQueueHarness>(
    office: &Office<H>,
    kind: &str,
    id: &str,
    body: &'static str,
) -> Receipt {
    let headers = with(signed(id, body), "x-kind", kind);
    office.inbox.receive(&headers, Bytes::from(body)).await.unwrap()
}

async fn each_attempt_sees_the_headers_that_are_kept<H: TransactionalQueueHarness>() {
    let (office, seen) = keeping::<H>(1).await;
    let headers = with(with(signed("evt_1", "paid"), "x-kind", "push"), "x-other", "no");
    let body = Bytes::from("paid");
    assert_eq!(office.inbox.receive(&headers, body).await.unwrap(), Receipt::Deferred);
    let worker = office
        .inbox
        .retried_by(Worker::builder(Arc::<H::Queue>::clone(&office.queue)));
    let worker = worker.poll_every(Duration::from_millis(20)).start().unwrap();
    office.harness.elapse(Duration::from_mins(1)).await;
    let task = office.task("evt_1");
    office.becomes(task, |view| view.state == TaskState::Done).await;
    worker.drain().await;
    let push = || Some("push".to_owned());
    assert_eq!(*seen.lock().unwrap(), [(1, push()), (2, push())]);
    let view = office.view(task).await.unwrap();
    assert_eq!(
        view.payload, "x-kind: push\n\npaid",
        "people can read it, and no other header is there"
    );
}

/// In whatever state it is found, and in either direction.
async fn the_same_body_with_another_header_is_a_duplicate<H: TransactionalQueueHarness>() {
    let office = Office::<H>::with(Arc::new(H::fresh().await), |inbox| inbox.keep_headers(["X-Kind"])).await;
    for (id, does, first, again) in [
        ("evt_1", Does::Succeeds, Receipt::Applied, Receipt::Duplicate),
        ("evt_2", Does::FailsForNow, Receipt::Deferred, Receipt::Deferred),
        ("evt_3", Does::FailsForGood, Receipt::Parked, Receipt::Parked),
    ] {
        office.script([does]);
        assert_eq!(receive(&office, "push", id, "paid").await, first);
        for kind in ["push", "issues", ""] {
            assert_eq!(receive(&office, kind, id, "paid").await, again, "{id} {kind}");
        }
        assert_eq!(office.receive(id, "paid").await, again, "{id} without the header");
    }
    assert_eq!(quarantined(&office).await, []);
    assert_eq!(office.runs(), 3);
    assert_eq!(office.receive("evt_4", "paid").await, Receipt::Applied);
    assert_eq!(receive(&office, "push", "evt_4", "paid").await, Receipt::Duplicate);
}

async fn what_is_quarantined_keeps_its_headers<H: TransactionalQueueHarness>() {
    let (office, seen) = keeping::<H>(0).await;
    assert_eq!(receive(&office, "push", "evt_1", "paid").await, Receipt::Applied);
    for kind in ["issues", "push"] {
        assert_eq!(receive(&office, kind, "evt_1", "other").await, Receipt::Quarantined);
    }
    let held = quarantined(&office).await;
    assert_eq!(held.len(), 1, "the same body is kept once");
    office.queue.revive(&held).await.unwrap();
    let worker = office
        .inbox
        .retried_by(Worker::builder(Arc::<H::Queue>::clone(&office.queue)));
    let worker = worker.start().unwrap();
    office.becomes(held[0], |view| view.state == TaskState::Done).await;
    worker.drain().await;
    let issues = seen.lock().unwrap().last().cloned().unwrap();
    assert_eq!(issues, (1, Some("issues".to_owned())));
}

async fn an_event_from_before_headers_were_kept_is_known<H: TransactionalQueueHarness>() {
    let before = Office::<H>::new().await;
    before.script([Does::Succeeds, Does::FailsForNow]);
    assert_eq!(before.receive("evt_1", "paid").await, Receipt::Applied);
    assert_eq!(before.receive("evt_2", "paid").await, Receipt::Deferred);
    let seen: Seen = Arc::default();
    let after = Office::with(Arc::clone(&before.harness), |inbox| noting(inbox, &seen, 0)).await;
    assert_eq!(receive(&after, "push", "evt_1", "paid").await, Receipt::Duplicate);
    assert_eq!(receive(&after, "push", "evt_2", "paid").await, Receipt::Deferred);
    assert_eq!(
        receive(&after, "push", "evt_1", "paid twice").await,
        Receipt::Quarantined
    );
    let worker = after
        .inbox
        .retried_by(Worker::builder(Arc::<H::Queue>::clone(&after.queue)));
    let worker = worker.poll_every(Duration::from_millis(20)).start().unwrap();
    after.harness.elapse(Duration::from_mins(1)).await;
    let task = after.task("evt_2");
    after.becomes(task, |view| view.state == TaskState::Done).await;
    worker.drain().await;
    assert_eq!(*seen.lock().unwrap(), [(2, None)]);
}

/// With the example that GitHub has in its documentation.
async fn of_githubs_events_the_type_is_kept<H: TransactionalQueueHarness>() {
    const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let seen: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let office = Office::<H>::with(Arc::new(H::fresh().await), |inbox| {
        let secret = "It's a Secret to Everybody".parse::<SharedSecret>().unwrap();
        inbox.verifier(Verifier::github([secret])).handler(move |_, event| {
            noted
                .lock()
                .unwrap()
                .push(event.header("X-GitHub-Event").map(str::to_owned));
            Box::pin(async { Ok(()) })
        })
    })
    .await;
    for (id, kind) in [("1", "push"), ("2", "issues")] {
        let mut headers = with(HeaderMap::new(), "x-hub-signature-256", SIGNATURE);
        headers = with(with(headers, "x-github-delivery", id), "x-github-event", kind);
        let receipt = office.inbox.receive(&headers, Bytes::from("Hello, World!")).await;
        assert_eq!(receipt.unwrap(), Receipt::Applied);
    }
    let kinds = ["push", "issues"].map(|kind| Some(kind.to_owned()));
    assert_eq!(*seen.lock().unwrap(), kinds);
}

async fn a_head_that_is_too_large_is_refused<H: TransactionalQueueHarness>() {
    let (office, _) = keeping::<H>(0).await;
    let most = 8 * 1024 - "x-kind: \n".len();
    for (len, is_kept) in [(most, true), (most + 1, false)] {
        let id = format!("evt_{len}");
        let receipt = receive(&office, &"x".repeat(len), &id, "paid").await;
        let refused = matches!(receipt, Receipt::Rejected(Refused::HeadTooLarge { .. }));
        assert_eq!(
            (receipt == Receipt::Applied, refused),
            (is_kept, !is_kept),
            "{receipt:?}"
        );
        assert_eq!(office.state(&id).await.is_some(), is_kept);
    }
    // What is not kept may be as large as it likes, and what is kept counts with the body.
    let headers = with(signed("evt_1", "paid"), "x-other", &"x".repeat(most + 1));
    let receipt = office.inbox.receive(&headers, Bytes::from("paid")).await;
    assert_eq!(receipt.unwrap(), Receipt::Applied);
    let large = "x".repeat(Inbox::<H::Queue>::BODY_BYTES_MAX);
    let headers = with(signed("evt_2", &large), "x-kind", "push");
    let receipt = office.inbox.receive(&headers, Bytes::from(large)).await.unwrap();
    let refused = matches!(receipt, Receipt::Rejected(Refused::TooLarge { .. }));
    assert!(refused, "{receipt:?}");
}

async fn an_inbox_that_keeps_what_is_no_header_is_refused<H: TransactionalQueueHarness>() {
    let queue = H::fresh().await.open().await;
    let inbox = |names: Vec<String>| Inbox::builder(Arc::<H::Queue>::clone(&queue), SOURCE).keep_headers(names);
    let many = (0..17).map(|n| format!("x-{n}")).collect();
    for (names, why) in [(vec!["x y".to_owned()], "\"x y\""), (many, "17 headers")] {
        let error = inbox(names).build().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let twice = ["x-kind"; 20].map(str::to_owned).to_vec();
    let error = inbox(twice).build().unwrap_err().to_string();
    assert!(!error.contains("keep_headers"), "{error}");
}
