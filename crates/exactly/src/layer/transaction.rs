//! The handler's transaction, on its way from the store to the handler and back.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Extensions;

use crate::store::Reply;
use crate::{Call, Claim, Fenced, Keep, TransactionalStore, Verdict};

/// Where the handler finds its open transaction: in the request's extensions.
///
/// A handler takes it, works with it and puts it back, which extractors such as `exactly_sql::Tx` do by themselves. The
/// layer commits or rolls back.
#[derive(Debug)]
pub struct TxSlot<T>(Arc<Mutex<Option<T>>>);

impl<T> TxSlot<T> {
    fn new(tx: T) -> Self {
        Self(Arc::new(Mutex::new(Some(tx))))
    }

    /// The transaction, unless someone else has it.
    pub fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives the transaction back.
    pub fn put_back(&self, tx: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tx);
    }
}

impl<T> Clone for TxSlot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A [`TransactionalStore`] whose transaction type the layer need not know.
pub(super) trait Transactions: Debug + Send + Sync {
    /// Waits at most `wait` for a duplicate, and at most `patience` for the store.
    fn open(&self, wait: Duration, patience: Duration) -> Reply<'_, Box<dyn OpenTx>>;
    /// See [`TransactionalStore::LOCKS_BY_KEY`].
    fn locks_by_key(&self) -> bool;
}

/// One open transaction.
pub(super) trait OpenTx: Send {
    fn begin_in<'a>(&'a mut self, call: &'a Call) -> Reply<'a, Verdict>;
    fn complete_in<'a>(&'a mut self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced>;
    /// Puts the transaction where the handler looks for it.
    fn lend(&mut self, extensions: &mut Extensions);
    /// Whether the handler has given it back.
    fn regain(&mut self) -> bool;
    fn commit(self: Box<Self>) -> Reply<'static, ()>;
    fn rollback(self: Box<Self>) -> Reply<'static, ()>;
}

#[derive(Debug)]
pub(super) struct StoreTransactions<S>(pub(super) Arc<S>);

impl<S: TransactionalStore> Transactions for StoreTransactions<S> {
    fn open(&self, wait: Duration, patience: Duration) -> Reply<'_, Box<dyn OpenTx>> {
        let lock_wait = if S::LOCKS_BY_KEY { wait } else { wait.max(patience) };
        Box::pin(async move {
            let tx = self.0.open(lock_wait).await?;
            let open = StoreTx {
                store: Arc::clone(&self.0),
                tx: Held::Here(tx),
            };
            Ok(Box::new(open) as Box<dyn OpenTx>)
        })
    }

    fn locks_by_key(&self) -> bool {
        S::LOCKS_BY_KEY
    }
}

struct StoreTx<S: TransactionalStore> {
    store: Arc<S>,
    tx: Held<S::Tx>,
}

enum Held<T> {
    Here(T),
    Lent(TxSlot<T>),
    Gone,
}

impl<S: TransactionalStore> StoreTx<S> {
    fn here(&mut self) -> &mut S::Tx {
        match &mut self.tx {
            Held::Here(tx) => tx,
            Held::Lent(_) | Held::Gone => unreachable!("the layer regains the transaction before it uses it"),
        }
    }

    fn into_parts(self) -> (Arc<S>, Option<S::Tx>) {
        match self.tx {
            Held::Here(tx) => (self.store, Some(tx)),
            Held::Lent(slot) => (self.store, slot.take()),
            Held::Gone => (self.store, None),
        }
    }
}

impl<S: TransactionalStore> OpenTx for StoreTx<S> {
    fn begin_in<'a>(&'a mut self, call: &'a Call) -> Reply<'a, Verdict> {
        let store = Arc::clone(&self.store);
        Box::pin(async move { store.begin_in(self.here(), call).await })
    }

    fn complete_in<'a>(&'a mut self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        let store = Arc::clone(&self.store);
        Box::pin(async move { store.complete_in(self.here(), claim, outcome, keep).await })
    }

    fn lend(&mut self, extensions: &mut Extensions) {
        if let Held::Here(tx) = std::mem::replace(&mut self.tx, Held::Gone) {
            let slot = TxSlot::new(tx);
            extensions.insert(slot.clone());
            self.tx = Held::Lent(slot);
        }
    }

    fn regain(&mut self) -> bool {
        if let Held::Lent(slot) = &self.tx {
            match slot.take() {
                Some(tx) => self.tx = Held::Here(tx),
                None => return false,
            }
        }
        matches!(self.tx, Held::Here(_))
    }

    fn commit(self: Box<Self>) -> Reply<'static, ()> {
        Box::pin(async move {
            let (store, tx) = self.into_parts();
            let tx = tx.expect("the layer commits only what it regained");
            store.commit(tx).await
        })
    }

    fn rollback(self: Box<Self>) -> Reply<'static, ()> {
        Box::pin(async move {
            let (store, tx) = self.into_parts();
            match tx {
                Some(tx) => store.rollback(tx).await,
                // The handler kept it; dropping it rolls back.
                None => Ok(()),
            }
        })
    }
}
