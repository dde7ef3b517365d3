//! Migrations.

use exactly::store::{Filter, Note, TrailFilter};
use exactly::{Inspect, Keep, Operate, Store, StoreErrorKind, TransactionalStore, Verdict};
use exactly_sql::{Name, SqliteStore};

use super::{DAY, Place, assert_replays, begun, call, done, run};

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_start_at_once_all_succeed() {
    for _ in 0..10 {
        let place = Place::new();
        let starts: Vec<_> = (0..8).map(|_| tokio::spawn(place.builder().start())).collect();
        let mut stores = Vec::new();
        for start in starts {
            stores.push(start.await.unwrap().unwrap());
        }
        done(&stores[0], "a", Keep::DAY).await;
        for store in &stores {
            assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
        }
    }
}

#[tokio::test]
async fn a_version_that_this_build_does_not_know_is_refused() {
    let place = Place::new();
    drop(place.open().await);
    run(&mut place.stranger().await, "update exactly_versions set version = 99").await;
    for migrate in [true, false] {
        let error = place.builder().migrate(migrate).start().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        assert!(error.to_string().contains("version 99"), "{error}");
    }
}

#[tokio::test]
async fn without_migrations_an_empty_database_is_refused_and_left_alone() {
    let place = Place::new();
    let error = place.builder().migrate(false).start().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("migrations_sql"), "{error}");
    let tables: i64 = sqlx::query_scalar("select count(*) from sqlite_master")
        .fetch_one(&mut place.stranger().await)
        .await
        .unwrap();
    assert_eq!(tables, 0);
}

#[tokio::test]
async fn the_exported_text_makes_what_a_migration_makes() {
    let (by_hand, by_itself) = (Place::new(), Place::new());
    let mut made = Vec::new();
    {
        let mut connection = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(by_hand.path())
            .create_if_missing(true);
        connection = connection.journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
        let mut connection = sqlx::ConnectOptions::connect(&connection).await.unwrap();
        let text = SqliteStore::migrations_sql(&Name::new("league_operations").unwrap());
        // Twice, since people do.
        for _ in 0..2 {
            sqlx::raw_sql(sqlx::AssertSqlSafe(text.clone()))
                .execute(&mut connection)
                .await
                .unwrap();
        }
    }
    drop(by_itself.builder().table("league_operations").start().await.unwrap());
    for place in [&by_hand, &by_itself] {
        let schema: Vec<(String, String)> =
            sqlx::query_as("select name, sql from sqlite_master where sql is not null order by name")
                .fetch_all(&mut place.stranger().await)
                .await
                .unwrap();
        made.push(schema);
    }
    assert_eq!(made[0], made[1]);
    let store = by_hand
        .builder()
        .table("league_operations")
        .migrate(false)
        .start()
        .await
        .unwrap();
    let _ = begun(&store, "a").await;
}

#[tokio::test]
async fn a_table_of_an_earlier_version_is_brought_forward_with_its_records() {
    let place = Place::new();
    done(&place.open().await, "a", Keep::DAY).await;
    let stranger = &mut place.stranger().await;
    run(stranger, "drop table exactly_trail").await;
    run(stranger, "update exactly_versions set version = 1").await;
    let error = place.builder().migrate(false).start().await.unwrap_err();
    assert!(error.to_string().contains("is at version 1"), "{error}");
    let store = place.open().await;
    assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
    assert!(store.trail(&TrailFilter::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn tables_of_one_database_do_not_see_each_other() {
    let place = Place::new();
    let leagues = place.builder().table("league_operations").start().await.unwrap();
    let drafts = place.builder().table("draft_operations").start().await.unwrap();
    done(&leagues, "a", Keep::DAY).await;
    assert!(matches!(drafts.begin(&call("a")).await.unwrap(), Verdict::Run(_)));
    let note = Note {
        call: None,
        actor: "ann".to_owned(),
        action: "purge".to_owned(),
        detail: String::new(),
    };
    leagues.note(&note).await.unwrap();
    assert_eq!(leagues.trail(&TrailFilter::default()).await.unwrap().len(), 1);
    assert!(drafts.trail(&TrailFilter::default()).await.unwrap().is_empty());
    let error = place.builder().table("drop table x").start().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
}

#[tokio::test]
async fn a_reserved_word_is_a_name() {
    let place = Place::new();
    let store = place.builder().table("order").start().await.unwrap();
    done(&store, "a", Keep::For(DAY)).await;
    assert!(store.get(call("a").id()).await.unwrap().is_some());
    assert_eq!(store.list(&Filter::default()).await.unwrap().calls.len(), 1);
    let mut tx = store.open(DAY).await.unwrap();
    assert_replays(&store.begin_in(&mut tx, &call("a")).await.unwrap(), "a");
    store.rollback(tx).await.unwrap();
    place.steady.advance(DAY);
    assert_eq!(store.sweep(10).await.unwrap(), 1);
}

#[tokio::test]
async fn a_name_of_the_stores_own_tables_is_refused() {
    let place = Place::new();
    for table in ["exactly_versions", "exactly_trail", "exactly_clock", "Order"] {
        let error = place.builder().table(table).start().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        assert!(
            error.to_string().contains("table option") && error.to_string().contains(table),
            "{error}"
        );
    }
}
