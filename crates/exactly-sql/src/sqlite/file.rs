//! One database as everything in this process that uses it shares it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sqlx::{SqliteConnection, SqlitePool};
use tokio::sync::MutexGuard;
use tokio::task::AbortHandle;

use exactly::StoreError;

use super::clock::{STEP_MAX, StoreClock};
use super::database::{self, Slot, connect, seal};
use super::settings::Overrides;
use super::turns::Turns;
use super::writer::Writer;
use crate::error::failed;

/// How often an idle process writes the database's clock. Well below [`STEP_MAX`], so that a process that starts next to
/// an idle one reckons the same time.
const BEAT: Duration = Duration::from_secs(STEP_MAX.as_secs() / 6);

/// A database, who may write to it, and its clock. A store and a queue on one database share one.
#[derive(Debug)]
pub(super) struct File {
    /// For handlers' transactions and for looking at records.
    pub(super) pool: SqlitePool,
    pub(super) clock: StoreClock,
    pub(super) turn: Turns,
    /// A reader of an in-memory database fails while a writer is at work, so it waits for the turn as well.
    pub(super) in_memory: bool,
    /// From the root.
    pub(super) path: String,
    pub(super) overrides: Overrides,
}

impl File {
    /// Takes the connection out of `slot` until it is put back: whoever is cancelled in the midst of a transaction drops
    /// it, which rolls back.
    pub(super) async fn take(&self, slot: &mut Slot) -> Result<Writer, StoreError> {
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => connect(&self.pool, self.overrides).await?.0,
        };
        if slot.is_unsealed() {
            let sealed = seal(&mut connection).await;
            sealed.map_err(failed("make good a commit that failed"))?;
            slot.sealed();
        }
        Ok(connection)
    }

    /// A reader of an in-memory database fails while a writer is at work, so it waits for the turn.
    pub(super) async fn turn_to_read(&self) -> Option<MutexGuard<'_, Slot>> {
        if self.in_memory {
            Some(self.turn.lock().await)
        } else {
            None
        }
    }
}

/// The task that keeps the database's clock young; it ends with the last store or queue that holds it.
#[derive(Debug)]
pub(super) struct Beat(AbortHandle);

impl Beat {
    pub(super) fn start(file: &Arc<File>) -> Arc<Self> {
        let beat = tokio::spawn(beat(Arc::downgrade(file)));
        Arc::new(Self(beat.abort_handle()))
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes the database's clock from time to time, for processes that start while this one is idle.
async fn beat(file: Weak<File>) {
    loop {
        tokio::time::sleep(BEAT).await;
        let Some(file) = file.upgrade() else { return };
        let mut turn = file.turn.lock().await;
        let Ok(mut connection) = file.take(&mut turn).await else {
            continue;
        };
        match write_clock(&file, &mut connection).await {
            Ok(()) => turn.put_back(connection),
            Err(error) => {
                tracing::debug!(%error, "write the store's clock");
                database::recover_writer(&mut turn, connection, &error).await;
            }
        }
    }
}

async fn write_clock(file: &File, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let row = database::read_clock(connection).await?;
    match file.clock.due(row, file.clock.now(row)) {
        Some(row) => database::write_clock(connection, row).await,
        None => Ok(()),
    }
}
