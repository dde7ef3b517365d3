//! Records that commit together with the effect.

use std::time::Duration;

use bytes::Bytes;

use super::{Fenced, Keep, Reply, Store, Verdict};
use crate::{Call, Claim};

/// A store whose records live in the same database as the effects, and commit in the same transaction.
///
/// With [`begin_in`](Self::begin_in) and [`complete_in`](Self::complete_in), either both the effect and its record are
/// there or neither is: no lease has to end, and nothing is ever in doubt. Across a network call no library can promise
/// that; use [`Store::begin`] there.
///
/// A second caller waits inside the database until the first one's transaction ends, so let duplicates of one process
/// wait in memory first, as the layer does.
pub trait TransactionalStore: Store {
    /// An open transaction. Dropping it rolls back.
    type Tx: Send + 'static;

    /// Whether a transaction holds up only those that begin the same call. Where it holds up every other one, the wait
    /// for the lock is a wait for the database, not for a duplicate: the layer is as patient as with any store, and looks
    /// for an outcome before it waits.
    const LOCKS_BY_KEY: bool = true;

    /// Opens a transaction in which [`begin_in`](Self::begin_in) waits at most `lock_wait` for another transaction
    /// that holds the key.
    fn open(&self, lock_wait: Duration) -> Reply<'_, Self::Tx>;

    /// Claims the call inside `tx`, or says why not. `InFlight`: another transaction held the key for the whole wait, or a
    /// leased attempt is under way.
    ///
    /// After any verdict but `InFlight` the transaction is still good. After `InFlight` or an error it is not: roll it
    /// back.
    fn begin_in<'a>(&'a self, tx: &'a mut Self::Tx, call: &'a Call) -> Reply<'a, Verdict>;

    /// In flight → done, inside `tx`. Nothing is visible to anyone until [`commit`](Self::commit).
    fn complete_in<'a>(
        &'a self,
        tx: &'a mut Self::Tx,
        claim: &'a Claim,
        outcome: &'a Bytes,
        keep: Keep,
    ) -> Reply<'a, Fenced>;

    /// Makes effect and record durable.
    ///
    /// On an error the outcome of the commit is not known here, but the database knows: begin the call again to learn
    /// it. A plain read proves nothing, since the lost commit may still be under way.
    fn commit(&self, tx: Self::Tx) -> Reply<'_, ()>;

    /// Undoes effect and record. A transaction that cannot be rolled back is closed, which does the same.
    fn rollback(&self, tx: Self::Tx) -> Reply<'_, ()>;
}
