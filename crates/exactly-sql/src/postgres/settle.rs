//! The transaction that can carry out anything: lock the rows, ask the state machine, write what it says.
//!
//! It waits for no row. A record that a transaction elsewhere holds, such as one in which a service completes the call
//! itself, would hold up everybody else's in the same batch; its steps are [set aside](super::held).

use std::collections::BTreeMap;

use exactly::clock::Timestamp;
use exactly::store::record::{Change, Record, State};
use exactly::{CallId, Verdict};
use sqlx::postgres::PgBindIterExt as _;
use sqlx::{Connection as _, PgConnection, Row as _};

use super::group::{bind_begins, bytes_of};
use super::row::{PgTime, STATE_DONE, STATE_IN_FLIGHT, StoredRecord, attempt_code, millis_code, on_lost_code};
use super::sql::Sql;
use super::work::{Answer, Work, begun, transition};
use crate::error::Shared;

/// A row that a step is about.
enum Row {
    Locked(Locked),
    Unreadable(Shared),
    /// Somebody else has locked it.
    Held,
}

/// One locked row and what becomes of it.
struct Locked {
    now: Timestamp,
    record: Option<Record>,
    waited: bool,
    changed: bool,
}

/// How often a begin asks again whose row was deleted under its hands.
const ROUNDS_MAX: u32 = 16;

/// Carries out every step that has no answer yet.
pub(super) async fn run(conn: &mut PgConnection, sql: &Sql, work: &mut Work<'_>) -> Result<(), sqlx::Error> {
    for _ in 0..ROUNDS_MAX {
        let steps = work.unanswered();
        if steps.is_empty() {
            break;
        }
        run_once(conn, sql, work, steps).await?;
    }
    Ok(())
}

async fn run_once(
    conn: &mut PgConnection,
    sql: &Sql,
    work: &mut Work<'_>,
    steps: Vec<usize>,
) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin().await?;
    insert_begun(&mut tx, sql, work, &steps).await?;
    let mut locked = lock(&mut tx, sql, work, &steps).await?;
    for index in steps {
        decide(work, index, &mut locked);
    }
    write(&mut tx, sql, &locked).await?;
    tx.commit().await
}

/// Makes sure that every begun key has a row to lock. A row that we insert carries the token of a begin in this batch,
/// which then finds its own claim.
///
/// All inserts come before all locks, as they do in the group's statement: two batches then never wait for each other.
async fn insert_begun(tx: &mut PgConnection, sql: &Sql, work: &Work<'_>, steps: &[usize]) -> Result<(), sqlx::Error> {
    let mut calls: Vec<_> = steps.iter().filter_map(|&index| begun(&work.steps[index])).collect();
    calls.sort_by_key(|call| call.id());
    calls.dedup_by_key(|call| *call.id());
    if !calls.is_empty() {
        bind_begins(sql.insert.query(), &calls.into_iter().map(|call| (call, false)))
            .execute(tx)
            .await?;
    }
    Ok(())
}

async fn lock(
    tx: &mut PgConnection,
    sql: &Sql,
    work: &Work<'_>,
    steps: &[usize],
) -> Result<BTreeMap<CallId, Row>, sqlx::Error> {
    let mut ids: Vec<_> = steps.iter().map(|&index| *work.steps[index].id()).collect();
    ids.sort_unstable();
    ids.dedup();
    let rows = sql.lock.query().bind(bytes_of(&ids)).fetch_all(&mut *tx).await?;
    let mut locked = BTreeMap::new();
    for row in &rows {
        let now = row.try_get::<PgTime, _>(0)?.into();
        let id = CallId::from_bytes(row.try_get(1)?);
        let row = match StoredRecord::read(row, 2) {
            Ok(stored) => Row::Locked(Locked {
                now,
                record: Some(stored.record),
                waited: stored.waited,
                changed: false,
            }),
            Err(error) => Row::Unreadable(Shared::new(error)),
        };
        locked.insert(id, row);
    }
    ids.retain(|id| !locked.contains_key(id));
    if !ids.is_empty() {
        // What is there and was not locked is held; what is not there is gone.
        for row in sql.present.query().bind(bytes_of(&ids)).fetch_all(tx).await? {
            locked.insert(CallId::from_bytes(row.try_get(0)?), Row::Held);
        }
    }
    Ok(locked)
}

fn decide(work: &mut Work<'_>, index: usize, locked: &mut BTreeMap<CallId, Row>) {
    let step = &work.steps[index];
    let answer = match locked.get_mut(step.id()) {
        // There was a row when we began, and it was deleted before we could lock it: begin again.
        None if begun(step).is_some() => return,
        // A look, or a write to a record that is gone: the clock decides nothing about it.
        None => transition(step, None, Timestamp::from_millis(0)).1,
        Some(Row::Held) => Answer::Held,
        Some(Row::Locked(row)) => {
            let waited = row.waited;
            let answer = row.step(transition(step, row.record.as_ref(), row.now));
            if step.settles() {
                work.settled.push(*step.id());
                if waited {
                    work.waited.push(*step.id());
                }
            }
            answer
        }
        Some(Row::Unreadable(error)) => Answer::Failed(error.clone()),
    };
    work.answers[index] = Some(answer);
}

impl Locked {
    fn step(&mut self, (change, answer): (Change, Answer)) -> Answer {
        match change {
            Change::Keep => {}
            Change::Put(record) => {
                self.record = Some(record);
                self.changed = true;
            }
            Change::Delete => {
                self.record = None;
                self.changed = true;
            }
        }
        if matches!(answer, Answer::Begun(Verdict::InFlight { .. })) && !self.waited {
            self.waited = true;
            self.changed = true;
        }
        answer
    }
}

async fn write(tx: &mut PgConnection, sql: &Sql, locked: &BTreeMap<CallId, Row>) -> Result<(), sqlx::Error> {
    let changed = || {
        locked.iter().filter_map(|(id, row)| match row {
            Row::Locked(row) if row.changed => Some((id, row)),
            _ => None,
        })
    };
    if changed().next().is_none() {
        return Ok(());
    }
    let gone = changed()
        .filter(|(_, row)| row.record.is_none())
        .map(|(id, _)| id.as_bytes());
    let put = || changed().filter_map(|(id, row)| Some((id, row, row.record.as_ref()?)));
    let columns = || put().map(|(_, _, record)| Columns::of(&record.state));
    sql.write
        .query()
        .bind(gone.bind_iter())
        .bind(put().map(|(id, ..)| id.as_bytes()).bind_iter())
        .bind(put().map(|(_, _, record)| record.fingerprint.as_bytes()).bind_iter())
        .bind(put().map(|(_, _, record)| record.token.as_bytes()).bind_iter())
        .bind(put().map(|(_, _, record)| attempt_code(record.attempt)).bind_iter())
        .bind(columns().map(|columns| columns.state).bind_iter())
        .bind(columns().map(|columns| columns.lease_ms).bind_iter())
        .bind(columns().map(|columns| columns.lease_until).bind_iter())
        .bind(columns().map(|columns| columns.on_lost).bind_iter())
        .bind(columns().map(|columns| columns.outcome).bind_iter())
        .bind(columns().map(|columns| columns.expires_at).bind_iter())
        .bind(put().map(|(_, row, _)| row.waited).bind_iter())
        .bind(put().map(|(_, row, _)| PgTime::from(row.now)).bind_iter())
        .execute(tx)
        .await?;
    Ok(())
}

/// A state as columns.
pub(super) struct Columns<'r> {
    pub(super) state: i16,
    pub(super) lease_ms: Option<i64>,
    pub(super) lease_until: Option<PgTime>,
    pub(super) on_lost: Option<i16>,
    pub(super) outcome: Option<&'r [u8]>,
    pub(super) expires_at: Option<PgTime>,
}

impl<'r> Columns<'r> {
    pub(super) fn of(state: &'r State) -> Self {
        match state {
            State::InFlight {
                lease,
                lease_until,
                on_lost,
            } => Self {
                state: STATE_IN_FLIGHT,
                lease_ms: Some(millis_code(*lease)),
                lease_until: Some((*lease_until).into()),
                on_lost: Some(on_lost_code(*on_lost)),
                outcome: None,
                expires_at: None,
            },
            State::Done { outcome, expires_at } => Self {
                state: STATE_DONE,
                lease_ms: None,
                lease_until: None,
                on_lost: None,
                outcome: Some(outcome),
                expires_at: expires_at.map(PgTime::from),
            },
        }
    }
}
