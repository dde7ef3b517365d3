//! What was answered once is answered again, to the byte; what did not happen leaves no answer.

use bytes::Bytes;
use exactly::{Attempt, Inspect as _, Store as _};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, LEASE, LEASE_AND_A_BIT, Request, assert_about};

/// An empty answer is an answer, not a fresh run.
pub async fn an_empty_outcome_replays<H: StoreHarness>(harness: &H) {
    replays(harness, Bytes::new()).await;
}

/// No byte is taken for text: NUL, invalid UTF-8, line ends and escapes come back as they were.
pub async fn a_binary_outcome_replays_exactly<H: StoreHarness>(harness: &H) {
    replays(harness, (0..=u8::MAX).collect()).await;
    replays(harness, Bytes::from_static(b"\0")).await;
    replays(harness, Bytes::from_static(b"\xff\xfe\r\n\\x00'\"")).await;
    replays(harness, Bytes::from_static(b"-1")).await;
}

/// A large answer is neither cut nor dropped.
pub async fn an_outcome_of_a_mebibyte_replays_exactly<H: StoreHarness>(harness: &H) {
    let pattern = (0..1 << 20).map(|n: u32| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]);
    replays(harness, pattern.collect()).await;
}

/// Whoever replays is told when the key is forgotten.
pub async fn a_replay_tells_when_the_key_is_forgotten<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    let replay = store.begin(&request.call()).await.must_replay();
    assert_about(replay.expires_in.expect("it is not kept forever"), KEPT);
    harness.elapse(KEPT / 2).await;
    let replay = store.begin(&request.call()).await.must_replay();
    assert_about(replay.expires_in.expect("it is not kept forever"), KEPT / 2);
}

/// A lost reply is not a lost write: completing again is applied, and changes nothing.
pub async fn completing_again_with_the_same_outcome_is_applied<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    other.complete(&claim, &"done".into(), KEEP).await.must_apply();
    store.begin(&request.call()).await.must_replay_exactly(b"done");

    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &Bytes::new(), KEEP).await.must_apply();
    store.complete(&claim, &Bytes::new(), KEEP).await.must_apply();
}

/// What was answered to someone cannot be answered otherwise to another.
pub async fn completing_again_with_another_outcome_is_superseded<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"first".into(), KEEP).await.must_apply();
    store
        .complete(&claim, &"second".into(), KEEP)
        .await
        .must_be_superseded();
    store.complete(&claim, &Bytes::new(), KEEP).await.must_be_superseded();
    store
        .complete(&claim, &"first\0".into(), KEEP)
        .await
        .must_be_superseded();
    store.begin(&request.call()).await.must_replay_exactly(b"first");
}

/// What did not happen frees its key, and the next caller runs as if it were the first.
pub async fn abandoning_frees_the_key<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.abandon(&claim).await.must_apply();
    assert!(
        answered(store.get(&claim.id).await).is_none(),
        "an abandoned record is gone"
    );
    let call = request.call();
    assert_eq!(store.begin(&call).await.must_run(), call.claim(Attempt::FIRST));
}

/// Even for another content: nothing happened under this key.
pub async fn an_abandoned_key_takes_another_content<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.abandon(&claim).await.must_apply();
    let _claim = store.begin(&request.tampered().call()).await.must_run();
}

/// Abandoning is repeatable too.
pub async fn abandoning_what_is_gone_is_applied<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.abandon(&claim).await.must_apply();
    store.abandon(&claim).await.must_apply();
    let never = Request::fresh().call().claim(Attempt::FIRST);
    store.abandon(&never).await.must_apply();
    assert!(answered(store.get(&never.id).await).is_none());
}

/// What happened cannot be made not to have happened.
pub async fn abandoning_what_is_done_is_superseded<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    store.abandon(&claim).await.must_be_superseded();
    store.begin(&request.call()).await.must_replay_exactly(b"done");
}

/// A lost attempt that was found not to have happened can still be abandoned by its owner.
pub async fn abandoning_a_lost_claim_frees_the_key<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    store.abandon(&claim).await.must_apply();
    let fresh = store.begin(&request.rerunnable()).await.must_run();
    assert_eq!(fresh.attempt, Attempt::FIRST);
    assert_about(store.begin(&request.rerunnable()).await.must_be_in_flight(), LEASE);
}

async fn replays<H: StoreHarness>(harness: &H, outcome: Bytes) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &outcome, KEEP).await.must_apply();
    store.begin(&request.call()).await.must_replay_exactly(&outcome);
    other.begin(&request.call()).await.must_replay_exactly(&outcome);
    store.peek(&request.call()).await.must_replay_exactly(&outcome);
    let view = answered(store.get(&claim.id).await).expect("the record is there");
    assert_eq!(view.outcome_len, u64::try_from(outcome.len()).ok());
}
