//! A store that fails where it is told to.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::store::{CallView, Filter, Note, Noted, Page, Reply, TrailFilter, Watch};
use exactly::{
    Call, CallId, Claim, Fenced, Inspect, Keep, MemoryStore, Operate, Store, StoreError, StoreErrorKind, Verdict,
};
use tokio::sync::Semaphore;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Nothing,
    /// No entry of the trail can be written.
    NoTrail,
    /// Nothing works.
    Down,
    /// Nothing answers.
    Hangs,
    /// Forgetting waits at the gate.
    Gated,
}

/// A store in memory behind a connection that fails.
#[derive(Debug)]
pub(super) struct Rigged {
    pub(super) store: MemoryStore,
    fault: Mutex<Fault>,
    /// Somebody has come to the gate.
    pub(super) arrived: Semaphore,
    pub(super) gate: Semaphore,
}

impl Rigged {
    pub(super) fn new(fault: Fault) -> Self {
        Self {
            store: MemoryStore::new(),
            fault: Mutex::new(fault),
            arrived: Semaphore::new(0),
            gate: Semaphore::new(0),
        }
    }

    pub(super) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    fn pass<'a, T: 'a>(&self, reply: Reply<'a, T>) -> Reply<'a, T> {
        match *self.fault.lock().unwrap() {
            Fault::Nothing | Fault::NoTrail | Fault::Gated => reply,
            Fault::Down => Box::pin(async { Err(StoreError::new(StoreErrorKind::Unavailable, "reach the store")) }),
            Fault::Hangs => Box::pin(std::future::pending()),
        }
    }
}

impl Store for Rigged {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        self.pass(self.store.begin(call))
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        self.pass(self.store.peek(call))
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        self.pass(self.store.renew(claim, lease))
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        self.pass(self.store.complete(claim, outcome, keep))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        self.pass(self.store.abandon(claim))
    }

    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        self.pass(self.store.lose(claim))
    }

    fn sweep(&self, limit: u32) -> Reply<'_, u32> {
        self.pass(self.store.sweep(limit))
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.store.watch(id)
    }
}

impl Inspect for Rigged {
    fn get<'a>(&'a self, id: &'a CallId) -> Reply<'a, Option<CallView>> {
        self.pass(self.store.get(id))
    }

    fn list<'a>(&'a self, filter: &'a Filter) -> Reply<'a, Page> {
        self.pass(self.store.list(filter))
    }
}

impl Operate for Rigged {
    fn forget<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        if *self.fault.lock().unwrap() == Fault::Gated {
            return Box::pin(async move {
                self.arrived.add_permits(1);
                let _passed = self.gate.acquire().await;
                self.store.forget(claim).await
            });
        }
        self.pass(self.store.forget(claim))
    }

    fn note<'a>(&'a self, note: &'a Note) -> Reply<'a, ()> {
        if *self.fault.lock().unwrap() == Fault::NoTrail {
            return Box::pin(async { Err(StoreError::new(StoreErrorKind::Full, "write the trail: disk full")) });
        }
        self.pass(self.store.note(note))
    }

    fn trail<'a>(&'a self, filter: &'a TrailFilter) -> Reply<'a, Vec<Noted>> {
        self.pass(self.store.trail(filter))
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        self.pass(self.store.now())
    }
}
