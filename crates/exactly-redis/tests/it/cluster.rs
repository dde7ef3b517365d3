//! Every script names the one key that it touches.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use exactly::store::{Filter, Inspect as _};
use exactly::{Call, Fenced, Keep, OnLost, Store, Verdict};
use exactly_redis::RedisStore;

use crate::server::Server;
use crate::{call, claimed, operator, soon, until};

/// A node of a cluster listens on a second port, this far from the first.
const BUS_PORT_OFFSET: u16 = 10_000;

fn free_port() -> u16 {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut ports = std::iter::repeat_with(|| fastrand::u16(20_000..50_000));
    ports
        .find(|port| free(*port) && free(*port + BUS_PORT_OFFSET))
        .expect("repeats for ever")
}

/// A cluster of one node that owns all slots. It checks of each script what a large one would.
async fn cluster() -> Server {
    let port = free_port().to_string();
    let server = Server::start(&[("cluster-enabled", "yes"), ("bind", "127.0.0.1"), ("port", &port)]).await;
    let mut operator = operator(&server.url()).await;
    let slots: Vec<u16> = (0..16384).collect();
    let owned = redis::cmd("CLUSTER")
        .arg("ADDSLOTS")
        .arg(slots)
        .exec_async(&mut operator)
        .await;
    owned.unwrap();
    until("the cluster to be up", async || {
        let info: String = redis::cmd("CLUSTER")
            .arg("INFO")
            .query_async(&mut operator)
            .await
            .unwrap();
        info.contains("cluster_state:ok")
    })
    .await;
    server
}

#[tokio::test]
async fn every_step_runs_on_a_cluster() {
    let server = cluster().await;
    let store = RedisStore::builder(server.url()).connect().await.unwrap();
    let waiter = RedisStore::builder(server.url()).connect().await.unwrap();
    let lost = |key: &str| call(key).with_on_lost(OnLost::Rerun);

    let done = call("done");
    let mut settled = waiter.watch(done.id());
    let claim = claimed(&store, &done).await;
    assert!(matches!(
        store.peek(&call("done")).await.unwrap(),
        Some(Verdict::InFlight { .. })
    ));
    assert_eq!(
        store.renew(&claim, Duration::from_mins(1)).await.unwrap(),
        Fenced::Applied
    );
    assert_eq!(
        store.complete(&claim, &"done".into(), Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
    soon("the announcement", settled.changed()).await;
    assert!(matches!(store.begin(&call("done")).await.unwrap(), Verdict::Replay(_)));

    let abandoned = claimed(&store, &call("abandoned")).await;
    assert_eq!(store.abandon(&abandoned).await.unwrap(), Fenced::Applied);
    let first: Call = lost("lost");
    let claim = claimed(&store, &first).await;
    assert_eq!(store.lose(&claim).await.unwrap(), Fenced::Applied);
    assert_eq!(claimed(&store, &lost("lost")).await.attempt.get(), 2);

    assert!(store.get(done.id()).await.unwrap().is_some());
    assert_eq!(store.list(&Filter::default()).await.unwrap().calls.len(), 2);
}
