//! A store with kill points around its steps.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::store::{Reply, Watch};
use exactly::{Call, CallId, Claim, Fenced, Keep, Store, TransactionalStore, Verdict};

use crate::ledger::LedgerFile;
use crate::point::{Fuse, Point};

/// Forwards every step, and dies before, during or after the one that its fuse names. So the points lie exactly between
/// the layer and the store, and neither knows of them.
#[derive(Debug)]
pub(crate) struct Fused<S> {
    store: S,
    fuse: Arc<Fuse>,
    ledger: Arc<LedgerFile>,
}

impl<S> Fused<S> {
    pub(crate) fn new(store: S, fuse: Arc<Fuse>, ledger: Arc<LedgerFile>) -> Self {
        Self { store, fuse, ledger }
    }

    async fn pass_if_run(&self, verdict: &Verdict) {
        if matches!(verdict, Verdict::Run(_)) {
            self.fuse.pass(Point::AfterBegin).await;
        }
    }
}

impl<S: Store> Store for Fused<S> {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            self.fuse.pass(Point::BeforeBegin).await;
            let verdict = self.fuse.in_company(self.store.begin(call)).await?;
            self.pass_if_run(&verdict).await;
            Ok(verdict)
        })
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        self.store.peek(call)
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        Box::pin(async move {
            let fenced = self.store.renew(claim, lease).await?;
            self.fuse.pass(Point::AfterRenew).await;
            Ok(fenced)
        })
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        Box::pin(async move {
            self.fuse.pass(Point::BeforeComplete).await;
            let fenced = self.fuse.in_company(self.store.complete(claim, outcome, keep)).await?;
            self.fuse.pass(Point::AfterComplete).await;
            if fenced == Fenced::Superseded {
                let _ = self.ledger.fence(&claim.id);
            }
            Ok(fenced)
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move {
            self.fuse.pass(Point::BeforeAbandon).await;
            let fenced = self.store.abandon(claim).await?;
            self.fuse.pass(Point::AfterAbandon).await;
            Ok(fenced)
        })
    }

    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        self.store.lose(claim)
    }

    fn sweep(&self, limit: u32) -> Reply<'_, u32> {
        self.store.sweep(limit)
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.store.watch(id)
    }
}

impl<S: TransactionalStore> TransactionalStore for Fused<S> {
    type Tx = S::Tx;

    const LOCKS_BY_KEY: bool = S::LOCKS_BY_KEY;

    fn open(&self, lock_wait: Duration) -> Reply<'_, S::Tx> {
        Box::pin(async move {
            self.fuse.pass(Point::BeforeBegin).await;
            self.store.open(lock_wait).await
        })
    }

    fn begin_in<'a>(&'a self, tx: &'a mut S::Tx, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            let verdict = self.store.begin_in(tx, call).await?;
            self.pass_if_run(&verdict).await;
            Ok(verdict)
        })
    }

    fn complete_in<'a>(
        &'a self,
        tx: &'a mut S::Tx,
        claim: &'a Claim,
        outcome: &'a Bytes,
        keep: Keep,
    ) -> Reply<'a, Fenced> {
        Box::pin(async move {
            self.fuse.pass(Point::BeforeComplete).await;
            let fenced = self.store.complete_in(tx, claim, outcome, keep).await?;
            self.fuse.pass(Point::AfterComplete).await;
            Ok(fenced)
        })
    }

    fn commit(&self, tx: S::Tx) -> Reply<'_, ()> {
        Box::pin(async move {
            self.fuse.pass(Point::BeforeCommit).await;
            self.fuse.during(Point::DuringCommit, self.store.commit(tx)).await?;
            self.fuse.pass(Point::AfterCommit).await;
            Ok(())
        })
    }

    fn rollback(&self, tx: S::Tx) -> Reply<'_, ()> {
        self.store.rollback(tx)
    }
}
