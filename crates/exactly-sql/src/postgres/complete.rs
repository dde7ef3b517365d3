//! Completing a record in a transaction of the caller's.

use bytes::Bytes;
use exactly::store::record::{self, Change};
use exactly::{Claim, Fenced, Keep};
use sqlx::PgConnection;

use super::PgStore;
use super::group::keep_code;
use super::transactional::{ROUNDS_MAX, read_record, set_local};

impl PgStore {
    pub(super) async fn complete_on(
        &self,
        tx: &mut PgConnection,
        claim: &Claim,
        outcome: &Bytes,
        keep: Keep,
    ) -> Result<Fenced, sqlx::Error> {
        for _ in 0..ROUNDS_MAX {
            if self.complete_now(tx, claim, outcome, keep).await? {
                return Ok(Fenced::Applied);
            }
            // Superseded, or a repetition: nothing will be changed, so nothing needs to be locked.
            let read = self.sql.read_one.query().bind(claim.id.as_bytes());
            let Some(row) = read.fetch_optional(&mut *tx).await? else {
                return Ok(Fenced::Superseded);
            };
            let (now, stored) = read_record(&row)?;
            if let (Change::Keep, fenced) = record::complete(Some(&stored.record), claim, outcome, keep, now) {
                return Ok(fenced);
            }
            // The same call was begun again between the two statements: the claim owns the row after all, and nothing
            // is written yet.
        }
        Err(sqlx::Error::Protocol(
            "the record was begun again each time it was looked at".to_owned(),
        ))
    }

    /// Whether the row was the claim's to complete.
    async fn complete_now(
        &self,
        tx: &mut PgConnection,
        claim: &Claim,
        outcome: &Bytes,
        keep: Keep,
    ) -> Result<bool, sqlx::Error> {
        let complete = |whatever_the_session: bool| {
            let query = self.sql.complete_one.query().bind(claim.id.as_bytes());
            let query = query.bind(claim.token.as_bytes()).bind(outcome.as_ref());
            query.bind(keep_code(keep)).bind(whatever_the_session)
        };
        let durable = self.defaults.synchronous_commit.as_deref();
        if complete(durable.is_none()).execute(&mut *tx).await?.rows_affected() > 0 {
            return Ok(true);
        }
        // A pool may open sessions long after the start, by settings that were changed since.
        let Some(durable) = durable else { return Ok(false) };
        set_local(tx, "synchronous_commit", durable).await?;
        Ok(complete(true).execute(tx).await?.rows_affected() > 0)
    }
}
