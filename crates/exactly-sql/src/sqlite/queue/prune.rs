//! Forgetting what has ended long ago, without getting in anybody's way.

use std::time::Duration;

use sqlx::SqliteConnection;

use exactly::StoreError;
use exactly::clock::{Timestamp, millis};
use exactly::queue::TaskState;

use super::SqliteQueue;
use crate::sqlite::table::timestamp;

/// How many tasks are deleted in one transaction, which is the longest that a caller waits for pruning.
const TASKS_PER_TURN: u32 = 256;

impl SqliteQueue {
    pub(super) async fn prune_older(&self, state: TaskState, age: Duration, limit: u32) -> Result<u32, StoreError> {
        const CONTEXT: &str = "prune tasks";
        // What is not over is never forgotten.
        if !matches!(state, TaskState::Done | TaskState::Dead) {
            return Ok(0);
        }
        let mut pruned = 0;
        while pruned < limit {
            let most = TASKS_PER_TURN.min(limit - pruned);
            let mut turn = self.begin(CONTEXT).await?;
            let before = turn.now.as_millis().checked_sub(millis(age));
            let before = Timestamp::from_millis(before.unwrap_or(0));
            let deleted = self.prune_on(&mut turn.connection, state, before, most).await;
            let deleted = self.end(turn, deleted, |deleted| *deleted > 0, CONTEXT).await?;
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
        Ok(u32::try_from(deleted.rows_affected()).unwrap_or(most).min(most))
    }
}
