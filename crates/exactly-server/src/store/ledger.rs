//! Where tasks are: in the same database as the records.

use std::sync::Arc;

use exactly::queue::{Book, InspectQueue, Registry};
use exactly::{Operate, StoreError};
use exactly_sql::{PgQueue, SqliteQueue};

use super::{Accept, Backend, StoreOptions, StoreUrl, shared, with_flags};

/// Everything that a server does with tasks: it keeps them, shows them, and remembers schedules and endpoints.
pub(crate) trait Ledger: InspectQueue + Book + Registry {}

impl<Q: InspectQueue + Book + Registry> Ledger for Q {}

/// Records, and tasks where the database can keep them.
type Opened = (Arc<dyn Operate>, Option<Arc<dyn Ledger>>);

impl StoreUrl {
    /// Opens the store, and beside it the queue; `None` for a store that keeps no tasks.
    pub(crate) async fn open_with_tasks(&self, options: &StoreOptions) -> Result<Opened, StoreError> {
        let opened = match self.backend()? {
            Backend::Sqlite => self.sqlite_with_tasks(options).await,
            Backend::Postgres => self.postgres_with_tasks(options).await,
            Backend::Redis => self.open_redis(options).await.map(|store| (shared(store), None)),
        };
        opened.map_err(|error| with_flags(&error, &self.to_string()))
    }

    /// The same for a store that is there already, as it is.
    pub(crate) async fn open_existing_with_tasks(&self, accept: &[Accept]) -> Result<Opened, StoreError> {
        let options = self.as_it_is(accept)?;
        self.existing().open_with_tasks(&options).await
    }

    async fn sqlite_with_tasks(&self, options: &StoreOptions) -> Result<Opened, StoreError> {
        let store = self.open_sqlite(options).await?;
        // What is accepted was accepted when the store was opened.
        let queue = SqliteQueue::beside(&store).migrate(options.migrate).start();
        let queue: Arc<dyn Ledger> = Arc::new(queue.await?);
        Ok((shared(store), Some(queue)))
    }

    async fn postgres_with_tasks(&self, options: &StoreOptions) -> Result<Opened, StoreError> {
        let store = self.open_postgres(options).await?;
        // With connections of its own: jobs in hand must not keep calls waiting.
        let mut builder = PgQueue::at(&self.0).migrate(options.migrate);
        if options.accepts(Accept::Unsynced) {
            builder = builder.accept_unsynced();
        }
        if options.accepts(Accept::Unlogged) {
            builder = builder.accept_unlogged();
        }
        let queue: Arc<dyn Ledger> = Arc::new(builder.start().await?);
        Ok((shared(store), Some(queue)))
    }
}
