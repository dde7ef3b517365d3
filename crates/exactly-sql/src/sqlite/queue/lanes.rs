//! What is set up about lanes.

use sqlx::SqliteConnection;

use exactly::StoreError;
use exactly::queue::Lane;

use super::SqliteQueue;

/// What becomes of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Paused(bool),
    Cap(Option<u32>),
}

impl SqliteQueue {
    pub(super) async fn set_lane(&self, lane: &Lane, change: Change) -> Result<(), StoreError> {
        let context = match change {
            Change::Paused(true) => "pause lane",
            Change::Paused(false) => "resume lane",
            Change::Cap(_) => "cap lane",
        };
        let mut turn = self.begin(context).await?;
        let set = self.set_lane_on(&mut turn.connection, lane, change).await;
        self.end(turn, set, |()| true, context).await?;
        if !matches!(change, Change::Paused(true)) {
            self.announce();
        }
        Ok(())
    }

    async fn set_lane_on(
        &self,
        connection: &mut SqliteConnection,
        lane: &Lane,
        change: Change,
    ) -> Result<(), sqlx::Error> {
        let set = match change {
            Change::Paused(paused) => sqlx::query(self.statements.set_paused.clone())
                .bind(lane.as_str())
                .bind(paused),
            Change::Cap(cap) => sqlx::query(self.statements.set_cap.clone())
                .bind(lane.as_str())
                .bind(cap),
        };
        set.execute(&mut *connection).await?;
        // A lane that is like any other needs no row.
        let unset = sqlx::query(self.statements.unset_lane.clone()).bind(lane.as_str());
        unset.execute(connection).await.map(drop)
    }
}
