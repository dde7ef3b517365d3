//! Deleting what nobody needs, without getting in anybody's way.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::SqlStr;
use tokio::time::{Instant, sleep};

use exactly::StoreError;
use exactly::clock::Timestamp;
use exactly::store::record::LOST_KEEP;

use super::database::{Database, recover_writer};
use super::table::timestamp;
use crate::error::failed;

/// How many records are deleted in one transaction, which is the longest that a caller waits for a sweep.
const CHUNK: u32 = 64;

/// How much longer a sweep rests than it works while others write.
const REST: u32 = 3;

/// The longest rest, so that a slow disk slows a sweep down without stopping it.
const REST_MAX: Duration = Duration::from_millis(100);

impl Database {
    /// Deletes at most `limit` records whose retention has ended, and lost ones that are long forgotten. Never one in doubt.
    pub(super) async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        let now = self.clock.reckon();
        let done = self.sweep_before(&self.statements.sweep_done, now, limit).await?;
        let long_ago = now.since(Timestamp::from_millis(0)).saturating_sub(LOST_KEEP);
        let long_ago = Timestamp::from_millis(0).after(long_ago);
        let lost = self
            .sweep_before(&self.statements.sweep_lost, long_ago, limit - done)
            .await?;
        Ok(done + lost)
    }

    async fn sweep_before(&self, sql: &SqlStr, before: Timestamp, limit: u32) -> Result<u32, StoreError> {
        let mut swept = 0;
        while swept < limit {
            let chunk = CHUNK.min(limit - swept);
            let batches = self.batches.load(Ordering::Relaxed);
            let started = Instant::now();
            let deleted = self.sweep_chunk(sql, before, chunk).await?;
            swept += deleted;
            if deleted < chunk {
                break;
            }
            if self.batches.load(Ordering::Relaxed) != batches {
                sleep((started.elapsed() * REST).min(REST_MAX)).await;
            }
        }
        Ok(swept)
    }

    async fn sweep_chunk(&self, sql: &SqlStr, before: Timestamp, chunk: u32) -> Result<u32, StoreError> {
        let mut turn = self.turn.lock().await;
        let mut connection = self.take(&mut turn).await?;
        let delete = sqlx::query(sql.clone()).bind(timestamp(before)).bind(i64::from(chunk));
        match delete.execute(&mut *connection).await {
            Ok(deleted) => {
                turn.put_back(connection);
                Ok(u32::try_from(deleted.rows_affected()).unwrap_or(chunk).min(chunk))
            }
            Err(error) => {
                recover_writer(&mut turn, connection, &error).await;
                Err(failed("sweep records")(error))
            }
        }
    }
}
