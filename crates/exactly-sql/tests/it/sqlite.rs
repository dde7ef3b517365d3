//! SQLite's own promises; those of every store are in the conformance suite.

mod batches;
mod book;
mod faults;
#[cfg(feature = "journal")]
mod journal;
pub(crate) mod queue;
mod scheduler;
mod schema;
mod scribe;
mod settings;
mod suite;
mod time;
mod transactional;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exactly::clock::{Clock, ManualClock, WallClock};
use exactly::{Call, Claim, Fenced, Fingerprint, Keep, Key, Replay, Scope, Store, Verdict};
use exactly_sql::{SqliteStore, SqliteStoreBuilder};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, SqliteConnection};
use tempfile::TempDir;

const DAY: Duration = Duration::from_hours(24);

/// A database file that no other test sees, and the clocks of the machine it is on.
pub(crate) struct Place {
    folder: TempDir,
    pub(crate) steady: Arc<ManualClock>,
    pub(crate) wall: Arc<ManualClock>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let now = WallClock.now();
        Self {
            folder: tempfile::tempdir().unwrap(),
            steady: Arc::new(ManualClock::at(now)),
            wall: Arc::new(ManualClock::at(now)),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("calls.db")
    }

    pub(crate) fn builder(&self) -> SqliteStoreBuilder {
        let builder = SqliteStore::at(self.path());
        builder
            .clock(Arc::clone(&self.steady))
            .wall_clock(Arc::clone(&self.wall))
    }

    pub(crate) async fn open(&self) -> SqliteStore {
        self.builder().start().await.unwrap()
    }

    /// A connection that knows nothing of the store.
    pub(crate) async fn stranger(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new()
            .filename(self.path())
            .busy_timeout(Duration::from_secs(20));
        options.connect().await.unwrap()
    }
}

pub(crate) fn call(key: &str) -> Call {
    Call::new(
        Scope::new("ann", "order.place"),
        Key::new(key).unwrap(),
        Fingerprint::of(key),
    )
}

pub(crate) async fn begun(store: &SqliteStore, key: &str) -> Claim {
    match store.begin(&call(key)).await.unwrap() {
        Verdict::Run(claim) => claim,
        verdict => panic!("{key} is fresh, but: {verdict:?}"),
    }
}

pub(crate) async fn done(store: &SqliteStore, key: &str, keep: Keep) {
    let claim = begun(store, key).await;
    assert_eq!(
        store.complete(&claim, &key.to_owned().into(), keep).await.unwrap(),
        Fenced::Applied
    );
}

#[track_caller]
pub(crate) fn assert_replays(verdict: &Verdict, outcome: &str) {
    match verdict {
        Verdict::Replay(Replay { outcome: stored, .. }) => assert_eq!(stored, outcome),
        verdict => panic!("{outcome} is done, but: {verdict:?}"),
    }
}

pub(crate) async fn run(connection: &mut SqliteConnection, sql: &str) -> u64 {
    sqlx::query(AssertSqlSafe(sql))
        .execute(connection)
        .await
        .unwrap()
        .rows_affected()
}
