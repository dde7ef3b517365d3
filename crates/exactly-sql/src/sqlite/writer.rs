//! Who may commit on a connection.
//!
//! After some errors (a full disk, an I/O error, no memory) SQLite rolls back the whole transaction, not only the
//! statement, and from then on every statement commits by itself. A handler that goes on after such an error would get
//! its record without its effect. SQLite asks before every commit and tells of every rollback, on the thread that runs
//! the statements, so nothing can come in between: a transaction that was handed out commits once, when the store says
//! so, and if it has not ended before.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use sqlx::SqliteConnection;

/// A connection on which only the store commits.
#[derive(Debug)]
pub(super) struct Writer {
    connection: SqliteConnection,
    phase: Arc<AtomicU8>,
}

/// Everything commits: the store's own batches.
const FREE: u8 = 0;
/// Nothing commits: a handler has the transaction.
const LENT: u8 = 1;
/// The transaction that was lent commits.
const COMMITTING: u8 = 2;
/// The transaction that was lent is over, and nothing commits.
const ENDED: u8 = 3;

impl Writer {
    pub(super) async fn new(mut connection: SqliteConnection) -> Result<Self, sqlx::Error> {
        let phase = Arc::new(AtomicU8::new(FREE));
        let (commits, ends) = (Arc::clone(&phase), Arc::clone(&phase));
        let mut handle = connection.lock_handle().await?;
        handle.set_commit_hook(move || matches!(commits.load(Ordering::SeqCst), FREE | COMMITTING));
        handle.set_rollback_hook(move || {
            if ends.load(Ordering::SeqCst) != FREE {
                ends.store(ENDED, Ordering::SeqCst);
            }
        });
        drop(handle);
        Ok(Self { connection, phase })
    }

    /// Until the store lets it, nothing on this connection commits.
    pub(super) fn lend(&self) {
        self.phase.store(LENT, Ordering::SeqCst);
    }

    /// Lets the transaction that was lent commit, unless it is over.
    pub(super) fn let_commit(&self) -> bool {
        self.moves(LENT, COMMITTING)
    }

    /// Whether the transaction that was lent is over, without the store having ended it.
    pub(super) fn has_ended(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == ENDED
    }

    /// No transaction is open any more.
    pub(super) fn release(&self) {
        self.phase.store(FREE, Ordering::SeqCst);
    }

    pub(super) fn into_connection(self) -> SqliteConnection {
        self.connection
    }

    fn moves(&self, from: u8, to: u8) -> bool {
        let moved = self
            .phase
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        moved.is_ok()
    }
}

impl Deref for Writer {
    type Target = SqliteConnection;

    fn deref(&self) -> &Self::Target {
        &self.connection
    }
}

impl DerefMut for Writer {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.connection
    }
}
