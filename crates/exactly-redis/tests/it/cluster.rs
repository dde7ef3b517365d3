//! Every script names the one key that it touches.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use exactly::store::{Filter, Inspect as _, Note, TrailFilter};
use exactly::{Call, Fenced, Keep, OnLost, Operate as _, Store, Verdict};
use exactly_redis::RedisStore;

use crate::server::Server;
use crate::{ask, call, claimed, operator, soon, until};

/// A node of a cluster listens on a second port, this far from the first.
const BUS_PORT_OFFSET: u16 = 10_000;

fn free_port() -> u16 {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut ports = std::iter::repeat_with(|| fastrand::u16(20_000..50_000));
    ports
        .find(|port| free(*port) && free(*port + BUS_PORT_OFFSET))
        .expect("repeats for ever")
}

/// A node that owns the slots of these calls and of the trail, and no others, so that it refuses a script that touches any other key.
async fn node_for(calls: &[&Call]) -> Server {
    let port = free_port().to_string();
    let settings = [
        ("cluster-enabled", "yes"),
        ("cluster-require-full-coverage", "no"),
        ("bind", "127.0.0.1"),
        ("port", &port),
    ];
    let server = Server::start(&settings).await;
    let mut operator = operator(&server.url()).await;
    let names = calls.iter().map(|call| format!("exactly:{}", call.id()));
    for name in names.chain(["exactly:trail".to_owned()]) {
        let slot: u16 = ask(&mut operator, &format!("CLUSTER KEYSLOT {name}")).await;
        ask::<()>(&mut operator, &format!("CLUSTER ADDSLOTS {slot}")).await;
    }
    until("the cluster to be up", async || {
        let info: String = ask(&mut operator, "CLUSTER INFO").await;
        info.contains("cluster_state:ok")
    })
    .await;
    server
}

#[tokio::test]
async fn every_step_runs_on_a_cluster() {
    let rerunnable = || call("lost").with_on_lost(OnLost::Rerun);
    let (done, abandoned, lost) = (call("done"), call("abandoned"), rerunnable());
    let server = node_for(&[&done, &abandoned, &lost]).await;
    let store = RedisStore::at(server.url()).start().await.unwrap();
    let waiter = RedisStore::at(server.url()).start().await.unwrap();

    let mut settled = waiter.watch(done.id());
    let claim = claimed(&store, &done).await;
    let other = store.peek(&call("done")).await.unwrap();
    assert!(matches!(other, Some(Verdict::InFlight { .. })), "{other:?}");
    let renewed = store.renew(&claim, Duration::from_mins(1)).await.unwrap();
    assert_eq!(renewed, Fenced::Applied);
    let completed = store.complete(&claim, &"done".into(), Keep::DAY).await.unwrap();
    assert_eq!(completed, Fenced::Applied);
    soon("the announcement", settled.changed()).await;
    let repeated = store.begin(&call("done")).await.unwrap();
    assert!(matches!(repeated, Verdict::Replay(_)), "{repeated:?}");

    let claim = claimed(&store, &abandoned).await;
    assert_eq!(store.abandon(&claim).await.unwrap(), Fenced::Applied);
    let claim = claimed(&store, &lost).await;
    assert_eq!(store.lose(&claim).await.unwrap(), Fenced::Applied);
    assert_eq!(claimed(&store, &rerunnable()).await.attempt.get(), 2);

    assert!(store.get(done.id()).await.unwrap().is_some());
    assert_eq!(store.list(&Filter::default()).await.unwrap().calls.len(), 2);

    let done = store.get(done.id()).await.unwrap().unwrap();
    assert_eq!(store.forget(&done.claim).await.unwrap(), Fenced::Applied);
    let note = Note {
        call: Some(done.claim.id),
        actor: "ann".to_owned(),
        action: "forget".to_owned(),
        detail: String::new(),
    };
    store.note(&note).await.unwrap();
    assert_eq!(store.trail(&TrailFilter::default()).await.unwrap()[0].note, note);
}
