//! A store that fails where it is told to.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exactly::store::{Reply, Watch};
use exactly::{Call, CallId, Claim, Fenced, Keep, Store, StoreError, StoreErrorKind, Verdict};

/// What goes wrong with one call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done, and the caller is told that the store could not answer.
    FailsBefore,
    /// It is done, and the caller is told the same.
    ReplyLost,
}

impl Fault {
    /// Every way to fail. The caller cannot tell them apart, which is the point.
    pub const ALL: [Self; 2] = [Self::FailsBefore, Self::ReplyLost];
}

/// Which calls of a store fail, counted from zero over all its methods.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    faults: Vec<(usize, Fault)>,
}

impl Plan {
    /// Everything works.
    pub fn faultless() -> Self {
        Self::default()
    }

    /// One more call fails.
    #[must_use]
    pub fn with(mut self, call: usize, fault: Fault) -> Self {
        self.faults.push((call, fault));
        self
    }

    fn fault(&self, call: usize) -> Option<Fault> {
        self.faults.iter().find(|(at, _)| *at == call).map(|(_, fault)| *fault)
    }
}

/// A store behind a connection that fails by plan.
#[derive(Debug)]
pub struct FaultyStore<S: ?Sized> {
    plan: Plan,
    calls: AtomicUsize,
    store: Arc<S>,
}

impl<S: Store + ?Sized> FaultyStore<S> {
    /// Puts `plan` between callers and `store`.
    pub fn new(store: Arc<S>, plan: Plan) -> Self {
        Self {
            plan,
            calls: AtomicUsize::new(0),
            store,
        }
    }

    /// How many calls were made so far.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn pass<'a, T: Send + 'a>(&'a self, attempted: &'static str, reply: Reply<'a, T>) -> Reply<'a, T> {
        let fault = self.plan.fault(self.calls.fetch_add(1, Ordering::SeqCst));
        Box::pin(async move {
            match fault {
                None => return reply.await,
                // Dropped before its first poll, so nothing of it happens.
                Some(Fault::FailsBefore) => drop(reply),
                Some(Fault::ReplyLost) => drop(reply.await?),
            }
            Err(StoreError::new(
                StoreErrorKind::Unavailable,
                format!("{attempted}: connection reset by plan"),
            ))
        })
    }
}

impl<S: Store + ?Sized> Store for FaultyStore<S> {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        self.pass("begin record", self.store.begin(call))
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        self.pass("peek at record", self.store.peek(call))
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        self.pass("renew lease", self.store.renew(claim, lease))
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        self.pass("complete record", self.store.complete(claim, outcome, keep))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        self.pass("abandon record", self.store.abandon(claim))
    }

    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        self.pass("lose record", self.store.lose(claim))
    }

    fn sweep(&self, limit: u32) -> Reply<'_, u32> {
        self.pass("sweep records", self.store.sweep(limit))
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.store.watch(id)
    }
}
