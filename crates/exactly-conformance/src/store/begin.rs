//! Who may run, and who finds out that someone did.

use exactly::{Attempt, Fingerprint, Inspect as _, Scope, Store as _};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, LEASE, LEASE_AND_A_BIT, Request, assert_about, unique};

/// The first use of a key runs, as attempt one, with the call's own token.
pub async fn a_fresh_key_runs<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let call = Request::fresh().call();
    let claim = store.begin(&call).await.must_run();
    assert_eq!(claim, call.claim(Attempt::FIRST));
}

/// While one holds the lease, nobody else runs.
pub async fn a_second_caller_is_told_that_it_is_in_flight<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let _claim = store.begin(&request.call()).await.must_run();
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), LEASE);
    assert_about(other.begin(&request.call()).await.must_be_in_flight(), LEASE);
}

/// What happened is answered from the record, through every store on it.
pub async fn a_duplicate_replays_the_outcome<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store
        .complete(&claim, &"ticket 12 and 13".into(), KEEP)
        .await
        .must_apply();
    store
        .begin(&request.call())
        .await
        .must_replay_exactly(b"ticket 12 and 13");
    other
        .begin(&request.call())
        .await
        .must_replay_exactly(b"ticket 12 and 13");
}

/// Another key with the same content is another operation.
pub async fn the_same_content_under_another_key_runs<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    let _claim = store.begin(&Request::fresh().call()).await.must_run();
}

/// A key means nothing outside the scope it was used in.
pub async fn scopes_do_not_share_keys<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let key = unique("key");
    let scopes = [
        Scope::new("ann", "order.place"),
        Scope::new("ann", "order.cancel"),
        Scope::new("bob", "order.place"),
        // Joining principal and operation without a border would make one scope of the next two.
        Scope::new("an", "n/order.place"),
        Scope::new("ann/", "order.place"),
    ];
    let requests = scopes.map(|scope| Request::scoped(scope, &key));
    for (n, request) in requests.iter().enumerate() {
        let claim = store.begin(&request.call()).await.must_run();
        store.complete(&claim, &n.to_string().into(), KEEP).await.must_apply();
    }
    for (n, request) in requests.iter().enumerate() {
        store
            .begin(&request.call())
            .await
            .must_replay_exactly(n.to_string().as_bytes());
    }
}

/// A principal that someone forgot to fill in is not everyone.
pub async fn the_global_scope_is_not_the_empty_principal<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let key = unique("key");
    let everyone = Request::scoped(Scope::global("order.place"), &key);
    let nobody = Request::scoped(Scope::new("", "order.place"), &key);

    let claim = store.begin(&everyone.call()).await.must_run();
    store.complete(&claim, &"everyone's".into(), KEEP).await.must_apply();
    let claim = store.begin(&nobody.call()).await.must_run();
    store.complete(&claim, &"nobody's".into(), KEEP).await.must_apply();

    store.begin(&everyone.call()).await.must_replay_exactly(b"everyone's");
    store.begin(&nobody.call()).await.must_replay_exactly(b"nobody's");
    for request in [&everyone, &nobody] {
        let view = answered(store.get(request.call().id()).await).expect("the record is there");
        assert_eq!(view.scope, request.scope);
    }
}

/// A claim whose acknowledgement was lost does not conflict with itself.
pub async fn a_lost_acknowledgement_is_found_again<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let call = Request::fresh().call();
    let first = store.begin(&call).await.must_run();
    assert_eq!(store.begin(&call).await.must_run(), first);
    // The retry of a load balancer may reach another process.
    assert_eq!(other.begin(&call).await.must_run(), first);
    store.complete(&first, &"done".into(), KEEP).await.must_apply();
    store.begin(&call).await.must_replay_exactly(b"done");
}

/// Even when the question took longer than the lease: nobody took over, so it is still the same attempt.
pub async fn a_lost_acknowledgement_is_found_after_its_lease<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    for call in [request.call(), Request::fresh().rerunnable()] {
        let first = store.begin(&call).await.must_run();
        harness.elapse(LEASE_AND_A_BIT).await;
        assert_eq!(store.begin(&call).await.must_run(), first);
        // And the lease counts from the last answer.
        let stranger = Request {
            scope: call.scope().clone(),
            key: call.key().clone(),
            ..request.clone()
        };
        assert_about(store.begin(&stranger.call()).await.must_be_in_flight(), LEASE);
    }
}

/// A peek answers as a begin would, and leaves no trace.
pub async fn a_peek_never_claims<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let call = request.call();

    assert!(answered(store.peek(&call).await).is_none(), "a begin would run");
    assert!(answered(store.get(call.id()).await).is_none(), "a peek left a record");

    let claim = store.begin(&call).await.must_run();
    assert!(
        answered(store.peek(&call).await).is_none(),
        "a begin of the same call would run again"
    );
    assert_about(store.peek(&request.call()).await.must_be_in_flight(), LEASE);
    assert_eq!(store.peek(&request.tampered().call()).await.must_mismatch(), None);

    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(store.peek(&request.call()).await.must_be_in_doubt(), claim);

    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    store.peek(&request.call()).await.must_replay_exactly(b"done");
}

/// A peek at what would be rerun says nothing, and the attempt is still there to be taken over.
pub async fn a_peek_takes_no_attempt<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let first = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    assert!(answered(store.peek(&request.rerunnable()).await).is_none());
    store.complete(&first, &"late".into(), KEEP).await.must_apply();
}

/// Fingerprints are compared, not interpreted: those of nothing and of a NUL are two contents.
pub async fn every_fingerprint_is_a_content_of_its_own<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let zeros = Request {
        fingerprint: Fingerprint::from_bytes([0; 32]),
        ..Request::fresh()
    };
    let ones = Request {
        fingerprint: Fingerprint::from_bytes([0xff; 32]),
        ..zeros.clone()
    };
    let claim = store.begin(&zeros.call()).await.must_run();
    store.begin(&ones.call()).await.must_mismatch();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    store.begin(&ones.call()).await.must_mismatch();
    store.begin(&zeros.call()).await.must_replay_exactly(b"done");
}
