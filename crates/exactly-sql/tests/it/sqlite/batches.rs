//! Calls that share a commit.

use std::sync::Arc;
use std::time::Duration;

use exactly::{Claim, Fenced, Inspect, Keep, Store, StoreErrorKind, TransactionalStore, Verdict};
use futures_util::future::join_all;
use tokio::task::JoinSet;

use super::{Place, assert_replays, begun, call, done};

const LOCK_WAIT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn of_many_duplicates_in_one_batch_one_runs() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    // While this transaction is open nothing can be claimed, so what is begun meanwhile comes in one batch.
    let tx = store.open(LOCK_WAIT).await.unwrap();
    let mut begins = JoinSet::new();
    for key in 0..40 {
        for _ in 0..10 {
            let store = Arc::clone(&store);
            begins.spawn(async move { store.begin(&call(&key.to_string())).await.unwrap() });
        }
    }
    store.rollback(tx).await.unwrap();
    let verdicts = begins.join_all().await;
    assert_eq!(
        verdicts
            .iter()
            .filter(|verdict| matches!(verdict, Verdict::Run(_)))
            .count(),
        40
    );
    assert_eq!(
        verdicts
            .iter()
            .filter(|verdict| matches!(verdict, Verdict::InFlight { .. }))
            .count(),
        360
    );
}

#[tokio::test]
async fn a_completion_and_a_begin_that_share_a_batch_are_taken_in_order() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let claim = begun(&store, "a").await;
    let tx = store.open(LOCK_WAIT).await.unwrap();
    let (outcome, call) = ("first".into(), call("a"));
    let (completed, begun, ()) = tokio::join!(store.complete(&claim, &outcome, Keep::DAY), store.begin(&call), async {
        store.rollback(tx).await.unwrap();
    });
    assert_eq!(completed.unwrap(), Fenced::Applied);
    // The begin may have looked before the completion was committed; it must not claim.
    assert!(matches!(begun.unwrap(), Verdict::Replay(_) | Verdict::InFlight { .. }));
    assert_replays(&store.begin(&call).await.unwrap(), "first");
}

#[tokio::test]
async fn a_completion_whose_claim_does_not_hold_changes_nothing_and_spoils_no_other_of_its_batch() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let held: Vec<Claim> = join_all((0..20).map(async |key| begun(&store, &format!("held {key}")).await)).await;
    let (freed, repeated, other) = tokio::join!(
        begun(&store, "freed"),
        begun(&store, "repeated"),
        begun(&store, "other"),
    );
    assert_eq!(store.abandon(&freed).await.unwrap(), Fenced::Applied);
    let taken = begun(&store, "freed").await;
    for done in [&repeated, &other] {
        let stored = store.complete(done, &"first".into(), Keep::DAY).await.unwrap();
        assert_eq!(stored, Fenced::Applied);
    }

    // While this transaction is open nothing is committed, so what comes meanwhile comes in one batch.
    let tx = store.open(LOCK_WAIT).await.unwrap();
    let mut completions = JoinSet::new();
    let mut complete = |claim: &Claim, outcome: &'static str, expected: Fenced| {
        let (store, claim) = (Arc::clone(&store), claim.clone());
        completions.spawn(async move {
            let completed = store.complete(&claim, &outcome.into(), Keep::DAY).await.unwrap();
            assert_eq!(completed, expected, "{outcome}");
        });
    };
    for claim in &held {
        complete(claim, "held", Fenced::Applied);
    }
    complete(&freed, "of a claim that was given up", Fenced::Superseded);
    complete(&repeated, "first", Fenced::Applied);
    complete(&other, "second", Fenced::Superseded);
    store.rollback(tx).await.unwrap();
    completions.join_all().await;

    for key in 0..20 {
        assert_replays(&store.begin(&call(&format!("held {key}"))).await.unwrap(), "held");
    }
    for key in ["repeated", "other"] {
        assert_replays(&store.begin(&call(key)).await.unwrap(), "first");
    }
    let stored = store.complete(&taken, &"taken".into(), Keep::DAY).await.unwrap();
    assert_eq!(stored, Fenced::Applied);
    assert_replays(&store.begin(&call("freed")).await.unwrap(), "taken");
}

#[tokio::test]
async fn a_replay_needs_no_write_and_waits_for_no_writer() {
    let place = Place::new();
    let store = place.open().await;
    done(&store, "a", Keep::DAY).await;
    let held = begun(&store, "b").await;
    let tx = store.open(LOCK_WAIT).await.unwrap();
    // With the write lock held by this very task, an answer that needed it would never come.
    assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
    assert!(matches!(
        store.peek(&call("a")).await.unwrap(),
        Some(Verdict::Replay(_))
    ));
    assert!(matches!(
        store.begin(&call("b")).await.unwrap(),
        Verdict::InFlight { .. }
    ));
    assert!(store.peek(&call("c")).await.unwrap().is_none());
    store.rollback(tx).await.unwrap();

    let mut stranger = place.stranger().await;
    super::run(&mut stranger, "begin immediate").await;
    assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
    super::run(&mut stranger, "rollback").await;
    assert_eq!(store.abandon(&held).await.unwrap(), Fenced::Applied);
}

#[tokio::test]
async fn a_replay_does_not_queue_behind_those_who_wait_for_a_stranger() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    done(&store, "a", Keep::DAY).await;
    let mut stranger = place.stranger().await;
    super::run(&mut stranger, "begin immediate").await;
    let waiting = Arc::clone(&store);
    let waiting = tokio::spawn(async move { waiting.begin(&call("fresh")).await });
    for _ in 0..20 {
        assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
    }
    assert!(!waiting.is_finished());
    super::run(&mut stranger, "rollback").await;
    assert!(matches!(waiting.await.unwrap().unwrap(), Verdict::Run(_)));
}

#[tokio::test]
async fn a_begin_whose_caller_has_gone_claims_nothing() {
    let place = Place::new();
    let store = place.open().await;
    let tx = store.open(LOCK_WAIT).await.unwrap();
    let gone = call("gone");
    let mut begin = store.begin(&gone);
    assert!(futures_poll(begin.as_mut()).await.is_none());
    drop(begin);
    store.rollback(tx).await.unwrap();
    let _ = begun(&store, "later").await;
    assert!(store.get(gone.id()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_claim_that_nobody_heard_of_is_given_back() {
    let place = Place::new();
    let store = place.open().await;
    for round in 0..200 {
        let key = round.to_string();
        let begin = tokio::time::timeout(Duration::from_micros(round * 5), async {
            store.begin(&call(&key)).await
        });
        if let Ok(verdict) = begin.await {
            assert!(matches!(verdict.unwrap(), Verdict::Run(_)));
            continue;
        }
        // Whatever became of the first begin, it holds the key no longer than a commit takes.
        let again = async {
            while !matches!(store.begin(&call(&key)).await.unwrap(), Verdict::Run(_)) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), again)
            .await
            .expect("the claim is given back");
    }
}

#[tokio::test]
async fn a_claim_that_cannot_be_given_back_at_once_is_given_back_later() {
    let place = Place::new();
    let store = place.open().await;
    let trigger = "create trigger keep before delete on exactly_calls begin select raise(abort, 'not yet'); end";
    super::run(&mut place.stranger().await, trigger).await;
    let mut unheard = None;
    for yields in 0..100 {
        let gone = call(&format!("gone {yields}"));
        let mut begin = store.begin(&gone);
        assert!(futures_poll(begin.as_mut()).await.is_none());
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        drop(begin);
        let _ = begun(&store, &format!("later {yields}")).await;
        if store.get(gone.id()).await.unwrap().is_some() {
            unheard = Some(gone);
            break;
        }
    }
    let unheard = unheard.expect("every begin was heard or never made");
    super::run(&mut place.stranger().await, "drop trigger keep").await;
    let given_back = async {
        while store.get(unheard.id()).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), given_back)
        .await
        .expect("the claim is never given back");
}

#[tokio::test]
async fn a_write_is_carried_out_although_its_caller_has_gone() {
    let place = Place::new();
    let store = place.open().await;
    let claim = begun(&store, "a").await;
    let tx = store.open(LOCK_WAIT).await.unwrap();
    let outcome = "a".into();
    let mut complete = store.complete(&claim, &outcome, Keep::DAY);
    assert!(futures_poll(complete.as_mut()).await.is_none());
    drop(complete);
    let mut watch = store.watch(&claim.id);
    store.rollback(tx).await.unwrap();
    watch.changed().await;
    assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
}

#[tokio::test]
async fn a_step_that_cannot_be_stored_fails_alone() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let claims = [
        begun(&store, "a").await,
        begun(&store, "b").await,
        begun(&store, "c").await,
    ];
    // Stands for whatever is wrong with one row only.
    let trigger = "create trigger t before update on exactly_calls when new.outcome = x'626164' \
                   begin select raise(abort, 'bad'); end";
    super::run(&mut place.stranger().await, trigger).await;
    let tx = store.open(LOCK_WAIT).await.unwrap();
    let (good, bad) = ("good".into(), "bad".into());
    let (first, second, third, ()) = tokio::join!(
        store.complete(&claims[0], &good, Keep::DAY),
        store.complete(&claims[1], &bad, Keep::DAY),
        store.complete(&claims[2], &good, Keep::DAY),
        async { store.rollback(tx).await.unwrap() }
    );
    assert_eq!(first.unwrap(), Fenced::Applied);
    assert_eq!(second.unwrap_err().kind(), StoreErrorKind::Other);
    assert_eq!(third.unwrap(), Fenced::Applied);
    assert!(matches!(
        store.begin(&call("b")).await.unwrap(),
        Verdict::InFlight { .. }
    ));
}

#[tokio::test]
async fn without_group_commit_the_promises_are_the_same() {
    let place = Place::new();
    let store = Arc::new(place.builder().group_commit(false).start().await.unwrap());
    let mut begins = JoinSet::new();
    for _ in 0..20 {
        let store = Arc::clone(&store);
        begins.spawn(async move { store.begin(&call("a")).await.unwrap() });
    }
    let verdicts = begins.join_all().await;
    assert_eq!(
        verdicts
            .iter()
            .filter(|verdict| matches!(verdict, Verdict::Run(_)))
            .count(),
        1
    );
}

/// Lets the future start, and says whether it was ready at once.
async fn futures_poll<T>(mut future: std::pin::Pin<&mut (dyn Future<Output = T> + Send + '_)>) -> Option<T> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
