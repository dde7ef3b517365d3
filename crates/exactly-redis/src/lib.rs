//! A [`Store`] on Redis 6 or later, or Valkey, for those who accept its limits.
//!
//! Prefer SQL where the effect lives in a database: there, record and effect commit together and nothing is ever in
//! doubt. Redis keeps records of effects that live elsewhere, and shares them between many instances at little cost.
//!
//! ```no_run
//! # async fn example() -> Result<(), exactly::StoreError> {
//! use exactly_redis::RedisStore;
//!
//! let store = RedisStore::at("redis://127.0.0.1/").prefix("billing").start().await?;
//! # Ok(()) }
//! ```
//!
//! # What the server must be
//!
//! Redis out of the box is a cache: it forgets what was not saved when it crashes, and many deployments let it evict.
//! A forgotten record is an effect repeated, so [`start`](RedisStoreBuilder::start) refuses a server unless it has
//!
//! | setting | value | otherwise |
//! |---|---|---|
//! | `maxmemory-policy` | `noeviction` | records are dropped to make room |
//! | `appendonly` | `yes` | a crash loses everything since the last snapshot |
//! | `appendfsync` | `always` | a crash loses the last second or two; see [`accept_everysec`](RedisStoreBuilder::accept_everysec) |
//! | `no-appendfsync-on-rewrite` | `no` | nothing reaches the disk while the file is rewritten |
//!
//! The check is repeated on every reconnect, but a `CONFIG SET` on a running server goes unnoticed. Where `CONFIG GET`
//! is forbidden, as in managed services, see [`accept_unread_settings`](RedisStoreBuilder::accept_unread_settings).
//!
//! When its memory is full, nothing begins, and what has begun can still be renewed and completed.
//!
//! # What it cannot promise
//!
//! Redis replicates after it has answered. **A failover to a replica loses the records that had not reached it**, and
//! their effects can run again. `min-replicas-to-write` makes the loss less likely and not impossible. `WAIT` is not
//! offered: it reports how many replicas have a write but cannot take it back when they are too few, a repeated step
//! that writes nothing has nothing to wait for, and on a shared connection it would hold up everyone. Use an SQL
//! database with synchronous replication where a failover must not repeat an effect.
//!
//! # Where it runs
//!
//! One server, or whichever server an address leads to: a name that follows the primary, or a proxy. `rediss://` needs
//! the `tls` feature. Every script names the one key it touches, so records work on a cluster node that owns their
//! slots; following a cluster's redirections, and asking Sentinel for the primary, are not built in.
//!
//! Redis's clock judges leases and retention.

mod builder;
mod connection;
mod error;
mod inspect;
mod listener;
mod records;
mod script;
mod settings;
mod trail;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::store::{CallView, Filter, Inspect, Note, Noted, Operate, Page, Reply, TrailFilter, Wakeups, Watch};
use exactly::{Call, CallId, Claim, Fenced, Keep, Store, StoreError, StoreErrorKind, Token, Verdict};
use tokio::sync::oneshot;

pub use self::builder::RedisStoreBuilder;
use self::listener::Listener;
use self::records::Records;

/// Keeps records in Redis. See the [crate]'s page for what the server must be.
///
/// Commands share one connection, and waiters share another. Clones share both, and dropping the last closes them, once
/// no claim is being given back.
#[derive(Clone, Debug)]
pub struct RedisStore {
    // Shared with begins that outlive their callers.
    records: Arc<Records>,
    wakeups: Wakeups,
    _listener: Arc<Listener>,
}

impl RedisStore {
    /// A store on the server at `url`, with the defaults of [`at`](Self::at).
    pub async fn open(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::at(url).start().await
    }

    /// A store to be, on the server at `url`: `redis://[user:password@]host[:port][/db]`, `rediss://…` for TLS, or
    /// `redis+unix:///path` for a socket.
    pub fn at(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url.into())
    }

    fn new(records: Arc<Records>, wakeups: Wakeups, listener: Listener) -> Self {
        Self {
            records,
            wakeups,
            _listener: Arc::new(listener),
        }
    }

    /// Wakes those who wait in this process even when the announcement got lost, and even after an error: the write may
    /// have happened.
    fn wake(&self, id: &CallId, written: Result<Fenced, StoreError>) -> Result<Fenced, StoreError> {
        self.wakeups.wake(id);
        written
    }
}

impl Store for RedisStore {
    /// Runs in a task of its own, so that a caller who goes away mid-way leaves nothing behind: a claim that cannot be
    /// handed over is given back. So is one whose reply was lost for good. While Redis cannot be reached that is tried
    /// again for a quarter of an hour, for 16 384 claims at most; beyond either, or when the process ends, the claim stays
    /// and its lease decides.
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            tokio::spawn(begin(
                Arc::clone(&self.records),
                self.wakeups.clone(),
                call.clone(),
                reply,
            ));
            let ended = || {
                StoreError::new(
                    StoreErrorKind::Unavailable,
                    "begin record: the runtime is shutting down",
                )
            };
            let (verdict, taken) = answer.await.map_err(|_| ended())?;
            // From here on this future returns without another pause, so it cannot be dropped with the claim in hand.
            let _ = taken.send(());
            verdict
        })
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        Box::pin(self.records.peek(call))
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        Box::pin(self.records.renew(claim, lease))
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        Box::pin(async move { self.wake(&claim.id, self.records.complete(claim, outcome, keep).await) })
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move { self.wake(&claim.id, self.records.abandon(claim).await) })
    }

    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move { self.wake(&claim.id, self.records.lose(claim).await) })
    }

    /// Always 0. Every record carries its end of retention as the key's expiry, and Redis deletes it by itself.
    fn sweep(&self, _limit: u32) -> Reply<'_, u32> {
        Box::pin(async { Ok(0) })
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.wakeups.watch(id)
    }
}

impl Inspect for RedisStore {
    fn get<'a>(&'a self, id: &'a CallId) -> Reply<'a, Option<CallView>> {
        Box::pin(self.records.get(id))
    }

    /// Pages by id, and complete: what is there from the first page to the last is shown once.
    ///
    /// Redis has no order to follow, so **each page walks all keys of the server** and reads the records that could be
    /// on it: few without a filter, all of the store's with one. That is for a person who looks, not for a program that
    /// polls. Memory is bounded by the page.
    fn list<'a>(&'a self, filter: &'a Filter) -> Reply<'a, Page> {
        Box::pin(self.records.list(filter))
    }
}

impl Operate for RedisStore {
    fn forget<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move { self.wake(&claim.id, self.records.forget(claim).await) })
    }

    /// Kept in a stream, which never expires and is as durable as records are.
    fn note<'a>(&'a self, note: &'a Note) -> Reply<'a, ()> {
        Box::pin(self.records.note(note))
    }

    fn trail<'a>(&'a self, filter: &'a TrailFilter) -> Reply<'a, Vec<Noted>> {
        Box::pin(self.records.trail(filter))
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        Box::pin(self.records.now())
    }
}

type Answer = (Result<Verdict, StoreError>, oneshot::Sender<()>);

async fn begin(records: Arc<Records>, wakeups: Wakeups, call: Call, reply: oneshot::Sender<Answer>) {
    let begun_by = Token::random();
    let mut used = None;
    let verdict = records.begin(&call, &begun_by, &mut used).await;
    let (may_have_claimed, answered) = match &verdict {
        Ok(verdict) => (matches!(verdict, Verdict::Run(_)), true),
        // Once the request went out, a claim may have been made, whatever a repetition ran into. If its caller begins the
        // call again, the script keeps the claim that it finds.
        Err(error) => (used.is_some() && error::may_pass(error.kind()), false),
    };
    let (taken, acknowledged) = oneshot::channel();
    // An answer that was sent may still be dropped unread; only the acknowledgement proves that it was not.
    let delivered = reply.send((verdict, taken)).is_ok() && acknowledged.await.is_ok();
    if may_have_claimed && !(answered && delivered) {
        match records.give_back(&call, &begun_by, used).await {
            Ok(()) => wakeups.wake(call.id()),
            Err(error) => {
                tracing::warn!(id = %call.id(), %error, "a claim that nobody holds is not given back; its lease decides");
            }
        }
    }
}
