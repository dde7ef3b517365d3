//! A begin whose caller went away leaves nothing behind.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use exactly::store::{Inspect as _, Reply};
use exactly::{Store, StoreErrorKind, Verdict};
use exactly_redis::{RedisStore, RedisStoreBuilder};
use redis::aio::MultiplexedConnection;

use crate::proxy::Proxy;
use crate::server::Server;
use crate::{ask, call, claimed, operator, prefix, soon, store_with, until};

/// Starts `begin` as a caller does who then goes away.
async fn start(begin: &mut Reply<'_, Verdict>) {
    let pending = poll_fn(|context| Poll::Ready(begin.as_mut().poll(context).is_pending())).await;
    assert!(pending, "an answer before the first round trip");
}

async fn scripts_run(operator: &mut MultiplexedConnection) -> u32 {
    let stats: String = ask(operator, "INFO commandstats").await;
    let calls = stats
        .split("cmdstat_evalsha:calls=")
        .nth(1)
        .and_then(|calls| calls.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn a_dropped_begin_gives_its_claim_back() {
    let prefix = prefix();
    let (store, bystander) = (store_with(&prefix).await, store_with(&prefix).await);
    let call = call("1");
    // Only a claim that was made and deleted is announced to the other store.
    let mut freed = bystander.watch(call.id());
    let mut begin = store.begin(&call);
    start(&mut begin).await;
    drop(begin);
    soon("the release of the claim", freed.changed()).await;
    assert!(bystander.get(call.id()).await.unwrap().is_none());
    let _ = claimed(&bystander, &crate::call("1")).await;
}

#[tokio::test]
async fn an_answer_that_nobody_reads_gives_its_claim_back() {
    let prefix = prefix();
    let (store, bystander) = (store_with(&prefix).await, store_with(&prefix).await);
    let call = call("1");
    let mut freed = bystander.watch(call.id());
    let mut begin = store.begin(&call);
    start(&mut begin).await;
    // The claim is made and on its way, or has arrived without being looked at.
    until("the claim", async || bystander.get(call.id()).await.unwrap().is_some()).await;
    drop(begin);
    soon("the release of the claim", freed.changed()).await;
    let _ = claimed(&bystander, &crate::call("1")).await;
}

#[tokio::test]
async fn a_begin_that_found_the_claim_of_a_dropped_one_keeps_it() {
    let server = Server::start(&[]).await;
    let store = RedisStore::at(server.url()).start().await.unwrap();
    let mut operator = operator(&server.url()).await;
    let call = call("1");
    // Loads the script, so that the order of requests is the order of begins.
    let _ = claimed(&store, &crate::call("warm")).await;
    let before = scripts_run(&mut operator).await;

    server.freeze();
    let mut dropped = store.begin(&call);
    start(&mut dropped).await;
    drop(dropped);
    let mut repeated = pin!(store.begin(&call));
    start(&mut repeated).await;
    server.thaw();
    assert!(matches!(repeated.await.unwrap(), Verdict::Run(_)));

    // Two begins, and the first one's attempt to give back.
    until("the third script", async || {
        scripts_run(&mut operator).await >= before + 3
    })
    .await;
    let other = store.begin(&crate::call("1")).await.unwrap();
    assert!(
        matches!(other, Verdict::InFlight { .. }),
        "the key was freed under its owner: {other:?}"
    );
}

#[tokio::test]
async fn a_begin_that_ran_out_of_time_gives_back_what_it_claims_later() {
    let server = Server::start(&[]).await;
    let timeout = Duration::from_millis(500);
    let store = RedisStore::at(server.url())
        .command_timeout(timeout)
        .start()
        .await
        .unwrap();
    let bystander = RedisStore::at(server.url()).start().await.unwrap();
    let call = call("1");
    let _ = claimed(&store, &crate::call("warm")).await;
    let mut freed = bystander.watch(call.id());

    server.freeze();
    let error = store.begin(&call).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    server.thaw();
    soon("the release of the late claim", freed.changed()).await;
    let _ = claimed(&bystander, &crate::call("1")).await;
}

#[tokio::test]
async fn a_claim_is_given_back_although_the_server_was_down_when_its_caller_went() {
    let mut server = Server::start(&[]).await;
    let store = RedisStore::open(server.url()).await.unwrap();
    let call = call("1");
    let mut begin = store.begin(&call);
    start(&mut begin).await;
    until("the claim", async || store.get(call.id()).await.unwrap().is_some()).await;
    server.kill();
    drop(begin);
    // These steps start later and are as patient, so the first try to give back has failed when they have.
    for key in ["2", "3"] {
        let error = store.begin(&crate::call(key)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
    server.restart(&[]).await;
    until("the release of the claim", async || {
        matches!(store.get(call.id()).await, Ok(None))
    })
    .await;
    let _ = claimed(&store, &crate::call("1")).await;
}

#[tokio::test]
async fn a_claim_is_given_back_although_the_server_was_refused_when_its_reply_was_lost() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::to(server.socket()).await;
    let store = RedisStore::open(proxy.url()).await.unwrap();
    let mut operator = operator(&server.url()).await;
    let call = call("1");
    ask::<()>(&mut operator, "CONFIG SET appendfsync everysec").await;
    proxy.cut_next_reply();
    let error = store.begin(&call).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    let name = format!("{}:{}", RedisStoreBuilder::PREFIX_DEFAULT, call.id());
    let claims: u32 = ask(&mut operator, &format!("EXISTS {name}")).await;
    assert_eq!(claims, 1, "the claim whose reply was lost");

    ask::<()>(&mut operator, "CONFIG SET appendfsync always").await;
    until("the release of the claim", async || {
        ask::<u32>(&mut operator, &format!("EXISTS {name}")).await == 0
    })
    .await;
}
