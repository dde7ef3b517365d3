//! Texts and bytes come back as they were given.

use std::collections::BTreeSet;

use exactly::queue::{
    End, Failure, FailureKind, InspectQueue as _, Lane, Lanes, Queue as _, Task, TaskFilter, TaskPage,
};

use crate::QueueHarness;
use crate::answers::answered;
use crate::work::{added, ask, history, leased, must_apply, running, shown, the_one};

/// Texts that have been mistaken for something else.
const TEXTS: [&str; 14] = [
    "'; drop table tasks; --",
    "\"quoted\"",
    "back\\slash",
    "100%_",
    "a,b{c}",
    "NULL",
    "[\"a\",\"b\"]",
    " padded ",
    "e\u{301}",
    "\u{e9}",
    "E\u{301}",
    "🦀 crab",
    "\u{202e}right to left",
    "\u{10ffff}",
];

/// Kinds, keys and lanes are any text.
pub async fn difficult_texts_come_back_unchanged<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for text in TEXTS {
        let lane = Lane::new(text).expect("the lane is valid");
        let task = Task::new(text, text, text)
            .expect("the task is valid")
            .in_lane(lane.clone());
        added(&*queue, &[task]).await;
        let only = ask(10).from_lanes(Lanes::Only(vec![lane.clone()]));
        let leased = answered(queue.lease(&only).await);
        assert_eq!(leased.len(), 1, "{text}");
        assert_eq!(
            (&*leased[0].kind, &*leased[0].key, &leased[0].lane),
            (text, text, &lane)
        );
        assert_eq!(&leased[0].payload[..], text.as_bytes());
        let failure = Failure::new(FailureKind::Logic, format!("{text}\n{text}\0"));
        must_apply(&*queue, leased[0].lease, End::Bury(failure.clone())).await;
        must_apply(&*queue, leased[0].lease, End::Bury(failure.clone())).await;
        let view = shown(&*queue, leased[0].lease.id).await;
        assert_eq!((&*view.kind, &*view.key, &view.lane), (text, text, &lane));
        assert_eq!(view.failure.as_ref(), Some(&failure));
        assert_eq!(history(&*queue, view.id).await[0].failure, failure);
    }
}

/// Lanes are told apart byte by byte, and so are kinds in a filter.
pub async fn names_are_compared_byte_by_byte<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let names = ["a", "A", "\u{e9}", "e\u{301}", "a ", "a_", "ab", "%"];
    for name in names {
        let task = Task::new(name, "key", "payload").expect("the task is valid");
        added(&*queue, &[task]).await;
    }
    answered(queue.pause_lane(&Lane::new("a").expect("the lane is valid")).await);
    let leased = leased(&*queue, 10).await;
    let served: BTreeSet<_> = leased.iter().map(|leased| leased.lane.as_str()).collect();
    assert_eq!(served, names[1..].iter().copied().collect());
    for name in names {
        let filter = TaskFilter {
            kind: Some(name.to_owned()),
            ..TaskFilter::default()
        };
        let page = TaskPage { after: None, limit: 10 };
        let listed = answered(queue.list(&filter, page).await);
        assert!(listed.len() == 1 && &*listed[0].kind == name, "{name}: {listed:?}");
    }
}

/// The longest texts are kept whole.
pub async fn the_longest_texts_are_kept<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let long = |bytes: usize, last: &str| format!("{}{last}", "é".repeat((bytes - 2) / 2));
    let lane = Lane::new(long(Lane::BYTES_MAX, "x")).expect("the lane is valid");
    for last in ["a", "b"] {
        let (kind, key) = (long(Task::KIND_BYTES_MAX, "x"), long(Task::KEY_BYTES_MAX, last));
        let task = Task::new(kind.clone(), key.clone(), "payload").expect("the task is valid");
        added(&*queue, &[task.in_lane(lane.clone())]).await;
        let leased = the_one(&*queue).await;
        assert_eq!((&*leased.kind, &*leased.key, &leased.lane), (&*kind, &*key, &lane));
        let failure = Failure::new(FailureKind::Logic, "é".repeat(Failure::MESSAGE_BYTES_MAX));
        must_apply(&*queue, leased.lease, End::Bury(failure.clone())).await;
        assert_eq!(shown(&*queue, leased.lease.id).await.failure, Some(failure));
    }
}

/// Payloads and outcomes are bytes, whatever they are.
pub async fn binary_payloads_come_back_unchanged<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    for (n, bytes) in [every_byte, vec![], vec![0], vec![0xff, 0xfe], b"\\x00".to_vec()]
        .into_iter()
        .enumerate()
    {
        let task = Task::new("binary", n.to_string(), bytes.clone()).expect("the task is valid");
        added(&*queue, &[task]).await;
        let leased = the_one(&*queue).await;
        assert_eq!(leased.payload, bytes);
        must_apply(&*queue, leased.lease, End::Done(bytes.clone().into())).await;
        must_apply(&*queue, leased.lease, End::Done(bytes.clone().into())).await;
        let view = shown(&*queue, leased.lease.id).await;
        assert_eq!(view.payload, bytes);
        assert_eq!(view.outcome.expect("it is done"), bytes);
    }
}

/// The largest payload, and an outcome as large, come back whole.
pub async fn a_payload_of_a_mebibyte_comes_back_exactly<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let size = u32::try_from(Task::PAYLOAD_BYTES_MAX).expect("the limit is small");
    let bytes: Vec<u8> = (0..size).map(|n| (n % 251).to_le_bytes()[0]).collect();
    let task = Task::new("large", "a", bytes.clone()).expect("the task is valid");
    added(&*queue, &[task]).await;
    let leased = the_one(&*queue).await;
    assert!(leased.payload == bytes, "the payload has changed");
    must_apply(&*queue, leased.lease, End::Done(bytes.clone().into())).await;
    let view = shown(&*queue, leased.lease.id).await;
    assert!(view.outcome.expect("it is done") == bytes, "the outcome has changed");
}

/// Counts and versions go up to the largest number.
pub async fn the_largest_version_is_kept<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let versions = [0, 1, u32::MAX / 2, u32::MAX / 2 + 1, u32::MAX];
    for version in versions {
        let task = Task::new("offer", version.to_string(), "payload").expect("the task is valid");
        added(&*queue, &[task.with_version(version)]).await;
        assert_eq!(the_one(&*queue).await.version, version);
        let filter = TaskFilter {
            version: Some(version),
            ..TaskFilter::default()
        };
        let listed = answered(queue.list(&filter, TaskPage { after: None, limit: 10 }).await);
        assert!(listed.len() == 1 && listed[0].version == version, "{listed:?}");
    }
    let lease = running(&*queue, "last").await.lease;
    must_apply(&*queue, lease, End::Done("done".into())).await;
}
