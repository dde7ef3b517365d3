//! A service holds its call's record until it commits, and holds up nobody else.

use std::sync::Arc;
use std::time::Duration;

use exactly::{Claim, Fenced, Keep, OnLost, Store, StoreErrorKind, Verdict};
use exactly_sql::PgStore;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::joined::Service;
use super::{Place, call, run};

/// Longer than the store's own limits.
const PATIENCE: Duration = Duration::from_secs(30);

const LEASE: Duration = Duration::from_secs(30);

/// How long a record is held, and how many rounds of other calls go on meanwhile at the least. If each of a round's three
/// steps cost the least that a batch waits for a lock, a tenth of a second, it would be ten.
const HOLD: Duration = Duration::from_secs(3);
const ROUNDS_MIN: u32 = 30;

/// A call whose service has completed it and not committed yet.
async fn held(place: &Place, store: &PgStore, key: &str) -> (Service, Claim) {
    let mut service = Service::of(place).await;
    let claim = run(store, &call(key).with_on_lost(OnLost::Rerun)).await;
    service.pay(key).await;
    service.complete(&claim).await.unwrap();
    (service, claim)
}

/// One flusher, so that a batch that waits holds up everybody.
async fn store(place: &Place) -> Arc<PgStore> {
    Arc::new(place.builder().flushers(1).start().await.unwrap())
}

/// A whole life of each kind for other calls: begun, renewed, and completed or abandoned. `bother` is asked before each
/// step, so that what it asks goes into the same batch.
async fn others(store: &PgStore, round: u32, bother: &mut impl FnMut()) {
    let (one, two) = (call(&format!("one {round}")), call(&format!("two {round}")));
    bother();
    let (one, two) = tokio::join!(run(store, &one), run(store, &two));
    bother();
    let (first, second) = tokio::join!(store.renew(&one, LEASE), store.renew(&two, LEASE));
    assert_eq!((first.unwrap(), second.unwrap()), (Fenced::Applied, Fenced::Applied));
    bother();
    let outcome = "done".into();
    let (first, second) = tokio::join!(store.complete(&one, &outcome, Keep::DAY), store.abandon(&two));
    assert_eq!((first.unwrap(), second.unwrap()), (Fenced::Applied, Fenced::Applied));
}

/// While a record is held, enough rounds of others go by.
async fn others_go_on(store: &PgStore, hold: Duration, mut bother: impl FnMut()) {
    let until = Instant::now() + hold;
    let mut rounds = 0;
    while Instant::now() < until {
        others(store, rounds, &mut bother).await;
        rounds += 1;
    }
    assert!(rounds >= ROUNDS_MIN, "only {rounds} rounds of others went by");
}

/// One thread, so that whatever is asked without waiting goes into one batch.
#[tokio::test]
async fn a_renewal_of_a_held_record_holds_up_no_other() {
    let place = Place::fresh();
    let store = store(&place).await;
    let (mut service, claim) = held(&place, &store, "held").await;
    others_go_on(&store, HOLD, || {
        let (store, claim) = (Arc::clone(&store), claim.clone());
        tokio::spawn(async move { store.renew(&claim, LEASE).await });
    })
    .await;
    service.run("commit").await.unwrap();
    assert!(matches!(store.begin(&call("held")).await.unwrap(), Verdict::Replay(_)));
}

/// Neither do those who ask for the same operation: they are told at once that it is in flight.
#[tokio::test]
async fn a_duplicate_of_a_held_call_waits_for_nobody() {
    let place = Place::fresh();
    let store = store(&place).await;
    let (mut service, _claim) = held(&place, &store, "held").await;
    let mut duplicates = JoinSet::new();
    others_go_on(&store, HOLD, || {
        let store = Arc::clone(&store);
        duplicates.spawn(async move {
            let asked = Instant::now();
            let begun = store.begin(&call("held")).await.unwrap();
            let peeked = store.peek(&call("held")).await.unwrap();
            (begun, peeked, asked.elapsed())
        });
    })
    .await;
    for (begun, peeked, waited) in duplicates.join_all().await {
        assert!(matches!(begun, Verdict::InFlight { .. }), "{begun:?}");
        assert!(matches!(peeked, Some(Verdict::InFlight { .. })), "{peeked:?}");
        assert!(waited < Duration::from_secs(1), "a duplicate waited for {waited:?}");
    }
    service.run("commit").await.unwrap();
    assert!(matches!(store.begin(&call("held")).await.unwrap(), Verdict::Replay(_)));
}

#[tokio::test]
async fn giving_up_a_held_record_holds_up_no_other() {
    let place = Place::fresh();
    let store = store(&place).await;
    let (mut service, claim) = held(&place, &store, "held").await;
    others_go_on(&store, HOLD, || {
        let (store, claim) = (Arc::clone(&store), claim.clone());
        tokio::spawn(async move { store.abandon(&claim).await });
    })
    .await;
    service.run("commit").await.unwrap();
    assert!(matches!(store.begin(&call("held")).await.unwrap(), Verdict::Replay(_)));
}

/// The answer of a service can overtake its commit. Its completion by the gateway then waits, in its batch for a tenth of
/// a second and beside it from then on, and those who share the batch are carried out together all the same.
#[tokio::test]
async fn an_answer_that_overtakes_its_commit_waits_aside() {
    let place = Place::fresh();
    let store = store(&place).await;
    let (mut committing, one) = held(&place, &store, "commits").await;
    let (mut rolling_back, two) = held(&place, &store, "rolls back").await;
    let answers = [one, two].map(|claim| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.complete(&claim, &"other bytes".into(), Keep::DAY).await })
    });
    let calls: Vec<_> = (0..500).map(|n| call(&format!("key {n}"))).collect();
    for verdict in join_all(calls.iter().map(|call| store.begin(call))).await {
        assert!(matches!(verdict.unwrap(), Verdict::Run(_)));
    }
    let moments = place
        .run("select distinct created_at from {table} where key like 'key %'")
        .await;
    assert!(moments <= 20, "500 calls were begun in {moments} statements");
    assert!(
        answers.iter().all(|answer| !answer.is_finished()),
        "a completion did not wait"
    );
    committing.run("commit").await.unwrap();
    rolling_back.run("rollback").await.unwrap();
    let [one, two] = answers;
    assert_eq!(one.await.unwrap().unwrap(), Fenced::Superseded);
    assert_eq!(two.await.unwrap().unwrap(), Fenced::Applied);
}

/// Whoever gives a call up while its service is about to commit is told what came of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn giving_up_a_held_call_waits_and_tells_the_truth() {
    let place = Place::fresh();
    let store = store(&place).await;
    for (ends, fenced) in [("commit", Fenced::Superseded), ("rollback", Fenced::Applied)] {
        let (mut service, claim) = held(&place, &store, ends).await;
        let mut giving_up = store.abandon(&claim);
        let early = timeout(Duration::from_millis(500), &mut giving_up).await;
        assert!(early.is_err(), "told {early:?} before the service ended");
        service.run(ends).await.unwrap();
        assert_eq!(giving_up.await.unwrap(), fenced, "after a {ends}");
        // If it did not happen, it can no longer.
        if fenced == Fenced::Applied {
            service.pay("again").await;
            assert!(service.complete(&claim).await.is_err());
            service.run("commit").await.unwrap();
        }
    }
    assert_eq!(Service::of(&place).await.payments(&place).await, 1);
}

#[tokio::test]
async fn a_service_that_never_ends_is_not_waited_for_without_end() {
    let place = Place::fresh();
    let store = store(&place).await;
    let (mut service, claim) = held(&place, &store, "key").await;
    let asked = Instant::now();
    let answers = async { tokio::join!(store.abandon(&claim), store.renew(&claim, LEASE), store.lose(&claim)) };
    let (abandoned, renewed, lost) = timeout(PATIENCE, answers).await.unwrap();
    for told in [abandoned, renewed, lost] {
        let error = told.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("has held the record for 3 s"), "{error}");
    }
    assert!(asked.elapsed() >= Duration::from_secs(3));
    // Nothing of it was done.
    service.run("commit").await.unwrap();
    assert!(matches!(store.begin(&call("key")).await.unwrap(), Verdict::Replay(_)));
}

/// A renewal of the held call is answered as soon as the service has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_outlasts_a_service_that_rolls_back() {
    let place = Place::fresh();
    let store = store(&place).await;
    for (ends, fenced) in [("rollback", Fenced::Applied), ("commit", Fenced::Superseded)] {
        let (mut service, claim) = held(&place, &store, ends).await;
        let mut renewing = store.renew(&claim, LEASE);
        assert!(timeout(Duration::from_millis(200), &mut renewing).await.is_err());
        service.run(ends).await.unwrap();
        assert_eq!(renewing.await.unwrap(), fenced, "after a {ends}");
    }
}

/// The lease of a held call may end. Nobody takes it over while its service can still commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_call_is_not_taken_over() {
    let place = Place::fresh();
    let store = store(&place).await;
    let rerunnable = |key: &str| {
        call(key)
            .with_on_lost(OnLost::Rerun)
            .with_lease(Duration::from_millis(1))
    };
    for ends in ["commit", "rollback"] {
        let mut service = Service::of(&place).await;
        let claim = run(&store, &rerunnable(ends)).await;
        service.pay(ends).await;
        service.complete(&claim).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let next = rerunnable(ends);
        let mut beginning = store.begin(&next);
        let early = timeout(Duration::from_millis(300), &mut beginning).await;
        assert!(early.is_err(), "told {early:?} while the service can commit");
        service.run(ends).await.unwrap();
        match (ends, beginning.await.unwrap()) {
            ("commit", Verdict::Replay(_)) => {}
            ("rollback", Verdict::Run(claim)) => assert_eq!(claim.attempt.get(), 2),
            (_, verdict) => panic!("after a {ends} told {verdict:?}"),
        }
    }
}

/// Many held records at once take no more connections than one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_held_records_are_asked_for_together() {
    let place = Place::fresh();
    let store = store(&place).await;
    let (mut service, first) = held(&place, &store, "key 0").await;
    let mut claims = vec![first];
    for n in 1..40 {
        let claim = run(&store, &call(&format!("key {n}"))).await;
        service.complete(&claim).await.unwrap();
        claims.push(claim);
    }
    let giving_up: Vec<_> = claims
        .into_iter()
        .map(|claim| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.abandon(&claim).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    others(&store, 0, &mut || ()).await;
    let sql = format!(
        "select from pg_stat_activity where query like '%{}%' and pid <> pg_backend_pid() and application_name = 'exactly'",
        place.schema
    );
    let sessions = place.run(&sql).await;
    assert!(sessions <= 4, "{sessions} sessions");
    service.run("commit").await.unwrap();
    for told in giving_up {
        assert_eq!(told.await.unwrap().unwrap(), Fenced::Superseded);
    }
}
