//! Settings under which a commit could be taken back are refused.

use exactly::{Store, StoreErrorKind, Verdict};
use exactly_sql::SqliteStore;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::{Place, assert_replays, begun, call, done};

fn pool(place: &Place, journal_mode: SqliteJournalMode, synchronous: SqliteSynchronous) -> SqlitePool {
    let options = SqliteConnectOptions::new()
        .filename(place.path())
        .create_if_missing(true);
    SqlitePool::connect_lazy_with(options.journal_mode(journal_mode).synchronous(synchronous))
}

#[tokio::test]
async fn a_pool_whose_commits_a_power_cut_can_take_back_is_refused() {
    for (journal_mode, synchronous, named) in [
        (SqliteJournalMode::Wal, SqliteSynchronous::Normal, "synchronous=normal"),
        (SqliteJournalMode::Wal, SqliteSynchronous::Off, "synchronous=off"),
        (
            SqliteJournalMode::Delete,
            SqliteSynchronous::Full,
            "journal_mode=delete",
        ),
        (
            SqliteJournalMode::Memory,
            SqliteSynchronous::Full,
            "journal_mode=memory",
        ),
        (SqliteJournalMode::Off, SqliteSynchronous::Extra, "journal_mode=off"),
    ] {
        let place = Place::new();
        let error = SqliteStore::builder(pool(&place, journal_mode, synchronous))
            .start()
            .await
            .unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        let message = error.to_string();
        assert!(
            message.contains(named) && message.contains("accept_unsynced()"),
            "{message}"
        );

        let store = SqliteStore::builder(pool(&place, journal_mode, synchronous))
            .accept_unsynced()
            .start()
            .await;
        let _ = begun(&store.unwrap(), "asked for").await;
    }
}

#[tokio::test]
async fn a_pool_with_durable_settings_is_accepted_and_works() {
    for (journal_mode, synchronous) in [
        (SqliteJournalMode::Wal, SqliteSynchronous::Full),
        (SqliteJournalMode::Wal, SqliteSynchronous::Extra),
        (SqliteJournalMode::Truncate, SqliteSynchronous::Full),
        (SqliteJournalMode::Persist, SqliteSynchronous::Full),
        (SqliteJournalMode::Delete, SqliteSynchronous::Extra),
    ] {
        let place = Place::new();
        let store = SqliteStore::builder(pool(&place, journal_mode, synchronous))
            .start()
            .await
            .unwrap();
        done(&store, "a", exactly::Keep::DAY).await;
        assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
    }
}

#[tokio::test]
async fn a_database_in_memory_is_refused_unless_asked_for() {
    for path in ["sqlite::memory:", "sqlite:shared?mode=memory", ":memory:"] {
        let error = SqliteStore::open(path).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{path}: {error}");
        assert!(error.to_string().contains("accept_in_memory()"), "{error}");
    }
    let store = SqliteStore::at("sqlite::memory:")
        .accept_in_memory()
        .start()
        .await
        .unwrap();
    done(&store, "a", exactly::Keep::DAY).await;
    assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_by_the_start() {
    let error = SqliteStore::at("sqlite:a.db?mode=sideways").start().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
}

#[tokio::test]
async fn an_own_file_is_synced_with_every_commit() {
    let place = Place::new();
    let store = place.open().await;
    let settings: (String, i64) =
        sqlx::query_as("select journal_mode, synchronous from pragma_journal_mode, pragma_synchronous")
            .fetch_one(store.pool())
            .await
            .unwrap();
    assert_eq!(settings, ("wal".into(), 2));
}

#[tokio::test]
async fn a_url_and_a_path_name_the_same_file() {
    let place = Place::new();
    done(&place.open().await, "a", exactly::Keep::DAY).await;
    let url = format!("sqlite:{}", place.path().display());
    assert_replays(
        &SqliteStore::open(url).await.unwrap().begin(&call("a")).await.unwrap(),
        "a",
    );
    let missing = format!("sqlite:{}?mode=rw", place.path().with_extension("missing").display());
    assert_eq!(
        SqliteStore::open(missing).await.unwrap_err().kind(),
        StoreErrorKind::Unavailable
    );
}

#[tokio::test]
async fn a_read_only_database_replays_and_claims_nothing() {
    let place = Place::new();
    let writer = place.open().await;
    done(&writer, "a", exactly::Keep::DAY).await;
    let options = SqliteConnectOptions::new().filename(place.path()).read_only(true);
    let store = SqliteStore::builder(SqlitePool::connect_lazy_with(options))
        .migrate(false)
        .start()
        .await
        .unwrap();
    assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
    let error = store.begin(&call("b")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    assert!(matches!(writer.begin(&call("b")).await.unwrap(), Verdict::Run(_)));
}
