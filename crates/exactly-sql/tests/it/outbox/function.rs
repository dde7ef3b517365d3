//! The function by which code in any language publishes.

use std::sync::Arc;

use exactly::queue::{InspectQueue as _, TaskId};
use exactly::webhook::{EVENT_KIND, Event, EventId, EventType, OrderKey, Outbox, Published, Stored};
use exactly_conformance::QueueHarness as _;
use sqlx::{AssertSqlSafe, Executor as _};

use super::event;
use crate::postgres::queue::Yard;

/// Calls the function with these arguments, as SQL.
async fn publish(yard: &Yard, arguments: &str) -> Result<bool, sqlx::Error> {
    let call = format!("select {}.tasks_publish({arguments})", yard.0.schema);
    sqlx::query_scalar(AssertSqlSafe(call)).fetch_one(&yard.0.pool).await
}

/// Whoever publishes it, it is one event, and takes part in the caller's transaction.
#[tokio::test]
async fn an_event_of_the_function_is_the_librarys() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let outbox = Outbox::new(Arc::clone(&queue), "shop").unwrap();
    let mut tx = yard.0.pool.begin().await.unwrap();
    let call = format!("select {}.tasks_publish('evt_0', 'a.b', 'shop', '1')", yard.0.schema);
    tx.execute(AssertSqlSafe(call)).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(queue.show(TaskId::of(EVENT_KIND, "evt_0")).await.unwrap(), None);

    // Of every length that the digest treats in another way.
    for length in [1, 24, 25, 26, 33, 34, 88, 89, 98, 128] {
        let id = "x".repeat(length);
        let arguments = format!("'{id}', 'invoice.paid', 'shop', '{{\"total\":7}}'");
        assert!(publish(&yard, &arguments).await.unwrap());
        assert!(!publish(&yard, &arguments).await.unwrap());
        assert_eq!(outbox.publish(&event(&id, 7)).await.unwrap(), Published::Before);
        let other = publish(&yard, &arguments.replace('7', "8")).await.unwrap_err();
        assert!(other.as_database_error().unwrap().is_unique_violation(), "{other}");
    }
    let told = r#"{"text":"ä \" \\ \n"}"#;
    let arguments = format!("'evt_1', 'a.b', 'a \"shop\"', '{told}', '2026-02-19 09:00:00.5+02'");
    assert!(publish(&yard, &arguments).await.unwrap());
    let (id, event_type) = (EventId::new("evt_1").unwrap(), EventType::new("a.b").unwrap());
    let same = Event::with_id(id, event_type, &serde_json::json!({ "text": "ä \" \\ \n" })).unwrap();
    let same = same.at(exactly::clock::Timestamp::from_millis(1_771_484_400_500));
    let outbox = Outbox::new(Arc::clone(&queue), "a \"shop\"").unwrap();
    assert_eq!(outbox.publish(&same).await.unwrap(), Published::Before);
    let stored = queue.show(TaskId::of(EVENT_KIND, "evt_1")).await.unwrap().unwrap();
    assert_eq!(
        Stored::read(&stored.payload).unwrap().timestamp.unwrap(),
        "2026-02-19T07:00:00.500Z"
    );
}

/// Calls the function for events in order with these arguments, as SQL.
async fn publish_ordered(yard: &Yard, arguments: &str) -> Result<bool, sqlx::Error> {
    let call = format!("select {}.tasks_publish_ordered({arguments})", yard.0.schema);
    sqlx::query_scalar(AssertSqlSafe(call)).fetch_one(&yard.0.pool).await
}

/// With a key, too: the same bytes in the same lane, whoever publishes it.
#[tokio::test]
async fn an_ordered_event_of_the_function_is_the_librarys() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let outbox = Outbox::new(Arc::clone(&queue), "shop").unwrap();
    let longest = "x".repeat(128);
    let keys = ["inv-1", "inv-2", "inv-3", "1", "a \"b\" \\ / ä\u{2028}", "🦀", &longest];
    for (n, key) in keys.into_iter().enumerate() {
        let [by_function, by_library] = [format!("f-{n}"), format!("l-{n}")];
        let arguments = format!("'{key}', '{by_function}', 'invoice.paid', 'shop', '{{\"total\":7}}'");
        assert!(publish_ordered(&yard, &arguments).await.unwrap());
        assert!(!publish_ordered(&yard, &arguments).await.unwrap());
        let key = OrderKey::new(key).unwrap();
        let same = event(&by_function, 7).ordered_by(key.clone());
        assert_eq!(outbox.publish(&same).await.unwrap(), Published::Before);
        let other = event(&by_library, 7).ordered_by(key.clone());
        assert_eq!(outbox.publish(&other).await.unwrap(), Published::New);
        let [one, two] = [by_function, by_library].map(|id| TaskId::of(EVENT_KIND, &id));
        let (one, two) = (queue.show(one).await.unwrap(), queue.show(two).await.unwrap());
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!((&one.lane, &one.lane), (&two.lane, &key.lane()));
        assert_eq!(Stored::read(&one.payload).unwrap().order_key, Some(key));
        let without = arguments.split_once(", ").unwrap().1;
        let conflict = publish(&yard, without).await.unwrap_err();
        assert!(
            conflict.as_database_error().unwrap().is_unique_violation(),
            "{conflict}"
        );
    }
    // Null is no key.
    let arguments = "null, 'evt_1', 'invoice.paid', 'shop', '{\"total\":7}', '2026-02-19 09:00Z'";
    assert!(publish_ordered(&yard, arguments).await.unwrap());
    let without = arguments.split_once(", ").unwrap().1;
    assert!(!publish(&yard, without).await.unwrap());
    let stored = queue.show(TaskId::of(EVENT_KIND, "evt_1")).await.unwrap().unwrap();
    assert_eq!(stored.lane.as_str(), EVENT_KIND);
    assert_eq!(Stored::read(&stored.payload).unwrap().order_key, None);
    for key in [
        "''",
        "repeat('x', 129)",
        "repeat('ä', 65)",
        "'a' || chr(10)",
        "chr(133)",
    ] {
        let refused = publish_ordered(&yard, &format!("{key}, 'evt_2', 'a.b', 'shop', '1'")).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("order_key"), "{key}: {refused}");
    }
}

/// Whoever was allowed to publish still is after a migration, and to publish in order only who is allowed that.
#[tokio::test]
async fn grants_outlive_the_migration() {
    let yard = Yard::fresh().await;
    let (schema, role) = (&yard.0.schema, format!("role_{}", yard.0.schema));
    let run = async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&yard.0.pool).await.unwrap();
    run(format!(
        "create role {role}; grant usage on schema {schema} to {role};
         grant execute on function {schema}.tasks_publish to {role};
         update {schema}.exactly_versions set version = 6"
    ))
    .await;
    drop(yard.open().await);
    let may = async |function: &str, who: &str| -> bool {
        let call = format!("select has_function_privilege('{who}', '{schema}.{function}'::regproc, 'execute')");
        sqlx::query_scalar(AssertSqlSafe(call))
            .fetch_one(&yard.0.pool)
            .await
            .unwrap()
    };
    assert!(may("tasks_publish", &role).await);
    assert!(!may("tasks_publish_ordered", &role).await);
    let mut tx = yard.0.pool.begin().await.unwrap();
    tx.execute(AssertSqlSafe(format!("set local role {role}")))
        .await
        .unwrap();
    let call = format!("select {schema}.tasks_publish('evt_1', 'a.b', 'shop', '1')");
    let published: bool = sqlx::query_scalar(AssertSqlSafe(call))
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    assert!(published);
    tx.rollback().await.unwrap();
    run(format!("drop owned by {role}; drop role {role}")).await;
}

/// The tables may belong to one role, and be migrated by another that may do everything.
#[tokio::test]
async fn it_works_whoever_has_migrated() {
    let yard = Yard::fresh().await;
    let (schema, role) = (&yard.0.schema, format!("keeper_{}", yard.0.schema));
    let run = async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&yard.0.pool).await.unwrap();
    run(format!(
        "create role {role}; grant usage on schema {schema} to {role};
         grant select, insert on all tables in schema {schema} to {role};
         alter function {schema}.tasks_publish owner to {role};
         drop function {schema}.tasks_publish_ordered;
         update {schema}.exactly_versions set version = 6"
    ))
    .await;
    drop(yard.open().await);
    let call = format!("select {schema}.tasks_publish('evt_1', 'a.b', 'shop', '1')");
    let published: bool = sqlx::query_scalar(AssertSqlSafe(call))
        .fetch_one(&yard.0.pool)
        .await
        .unwrap();
    assert!(published);
    run(format!("drop owned by {role} cascade; drop role {role}")).await;
}

#[tokio::test]
async fn what_is_no_event_is_refused() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    for (arguments, wrong) in [
        ("null, 'a.b', 'shop', '1'", "event_id"),
        ("'a.b', 'a.b', 'shop', '1'", "event_id"),
        ("'a b', 'a.b', 'shop', '1'", "event_id"),
        ("'', 'a.b', 'shop', '1'", "event_id"),
        ("repeat('x', 129), 'a.b', 'shop', '1'", "event_id"),
        ("'evt', 'a..b', 'shop', '1'", "event_type"),
        ("'evt', 'a.b.', 'shop', '1'", "event_type"),
        ("'evt', 'a.*', 'shop', '1'", "event_type"),
        ("'evt', 'a.b', '', '1'", "source"),
        ("'evt', 'a.b', chr(10), '1'", "source"),
        ("'evt', 'a.b', chr(133), '1'", "source"),
        ("'evt', 'a.b', 'shop', '1', 'infinity'", "happened_at"),
        ("'evt', 'a.b', 'shop', '1', '0044-03-15 BC'", "happened_at"),
        ("'evt', 'a.b', 'shop', null", "data"),
        ("'evt', 'a.b', 'shop', to_json(repeat('x', 600000))", "data"),
    ] {
        let error = publish(&yard, arguments).await.unwrap_err().to_string();
        assert!(error.contains(wrong), "{arguments}: {error}");
    }
    assert_eq!(queue.depths().await.unwrap(), []);
}
