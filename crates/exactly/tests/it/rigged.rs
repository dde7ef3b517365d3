//! A memory store that can be told to fail, hang or lose its replies.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exactly::store::{Reply, Watch};
use exactly::{Call, CallId, Claim, Fenced, Keep, MemoryStore, Store, StoreError, StoreErrorKind, Verdict};
use tokio::sync::Notify;

use crate::app::PausedClock;

/// What a store does to a call before or after it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Fails, and nothing was changed.
    Refuses,
    /// Is applied, but the reply is lost.
    LosesReply,
    /// Never answers, and nothing was changed.
    Hangs,
}

/// The transitions that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Begin,
    Renew,
    Complete,
    Abandon,
    Lose,
}

#[derive(Debug)]
pub(crate) struct Rigged {
    pub(crate) inner: MemoryStore,
    fault: Mutex<Option<(Verb, Fault)>>,
    down: AtomicBool,
    /// While set, completions wait for `released`.
    holding: AtomicBool,
    released: Notify,
}

impl Rigged {
    pub(crate) fn new() -> Self {
        Self {
            inner: MemoryStore::with_clock(PausedClock::new()),
            fault: Mutex::new(None),
            down: AtomicBool::new(false),
            holding: AtomicBool::new(false),
            released: Notify::new(),
        }
    }

    pub(crate) fn break_with(&self, verb: Verb, fault: Fault) {
        *self.fault.lock().unwrap() = Some((verb, fault));
    }

    /// Refuses everything.
    pub(crate) fn go_down(&self) {
        self.down.store(true, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        *self.fault.lock().unwrap() = None;
        self.down.store(false, Ordering::SeqCst);
    }

    pub(crate) fn hold_completions(&self) {
        self.holding.store(true, Ordering::SeqCst);
    }

    pub(crate) fn release_completions(&self) {
        self.holding.store(false, Ordering::SeqCst);
        self.released.notify_waiters();
    }

    fn fault(&self, verb: Verb) -> Option<Fault> {
        if self.down.load(Ordering::SeqCst) {
            return Some(Fault::Refuses);
        }
        self.fault
            .lock()
            .unwrap()
            .filter(|(broken, _)| *broken == verb)
            .map(|(_, fault)| fault)
    }

    fn rig<'a, T: Send + 'a>(&'a self, verb: Verb, reply: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move {
            let down = || {
                Err(StoreError::new(
                    StoreErrorKind::Unavailable,
                    "rigged store: connection refused",
                ))
            };
            match self.fault(verb) {
                None => reply.await,
                Some(Fault::Refuses) => down(),
                Some(Fault::LosesReply) => {
                    reply.await?;
                    down()
                }
                Some(Fault::Hangs) => std::future::pending().await,
            }
        })
    }
}

impl Store for Rigged {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        self.rig(Verb::Begin, self.inner.begin(call))
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        self.inner.peek(call)
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        self.rig(Verb::Renew, self.inner.renew(claim, lease))
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        let reply = self.rig(Verb::Complete, self.inner.complete(claim, outcome, keep));
        Box::pin(async move {
            while self.holding.load(Ordering::SeqCst) {
                self.released.notified().await;
            }
            reply.await
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        self.rig(Verb::Abandon, self.inner.abandon(claim))
    }

    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        self.rig(Verb::Lose, self.inner.lose(claim))
    }

    fn sweep(&self, limit: u32) -> Reply<'_, u32> {
        self.inner.sweep(limit)
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.inner.watch(id)
    }
}
