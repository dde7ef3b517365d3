//! What a start refuses, and what it makes.

use std::time::Duration;

use exactly::store::TrailFilter;
use exactly::{Inspect as _, Operate as _, StoreError, StoreErrorKind};
use exactly_sql::{Name, PgStore};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool, Row as _};

use super::server::Server;
use super::{Place, call, run, url};

/// The error says what was found, what to do about it, and how to go on regardless.
#[track_caller]
fn assert_refused(started: Result<PgStore, StoreError>, found: &[&str]) {
    let error = started.expect_err("the start was not refused");
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    for found in found {
        assert!(error.to_string().contains(found), "no {found:?} in: {error}");
    }
}

/// A role of its own with one setting, in the pool that it gives.
async fn role_with(place: &Place, setting: &str) -> PgPool {
    let role = &place.schema;
    let sql = format!("create role {role} login superuser; alter role {role} set {setting}");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&place.pool).await.unwrap();
    let options: PgConnectOptions = url().parse().unwrap();
    PgPoolOptions::new()
        .max_connections(2)
        .connect_lazy_with(options.username(role))
}

#[tokio::test]
async fn a_role_that_commits_asynchronously_is_refused() {
    let place = Place::fresh();
    let pool = role_with(&place, "synchronous_commit = off").await;
    let builder = || PgStore::builder(pool.clone()).schema(&place.schema);
    assert_refused(
        builder().start().await,
        &["synchronous_commit is off", "set it to on", "accept_unsynced()"],
    );
    builder().accept_unsynced().start().await.unwrap();
}

#[tokio::test]
async fn a_pool_that_commits_asynchronously_is_refused() {
    let place = Place::fresh();
    let options: PgConnectOptions = url().parse().unwrap();
    let pool = PgPool::connect_lazy_with(options.options([("synchronous_commit", "off")]));
    assert_refused(
        PgStore::builder(pool).schema(&place.schema).start().await,
        &["synchronous_commit is off"],
    );
}

#[tokio::test]
async fn local_durability_is_accepted() {
    let place = Place::fresh();
    let pool = role_with(&place, "synchronous_commit = local").await;
    PgStore::builder(pool).schema(&place.schema).start().await.unwrap();
}

#[tokio::test]
async fn a_table_that_a_crash_empties_is_refused() {
    let place = Place::fresh();
    drop(place.open().await);
    place.run("alter table {table} set unlogged").await;
    assert_refused(
        place.builder().start().await,
        &["is unlogged", "set logged", "accept_unlogged()"],
    );
    place.builder().accept_unlogged().start().await.unwrap();
    place.run("alter table {table} set logged").await;
    place.builder().start().await.unwrap();
}

#[tokio::test]
async fn a_role_that_only_reads_is_refused() {
    let place = Place::fresh();
    let pool = role_with(&place, "default_transaction_read_only = on").await;
    let error = PgStore::builder(pool).schema(&place.schema).start().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    assert!(
        error.to_string().contains("default_transaction_read_only = off"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_may_forget_is_refused() {
    let server = Server::start(&["fsync=off"]);
    assert_refused(
        PgStore::open(&server.url()).await,
        &["fsync is off", "accept_unsynced()"],
    );
    server.restart(&["full_page_writes=off"], false);
    assert_refused(
        PgStore::open(&server.url()).await,
        &["full_page_writes is off", "accept_unsynced()"],
    );
    let accepting = PgStore::builder(server.pool()).accept_unsynced();
    accepting.start().await.unwrap();
}

#[tokio::test]
async fn a_standby_is_refused() {
    let server = Server::start(&[]);
    server.restart(&[], true);
    let error = PgStore::open(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains("standby"), "{error}");
}

#[tokio::test]
async fn a_name_that_would_need_quotes_is_refused() {
    let place = Place::fresh();
    assert_refused(place.builder().schema("Calls").start().await, &["schema", "\"Calls\""]);
    assert_refused(
        place.builder().table("calls; drop table x").start().await,
        &["table", "lower-case"],
    );
    for table in ["exactly_versions", "exactly_trail", "exactly_clock"] {
        assert_refused(place.builder().table(table).start().await, &["table option", table]);
    }
}

#[tokio::test]
async fn a_reserved_word_is_a_name() {
    let place = Place::fresh();
    let store = place.builder().table("order").start().await.unwrap();
    let _claim = run(&store, &call("key")).await;
}

#[tokio::test]
async fn what_is_out_of_range_is_refused() {
    for flushers in [0, 65] {
        let started = Place::fresh().builder().flushers(flushers).start().await;
        assert_refused(started, &["flushers", &flushers.to_string(), "from 1 to 64"]);
    }
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_by_the_start() {
    assert_refused(PgStore::at("no address").start().await, &["address of PostgreSQL"]);
    assert!(!format!("{:?}", PgStore::at("postgres://ann:rosebud@localhost/shop")).contains("rosebud"));
}

#[tokio::test]
async fn tables_of_one_schema_do_not_share_keys() {
    let place = Place::fresh();
    for table in ["league_operations", "draft_operations"] {
        let store = place.builder().table(table).start().await.unwrap();
        let _claim = run(&store, &call("key")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_processes_can_start_at_once() {
    let place = Place::fresh();
    let starts = (0..8).map(|n| {
        // Different tables too, because the schema and its versions are common to them.
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy(&url()).unwrap();
        let table = if n % 2 == 0 { "calls" } else { "others" };
        let builder = PgStore::builder(pool).schema(&place.schema).table(table);
        tokio::spawn(builder.start())
    });
    for start in starts.collect::<Vec<_>>() {
        start.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let place = Place::fresh();
    drop(place.open().await);
    place
        .run(&format!("update {}.exactly_versions set version = 7", place.schema))
        .await;
    for migrate in [true, false] {
        let started = place.builder().migrate(migrate).start().await;
        assert_refused(started, &["schema version 7", "supports up to 3"]);
    }
}

#[tokio::test]
async fn without_migrations_an_empty_database_is_refused() {
    let place = Place::fresh();
    assert_refused(
        place.builder().migrate(false).start().await,
        &["version 3", "migrations_sql"],
    );
}

/// Whoever runs the exported migrations gets the very tables that a start makes.
#[tokio::test]
async fn the_exported_migrations_are_what_a_start_runs() {
    let (exported, started) = (Place::fresh(), Place::fresh());
    let sql = PgStore::migrations_sql(&Name::new(&*exported.schema).unwrap(), &Name::new("calls").unwrap());
    // Twice, since people do.
    for _ in 0..2 {
        sqlx::raw_sql(AssertSqlSafe(sql.clone()))
            .execute(&exported.pool)
            .await
            .unwrap();
    }
    drop(started.open().await);
    let store = exported.builder().migrate(false).start().await.unwrap();
    let _claim = run(&store, &call("key")).await;
    assert_eq!(layout(&exported).await, layout(&started).await);
}

#[tokio::test]
async fn a_table_of_an_earlier_version_is_brought_forward_with_its_records() {
    let place = Place::fresh();
    let store = place.open().await;
    let claim = run(&store, &call("key")).await;
    let schema = &place.schema;
    place.run(&format!("drop table {schema}.exactly_trail")).await;
    place
        .run(&format!("update {schema}.exactly_versions set version = 1"))
        .await;
    assert_refused(place.builder().migrate(false).start().await, &["version 3"]);
    let store = place.open().await;
    assert_eq!(store.get(&claim.id).await.unwrap().unwrap().claim, claim);
    assert!(store.trail(&TrailFilter::default()).await.unwrap().is_empty());
}

/// A role without the right to create anything can use what is there.
#[tokio::test]
async fn a_role_without_rights_to_create_can_start() {
    let place = Place::fresh();
    drop(place.open().await);
    let (role, schema) = (&place.schema, &place.schema);
    let sql = format!(
        "create role {role} login; grant usage on schema {schema} to {role};
         grant select, insert, update, delete on all tables in schema {schema} to {role}"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&place.pool).await.unwrap();
    let options: PgConnectOptions = url().parse().unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect_lazy_with(options.username(role));
    let store = PgStore::builder(pool).schema(schema).start().await.unwrap();
    let _claim = run(&store, &call("key")).await;
}

#[tokio::test]
async fn debug_output_does_not_tell_the_password() {
    let options: PgConnectOptions = url().parse().unwrap();
    let pool = PgPool::connect_lazy_with(options.password("rosebud"));
    let place = Place::fresh();
    let builder = PgStore::builder(pool).schema(&place.schema);
    assert!(!format!("{builder:?}").contains("rosebud"));
    let store = builder.start().await.unwrap();
    assert!(!format!("{store:?}").contains("rosebud"));
}

/// Every column, index and option of the tables in a schema.
async fn layout(place: &Place) -> Vec<String> {
    let sql = "
        select format('%s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                      a.attstorage)
        from pg_attribute a join pg_class c on c.oid = a.attrelid
        where c.relnamespace = $1::regnamespace and a.attnum > 0 and c.relkind = 'r'
        union all
        select format('%s %s %s', relname, reloptions, relpersistence) from pg_class
        where relnamespace = $1::regnamespace
        union all
        select replace(indexdef, $1, '') from pg_indexes where schemaname = $1
        order by 1";
    let rows = sqlx::query(sql)
        .bind(&place.schema)
        .fetch_all(&place.pool)
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_at_once_and_by_its_address() {
    let before = tokio::time::Instant::now();
    let error = PgStore::open("postgres://ann:rosebud@127.0.0.1:1/shop")
        .await
        .unwrap_err();
    assert!(before.elapsed() < Duration::from_secs(5));
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1") && text.contains("refused"), "{text}");
    assert!(!text.contains("rosebud"), "{text}");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn a_pool_of_the_stores_own_lets_go_of_keys_whose_process_is_cut_off() {
    let place = Place::fresh();
    let store = PgStore::at(&url()).schema(&place.schema).start().await.unwrap();
    let settings: (String, String) = sqlx::query_as(
        "select current_setting('tcp_keepalives_idle'), current_setting('idle_in_transaction_session_timeout')",
    )
    .fetch_one(store.pool())
    .await
    .unwrap();
    assert_eq!(settings, ("30".to_owned(), "5min".to_owned()));
}
