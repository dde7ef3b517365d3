//! Forgetting what has ended long ago, without getting in anybody's way.

use std::time::Duration;

use sqlx::SqliteConnection;

use exactly::StoreError;
use exactly::clock::{Timestamp, millis};
use exactly::queue::TaskState;

use super::SqliteQueue;
use crate::sqlite::table::timestamp;

/// How many tasks or marks are deleted in one transaction, which is the longest that a caller waits for pruning.
const ROWS_PER_TURN: u32 = 256;

const PRUNE: &str = "prune tasks";
const PRUNE_MARKS: &str = "prune marks";

impl SqliteQueue {
    pub(super) async fn prune_older(&self, state: TaskState, age: Duration, limit: u32) -> Result<u32, StoreError> {
        // What is not over is never forgotten.
        if !matches!(state, TaskState::Done | TaskState::Dead) {
            return Ok(0);
        }
        let mut pruned = 0;
        while pruned < limit {
            let most = ROWS_PER_TURN.min(limit - pruned);
            let mut turn = self.begin(PRUNE).await?;
            let before = long_before(turn.now, age);
            let deleted = self.prune_on(&mut turn.connection, state, before, most).await;
            let deleted = self.end(turn, deleted, |deleted| *deleted > 0, PRUNE).await?;
            pruned += deleted;
            if deleted < most {
                break;
            }
        }
        Ok(pruned)
    }

    pub(super) async fn prune_old_marks(&self, age: Duration, limit: u32) -> Result<u32, StoreError> {
        let mut pruned = 0;
        while pruned < limit {
            let most = ROWS_PER_TURN.min(limit - pruned);
            let mut turn = self.begin(PRUNE_MARKS).await?;
            let before = timestamp(long_before(turn.now, age));
            let prune = sqlx::query(self.statements.prune_marks.clone());
            let deleted = prune.bind(before).bind(most).execute(&mut *turn.connection).await;
            let deleted = deleted.map(|deleted| count(deleted.rows_affected(), most));
            let deleted = self.end(turn, deleted, |deleted| *deleted > 0, PRUNE_MARKS).await?;
            pruned += deleted;
            if deleted < most {
                break;
            }
        }
        Ok(pruned)
    }

    /// Both statements choose the same tasks, since nobody else writes in between.
    async fn prune_on(
        &self,
        connection: &mut SqliteConnection,
        state: TaskState,
        before: Timestamp,
        most: u32,
    ) -> Result<u32, sqlx::Error> {
        let prune = |sql: &sqlx::SqlStr| {
            let prune = sqlx::query(sql.clone());
            prune.bind(state.code()).bind(timestamp(before)).bind(most)
        };
        prune(&self.statements.prune_attempts).execute(&mut *connection).await?;
        let deleted = prune(&self.statements.prune).execute(connection).await?;
        Ok(count(deleted.rows_affected(), most))
    }
}

/// Nothing is older than the clock.
fn long_before(now: Timestamp, age: Duration) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_sub(millis(age)))
}

fn count(deleted: u64, most: u32) -> u32 {
    u32::try_from(deleted).unwrap_or(most).min(most)
}
