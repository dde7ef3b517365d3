//! Tasks in the caller's transaction.

use super::{End, Enqueued, Queue, Settlement, Task};
use crate::Fenced;
use crate::store::Reply;

/// A queue in the same database as the effects: a task is enqueued, or settled, with the change that it belongs to.
pub trait TransactionalQueue: Queue {
    /// An open transaction. Dropping it rolls back.
    type Tx: Send;

    /// Opens a transaction for a handler.
    fn open(&self) -> Reply<'_, Self::Tx>;

    /// As [`enqueue`](Queue::enqueue), if the transaction commits. Waits for another transaction that is about to add the
    /// same key.
    fn enqueue_in<'a>(&'a self, tx: &'a mut Self::Tx, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>>;

    /// Adds a task whose first attempt is behind it and ended so, if the transaction commits: done with its effect in the same
    /// transaction, or failed, with the failure in its history. To everybody else it is as if it had been enqueued, leased and
    /// settled at this moment; what is [released](End::Release) waits as the task says, and what is deferred as long as its end
    /// does. If the key is there, nothing is changed. Waits for another transaction that is about to add the same key.
    ///
    /// Commit soon: whoever adds the same key waits until the transaction ends. A database whose locks outlive a process that
    /// stands still ends it after a minute of silence.
    fn record_in<'a>(&'a self, tx: &'a mut Self::Tx, task: &'a Task, end: &'a End) -> Reply<'a, Enqueued>;

    /// As [`settle`](Queue::settle), if the transaction commits, but nothing can be settled again: whoever repeats it has made
    /// its effect once more. If any settlement is `Superseded`, roll back: the task is done, or somebody else has it.
    ///
    /// Commit soon: from here on nobody can take the task before the transaction ends, nor renew its lease. A database whose
    /// locks outlive a process that stands still ends the transaction with the lease.
    fn settle_in<'a>(&'a self, tx: &'a mut Self::Tx, settlements: &'a [Settlement]) -> Reply<'a, Vec<Fenced>>;

    /// Remembers a number under this name, if the transaction commits and it is higher than what is remembered there: whether
    /// it is. Waits for another transaction that is about to raise the same. For whoever takes things that come out of order.
    /// It is remembered until it is [pruned](Queue::prune_marks).
    fn raise_in<'a>(&'a self, tx: &'a mut Self::Tx, name: &'a str, number: i64) -> Reply<'a, bool>;

    /// Commits. After an error nobody knows whether it did. [Releasing](super::End::Release) the lease by
    /// [`settle`](Queue::settle) finds out, since it waits for the lost commit: `Applied` means that nothing happened and
    /// the task waits again, `Superseded` that it is no longer this worker's.
    fn commit(&self, tx: Self::Tx) -> Reply<'_, ()>;

    /// Rolls back.
    fn rollback(&self, tx: Self::Tx) -> Reply<'_, ()>;
}
