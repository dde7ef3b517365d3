//! What a backend tells the suites about itself.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{InspectQueue, TransactionalQueue};
use exactly::{Operate, TransactionalStore};

/// A place where records are kept, such as a schema, a file or a key prefix, and the way time passes there.
///
/// Implementations may write `async fn` for every method.
pub trait StoreHarness: Sized + Send + Sync + 'static {
    /// The store under test.
    type Store: Operate;

    /// Whether [`sweep`](exactly::Store::sweep) deletes. A store whose records expire by themselves answers zero.
    const SWEEPS: bool = true;

    /// Whether a change made through one store wakes those who watch through another one on the same records.
    const WAKES_OTHER_STORES: bool = true;

    /// An empty place that no other test sees.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// A store on this place. Every call opens one more, as every process would.
    fn open(&self) -> impl Future<Output = Arc<Self::Store>> + Send;

    /// Time passes, for every record and every entry of the trail here at one moment, also while callers are at work.
    fn elapse(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// The clock is set back. What was stored is then dated later than it would be stored at this moment.
    fn rewind(&self, by: Duration) -> impl Future<Output = ()> + Send;
}

/// A place that also holds effects, in the same database as the records.
pub trait TransactionalHarness: StoreHarness<Store: TransactionalStore> {
    /// Whether an open transaction keeps only its own key from others. A store with one writer keeps everything.
    const WRITES_IN_PARALLEL: bool = true;

    /// Whether a commit wakes those who watch. Where it does not, they find the outcome by asking again.
    const COMMITS_WAKE: bool = true;

    /// Makes one effect under `name`, inside `tx`.
    fn effect(&self, tx: &mut <Self::Store as TransactionalStore>::Tx, name: &str) -> impl Future<Output = ()> + Send;

    /// How many effects under `name` everybody can see.
    fn effects(&self, name: &str) -> impl Future<Output = u64> + Send;
}

/// A place where tasks are kept, and the way time passes there.
pub trait QueueHarness: Sized + Send + Sync + 'static {
    /// The queue under test.
    type Queue: InspectQueue;

    /// Whether what arrives through one queue wakes those who watch through another one on the same tasks.
    const WAKES_OTHERS: bool = true;

    /// An empty place that no other test sees.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// A queue on this place. Every call opens one more, as every process would.
    fn open(&self) -> impl Future<Output = Arc<Self::Queue>> + Send;

    /// Time passes, for every task and every attempt here at one moment.
    fn elapse(&self, by: Duration) -> impl Future<Output = ()> + Send;
}

/// A place that also holds effects, in the same database as the tasks.
pub trait TransactionalQueueHarness: QueueHarness<Queue: TransactionalQueue> {
    /// Whether an open transaction keeps only its own tasks from others. A database with one writer keeps everything.
    const WRITES_IN_PARALLEL: bool = true;

    /// Makes one effect under `name`, inside `tx`.
    fn effect(&self, tx: &mut <Self::Queue as TransactionalQueue>::Tx, name: &str) -> impl Future<Output = ()> + Send;

    /// How many effects under `name` everybody can see.
    fn effects(&self, name: &str) -> impl Future<Output = u64> + Send;
}
