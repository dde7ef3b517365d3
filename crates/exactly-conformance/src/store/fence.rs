//! A zombie changes nothing: every write after `begin` is refused once another attempt owns the key.

use exactly::{Attempt, Claim, Inspect as _, Store as _, Token};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, LEASE, LEASE_AND_A_BIT, Request, assert_about};

/// The outcome of an attempt that was taken over is not stored.
pub async fn a_stale_claim_cannot_complete<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (request, stale, owner) = taken_over(harness, &*store).await;
    store.complete(&stale, &"stale".into(), KEEP).await.must_be_superseded();
    store.begin(&request.rerunnable()).await.must_be_in_flight();
    store.complete(&owner, &"owner's".into(), KEEP).await.must_apply();
    store.complete(&stale, &"stale".into(), KEEP).await.must_be_superseded();
    // The same bytes do not make it the owner either.
    store
        .complete(&stale, &"owner's".into(), KEEP)
        .await
        .must_be_superseded();
    store.begin(&request.rerunnable()).await.must_replay_exactly(b"owner's");
}

/// A zombie does not keep its successor's lease alive, or cut it short.
pub async fn a_stale_claim_cannot_renew<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (request, stale, owner) = taken_over(harness, &*store).await;
    store.renew(&stale, 10 * LEASE).await.must_be_superseded();
    assert_about(store.begin(&request.rerunnable()).await.must_be_in_flight(), LEASE);
    store.complete(&owner, &"done".into(), KEEP).await.must_apply();
    store.renew(&owner, LEASE).await.must_be_superseded();
    store.begin(&request.rerunnable()).await.must_replay_exactly(b"done");
}

/// A zombie does not free the key under its successor.
pub async fn a_stale_claim_cannot_abandon<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (request, stale, owner) = taken_over(harness, &*store).await;
    store.abandon(&stale).await.must_be_superseded();
    store.begin(&request.rerunnable()).await.must_be_in_flight();
    store.complete(&owner, &"done".into(), KEEP).await.must_apply();
    store.abandon(&stale).await.must_be_superseded();
    store.begin(&request.rerunnable()).await.must_replay_exactly(b"done");
}

/// A zombie's doubt is not its successor's.
pub async fn a_stale_claim_cannot_lose<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (request, stale, owner) = taken_over(harness, &*store).await;
    store.lose(&stale).await.must_be_superseded();
    assert_about(store.begin(&request.rerunnable()).await.must_be_in_flight(), LEASE);
    store.complete(&owner, &"done".into(), KEEP).await.must_apply();
    store.lose(&owner).await.must_be_superseded();
    store.begin(&request.rerunnable()).await.must_replay_exactly(b"done");
}

/// Attempts count from one again after a key was freed, so the attempt's number alone is no fence.
pub async fn a_zombie_of_a_freed_key_cannot_write<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let zombie = store.begin(&request.call()).await.must_run();
    store.abandon(&zombie).await.must_apply();
    let owner = store.begin(&request.call()).await.must_run();
    assert_eq!(owner.attempt, zombie.attempt);

    cannot_write(&*store, &zombie).await;
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), LEASE);
    store.complete(&owner, &"owner's".into(), KEEP).await.must_apply();
    cannot_write(&*store, &zombie).await;
    store.begin(&request.call()).await.must_replay_exactly(b"owner's");
}

/// The same after an outcome was forgotten and the key used anew.
pub async fn a_zombie_of_a_forgotten_key_cannot_write<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let zombie = store.begin(&request.call()).await.must_run();
    store.complete(&zombie, &"first".into(), KEEP).await.must_apply();
    harness.elapse(KEPT).await;
    let owner = store.begin(&request.call()).await.must_run();
    assert_eq!(owner.attempt, Attempt::FIRST);

    cannot_write(&*store, &zombie).await;
    // Repeating what it once stored is no way back in.
    store
        .complete(&zombie, &"first".into(), KEEP)
        .await
        .must_be_superseded();
    store.complete(&owner, &"second".into(), KEEP).await.must_apply();
    store.begin(&request.call()).await.must_replay_exactly(b"second");
}

/// A claim that nobody ever made owns nothing, on a record or without one.
pub async fn an_invented_claim_owns_nothing<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let absent = Request::fresh().call().claim(Attempt::FIRST);
    store.renew(&absent, LEASE).await.must_be_superseded();
    store.lose(&absent).await.must_be_superseded();
    store
        .complete(&absent, &"invented".into(), KEEP)
        .await
        .must_be_superseded();
    assert!(
        answered(store.get(&absent.id).await).is_none(),
        "a refused write left a record"
    );

    let request = Request::fresh();
    let owner = store.begin(&request.call()).await.must_run();
    let invented = Claim {
        token: Token::from_bytes([0; 16]),
        ..owner.clone()
    };
    cannot_write(&*store, &invented).await;
    store.complete(&owner, &"done".into(), KEEP).await.must_apply();
}

/// Writes reach the record of the claim and no other one.
pub async fn a_write_touches_its_own_record_only<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let requests = [Request::fresh(), Request::fresh(), Request::fresh()];
    let mut claims = Vec::new();
    for request in &requests {
        claims.push(store.begin(&request.call()).await.must_run());
    }
    store.complete(&claims[1], &"middle".into(), KEEP).await.must_apply();
    store.begin(&requests[0].call()).await.must_be_in_flight();
    store.begin(&requests[1].call()).await.must_replay_exactly(b"middle");
    store.begin(&requests[2].call()).await.must_be_in_flight();
    store.abandon(&claims[2]).await.must_apply();
    store.begin(&requests[0].call()).await.must_be_in_flight();
    let _claim = store.begin(&requests[2].call()).await.must_run();
}

/// A request whose first attempt was lost and taken over: the request, the stale claim, the owner's.
async fn taken_over<H: StoreHarness>(harness: &H, store: &H::Store) -> (Request, Claim, Claim) {
    let request = Request::fresh();
    let stale = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let owner = store.begin(&request.rerunnable()).await.must_run();
    assert_ne!(stale.token, owner.token);
    (request, stale, owner)
}

async fn cannot_write(store: &impl exactly::Store, zombie: &Claim) {
    store.renew(zombie, 10 * LEASE).await.must_be_superseded();
    store.lose(zombie).await.must_be_superseded();
    store.abandon(zombie).await.must_be_superseded();
    store
        .complete(zombie, &"zombie's".into(), KEEP)
        .await
        .must_be_superseded();
}
