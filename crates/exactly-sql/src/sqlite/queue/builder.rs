//! Opening a queue.

use std::path::Path;
use std::sync::Arc;

use sqlx::SqlitePool;
use tokio::sync::{Mutex, watch};

use exactly::StoreError;
use exactly::clock::{Clock, SteadyClock, WallClock};

use super::SqliteQueue;
use super::table::Statements;
use crate::error::failed;
use crate::name::Name;
use crate::sqlite::builder::{Opening, Source};
use crate::sqlite::clock::ClockRow;
use crate::sqlite::database::{self, recover_writer};
use crate::sqlite::file::{Beat, File};
use crate::sqlite::migrate::{self, TASKS};
use crate::sqlite::settings::Overrides;

/// A [`SqliteQueue`] that is not started yet.
#[derive(Debug)]
#[must_use = "nothing happens until it is started"]
pub struct SqliteQueueBuilder {
    place: Place,
    prefix: String,
    migrate: bool,
}

/// Where the tables are.
#[derive(Debug)]
enum Place {
    Own {
        source: Source,
        overrides: Overrides,
        steady: Box<dyn Clock>,
        wall: Box<dyn Clock>,
    },
    Beside(Arc<File>, Arc<Beat>),
}

impl SqliteQueueBuilder {
    /// What the names of the tables begin with unless told otherwise.
    pub const PREFIX_DEFAULT: &'static str = "exactly";

    pub(super) fn at(path: &Path) -> Self {
        Self::own(Source::at(path))
    }

    pub(super) fn on(pool: SqlitePool) -> Self {
        Self::own(Source::Pool(pool))
    }

    pub(super) fn beside(file: &Arc<File>, beat: &Arc<Beat>) -> Self {
        Self::new(Place::Beside(Arc::clone(file), Arc::clone(beat)))
    }

    fn own(source: Source) -> Self {
        Self::new(Place::Own {
            source,
            overrides: Overrides::default(),
            steady: Box::new(SteadyClock::default()),
            wall: Box::new(WallClock),
        })
    }

    fn new(place: Place) -> Self {
        Self {
            place,
            prefix: Self::PREFIX_DEFAULT.to_owned(),
            migrate: true,
        }
    }

    /// Begins the names of the tables with this, so that a service can have several queues in one file.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Whether the schema is brought up to date (the default) or only checked. See [`SqliteQueue::migrations_sql`].
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Accepts settings under which a power cut can take back what was committed, so that work repeats or is lost. Beside a
    /// store, the store's settings decide, as for everything below.
    pub fn accept_unsynced(mut self) -> Self {
        if let Place::Own { overrides, .. } = &mut self.place {
            overrides.unsynced = true;
        }
        self
    }

    /// Accepts a database in memory, which every restart forgets. Its connections have to share a cache.
    pub fn accept_in_memory(mut self) -> Self {
        if let Place::Own { overrides, .. } = &mut self.place {
            overrides.in_memory = true;
        }
        self
    }

    /// What time passes by while this process runs. The default follows no step of the wall clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        if let Place::Own { steady, .. } = &mut self.place {
            *steady = Box::new(clock);
        }
        self
    }

    /// What says how much time passed while no process ran, of which at most an hour is counted.
    pub fn wall_clock(mut self, clock: impl Clock) -> Self {
        if let Place::Own { wall, .. } = &mut self.place {
            *wall = Box::new(clock);
        }
        self
    }

    /// Checks the settings, brings the schema up to date and starts the queue.
    pub async fn start(self) -> Result<SqliteQueue, StoreError> {
        let table = table(&self.prefix)?;
        let (file, beat) = match self.place {
            Place::Own {
                source,
                overrides,
                steady,
                wall,
            } => {
                let opening = Opening {
                    overrides,
                    migrate: self.migrate,
                    steady,
                    wall,
                };
                let file = opening.open(source, &TASKS, &table).await?;
                let beat = Beat::start(&file);
                (file, beat)
            }
            Place::Beside(file, beat) => {
                prepare(&file, &table, self.migrate).await?;
                (file, beat)
            }
        };
        Ok(SqliteQueue {
            file,
            statements: Arc::new(Statements::new(&table)),
            cursor: Arc::new(Mutex::new(String::new())),
            arrivals: Arc::new(watch::Sender::new(0)),
            _beat: beat,
        })
    }
}

/// The table of tasks with this prefix.
pub(super) fn table(prefix: &str) -> Result<Name, StoreError> {
    Name::option("prefix", prefix.to_owned())?;
    Name::option("prefix", format!("{prefix}_tasks"))
}

/// Brings the tables up to date in a database that a store has open.
async fn prepare(file: &File, table: &Name, migrate: bool) -> Result<(), StoreError> {
    let mut turn = file.turn.lock().await;
    let mut connection = file.take(&mut turn).await?;
    let row = match database::read_clock(&mut connection).await {
        Ok(row) => row,
        Err(error) => {
            recover_writer(&mut turn, connection, &error).await;
            return Err(failed("read the store's clock")(error));
        }
    };
    // The store has made the row; this one is not written.
    let first: ClockRow = row;
    // After an error the connection is closed, since a transaction may be open on it.
    if migrate {
        migrate::migrate(&mut connection, &TASKS, table, first).await?;
    } else {
        migrate::verify(&mut connection, &TASKS, table).await?;
    }
    turn.put_back(connection);
    Ok(())
}
