//! Pausing lanes and limiting them.

use exactly::StoreError;
use exactly::queue::Lane;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::PgQueue;
use crate::postgres::session::{BATCH_TIMEOUT, within};

/// What is to become of a lane.
pub(super) enum Change {
    Paused(bool),
    Cap(Option<u32>),
}

impl PgQueue {
    pub(super) async fn set_lane(&self, lane: &Lane, change: Change) -> Result<(), StoreError> {
        const CONTEXT: &str = "set up a lane";
        let mut conn = self.session(CONTEXT).await?;
        let set = within(BATCH_TIMEOUT, self.set_lane_on(&mut conn, lane, change)).await;
        self.answered(conn, set, CONTEXT)?;
        self.rounds.lanes_changed();
        self.announce();
        Ok(())
    }

    async fn set_lane_on(&self, conn: &mut PgConnection, lane: &Lane, change: Change) -> Result<(), sqlx::Error> {
        let lanes = &self.sql.lanes;
        let column = match change {
            Change::Paused(_) => "paused",
            Change::Cap(_) => "cap",
        };
        let set = format!(
            "insert into {lanes} (lane, {column}) values ($1, $2) on conflict (lane) do update set {column} = $2"
        );
        let mut tx = conn.begin().await?;
        let set = sqlx::query(AssertSqlSafe(set)).bind(lane.as_str());
        let set = match change {
            Change::Paused(paused) => set.bind(paused),
            Change::Cap(cap) => set.bind(cap.map(i64::from)),
        };
        set.execute(&mut *tx).await?;
        // A lane that is as all others are needs no row.
        let clear = format!("delete from {lanes} where lane = $1 and not paused and cap is null");
        let clear = sqlx::query(AssertSqlSafe(clear)).bind(lane.as_str());
        clear.execute(&mut *tx).await?;
        tx.commit().await
    }
}
