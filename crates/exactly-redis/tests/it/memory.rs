//! When memory is full, nothing begins and everything that began can end.

use exactly::{Fenced, Keep, Store, StoreErrorKind, Verdict};
use exactly_redis::RedisStore;

use crate::server::Server;
use crate::{ask, call, claimed, operator};

#[tokio::test]
async fn a_full_server_refuses_claims_and_takes_outcomes() {
    let server = Server::start(&[]).await;
    let store = RedisStore::at(server.url()).start().await.unwrap();
    let mut operator = operator(&server.url()).await;
    let claim = claimed(&store, &call("1")).await;
    let other = claimed(&store, &call("2")).await;
    ask::<()>(&mut operator, "CONFIG SET maxmemory 1").await;

    let error = store.begin(&call("3")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    // The effect is under way or has happened: turning it into doubt would free no memory.
    assert_eq!(store.renew(&claim, call("1").lease()).await.unwrap(), Fenced::Applied);
    assert_eq!(
        store.complete(&claim, &"done".into(), Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
    assert!(matches!(store.begin(&call("1")).await.unwrap(), Verdict::Replay(_)));
    assert_eq!(store.abandon(&other).await.unwrap(), Fenced::Applied);

    ask::<()>(&mut operator, "CONFIG SET maxmemory 0").await;
    assert_eq!(
        claimed(&store, &call("3")).await.attempt.get(),
        1,
        "the refused begin left nothing"
    );
}
