//! Renewing leases.

use std::collections::HashSet;
use std::time::Duration;

use exactly::queue::{Lease, Ruling};
use sqlx::PgConnection;
use sqlx::postgres::PgBindIterExt as _;
use uuid::Uuid;

use super::PgQueue;
use super::lease::fence_code;
use super::settle::read_leases;
use crate::postgres::row::millis_code;

impl PgQueue {
    /// Waits for no transaction that has a task locked.
    pub(super) async fn renew_on(
        &self,
        conn: &mut PgConnection,
        leases: &[Lease],
        lease: Duration,
    ) -> Result<Vec<Ruling>, sqlx::Error> {
        let mut sorted = leases.to_vec();
        sorted.sort_by_key(|lease| lease.id);
        let rows = self
            .sql
            .renew
            .query()
            .bind(sorted.iter().map(|lease| *lease.id.as_uuid()).bind_iter())
            .bind(sorted.iter().map(|lease| fence_code(lease.fence)).bind_iter())
            .bind(millis_code(lease))
            .fetch_all(&mut *conn)
            .await?;
        let mut renewed = read_leases(&rows)?;
        let left = |renewed: &HashSet<Lease>| -> Vec<Lease> {
            let left = leases.iter().filter(|lease| !renewed.contains(lease));
            left.copied().collect()
        };
        let bundled = left(&renewed);
        if !bundled.is_empty() {
            let unbundled = self.unbundle_free(conn, &bundled, Some(lease)).await?;
            self.bundles.ended(unbundled.iter().copied(), true);
            renewed.extend(unbundled);
        }
        let left: Vec<Uuid> = left(&renewed).iter().map(|lease| *lease.id.as_uuid()).collect();
        let running = if left.is_empty() {
            HashSet::new()
        } else {
            read_leases(&self.sql.running.query().bind(left).fetch_all(conn).await?)?
        };
        let rulings = leases.iter().map(|lease| match lease {
            lease if renewed.contains(lease) => Ruling::Applied,
            // It would have been renewed if it had not been locked.
            lease if running.contains(lease) => Ruling::Busy,
            _ => Ruling::Superseded,
        });
        Ok(rulings.collect())
    }
}
