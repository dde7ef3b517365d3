//! Servers that forget scripts, drop connections, hang and die.

use std::time::Duration;

use exactly::{Fenced, Keep, Store, StoreErrorKind, Verdict};
use exactly_redis::RedisStore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::proxy::Proxy;
use crate::server::Server;
use crate::{ask, call, claimed, operator, soon};

/// Short, for tests of servers that do not answer.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(500);

async fn connect(url: impl Into<String>) -> RedisStore {
    RedisStore::open(url).await.unwrap()
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_sent_again() {
    let server = Server::start(&[]).await;
    let store = connect(server.url()).await;
    let mut operator = operator(&server.url()).await;
    let mut forget = async || ask::<()>(&mut operator, "SCRIPT FLUSH").await;

    let (call, outcome) = (call("1"), "done".into());
    let claim = claimed(&store, &call).await;
    forget().await;
    assert_eq!(store.renew(&claim, call.lease()).await.unwrap(), Fenced::Applied);
    forget().await;
    assert_eq!(
        store.complete(&claim, &outcome, Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
    forget().await;
    assert!(matches!(store.begin(&call).await.unwrap(), Verdict::Replay(replay) if replay.outcome == outcome));
}

#[tokio::test]
async fn connections_that_were_killed_are_made_again_without_a_word() {
    let server = Server::start(&[]).await;
    let store = connect(server.url()).await;
    let mut operator = operator(&server.url()).await;
    let mut kill = async || {
        let killed: u32 = ask(&mut operator, "CLIENT KILL TYPE normal").await;
        assert!(killed >= 1, "the store's");
    };

    let call = call("1");
    kill().await;
    let claim = claimed(&store, &call).await;
    kill().await;
    assert_eq!(
        store.complete(&claim, &"done".into(), Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
    kill().await;
    assert!(matches!(store.begin(&call).await.unwrap(), Verdict::Replay(_)));
}

#[tokio::test]
async fn a_step_whose_reply_was_lost_is_repeated_and_gives_the_same_answer() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::to(server.socket()).await;
    let store = connect(proxy.url()).await;
    let (call, outcome) = (call("1"), "done".into());

    proxy.cut_next_reply();
    let claim = claimed(&store, &call).await;
    assert!(proxy.was_cut());
    assert_eq!(claim.attempt.get(), 1);

    proxy.cut_next_reply();
    assert_eq!(store.renew(&claim, call.lease()).await.unwrap(), Fenced::Applied);
    assert!(proxy.was_cut());

    proxy.cut_next_reply();
    assert_eq!(
        store.complete(&claim, &outcome, Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
    assert!(proxy.was_cut());
    assert!(matches!(store.begin(&call).await.unwrap(), Verdict::Replay(replay) if replay.outcome == outcome));

    let other = crate::call("2");
    let claim = claimed(&store, &other).await;
    proxy.cut_next_reply();
    assert_eq!(store.abandon(&claim).await.unwrap(), Fenced::Applied);
    assert!(proxy.was_cut());
}

#[tokio::test]
async fn a_hung_server_is_unavailable_in_bounded_time() {
    let server = Server::start(&[]).await;
    let store = RedisStore::at(server.url())
        .command_timeout(COMMAND_TIMEOUT)
        .start()
        .await
        .unwrap();
    let claim = claimed(&store, &call("1")).await;

    server.freeze();
    let started = Instant::now();
    let (fresh, outcome) = (call("2"), "done".into());
    let errors = [
        store.begin(&fresh).await.map(|_| ()).unwrap_err(),
        store.peek(&fresh).await.map(|_| ()).unwrap_err(),
        store.renew(&claim, COMMAND_TIMEOUT).await.map(|_| ()).unwrap_err(),
        store
            .complete(&claim, &outcome, Keep::DAY)
            .await
            .map(|_| ())
            .unwrap_err(),
        store.abandon(&claim).await.map(|_| ()).unwrap_err(),
        store.lose(&claim).await.map(|_| ()).unwrap_err(),
        exactly::Inspect::get(&store, &claim.id).await.map(|_| ()).unwrap_err(),
        exactly::Inspect::list(&store, &exactly::store::Filter::default())
            .await
            .map(|_| ())
            .unwrap_err(),
        RedisStore::at(server.url())
            .command_timeout(COMMAND_TIMEOUT)
            .start()
            .await
            .map(|_| ())
            .unwrap_err(),
    ];
    // A machine that compiles at the same time is slow, but not ten times.
    assert!(started.elapsed() < COMMAND_TIMEOUT * 9 * 10, "{:?}", started.elapsed());
    for error in errors {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("no answer within 500ms"), "{error}");
    }

    server.thaw();
    soon("an answer", async { while store.begin(&call("3")).await.is_err() {} }).await;
}

#[tokio::test]
async fn a_connection_that_went_silent_is_replaced() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::to(server.socket()).await;
    let store = RedisStore::at(proxy.url())
        .command_timeout(COMMAND_TIMEOUT)
        .start()
        .await
        .unwrap();
    let claim = claimed(&store, &call("1")).await;
    proxy.silence();
    let error = store.renew(&claim, COMMAND_TIMEOUT).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert_eq!(
        store.complete(&claim, &"done".into(), Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
}

#[tokio::test]
async fn a_dead_server_is_unavailable_and_a_restart_loses_nothing_that_was_acknowledged() {
    const CALLS: usize = 400;
    let mut server = Server::start(&[]).await;
    let store = std::sync::Arc::new(connect(server.url()).await);
    let (killed, is_killed) = tokio::sync::watch::channel(false);
    let mut callers = JoinSet::new();
    for key in 0..CALLS {
        let store = std::sync::Arc::clone(&store);
        let mut is_killed = is_killed.clone();
        callers.spawn(async move {
            let call = call(&key.to_string());
            let Ok(Verdict::Run(claim)) = store.begin(&call).await else {
                return (call, None, false);
            };
            // Some finish too late, however fast the machine is.
            if key % 16 == 0 {
                is_killed.wait_for(|killed| *killed).await.unwrap();
            }
            let done = store.complete(&claim, &key.to_string().into(), Keep::DAY).await.is_ok();
            (call, Some(claim), done)
        });
    }
    let mut acknowledged = Vec::new();
    while let Some(caller) = callers.join_next().await {
        acknowledged.push(caller.unwrap());
        // In the middle of the others' work.
        if acknowledged.len() == CALLS / 8 {
            server.kill();
            killed.send_replace(true);
        }
    }
    assert!(
        acknowledged.iter().any(|(_, _, done)| !done),
        "the server was killed too late to prove anything"
    );
    let error = store.begin(&call("another")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");

    server.restart(&[]).await;
    for (call, claim, done) in acknowledged {
        // A request of its own, as a client's retry is: with the same one, a lost claim would be found to be ours.
        let retry = exactly::Call::new(call.scope().clone(), call.key().clone(), *call.fingerprint());
        match (store.begin(&retry).await.unwrap(), claim, done) {
            (Verdict::Replay(replay), _, _) => assert_eq!(replay.outcome, call.key().as_str()),
            (verdict, _, true) => panic!("an acknowledged outcome is lost: {verdict:?}"),
            (Verdict::InFlight { .. }, _, false) | (Verdict::Run(_), None, false) => {}
            (verdict, claim, false) => panic!("an acknowledged claim {claim:?} is lost: {verdict:?}"),
        }
    }
}

#[tokio::test]
async fn a_primary_that_was_demoted_is_read_only() {
    let server = Server::start(&[]).await;
    let store = connect(server.url()).await;
    let mut operator = operator(&server.url()).await;
    ask::<()>(&mut operator, "REPLICAOF 127.0.0.1 1").await;
    let error = store.begin(&call("1")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    ask::<()>(&mut operator, "REPLICAOF NO ONE").await;
    let _ = claimed(&store, &call("1")).await;
}

#[tokio::test]
async fn a_foreign_value_under_a_record_s_name_is_corrupt_and_left_alone() {
    let server = Server::start(&[]).await;
    let store = connect(server.url()).await;
    let mut operator = operator(&server.url()).await;
    let call = call("1");
    let name = format!("exactly:{}", call.id());
    ask::<()>(&mut operator, &format!("SET {name} theirs")).await;
    let error = store.begin(&call).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    let left: String = ask(&mut operator, &format!("GET {name}")).await;
    assert_eq!(left, "theirs");
}
