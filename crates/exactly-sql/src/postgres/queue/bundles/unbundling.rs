//! Writing leases of bundles into the rows of their tasks, and forgetting bundles.

use std::collections::HashSet;
use std::time::Duration;

use exactly::queue::{Lease, Ruling};
use sqlx::postgres::PgBindIterExt as _;
use sqlx::{PgConnection, Row as _};

use super::super::PgQueue;
use super::super::lease::fence_code;
use super::super::settle::read_leases;
use crate::postgres::row::millis_code;
use crate::postgres::sql::Text;

impl PgQueue {
    /// Writes those of these leases that are in bundles into the rows of their tasks, so that they can be settled as others. None
    /// of them is in a bundle then.
    pub(in super::super) async fn unbundle(
        &self,
        conn: &mut PgConnection,
        leases: &[Lease],
    ) -> Result<(), sqlx::Error> {
        self.unbundle_by(&self.sql.bundles.unbundle, conn, leases, None).await?;
        Ok(())
    }

    /// The same without waiting for anybody, and renews them for `lease`. Which ones that were: what a transaction elsewhere has
    /// locked stays where it is.
    pub(in super::super) async fn unbundle_free(
        &self,
        conn: &mut PgConnection,
        leases: &[Lease],
        lease: Option<Duration>,
    ) -> Result<HashSet<Lease>, sqlx::Error> {
        self.unbundle_by(&self.sql.bundles.unbundle_free, conn, leases, lease)
            .await
    }

    async fn unbundle_by(
        &self,
        text: &Text,
        conn: &mut PgConnection,
        leases: &[Lease],
        lease: Option<Duration>,
    ) -> Result<HashSet<Lease>, sqlx::Error> {
        let rows = text
            .query()
            .bind(leases.iter().map(|lease| *lease.id.as_uuid()).bind_iter())
            .bind(leases.iter().map(|lease| fence_code(lease.fence)).bind_iter())
            .bind(lease.map(millis_code))
            .fetch_all(conn)
            .await?;
        read_leases(&rows)
    }

    /// Writes the leases of bundles that have ended into the rows of their tasks, where they are rescued.
    pub(in super::super) async fn unbundle_ended(
        &self,
        conn: &mut PgConnection,
        limit: u32,
    ) -> Result<(), sqlx::Error> {
        let unbundle = self.sql.bundles.unbundle_ended.query().bind(i64::from(limit));
        unbundle.execute(&mut *conn).await?;
        self.sql.bundles.forget_ended.query().execute(conn).await?;
        Ok(())
    }

    /// Forgets the bundles of this process of which nothing is left.
    pub(in super::super) async fn forget_bundles(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        let empty = self.bundles.empty();
        if empty.surely.is_empty() && empty.maybe.is_empty() {
            return Ok(());
        }
        let forget = self.sql.bundles.forget.query().bind(&empty.surely).bind(&empty.maybe);
        let forgotten = forget.fetch_all(conn).await?;
        let forgotten = forgotten.iter().map(|row| row.try_get(0));
        let forgotten: Vec<i64> = forgotten.collect::<Result<_, _>>()?;
        self.bundles.forget(empty.surely.into_iter().chain(forgotten));
        Ok(())
    }

    /// What was ruled on these is committed.
    pub(in super::super) fn ruled(&self, leases: impl Iterator<Item = Lease>, rulings: &[Ruling]) {
        let ended = leases.zip(rulings).filter(|(_, ruling)| **ruling != Ruling::Busy);
        self.bundles.ended(ended.map(|(lease, _)| lease), true);
    }
}
