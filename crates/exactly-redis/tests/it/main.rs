//! What every store promises, and what is Redis's own: its refusals, its faults, its expiry and its wake-ups.
#![expect(
    clippy::unwrap_used,
    reason = "a test whose rig fails has failed; clippy excepts only functions marked as tests"
)]

mod cancel;
mod cluster;
mod conformance;
mod elapse;
mod faults;
mod inspect;
mod memory;
mod model;
mod proxy;
mod refusals;
mod retention;
mod server;
mod wake;

use std::future::Future;
use std::time::Duration;

use exactly::{Call, Claim, Fingerprint, Key, Scope, Store, Verdict};
use exactly_redis::RedisStore;
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tokio::time;

/// Longer than anything here takes, so that a test that hangs ends and says where.
const PATIENCE: Duration = Duration::from_secs(20);

/// A store with a prefix of its own on the server that all tests share.
async fn store() -> RedisStore {
    store_with(&prefix()).await
}

async fn store_with(prefix: &str) -> RedisStore {
    RedisStore::at(shared_url())
        .prefix(prefix)
        .start()
        .await
        .expect("the shared server is set up for records")
}

fn prefix() -> String {
    format!("test:{:032x}", fastrand::u128(..))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test is told by its environment where the server is"
)]
fn shared_url() -> String {
    std::env::var("EXACTLY_TEST_REDIS_URL").expect("run `cargo xtask test`, which starts the servers")
}

/// A connection that is not the store's, to do what operators do.
async fn operator(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("the url is good");
    client
        .get_multiplexed_async_connection()
        .await
        .expect("the server is up")
}

/// Has a command carried out as an operator would type it.
async fn ask<T: FromRedisValue>(operator: &mut MultiplexedConnection, command: &str) -> T {
    let mut words = command.split(' ');
    let mut request = redis::cmd(words.next().unwrap_or_default());
    request.arg(words.collect::<Vec<_>>());
    let answer = request.query_async(operator).await;
    answer.unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// One of many requests for the same operation.
fn call(key: &str) -> Call {
    let scope = Scope::new("ann", "POST /refunds");
    Call::new(scope, Key::new(key).expect("a good key"), Fingerprint::of("12 EUR"))
}

async fn claimed(store: &RedisStore, call: &Call) -> Claim {
    match store.begin(call).await.expect("the store answers") {
        Verdict::Run(claim) => claim,
        verdict => panic!("expected a claim, got {verdict:?}"),
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen within {PATIENCE:?}"))
}

/// Asks until the answer is yes. For what a server does in its own time and announces to nobody.
async fn until(what: &str, mut question: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !question().await {
            time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
