//! Many callers in one statement.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use exactly::{Fenced, Fingerprint, Keep, Key, Scope, Store, StoreErrorKind, TransactionalStore, Verdict};
use exactly_sql::PgStore;
use futures_util::future::join_all;
use sqlx::Row as _;

use super::{Place, call, run};

static OUTCOME: Bytes = Bytes::from_static(b"refunded");

async fn complete(store: &PgStore, key: &str) {
    let claim = run(store, &call(key)).await;
    assert_eq!(
        store.complete(&claim, &OUTCOME, Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
}

#[tokio::test]
async fn of_duplicates_in_one_batch_one_runs() {
    let store = Place::fresh().builder().flushers(1).start().await.unwrap();
    let calls: Vec<_> = (0..200).map(|n| call(&format!("key {}", n % 20))).collect();
    let verdicts = join_all(calls.iter().map(|call| store.begin(call))).await;
    let mut runs: HashMap<&str, u32> = HashMap::new();
    for (call, verdict) in calls.iter().zip(verdicts) {
        match verdict.unwrap() {
            Verdict::Run(_) => *runs.entry(call.key().as_str()).or_default() += 1,
            Verdict::InFlight { .. } => {}
            other => panic!("a duplicate of a call in flight is told {other:?}"),
        }
    }
    assert_eq!(runs.len(), 20);
    assert!(runs.values().all(|runs| *runs == 1), "{runs:?}");
}

/// Every kind of step on the same few keys at once: each is answered as if it came alone, in some order.
#[tokio::test]
async fn steps_of_every_kind_share_a_batch() {
    let store = Place::fresh().builder().flushers(1).start().await.unwrap();
    complete(&store, "done").await;
    let claim = run(&store, &call("open")).await;
    let (done, other, duplicate, fresh) = (call("done"), call("done"), call("open"), call("fresh"));
    let wrong = exactly::Call::new(
        Scope::new("ann", "POST /refunds"),
        Key::new("open").unwrap(),
        Fingerprint::of("twenty euros"),
    );
    let (begun, peeked, in_flight, fresh, again, renewed, completed, mismatch) = tokio::join!(
        store.begin(&done),
        store.peek(&other),
        store.peek(&duplicate),
        store.begin(&fresh),
        store.begin(&fresh),
        store.renew(&claim, Duration::from_secs(30)),
        store.complete(&claim, &OUTCOME, Keep::Forever),
        store.begin(&wrong),
    );
    assert!(matches!(begun.unwrap(), Verdict::Replay(replay) if replay.outcome == OUTCOME));
    assert!(matches!(peeked.unwrap(), Some(Verdict::Replay(_))));
    assert!(in_flight.unwrap().is_some());
    // The same call value twice: one claim, found twice.
    let claims = [fresh.unwrap(), again.unwrap()].map(|verdict| match verdict {
        Verdict::Run(claim) => claim,
        other => panic!("a repeated begin is told {other:?}"),
    });
    assert_eq!(claims[0], claims[1]);
    // The renewal comes before or after the completion, and neither undoes the other.
    let _ = renewed.unwrap();
    assert_eq!(completed.unwrap(), Fenced::Applied);
    assert!(matches!(mismatch.unwrap(), Verdict::Mismatch { .. }));
    assert!(matches!(store.begin(&call("open")).await.unwrap(), Verdict::Replay(_)));
}

/// Two million bytes in each of twelve outcomes do not fit into one statement's share.
#[tokio::test]
async fn large_outcomes_travel_in_several_statements() {
    let store = Place::fresh().builder().flushers(1).start().await.unwrap();
    let calls: Vec<_> = (0..12).map(|n| call(&format!("key {n}"))).collect();
    let outcome = |n: usize| Bytes::from(vec![u8::try_from(n).unwrap(); 2_000_000]);
    let claims = join_all(calls.iter().map(|call| run(&store, call))).await;
    let completions = claims.iter().enumerate().map(|(n, claim)| {
        let store = &store;
        async move { store.complete(claim, &outcome(n), Keep::DAY).await }
    });
    for completed in join_all(completions).await {
        assert_eq!(completed.unwrap(), Fenced::Applied);
    }
    for (n, call) in calls.iter().enumerate() {
        let Verdict::Replay(replay) = store.begin(call).await.unwrap() else {
            panic!("it happened")
        };
        assert_eq!(replay.outcome, outcome(n));
    }
}

#[tokio::test]
async fn a_step_that_postgres_refuses_fails_alone() {
    let place = Place::fresh();
    let store = place.builder().flushers(1).start().await.unwrap();
    // Something that only the database notices, so that the whole statement fails.
    place
        .run("alter table {table} add constraint no_cats check (operation <> 'cats')")
        .await;
    let cats = exactly::Call::new(Scope::global("cats"), Key::new("tom").unwrap(), Fingerprint::of(""));
    let dogs: Vec<_> = (0..20).map(|n| call(&format!("dog {n}"))).collect();
    let (refused, dogs) = tokio::join!(store.begin(&cats), join_all(dogs.iter().map(|call| store.begin(call))));
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Other);
    assert!(
        error.to_string().starts_with("begin record: ") && error.to_string().contains("no_cats"),
        "{error}"
    );
    for verdict in dogs {
        assert!(matches!(verdict.unwrap(), Verdict::Run(_)));
    }
}

#[tokio::test]
async fn a_nul_is_named_in_the_error() {
    let store = Place::fresh().open().await;
    let scope = Scope::new("ann\0", "POST /refunds");
    let call = exactly::Call::new(scope, Key::new("key").unwrap(), Fingerprint::of(""));
    let error = store.begin(&call).await.unwrap_err();
    assert!(error.to_string().contains("the principal contains a NUL"), "{error}");
}

#[tokio::test]
async fn an_unreadable_record_fails_alone() {
    let place = Place::fresh();
    let store = place.builder().flushers(1).start().await.unwrap();
    complete(&store, "good").await;
    complete(&store, "bad").await;
    assert_eq!(place.run("update {table} set token = 'x' where key = 'bad'").await, 1);
    let (good, bad) = (call("good"), call("bad"));
    let (good, bad) = tokio::join!(store.begin(&good), store.begin(&bad));
    assert!(matches!(good.unwrap(), Verdict::Replay(_)));
    assert_eq!(bad.unwrap_err().kind(), StoreErrorKind::Corrupt);
}

/// Often enough for a plan that is kept.
const ROUNDS: i64 = 8;

/// A table that was never analysed looks empty to the planner, and a plan for an empty table would read all of it.
#[tokio::test]
async fn no_step_reads_the_whole_table() {
    let place = Place::fresh();
    let store = place.open().await;
    place.run("alter table {table} set (autovacuum_enabled = off)").await;
    place
        .run(
            "insert into {table} (lease_ms, lease_until, created_at, attempt, state, on_lost, waited, id, fingerprint,
                                  token, operation, key)
             select 1, now(), now(), 1, 0, 0, false, sha256(n::text::bytea), '', '', 'filler', n::text
             from generate_series(1, 20000) n",
        )
        .await;
    let before = scans(&place).await;
    for round in 0..ROUNDS {
        let keys: Vec<_> = (0..10).map(|n| format!("key {round} {n}")).collect();
        join_all(keys.iter().map(|key| complete(&store, key))).await;
        let claim = run(&store, &call(&format!("lost {round}"))).await;
        assert_eq!(
            store.renew(&claim, Duration::from_secs(1)).await.unwrap(),
            Fenced::Applied
        );
        assert_eq!(store.lose(&claim).await.unwrap(), Fenced::Applied);
        assert_eq!(store.abandon(&claim).await.unwrap(), Fenced::Applied);
        let mut tx = store.open(Duration::from_secs(1)).await.unwrap();
        let Verdict::Run(claim) = store.begin_in(&mut tx, &call(&format!("tx {round}"))).await.unwrap() else {
            panic!("the key is fresh");
        };
        assert_eq!(
            store.complete_in(&mut tx, &claim, &OUTCOME, Keep::DAY).await.unwrap(),
            Fenced::Applied
        );
        store.commit(tx).await.unwrap();
        assert!(matches!(
            store.begin(&call(&keys[0])).await.unwrap(),
            Verdict::Replay(_)
        ));
    }
    drop(store);
    // Sessions report what they did when they end.
    let mut after = scans(&place).await;
    for _ in 0..100 {
        if after.1 > before.1 + 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        after = scans(&place).await;
    }
    assert!(after.1 > before.1 + 200, "no index was used: {before:?} → {after:?}");
    // Making the table's index reads all of it once, and may be reported late. A bad plan would do so every round.
    assert!(
        after.0 < before.0 + ROUNDS,
        "the whole table was read: {before:?} → {after:?}"
    );
}

/// How often the whole table was read, and its index.
async fn scans(place: &Place) -> (i64, i64) {
    let sql = "select pg_stat_clear_snapshot()::text, seq_scan, idx_scan from pg_stat_user_tables
               where schemaname = $1 and relname = 'calls'";
    let row = sqlx::query(sql)
        .bind(&place.schema)
        .fetch_one(&place.pool)
        .await
        .unwrap();
    (row.get(1), row.get(2))
}
