//! What is PostgreSQL's own about the trail.

use std::time::Duration;

use exactly::Operate;
use exactly::store::{Note, TrailFilter};
use exactly_sql::PgStore;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

use super::{Place, url};

fn note(detail: &str) -> Note {
    Note {
        call: None,
        actor: "ann".to_owned(),
        action: "resolve".to_owned(),
        detail: detail.to_owned(),
    }
}

async fn details(store: &impl Operate) -> Vec<String> {
    let trail = store.trail(&TrailFilter::default()).await.unwrap();
    trail.into_iter().map(|noted| noted.note.detail).collect()
}

/// A number that was drawn and is not committed yet would appear behind those that a reader has seen.
#[tokio::test]
async fn a_note_waits_for_one_that_is_under_way() {
    let place = Place::fresh();
    let store = place.open().await;
    let schema = &place.schema;
    let mut other = PgConnection::connect(&url()).await.unwrap();
    let under_way = format!(
        "begin; select pg_advisory_xact_lock(hashtextextended('exactly notes {schema}', 0));
         insert into {schema}.exactly_trail (noted_at, table_name, actor, action, detail)
         values (now(), 'calls', 'bob', 'resolve', 'first')"
    );
    sqlx::raw_sql(AssertSqlSafe(under_way))
        .execute(&mut other)
        .await
        .unwrap();

    let second = note("second");
    let mut noting = store.note(&second);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut noting).await;
    assert!(early.is_err(), "a note overtook another one");
    assert!(details(&*store).await.is_empty());
    sqlx::query("commit").execute(&mut other).await.unwrap();
    noting.await.unwrap();
    assert_eq!(details(&*store).await, ["first", "second"]);
}

/// A server that drops its connections loses no note and doubles none.
#[tokio::test]
async fn a_note_outlives_the_connection_it_was_to_go_on() {
    let place = Place::fresh();
    let schema = &place.schema;
    let options: PgConnectOptions = url().parse().unwrap();
    let pool = PgPool::connect_lazy_with(options.application_name(schema));
    let store = PgStore::builder(pool).schema(schema).start().await.unwrap();
    store.note(&note("before")).await.unwrap();
    let ended = format!("select pg_terminate_backend(pid) from pg_stat_activity where application_name = '{schema}'");
    assert!(place.run(&ended).await > 0);
    store.note(&note("after")).await.unwrap();
    assert_eq!(details(&store).await, ["before", "after"]);
}
