//! Waiters hear of changes that another process made.

use exactly::{Keep, Store};
use exactly_redis::RedisStore;

use crate::server::Server;
use crate::{ask, call, claimed, operator, prefix, soon, store_with, until};

#[tokio::test]
async fn every_way_to_settle_a_call_wakes_the_waiters_of_another_store() {
    let prefix = prefix();
    let (owner, waiter) = (store_with(&prefix).await, store_with(&prefix).await);
    for way in ["complete", "abandon", "lose"] {
        let call = call(way);
        let mut watch = waiter.watch(call.id());
        let claim = claimed(&owner, &call).await;
        let settled = match way {
            "complete" => owner.complete(&claim, &"done".into(), Keep::DAY).await,
            "abandon" => owner.abandon(&claim).await,
            _ => owner.lose(&claim).await,
        };
        assert_eq!(settled.unwrap(), exactly::Fenced::Applied);
        soon(way, watch.changed()).await;
    }
}

#[tokio::test]
async fn a_listener_that_lost_its_connection_wakes_everyone_and_hears_again() {
    let server = Server::start(&[]).await;
    let owner = RedisStore::at(server.url()).start().await.unwrap();
    let waiter = RedisStore::at(server.url()).start().await.unwrap();
    let mut operator = operator(&server.url()).await;
    let call = call("1");
    let claim = claimed(&owner, &call).await;

    let mut watch = waiter.watch(call.id());
    let killed: u32 = ask(&mut operator, "CLIENT KILL TYPE pubsub").await;
    assert_eq!(killed, 2, "one listener per store");
    soon("the wake-up for what may have been missed", watch.changed()).await;
    let _ = owner.complete(&claim, &"done".into(), Keep::DAY).await.unwrap();
    soon("the wake-up over the new subscription", watch.changed()).await;
}

#[tokio::test]
async fn a_user_who_may_not_publish_or_subscribe_loses_speed_and_nothing_else() {
    let server = Server::start(&[]).await;
    let mut operator = operator(&server.url()).await;
    ask::<()>(&mut operator, "ACL SETUSER app on >secret ~* resetchannels +@all").await;
    let url = format!("{}?user=app&pass=secret", server.url());
    let store = RedisStore::at(url).start().await.unwrap();
    let call = call("1");
    let claim = claimed(&store, &call).await;
    let mut watch = store.watch(call.id());
    assert_eq!(
        store.complete(&claim, &"done".into(), Keep::DAY).await.unwrap(),
        exactly::Fenced::Applied
    );
    soon("the wake-up inside the process", watch.changed()).await;
}

#[tokio::test]
async fn a_dropped_store_leaves_no_connection_behind() {
    let server = Server::start(&[]).await;
    let mut operator = operator(&server.url()).await;
    let mut connections = async || {
        let list: String = ask(&mut operator, "CLIENT LIST").await;
        list.lines().count()
    };
    until("the end of what started the server", async || connections().await == 1).await;
    let store = RedisStore::at(server.url()).start().await.unwrap();
    let _ = claimed(&store, &call("1")).await;
    assert_eq!(connections().await, 3);
    let clone = store.clone();
    drop(store);
    let _ = claimed(&clone, &call("2")).await;
    assert_eq!(connections().await, 3, "a clone shares them");
    drop(clone);
    until("the end of its connections", async || connections().await == 1).await;
}
