//! Batches that are written without a look, by a thread of the store's own.

use std::process::Command;
use std::time::Duration;

use exactly::{Fenced, Keep, Store, TransactionalStore, Verdict};
use exactly_sql::SqliteStore;
use futures_util::future::join_all;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::{Place, assert_replays, begun, call, done, run};

/// What makes a test one of its own processes, and says where the database is.
const PART: &str = "EXACTLY_TEST_PART";

#[tokio::test]
async fn a_row_that_is_there_after_all_spoils_no_other_of_its_batch() {
    let place = Place::new();
    let (store, other) = (place.open().await, place.open().await);
    done(&other, "7", Keep::DAY).await;
    let calls: Vec<_> = (0..20).map(|key| call(&key.to_string())).collect();
    let verdicts = join_all(calls.iter().map(|call| store.begin(call))).await;
    for (key, verdict) in verdicts.into_iter().enumerate() {
        match verdict.unwrap() {
            Verdict::Run(_) => assert_ne!(key, 7),
            verdict => {
                assert_eq!(key, 7);
                assert_replays(&verdict, "7");
            }
        }
    }
}

#[tokio::test]
async fn a_stranger_that_holds_the_lock_is_waited_for() {
    let place = Place::new();
    let store = place.open().await;
    let claim = begun(&store, "before").await;
    let mut stranger = place.stranger().await;
    run(&mut stranger, "begin immediate").await;
    let (outcome, fresh) = ("done".into(), call("fresh"));
    let (completed, verdict, ()) = tokio::join!(
        store.complete(&claim, &outcome, Keep::DAY),
        store.begin(&fresh),
        async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            run(&mut stranger, "rollback").await;
        }
    );
    assert_eq!(completed.unwrap(), Fenced::Applied);
    assert!(matches!(verdict.unwrap(), Verdict::Run(_)));
}

/// Callers in runtimes of their own, as a gateway with one per core has them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_other_runtimes_are_answered_there() {
    let place = Place::new();
    let store = place.open().await;
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let store = store.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(join_all((0..50).map(async |key| {
                    done(&store, &format!("{thread} {key}"), Keep::DAY).await;
                })));
            })
        })
        .collect();
    for thread in threads {
        tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    }
    for (thread, key) in [(0, 0), (1, 49), (2, 17)] {
        let key = format!("{thread} {key}");
        assert_replays(&store.begin(&call(&key)).await.unwrap(), &key);
    }
}

/// So many callers that begin and complete one call after the other, until they are aborted.
fn busy(store: &SqliteStore, callers: usize) -> JoinSet<()> {
    (0..callers)
        .map(|caller| {
            let store = store.clone();
            async move {
                for key in 0.. {
                    done(&store, &format!("{caller} {key}"), Keep::DAY).await;
                }
            }
        })
        .collect()
}

/// The thread goes on by itself for as long as there is something to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_has_its_turn_while_batches_never_end() {
    let place = Place::new();
    let store = place.open().await;
    let mut busy = busy(&store, 2048);
    for _ in 0..20 {
        drop(store.open(Duration::from_secs(2)).await.unwrap());
    }
    assert!(busy.try_join_next().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_a_look_is_answered_among_batches_that_need_none() {
    let place = Place::new();
    let store = place.open().await;
    done(&store, "known", Keep::DAY).await;
    let mut busy = busy(&store, 256);
    for _ in 0..50 {
        // Time for the batches after a surprise, which are done with care.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let known = call("known");
        let (begun, peeked) = tokio::join!(store.begin(&known), store.peek(&known));
        assert_replays(&begun.unwrap(), "known");
        assert_replays(&peeked.unwrap().unwrap(), "known");
    }
    assert!(busy.try_join_next().is_none());
}

/// The turn is gone with the runtime that the store was started in, so its thread may not go on with what others ask for.
#[test]
fn nothing_is_written_for_a_store_whose_runtime_is_gone() {
    let runtime = || {
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let (home, elsewhere) = (runtime(), runtime());
    let place = Place::new();
    let store = home.block_on(place.open());
    elsewhere.block_on(async {
        let callers: JoinSet<()> = (0..2048)
            .map(|caller| {
                let store = store.clone();
                async move {
                    let calls = (0..).map(|key| call(&format!("{caller} {key}")));
                    for call in calls {
                        if store.begin(&call).await.is_err() {
                            return;
                        }
                    }
                }
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        home.shutdown_background();
        let refused = tokio::time::timeout(Duration::from_secs(10), callers.join_all()).await;
        assert_eq!(refused.unwrap().len(), 2048);
    });
}

/// A real one: the system refuses to let the files grow, in the midst of whatever SQLite writes.
#[tokio::test]
async fn what_was_told_before_the_disk_was_full_is_there_and_nothing_else() {
    if let Some(path) = std::env::var_os(PART) {
        return fill(&SqliteStore::open(path).await.unwrap()).await;
    }
    let place = Place::new();
    drop(place.open().await);
    let this = "sqlite::scribe::what_was_told_before_the_disk_was_full_is_there_and_nothing_else";
    let output = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 300; exec \"$0\" --exact \"$1\" --nocapture",
        ])
        .arg(std::env::current_exe().unwrap())
        .arg(this)
        .env(PART, place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let told = |what: &str| -> Vec<String> {
        let lines = said.lines().filter_map(|line| line.split_once(what));
        lines.map(|(_, key)| key.to_owned()).collect()
    };
    let (applied, refused) = (told(">applied "), told(">refused "));
    assert!(applied.len() > 20 && !refused.is_empty(), "{said}");

    let store = place.open().await;
    for key in &applied {
        assert_replays(&store.begin(&call(key)).await.unwrap(), key);
    }
    for key in &refused {
        let verdict = store.begin(&call(key)).await.unwrap();
        assert!(matches!(verdict, Verdict::Run(_)), "{key}: {verdict:?}");
    }
}

/// Completes calls until nothing more can be written, and says what it was told.
async fn fill(store: &SqliteStore) {
    let mut refusals = 0;
    for round in 0.. {
        let told = join_all((0..16).map(async |client| {
            let key = format!("{round}-{client}");
            let Ok(verdict) = store.begin(&call(&key)).await else {
                println!(">refused {key}");
                return false;
            };
            let Verdict::Run(claim) = verdict else {
                panic!("{key}: {verdict:?}")
            };
            let completed = store.complete(&claim, &key.clone().into(), Keep::Forever).await;
            if completed.is_ok_and(|fenced| fenced == Fenced::Applied) {
                println!(">applied {key}");
            }
            true
        }));
        refusals += told.await.into_iter().filter(|began| !began).count();
        if refusals > 32 {
            return;
        }
    }
}
