//! Writing how attempts ended.

use std::collections::HashSet;

use bytes::Bytes;
use exactly::queue::{End, Lease, Settlement, TaskId};
use sqlx::postgres::{PgBindIterExt as _, PgRow};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::super::PgQueue;
use super::super::lease::{fence, fence_code};
use super::read_leases;
use crate::postgres::row::millis_code;
use crate::postgres::sql::{PgQuery, Text};

impl PgQueue {
    /// Whether it was this call's to settle.
    pub(super) async fn done_one(
        &self,
        conn: &mut PgConnection,
        lease: Lease,
        outcome: &Bytes,
    ) -> Result<bool, sqlx::Error> {
        let number = self.bundles.numbers([lease].into_iter()).pop().flatten();
        let query = || {
            let done = self.sql.done_one.query().bind(lease.id.as_uuid());
            done.bind(fence_code(lease.fence)).bind(outcome.as_ref()).bind(number)
        };
        let mut done = query().fetch_optional(&mut *conn).await?.is_some();
        if !done {
            self.unbundle(conn, &[lease]).await?;
            done = query().fetch_optional(conn).await?.is_some();
        }
        if done {
            self.bundles.ended([lease].into_iter(), false);
        }
        Ok(done)
    }

    /// Which leases were this call's to settle. What is done is written by the first statement, and the rest by the second.
    pub(super) async fn settle_by(
        &self,
        texts: [&Text; 2],
        conn: &mut PgConnection,
        sorted: &[&Settlement],
    ) -> Result<HashSet<Lease>, sqlx::Error> {
        let mut settled = self.write(texts, conn, sorted).await?;
        let left = left(sorted, &settled);
        if !left.is_empty() {
            // In bundles that this process does not know of, if they are in any.
            let leases: Vec<Lease> = left.iter().map(|settlement| settlement.lease).collect();
            self.unbundle(conn, &leases).await?;
            settled.extend(self.write(texts, conn, &left).await?);
        }
        Ok(settled)
    }

    /// As [`settle_by`](Self::settle_by), and what is in bundles where it was found, if it is still there.
    pub(super) async fn settle_there(
        &self,
        texts: [&Text; 2],
        conn: &mut PgConnection,
        sorted: &[&Settlement],
    ) -> Result<HashSet<Lease>, sqlx::Error> {
        let leases = sorted.iter().map(|settlement| settlement.lease);
        let spots = if all_done(sorted) {
            self.bundles.spots(leases)
        } else {
            None
        };
        let Some((numbers, spots)) = spots else {
            return self.settle_by(texts, conn, sorted).await;
        };
        let query = done(&self.sql.done_there, sorted).bind(numbers).bind(spots);
        let mut settled = read_done(&query.fetch_one(&mut *conn).await?, sorted)?;
        let left = left(sorted, &settled);
        if !left.is_empty() {
            settled.extend(self.settle_by(texts, conn, &left).await?);
        }
        Ok(settled)
    }

    /// All of it by the second statement where that is one statement less.
    async fn write(
        &self,
        [done, any]: [&Text; 2],
        conn: &mut PgConnection,
        sorted: &[&Settlement],
    ) -> Result<HashSet<Lease>, sqlx::Error> {
        if all_done(sorted) {
            return self.done(done, conn, sorted).await;
        }
        let numbers = self.bundles.numbers(sorted.iter().map(|settlement| settlement.lease));
        if numbers.iter().all(Option::is_none) {
            return read_leases(&self.settle_any(any, conn, sorted).await?);
        }
        let with_numbers = || sorted.iter().copied().zip(&numbers);
        let bundled = with_numbers().filter(|(settlement, number)| number.is_some() && !is_done(settlement));
        let bundled: Vec<Lease> = bundled.map(|(settlement, _)| settlement.lease).collect();
        self.unbundle(conn, &bundled).await?;
        let (all_done, others): (Vec<&Settlement>, Vec<&Settlement>) =
            sorted.iter().copied().partition(|settlement| is_done(settlement));
        let mut settled = read_leases(&self.settle_any(any, conn, &others).await?)?;
        if !all_done.is_empty() {
            settled.extend(self.done(done, conn, &all_done).await?);
        }
        Ok(settled)
    }

    async fn done(
        &self,
        text: &Text,
        conn: &mut PgConnection,
        sorted: &[&Settlement],
    ) -> Result<HashSet<Lease>, sqlx::Error> {
        let bundles = self.bundles.numbers(sorted.iter().map(|settlement| settlement.lease));
        read_done(&done(text, sorted).bind(bundles).fetch_one(conn).await?, sorted)
    }

    async fn settle_any(
        &self,
        text: &Text,
        conn: &mut PgConnection,
        sorted: &[&Settlement],
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let ends = || sorted.iter().map(|settlement| &settlement.end);
        let after = |end: &End| match end {
            End::Retry { after, .. } | End::Defer { after } => Some(millis_code(*after)),
            End::Release | End::Done(_) | End::Bury(_) | End::Hold(_) => None,
        };
        text.query()
            .bind(ids(sorted).bind_iter())
            .bind(fence_codes(sorted).bind_iter())
            .bind(ends().map(|end| end.state().code()).bind_iter())
            .bind(ends().map(after).bind_iter())
            .bind(ends().map(|end| end.outcome().map(AsRef::<[u8]>::as_ref)).bind_iter())
            .bind(
                ends()
                    .map(|end| end.failure().map(|failure| failure.kind.code()))
                    .bind_iter(),
            )
            .bind(
                ends()
                    .map(|end| end.failure().map(|failure| failure.message.as_str()))
                    .bind_iter(),
            )
            .fetch_all(conn)
            .await
    }
}

/// Those that were not settled.
fn left<'a>(sorted: &[&'a Settlement], settled: &HashSet<Lease>) -> Vec<&'a Settlement> {
    let left = sorted.iter().copied();
    left.filter(|own| !settled.contains(&own.lease)).collect()
}

fn is_done(settlement: &Settlement) -> bool {
    matches!(settlement.end, End::Done(_))
}

fn all_done(settlements: &[&Settlement]) -> bool {
    settlements.iter().all(|settlement| is_done(settlement))
}

/// A statement that writes that all of these are done, as far as all of them are alike.
fn done<'q>(text: &Text, sorted: &'q [&'q Settlement]) -> PgQuery<'q> {
    let outcomes = sorted
        .iter()
        .map(|settlement| settlement.end.outcome().map(AsRef::<[u8]>::as_ref));
    let query = text.query().bind(ids(sorted).bind_iter());
    query.bind(fence_codes(sorted).bind_iter()).bind(outcomes.bind_iter())
}

/// Which of them were.
fn read_done(row: &PgRow, sorted: &[&Settlement]) -> Result<HashSet<Lease>, sqlx::Error> {
    let Some(ids) = row.try_get::<Option<Vec<Uuid>>, _>(0)? else {
        return Ok(sorted.iter().map(|settlement| settlement.lease).collect());
    };
    let fences: Vec<i64> = row.try_get(1)?;
    let leases = ids.into_iter().zip(fences).map(|(id, stored)| {
        Ok(Lease {
            id: TaskId::from_uuid(id),
            fence: fence(stored)?,
        })
    });
    leases.collect()
}

fn ids<'a>(sorted: &'a [&Settlement]) -> impl Iterator<Item = Uuid> + 'a {
    sorted.iter().map(|settlement| *settlement.lease.id.as_uuid())
}

fn fence_codes<'a>(sorted: &'a [&Settlement]) -> impl Iterator<Item = i64> + 'a {
    sorted.iter().map(|settlement| fence_code(settlement.lease.fence))
}
