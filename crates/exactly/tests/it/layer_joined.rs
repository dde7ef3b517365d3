//! Routes whose upstream completes its call itself. What it does to a real database is tested with the stores.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use exactly::layer::{CallInfo, Guarantee, IdempotencyLayer, KeyRing, OutcomeUnknown, Policy};
use exactly::{Call, Claim, Fenced, Inspect as _, Keep, MemoryStore, OnLost, Store as _, Verdict};

use crate::app::{answer, app, ask, layer};
use crate::rigged::{Fault, Rigged, Verb};

/// A plain answer with status 201, no headers and the body `paid`, as an upstream stores it.
const PAID: &[u8] = &[1, 1, 0, 201, 0, 0, b'p', b'a', b'i', b'd'];

fn joined() -> Policy {
    Policy::playbook().guarantee(Guarantee::Joined)
}

/// An upstream that commits or not, and whose answer is lost.
fn lossy(store: &Arc<Rigged>, commits: bool) -> Router {
    let layer = layer(Arc::clone(store) as _, joined());
    let store = Arc::clone(store);
    app(&layer, move |request: Request| {
        let store = Arc::clone(&store);
        async move {
            let claim = claim(&request);
            if commits {
                let completed = store.inner.complete(&claim, &PAID.into(), Keep::DAY).await;
                assert_eq!(completed.unwrap(), Fenced::Applied);
            }
            let mut response = answer(502, "");
            response.extensions_mut().insert(OutcomeUnknown);
            response
        }
    })
}

/// Another gateway begins the call.
async fn take_over(store: &Rigged, claim: &Claim) {
    let view = store.inner.get(&claim.id).await.unwrap().unwrap();
    let call = Call::new(view.scope, view.key, view.fingerprint).with_on_lost(OnLost::Rerun);
    assert!(matches!(store.inner.begin(&call).await.unwrap(), Verdict::Run(_)));
}

fn claim(request: &Request) -> Claim {
    request.extensions().get::<CallInfo>().unwrap().claim.clone()
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_for_in_the_record() {
    let store = Arc::new(Rigged::new());
    let told = ask("committed").send(&lossy(&store, true)).await;
    assert_eq!((told.status.as_u16(), told.text()), (201, "paid"));
    assert_eq!(told.key_status(), Some("stored"));
    let told = ask("not committed").send(&lossy(&store, false)).await;
    told.assert_problem(503, "TRANSIENT.handler_failed");
    assert_eq!(told.problem()["retryable"], true);
    assert_eq!(told.header("retry-after"), Some("1"));
}

/// The record knows, and whoever asks again once it can be asked learns it.
#[tokio::test(start_paused = true)]
async fn while_the_record_cannot_be_asked_nobody_is_told_that_nothing_happened() {
    for (commits, fault) in [
        (true, Fault::Refuses),
        (false, Fault::Refuses),
        (true, Fault::LosesReply),
        (false, Fault::LosesReply),
        (false, Fault::Hangs),
    ] {
        let store = Arc::new(Rigged::new());
        let app = lossy(&store, commits);
        store.break_with(Verb::Abandon, fault);
        let told = ask("1").send(&app).await;
        told.assert_problem(503, "OUTCOME.unknown");
        assert!(!told.text().contains("nothing"), "{}", told.text());
        assert_eq!(told.problem()["retryable"], true, "{fault:?}");
        store.mend();
        // It was being told to the store all the while.
        tokio::time::sleep(Duration::from_secs(20)).await;
        let told = ask("1").send(&app).await;
        if commits {
            assert_eq!((told.key_status(), told.text()), (Some("replayed"), "paid"));
        } else {
            told.assert_problem(503, "TRANSIENT.handler_failed");
        }
    }
}

/// A late upstream of an attempt that was taken over hides neither the later attempt nor its own failure.
#[tokio::test(start_paused = true)]
async fn whose_call_was_taken_over_is_told_that_it_is_in_progress() {
    let store = Arc::new(Rigged::new());
    for status in [201, 502] {
        let layer = layer(Arc::clone(&store) as _, joined().wait(Duration::ZERO));
        let app = app(&layer, {
            let store = Arc::clone(&store);
            move |request: Request| {
                let store = Arc::clone(&store);
                async move {
                    // The gateway stood still for longer than its lease, and another one has begun the call.
                    let claim = claim(&request);
                    assert_eq!(store.inner.lose(&claim).await.unwrap(), Fenced::Applied);
                    take_over(&store, &claim).await;
                    answer(status, "from the first attempt")
                }
            }
        });
        let told = ask(&status.to_string()).send(&app).await;
        told.assert_problem(409, "CONFLICT.idempotency.in_progress");
    }
}

#[tokio::test]
async fn an_upstream_is_told_what_it_needs_to_join_and_on_no_other_route() {
    for (policy, keep) in [
        (joined(), Some("86400")),
        (joined().keep(Keep::For(Duration::from_millis(1500))), Some("2")),
        (joined().keep(Keep::Forever), Some("forever")),
        (Policy::playbook(), None),
    ] {
        let app = app(
            &layer(Arc::new(MemoryStore::new()), policy),
            move |request: Request| async move {
                let call = request.extensions().get::<CallInfo>().unwrap();
                let headers: http::HeaderMap = call.join_headers().collect();
                let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
                assert_eq!(header("exactly-keep"), keep);
                assert_eq!(
                    header("exactly-call"),
                    keep.map(|_| call.claim.id.to_string()).as_deref()
                );
                let token = header("exactly-token").unwrap_or_default();
                assert!(token.len() == keep.map_or(0, |_| 32) && !format!("{headers:?}").contains("token\": \""));
                answer(200, "")
            },
        );
        assert_eq!(ask("1").send(&app).await.status, 200);
    }
}

#[test]
fn what_an_upstream_stores_in_plain_cannot_be_promised_to_be_sealed() {
    let keys = Arc::new(KeyRing::new(1, &[7; 32]));
    for policy in [joined().sealed_by(keys), joined().never_store_answers()] {
        let built = IdempotencyLayer::builder(Arc::new(MemoryStore::new()))
            .global_keys()
            .policy(policy)
            .build();
        assert!(built.unwrap_err().to_string().contains("joined"));
    }
}
