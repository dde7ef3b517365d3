//! A server that may forget is refused, by name.

use std::time::Duration;

use exactly::{Store, StoreError, StoreErrorKind, Verdict};
use exactly_redis::{RedisStore, RedisStoreBuilder};

use crate::server::Server;
use crate::{ask, call, operator, shared_url};

async fn refused(builder: RedisStoreBuilder) -> StoreError {
    builder.start().await.expect_err("this server breaks the promise")
}

/// Starts a server with `settings` and expects a refusal that names `named` and how to go on.
async fn check(settings: &[(&str, &str)], named: &[&str]) -> Server {
    let server = Server::start(settings).await;
    let error = refused(RedisStore::at(server.url())).await;
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    for text in named {
        assert!(error.to_string().contains(text), "`{text}` is not in: {error}");
    }
    server
}

#[tokio::test]
async fn a_server_that_evicts_is_refused() {
    let named = [
        "maxmemory-policy is `allkeys-lru`",
        "set maxmemory-policy to `noeviction`",
        "`accept_unread_settings`",
    ];
    check(&[("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")], &named).await;
    check(
        &[("maxmemory", "100mb"), ("maxmemory-policy", "volatile-ttl")],
        &["maxmemory-policy is `volatile-ttl`"],
    )
    .await;
}

#[tokio::test]
async fn a_policy_that_would_evict_is_refused_before_there_is_a_limit() {
    check(
        &[("maxmemory", "0"), ("maxmemory-policy", "volatile-lru")],
        &["maxmemory-policy is `volatile-lru`"],
    )
    .await;
}

#[tokio::test]
async fn a_server_without_a_log_is_refused_even_if_it_takes_snapshots() {
    let named = [
        "appendonly is `no`",
        "set appendonly to `yes`",
        "`accept_unread_settings`",
    ];
    check(&[("appendonly", "no")], &named).await;
    check(&[("appendonly", "no"), ("save", "60 1")], &named).await;
}

#[tokio::test]
async fn a_log_that_lags_is_refused_unless_the_loss_is_accepted() {
    let named = [
        "appendfsync is `everysec`",
        "set appendfsync to `always`",
        "`accept_everysec`",
    ];
    let server = check(&[("appendfsync", "everysec")], &named).await;
    let store = RedisStore::at(server.url()).accept_everysec().start().await.unwrap();
    assert!(matches!(store.begin(&call("1")).await.unwrap(), Verdict::Run(_)));

    let server = check(
        &[("appendfsync", "no")],
        &["appendfsync is `no`", "`accept_unread_settings`"],
    )
    .await;
    let error = refused(RedisStore::at(server.url()).accept_everysec()).await;
    assert!(error.to_string().contains("appendfsync is `no`"), "{error}");
}

#[tokio::test]
async fn a_log_that_pauses_while_it_is_rewritten_is_refused() {
    let named = [
        "no-appendfsync-on-rewrite is `yes`",
        "set no-appendfsync-on-rewrite to `no`",
    ];
    check(&[("no-appendfsync-on-rewrite", "yes")], &named).await;
}

#[tokio::test]
async fn settings_that_cannot_be_read_are_refused_unless_they_are_vouched_for() {
    let server = check(
        &[("rename-command", "CONFIG hidden")],
        &["CONFIG GET is not allowed", "`accept_unread_settings`"],
    )
    .await;
    let store = RedisStore::at(server.url())
        .accept_unread_settings()
        .start()
        .await
        .unwrap();
    assert!(matches!(store.begin(&call("1")).await.unwrap(), Verdict::Run(_)));
}

#[tokio::test]
async fn a_user_without_the_right_to_read_settings_is_told_so() {
    let server = Server::start(&[]).await;
    let mut operator = operator(&server.url()).await;
    ask::<()>(&mut operator, "ACL SETUSER app on >secret ~* +@all -config").await;
    let url = format!("{}?user=app&pass=secret", server.url());
    let error = refused(RedisStore::at(&url)).await;
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("CONFIG GET is not allowed"), "{error}");
    RedisStore::at(&url).accept_unread_settings().start().await.unwrap();
}

#[tokio::test]
async fn a_replica_is_refused_as_read_only() {
    let server = Server::start(&[("replicaof", "127.0.0.1 1")]).await;
    for builder in [
        RedisStore::at(server.url()),
        RedisStore::at(server.url()).accept_unread_settings(),
    ] {
        let error = refused(builder).await;
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
        assert!(error.to_string().contains("role is slave"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_comes_back_with_worse_settings_is_refused() {
    let mut server = Server::start(&[]).await;
    let store = RedisStore::at(server.url()).start().await.unwrap();
    server.restart(&[("appendfsync", "everysec")]).await;
    let error = store.begin(&call("1")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let error = refused(RedisStore::at("redis+unix:///nowhere/socket")).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_server_with_no_room_for_another_client_is_unavailable() {
    let server = Server::start(&[]).await;
    let mut operator = operator(&server.url()).await;
    ask::<()>(&mut operator, "CONFIG SET maxclients 1").await;
    let error = refused(RedisStore::at(server.url())).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_it_is_tried() {
    for prefix in [
        "",
        "{tag}",
        "a*",
        "a b",
        "ü",
        &"x".repeat(RedisStoreBuilder::PREFIX_BYTES_MAX + 1),
    ] {
        let error = refused(RedisStore::at(shared_url()).prefix(prefix)).await;
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
        assert!(error.to_string().contains(&format!("prefix is {prefix:?}")), "{error}");
    }
    for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)] {
        let error = refused(RedisStore::at(shared_url()).command_timeout(timeout)).await;
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
        let named = format!("command_timeout is {timeout:?}");
        assert!(error.to_string().contains(&named), "{error}");
    }
    let error = refused(RedisStore::at("http://ann:secret@127.0.0.1/")).await;
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn a_password_is_not_shown() {
    let server = Server::start(&[("requirepass", "secret")]).await;
    let wrong = refused(RedisStore::at(format!("{}?pass=secret-but-wrong", server.url()))).await;
    assert!(!format!("{wrong} {wrong:?}").contains("secret"), "{wrong:?}");
    let builder = RedisStore::at(format!("{}?pass=secret", server.url()));
    assert!(!format!("{builder:?}").contains("secret"), "{builder:?}");
    let store = builder.start().await.unwrap();
    assert!(!format!("{store:?}").contains("secret"), "{store:?}");
}
