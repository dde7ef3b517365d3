//! Records as columns.

use bytes::Bytes;
use exactly::clock::{Timestamp, millis};
use exactly::store::record::{Record, State};
use exactly::{Attempt, Fingerprint, OnLost, Token};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Row as _, Type};
use std::time::Duration;

/// The columns that [`StoredRecord::read`] reads, in its order.
pub(super) const RECORD: &str = "c.fingerprint, c.token, c.attempt, c.state, c.lease_ms, c.lease_until, c.on_lost, c.outcome, c.expires_at, c.waited";

/// A record, and whether someone waits for it.
#[derive(Clone, Debug)]
pub(super) struct StoredRecord {
    pub(super) record: Record,
    pub(super) waited: bool,
}

impl StoredRecord {
    /// Reads the columns of [`RECORD`] from `first` on.
    pub(super) fn read(row: &PgRow, first: usize) -> Result<Self, sqlx::Error> {
        let state = match row.try_get::<i16, _>(first + 3)? {
            STATE_IN_FLIGHT => State::InFlight {
                lease: Duration::from_millis(unsigned(row.try_get(first + 4)?)?),
                lease_until: row.try_get::<PgTime, _>(first + 5)?.into(),
                on_lost: on_lost(row.try_get(first + 6)?)?,
            },
            STATE_DONE => State::Done {
                outcome: Bytes::copy_from_slice(row.try_get(first + 7)?),
                expires_at: row.try_get::<Option<PgTime>, _>(first + 8)?.map(Timestamp::from),
            },
            other => return Err(corrupt(&format!("state is {other}"))),
        };
        let record = Record {
            fingerprint: Fingerprint::from_bytes(row.try_get(first)?),
            token: Token::from_bytes(row.try_get(first + 1)?),
            attempt: attempt(row.try_get(first + 2)?)?,
            state,
        };
        Ok(Self {
            record,
            waited: row.try_get(first + 9)?,
        })
    }
}

pub(super) const STATE_IN_FLIGHT: i16 = 0;
pub(super) const STATE_DONE: i16 = 1;

pub(super) fn on_lost_code(on_lost: OnLost) -> i16 {
    match on_lost {
        OnLost::Doubt => 0,
        OnLost::Rerun => 1,
    }
}

fn on_lost(code: i16) -> Result<OnLost, sqlx::Error> {
    match code {
        0 => Ok(OnLost::Doubt),
        1 => Ok(OnLost::Rerun),
        other => Err(corrupt(&format!("on_lost is {other}"))),
    }
}

pub(super) fn attempt(stored: i32) -> Result<Attempt, sqlx::Error> {
    let attempt = u32::try_from(stored).ok().and_then(Attempt::new);
    attempt.ok_or_else(|| corrupt(&format!("attempt is {stored}")))
}

/// Attempts beyond what the column holds share its last number, as they would in [`Attempt::next`] some time later.
pub(super) fn attempt_code(attempt: Attempt) -> i32 {
    i32::try_from(attempt.get()).unwrap_or(i32::MAX)
}

/// A duration as the column type of durations.
pub(super) fn millis_code(duration: Duration) -> i64 {
    i64::try_from(millis(duration)).unwrap_or(i64::MAX)
}

fn unsigned(stored: i64) -> Result<u64, sqlx::Error> {
    u64::try_from(stored).map_err(|_| corrupt(&format!("duration is {stored} ms")))
}

fn corrupt(found: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("stored record: {found}").into())
}

/// A `timestamptz` of the server's, without a date library between: microseconds since 2000, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PgTime(i64);

const TIMESTAMPTZ: Oid = Oid(1184);
const TIMESTAMPTZ_ARRAY: Oid = Oid(1185);
const UNIX_TO_2000_MS: i64 = 946_684_800_000;
/// The first instant that the server has no date for, and how it writes one that never comes.
const END: i64 = 9_223_371_331_200_000_000;
const INFINITY: i64 = i64::MAX;

impl From<PgTime> for Timestamp {
    fn from(PgTime(micros): PgTime) -> Self {
        let ms = micros.div_euclid(1000).saturating_add(UNIX_TO_2000_MS);
        Self::from_millis(u64::try_from(ms).unwrap_or(0))
    }
}

impl From<Timestamp> for PgTime {
    fn from(at: Timestamp) -> Self {
        let ms = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
        let micros = (ms - UNIX_TO_2000_MS).saturating_mul(1000);
        Self(if micros < END { micros } else { INFINITY })
    }
}

impl Type<Postgres> for PgTime {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }

    fn compatible(ty: &PgTypeInfo) -> bool {
        ty.oid() == Some(TIMESTAMPTZ)
    }
}

impl PgHasArrayType for PgTime {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ_ARRAY)
    }
}

impl Decode<'_, Postgres> for PgTime {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(i64::from_be_bytes(value.as_bytes()?.try_into()?)))
    }
}

impl Encode<'_, Postgres> for PgTime {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }
}
