//! A store without its protection, to see that the lab notices.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use exactly::store::{Reply, Watch};
use exactly::{Attempt, Call, CallId, Claim, Fenced, Keep, Store, TransactionalStore, Verdict};
use serde::Serialize;

/// What is taken away from a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sabotage {
    /// Nothing: every step is forwarded as it is.
    None,
    /// The unique index on the call's id. Looking first is then all the protection there is: an insert neither waits for
    /// another one nor meets it, and every begin in a transaction claims.
    NoIndex,
    /// The fence. A lease that ended is taken for an effect that did not happen, and whoever finishes late is told that
    /// its outcome counts.
    NoFence,
    /// The order of claim and effect: the handler starts while its claim is still being written.
    EarlyEffect,
    /// The order of record and answer: the answer leaves while its record, or the whole commit, is still being written.
    EarlyAnswer,
}

/// A store with its protection, or without.
#[derive(Debug)]
pub(crate) struct Sabotaged<S> {
    store: Arc<S>,
    sabotage: Sabotage,
    /// Calls that run without a claim, until their outcome is written.
    unclaimed: Mutex<HashMap<[u8; 16], Call>>,
}

impl<S> Sabotaged<S> {
    pub(crate) fn new(store: Arc<S>, sabotage: Sabotage) -> Self {
        Self {
            store,
            sabotage,
            unclaimed: Mutex::default(),
        }
    }

    fn told(&self, fenced: Fenced) -> Fenced {
        match self.sabotage {
            Sabotage::NoFence => Fenced::Applied,
            _ => fenced,
        }
    }

    fn unclaimed(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 16], Call>> {
        self.unclaimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> Store for Sabotaged<S> {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            if self.sabotage == Sabotage::EarlyEffect && self.store.peek(call).await?.is_none() {
                let (store, call) = (Arc::clone(&self.store), call.clone());
                let claim = call.claim(Attempt::FIRST);
                tokio::spawn(async move { store.begin(&call).await.map(drop) });
                return Ok(Verdict::Run(claim));
            }
            match self.store.begin(call).await? {
                Verdict::InDoubt(lost) if self.sabotage == Sabotage::NoFence => {
                    let _ = self.store.abandon(&lost).await?;
                    self.store.begin(call).await
                }
                verdict => Ok(verdict),
            }
        })
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        self.store.peek(call)
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        Box::pin(async move { Ok(self.told(self.store.renew(claim, lease).await?)) })
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        Box::pin(async move {
            if self.sabotage == Sabotage::EarlyAnswer {
                let (store, claim, outcome) = (Arc::clone(&self.store), claim.clone(), outcome.clone());
                tokio::spawn(async move { store.complete(&claim, &outcome, keep).await.map(drop) });
                return Ok(Fenced::Applied);
            }
            Ok(self.told(self.store.complete(claim, outcome, keep).await?))
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        self.store.abandon(claim)
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

impl<S: TransactionalStore> TransactionalStore for Sabotaged<S> {
    type Tx = S::Tx;

    const LOCKS_BY_KEY: bool = S::LOCKS_BY_KEY;

    fn open(&self, lock_wait: Duration) -> Reply<'_, S::Tx> {
        self.store.open(lock_wait)
    }

    fn begin_in<'a>(&'a self, tx: &'a mut S::Tx, call: &'a Call) -> Reply<'a, Verdict> {
        if self.sabotage == Sabotage::NoIndex {
            self.unclaimed().insert(*call.token().as_bytes(), call.clone());
            let verdict = Verdict::Run(call.claim(Attempt::FIRST));
            return Box::pin(std::future::ready(Ok(verdict)));
        }
        self.store.begin_in(tx, call)
    }

    fn complete_in<'a>(
        &'a self,
        tx: &'a mut S::Tx,
        claim: &'a Claim,
        outcome: &'a Bytes,
        keep: Keep,
    ) -> Reply<'a, Fenced> {
        let unclaimed = self.unclaimed().remove(claim.token.as_bytes());
        Box::pin(async move {
            let Some(call) = unclaimed else {
                return self.store.complete_in(tx, claim, outcome, keep).await;
            };
            // Without the index both rows would be there, and a reader would find either.
            match self.store.begin_in(tx, &call).await? {
                Verdict::Run(claim) => self.store.complete_in(tx, &claim, outcome, keep).await,
                _ => Ok(Fenced::Applied),
            }
        })
    }

    fn commit(&self, tx: S::Tx) -> Reply<'_, ()> {
        if self.sabotage == Sabotage::EarlyAnswer {
            let store = Arc::clone(&self.store);
            tokio::spawn(async move { store.commit(tx).await });
            return Box::pin(std::future::ready(Ok(())));
        }
        self.store.commit(tx)
    }

    fn rollback(&self, tx: S::Tx) -> Reply<'_, ()> {
        self.store.rollback(tx)
    }
}
