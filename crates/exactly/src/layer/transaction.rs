//! The handler's transaction, on its way from the store to the handler and back.

use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Extensions;

use crate::store::Reply;
use crate::{Call, Claim, Fenced, Keep, StoreError, TransactionalStore, Verdict};

/// Where the handler finds its transaction: in the request's extensions.
///
/// A handler takes it, works with it and puts it back, which extractors such as `exactly_sql::Tx` do by themselves. The
/// layer commits or rolls back.
pub struct TxSlot<T>(Arc<Mutex<Place<T>>>);

enum Place<T> {
    /// Nobody has asked for it yet, so it is not open.
    Unopened(Opener<T>),
    Here(T),
    Taken,
    Failed(StoreError),
}

type Opener<T> = Box<dyn FnOnce() -> Reply<'static, T> + Send>;

impl<T> TxSlot<T> {
    fn new(place: Place<T>) -> Self {
        Self(Arc::new(Mutex::new(place)))
    }

    /// The transaction, unless someone else has it or it could not be opened.
    pub async fn take(&self) -> Option<T> {
        let open = match self.take_place() {
            Place::Unopened(open) => open,
            Place::Here(tx) => return Some(tx),
            Place::Taken => return None,
            failed @ Place::Failed(_) => {
                *self.place() = failed;
                return None;
            }
        };
        match open().await {
            Ok(tx) => Some(tx),
            Err(error) => {
                *self.place() = Place::Failed(error);
                None
            }
        }
    }

    /// Gives the transaction back.
    pub fn put_back(&self, tx: T) {
        *self.place() = Place::Here(tx);
    }

    fn place(&self) -> MutexGuard<'_, Place<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_place(&self) -> Place<T> {
        std::mem::replace(&mut *self.place(), Place::Taken)
    }
}

impl<T> fmt::Debug for TxSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.place() {
            Place::Unopened(_) => "TxSlot(unopened)",
            Place::Here(_) => "TxSlot(open)",
            Place::Taken => "TxSlot(taken)",
            Place::Failed(_) => "TxSlot(failed)",
        })
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
    /// Puts a transaction where the handler looks for it, to be opened if it does.
    fn promise(&self, patience: Duration, extensions: &mut Extensions) -> Box<dyn OpenTx>;
    /// See [`TransactionalStore::LOCKS_BY_KEY`].
    fn locks_by_key(&self) -> bool;
}

/// What the layer finds when the handler has answered.
pub(super) enum Regained {
    /// The transaction.
    Open,
    /// The handler kept it.
    Withheld,
    /// The handler asked for it in vain.
    Failed(StoreError),
}

/// One transaction.
pub(super) trait OpenTx: Send {
    fn begin_in<'a>(&'a mut self, call: &'a Call) -> Reply<'a, Verdict>;
    fn complete_in<'a>(&'a mut self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced>;
    /// Puts the transaction where the handler looks for it.
    fn lend(&mut self, extensions: &mut Extensions);
    /// Whether the handler never asked for it.
    fn is_unopened(&self) -> bool;
    /// Takes it back from the handler.
    fn regain(&mut self) -> Regained;
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

    fn promise(&self, patience: Duration, extensions: &mut Extensions) -> Box<dyn OpenTx> {
        let store = Arc::clone(&self.0);
        let open = move || -> Reply<'static, S::Tx> { Box::pin(async move { store.open(patience).await }) };
        let slot = TxSlot::new(Place::Unopened(Box::new(open)));
        extensions.insert(slot.clone());
        Box::new(StoreTx {
            store: Arc::clone(&self.0),
            tx: Held::Lent(slot),
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

impl<T> Held<T> {
    fn here(&mut self) -> &mut T {
        match self {
            Self::Here(tx) => tx,
            Self::Lent(_) | Self::Gone => unreachable!("the layer regains the transaction before it uses it"),
        }
    }
}

impl<S: TransactionalStore> StoreTx<S> {
    fn into_parts(self) -> (Arc<S>, Option<S::Tx>) {
        match self.tx {
            Held::Here(tx) => (self.store, Some(tx)),
            Held::Lent(slot) => match slot.take_place() {
                Place::Here(tx) => (self.store, Some(tx)),
                Place::Unopened(_) | Place::Taken | Place::Failed(_) => (self.store, None),
            },
            Held::Gone => (self.store, None),
        }
    }
}

impl<S: TransactionalStore> OpenTx for StoreTx<S> {
    fn begin_in<'a>(&'a mut self, call: &'a Call) -> Reply<'a, Verdict> {
        self.store.begin_in(self.tx.here(), call)
    }

    fn complete_in<'a>(&'a mut self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        self.store.complete_in(self.tx.here(), claim, outcome, keep)
    }

    fn lend(&mut self, extensions: &mut Extensions) {
        if let Held::Here(tx) = std::mem::replace(&mut self.tx, Held::Gone) {
            let slot = TxSlot::new(Place::Here(tx));
            extensions.insert(slot.clone());
            self.tx = Held::Lent(slot);
        }
    }

    fn is_unopened(&self) -> bool {
        matches!(&self.tx, Held::Lent(slot) if matches!(&*slot.place(), Place::Unopened(_)))
    }

    fn regain(&mut self) -> Regained {
        if let Held::Lent(slot) = &self.tx {
            match slot.take_place() {
                Place::Here(tx) => self.tx = Held::Here(tx),
                Place::Failed(error) => return Regained::Failed(error),
                Place::Unopened(_) | Place::Taken => return Regained::Withheld,
            }
        }
        Regained::Open
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
                // It was never opened, or the handler kept it: dropping it rolls back.
                None => Ok(()),
            }
        })
    }
}
