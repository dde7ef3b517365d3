//! The statements on a table of records, and what a row holds.
//!
//! sqlx hands every statement to a thread of its own, which costs more than the statement itself. So a batch of any size
//! takes two trips as a rule: one that reads the rows that it has to know, and one that writes all of its changes and
//! commits. The statements have room for a power of two of rows and leave what is over empty, so that there are few of them
//! and all stay prepared. Batches that need no look go [another way](super::scribe).

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, Row, SqlSafeStr, SqlStr};

use exactly::clock::{Timestamp, millis};
use exactly::store::record::{Record, State};
use exactly::{Attempt, CallId, Claim, Fingerprint, Key, OnLost, Scope, Token};

use super::clock::ClockRow;
use crate::batch::BATCH_MAX;
use crate::name::Name;

/// How many powers of two there are up to the largest batch.
const SIZES: usize = BATCH_MAX.ilog2() as usize + 1;

pub(super) const COLUMNS: &str = "id, principal, operation, key, fingerprint, state, attempt, token, lease_ms, lease_until, on_lost, \
     created_at, completed_at, expires_at, outcome";

/// How many columns that are.
const COLUMN_COUNT: usize = 15;

pub(super) const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// The id, the token, when it expires, and the outcome.
const COMPLETION: &str = "(?, ?, ?, ?)";

/// What becomes of a row that is there. Who asked for what is in the id, so it never changes.
const UPDATE: &str = "fingerprint = excluded.fingerprint, state = excluded.state, attempt = excluded.attempt, \
     token = excluded.token, lease_ms = excluded.lease_ms, lease_until = excluded.lease_until, \
     on_lost = excluded.on_lost, created_at = excluded.created_at, completed_at = excluded.completed_at, \
     expires_at = excluded.expires_at, outcome = excluded.outcome";

/// What a record is read from, in the order that [`stored`] expects.
pub(super) const RECORD: &str =
    "id, fingerprint, state, attempt, token, lease_ms, lease_until, on_lost, expires_at, created_at, outcome";

pub(super) const CLOCK: &str = "select store_ms, wall_ms from exactly_clock";

/// Every statement on one table, made once.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) load: Vec<SqlStr>,
    pub(super) load_to_write: Vec<SqlStr>,
    /// Writes rows that may be there or not.
    pub(super) save: Vec<SqlStr>,
    /// Writes one such row and commits.
    pub(super) save_and_commit: SqlStr,
    pub(super) delete: SqlStr,
    pub(super) load_one: SqlStr,
    pub(super) sweep_done: SqlStr,
    pub(super) sweep_lost: SqlStr,
    table: Name,
    /// By the size of either part; made when it is needed, since most sizes never meet.
    add_and_complete: Vec<OnceLock<SqlStr>>,
}

impl Statements {
    pub(super) fn new(name: &Name) -> Self {
        let table = name.quoted();
        let load = |begin: &str, size: usize| {
            let ids = vec!["?"; size].join(", ");
            sql(format!(
                "{begin}; {CLOCK}; select {RECORD} from {table} where id in ({ids})"
            ))
        };
        let save = |size: usize| format!("insert {} on conflict (id) do update set {UPDATE}", into(name, size));
        let sizes = || (0..SIZES).map(|power| 1_usize << power);
        Self {
            load: sizes().map(|size| load("begin", size)).collect(),
            load_to_write: sizes().map(|size| load("begin immediate", size)).collect(),
            save: sizes().map(|size| sql(save(size))).collect(),
            save_and_commit: sql(format!("{}; commit", save(1))),
            delete: sql(format!("delete from {table} where id = ?")),
            load_one: sql(format!("{CLOCK}; select {RECORD} from {table} where id = ?")),
            sweep_done: sql(format!(
                "delete from {table} where rowid in (select rowid from {table} where expires_at <= ? limit ?)"
            )),
            sweep_lost: sql(format!(
                "delete from {table} where rowid in \
                 (select rowid from {table} where state = 0 and on_lost = 1 and lease_until <= ? limit ?)"
            )),
            table: name.clone(),
            add_and_complete: vec![OnceLock::new(); (SIZES + 1) * (SIZES + 1)],
        }
    }

    /// Adds rows that are not there, completes calls whose claims hold, and commits; or does nothing of it, if one of the
    /// claims does not, or one of the rows is there. There is room for `rows` and `completions`, and neither part if there
    /// is none of it.
    pub(super) fn add_and_complete(&self, rows: usize, completions: usize) -> &SqlStr {
        let part = |count: usize| if count == 0 { 0 } else { size(count).0 + 1 };
        let place = part(rows) * (SIZES + 1) + part(completions);
        self.add_and_complete[place].get_or_init(|| self.make_add_and_complete(rows, completions))
    }

    /// `or rollback`, because what a statement alone has changed can be taken back only if SQLite copies each page before.
    fn make_add_and_complete(&self, rows: usize, completions: usize) -> SqlStr {
        let mut statements = Vec::new();
        if rows > 0 {
            statements.push(format!("insert or rollback {}", into(&self.table, size(rows).1)));
        }
        if completions > 0 {
            let (table, completions) = (self.table.quoted(), vec![COMPLETION; size(completions).1].join(", "));
            statements.push(format!(
                "update or rollback {table} set state = 1, lease_ms = null, lease_until = null, on_lost = null, \
                 completed_at = ?, expires_at = column3, outcome = column4 from (values {completions}) \
                 where id = column1 and token = column2 and state = 0"
            ));
            // Fails unless the one before has changed a row for each completion.
            statements.push("update or rollback exactly_clock set only = 0 where changes() <> ?".to_owned());
        }
        statements.push("commit".to_owned());
        sql(statements.join("; "))
    }
}

/// The rest of an insert with room for so many rows. The select before the values lets empty ones be left out.
fn into(table: &Name, size: usize) -> String {
    let (table, rows) = (table.quoted(), vec![ROW; size].join(", "));
    format!("into {table} ({COLUMNS}) select * from (values {rows}) where column1 is not null")
}

/// Which of the statements has room for `rows` rows, and how many it has room for.
pub(super) fn size(rows: usize) -> (usize, usize) {
    let room = rows.next_power_of_two();
    (usize::try_from(room.ilog2()).unwrap_or(usize::MAX), room)
}

/// What a row holds, with who asked for what.
#[derive(Debug)]
pub(super) struct Saved<'a> {
    pub(super) id: &'a CallId,
    /// Not known to whoever only writes with a claim; the row is there then and keeps its own.
    pub(super) call: Option<(&'a Scope, &'a Key)>,
    pub(super) record: &'a Record,
    pub(super) created_at: Timestamp,
    pub(super) now: Timestamp,
    /// Whether there is a row already.
    pub(super) stored: bool,
}

impl<'a> Saved<'a> {
    /// The values of [`COLUMNS`].
    pub(super) fn values(&self) -> [Value<'a>; COLUMN_COUNT] {
        let record = self.record;
        let (mut lease_ms, mut lease_until, mut on_lost) = (Value::Null, Value::Null, Value::Null);
        let (mut completed_at, mut expires, mut kept) = (Value::Null, Value::Null, Value::Null);
        match &record.state {
            State::InFlight {
                lease,
                lease_until: until,
                on_lost: lost,
            } => {
                lease_ms = Value::Integer(integer(millis(*lease)));
                lease_until = Value::Integer(timestamp(*until));
                on_lost = Value::Integer(i64::from(*lost == OnLost::Rerun));
            }
            State::Done { outcome, expires_at } => {
                completed_at = Value::Integer(timestamp(self.now));
                expires = expires_at.map_or(Value::Null, |at| Value::Integer(timestamp(at)));
                kept = Value::Bytes(outcome);
            }
        }
        [
            Value::Bytes(self.id.as_bytes()),
            self.call
                .and_then(|(scope, _)| scope.principal())
                .map_or(Value::Null, Value::Text),
            Value::Text(self.call.map_or("", |(scope, _)| scope.operation())),
            Value::Text(self.call.map_or("", |(_, key)| key.as_str())),
            Value::Bytes(record.fingerprint.as_bytes()),
            Value::Integer(i64::from(matches!(record.state, State::Done { .. }))),
            Value::Integer(i64::from(record.attempt.get())),
            Value::Bytes(record.token.as_bytes()),
            lease_ms,
            lease_until,
            on_lost,
            Value::Integer(timestamp(self.created_at)),
            completed_at,
            expires,
            kept,
        ]
    }
}

/// A value as either driver takes it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    fn bind(self, arguments: &mut SqliteArguments) -> Result<(), sqlx::error::BoxDynError> {
        match self {
            Self::Null => arguments.add(None::<i64>),
            Self::Integer(number) => arguments.add(number),
            Self::Text(text) => arguments.add(text),
            Self::Bytes(bytes) => arguments.add(bytes),
        }
    }
}

/// A call that its claim completes.
#[derive(Debug)]
pub(super) struct Completed<'a> {
    pub(super) claim: &'a Claim,
    pub(super) outcome: &'a Bytes,
    pub(super) expires_at: Option<Timestamp>,
}

impl Completed<'_> {
    fn try_bind(&self, arguments: &mut SqliteArguments) -> Result<(), sqlx::error::BoxDynError> {
        arguments.add(self.claim.id.as_bytes().as_slice())?;
        arguments.add(self.claim.token.as_bytes().as_slice())?;
        arguments.add(self.expires_at.map(timestamp))?;
        arguments.add(&**self.outcome)
    }
}

/// Adds the values of rows, and of empty ones for the room that is left.
pub(super) fn bind_rows(arguments: &mut SqliteArguments, rows: &[Saved<'_>]) -> Result<(), sqlx::Error> {
    for saved in rows {
        for value in saved.values() {
            value.bind(arguments).map_err(sqlx::Error::Encode)?;
        }
    }
    bind_nothing(arguments, rows.len(), COLUMN_COUNT)
}

/// Adds the values of completions, if there are any, and of empty ones for the room that is left, between when they are
/// completed and how many have to be.
pub(super) fn bind_completions(
    arguments: &mut SqliteArguments,
    completions: &[Completed<'_>],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    if completions.is_empty() {
        return Ok(());
    }
    arguments.add(timestamp(now)).map_err(sqlx::Error::Encode)?;
    for completed in completions {
        completed.try_bind(arguments).map_err(sqlx::Error::Encode)?;
    }
    bind_nothing(arguments, completions.len(), places(COMPLETION))?;
    let count = i64::try_from(completions.len()).unwrap_or(i64::MAX);
    arguments.add(count).map_err(sqlx::Error::Encode)
}

/// How many values a row takes.
fn places(row: &str) -> usize {
    row.matches('?').count()
}

fn bind_nothing(arguments: &mut SqliteArguments, rows: usize, places: usize) -> Result<(), sqlx::Error> {
    let empty = if rows == 0 { 0 } else { size(rows).1 - rows };
    for _ in 0..empty * places {
        arguments.add(None::<i64>).map_err(sqlx::Error::Encode)?;
    }
    Ok(())
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) record: Record,
    pub(super) created_at: Timestamp,
}

/// The id in a row of [`RECORD`].
pub(super) fn stored_id(row: &SqliteRow) -> Result<CallId, sqlx::Error> {
    Ok(CallId::from_bytes(fixed(row, 0)?))
}

/// The record in a row of [`RECORD`].
pub(super) fn stored(row: &SqliteRow) -> Result<Stored, sqlx::Error> {
    let state = if row.try_get::<i64, _>(2)? == 0 {
        State::InFlight {
            lease: Duration::from_millis(unsigned(row, 5)?),
            lease_until: instant(row, 6)?,
            on_lost: on_lost(row, 7)?,
        }
    } else {
        let outcome: &[u8] = row.try_get(10)?;
        let expires_at: Option<i64> = row.try_get(8)?;
        let expires_at = expires_at.map(|_| instant(row, 8)).transpose()?;
        State::Done {
            outcome: Bytes::copy_from_slice(outcome),
            expires_at,
        }
    };
    let record = Record {
        fingerprint: Fingerprint::from_bytes(fixed(row, 1)?),
        attempt: attempt(row, 3)?,
        token: Token::from_bytes(fixed(row, 4)?),
        state,
    };
    Ok(Stored {
        record,
        created_at: instant(row, 9)?,
    })
}

/// The clock in a row of [`CLOCK`].
pub(super) fn clock_row(row: &SqliteRow) -> Result<ClockRow, sqlx::Error> {
    Ok(ClockRow {
        store: instant(row, 0)?,
        wall: instant(row, 1)?,
    })
}

/// A time as SQLite keeps it.
pub(super) fn timestamp(at: Timestamp) -> i64 {
    integer(at.as_millis())
}

fn attempt(row: &SqliteRow, column: usize) -> Result<Attempt, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    let attempt = u32::try_from(number).ok().and_then(Attempt::new);
    attempt.ok_or_else(|| unreadable(column, "an attempt counts from one"))
}

fn on_lost(row: &SqliteRow, column: usize) -> Result<OnLost, sqlx::Error> {
    Ok(if row.try_get::<i64, _>(column)? == 0 {
        OnLost::Doubt
    } else {
        OnLost::Rerun
    })
}

pub(super) fn instant(row: &SqliteRow, column: usize) -> Result<Timestamp, sqlx::Error> {
    Ok(Timestamp::from_millis(unsigned(row, column)?))
}

pub(super) fn fixed<const N: usize>(row: &SqliteRow, column: usize) -> Result<[u8; N], sqlx::Error> {
    let bytes: &[u8] = row.try_get(column)?;
    bytes
        .try_into()
        .map_err(|_| unreadable(column, "a hash or token has its own length"))
}

pub(super) fn unsigned(row: &SqliteRow, column: usize) -> Result<u64, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| unreadable(column, "no time or length is negative"))
}

/// The text of a statement, cheap to clone. Its only variable part is a `Name`, in which there is nothing to inject.
pub(super) fn sql(text: String) -> SqlStr {
    AssertSqlSafe(std::sync::Arc::<str>::from(text)).into_sql_str()
}

pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unreadable(column: usize, why: &'static str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_string(),
        source: why.into(),
    }
}
