//! Adding a task whose first attempt is behind it.

use std::slice;
use std::sync::Arc;

use exactly::queue::{End, Enqueued, Task};
use sqlx::{PgConnection, Row as _};

use super::PgQueue;
use super::enqueue::{ROUNDS_MAX, forgotten, version_code};
use super::sql::{NOW, uncounted};
use crate::postgres::row::millis_code;
use crate::postgres::schema::Place;
use crate::postgres::session::Sessions;
use crate::postgres::sweep::Sweeper;

/// For how long a transaction that has recorded something may be silent, unless sessions allow less. Who adds the same key waits for
/// it, and would wait for ever if its process stands still.
const SILENCE_MS_MAX: u32 = 60_000;

/// What it is set by.
pub(in crate::postgres) const IDLE_TIMEOUT: &str = "idle_in_transaction_session_timeout";

impl PgQueue {
    pub(super) async fn record_on(
        &self,
        conn: &mut PgConnection,
        task: &Task,
        end: &End,
    ) -> Result<Enqueued, sqlx::Error> {
        for _ in 0..ROUNDS_MAX {
            if self.record(conn, task, end).await? {
                return Ok(Enqueued::New(task.id()));
            }
            // Whoever was about to add it has, so it is there unless it was pruned since.
            if let Some(found) = self.find(conn, slice::from_ref(task), &[0]).await?.pop() {
                return Ok(Enqueued::Found(found));
            }
        }
        Err(forgotten(task.id()))
    }

    pub(super) async fn raise_on(&self, conn: &mut PgConnection, name: &str, number: i64) -> Result<bool, sqlx::Error> {
        let raised = self.sql.raise.query().bind(name).bind(number);
        Ok(raised.fetch_optional(conn).await?.is_some())
    }

    /// Whether the key was new.
    async fn record(&self, conn: &mut PgConnection, task: &Task, end: &End) -> Result<bool, sqlx::Error> {
        if let End::Done(outcome) = end {
            return self.record_done(conn, task, outcome).await;
        }
        let wait = match end {
            End::Retry { after, .. } | End::Defer { after } => *after,
            End::Done(_) | End::Bury(_) | End::Hold(_) | End::Release => task.delay(),
        };
        let failure = end.failure();
        let added = self
            .sql
            .record
            .query()
            .bind(*task.id().as_uuid())
            .bind(task.kind())
            .bind(task.key())
            .bind(task.lane().as_str())
            .bind(task.payload().as_ref())
            .bind(version_code(task.version()))
            .bind(end.state().code())
            .bind(millis_code(wait))
            .bind(end.outcome().map(AsRef::<[u8]>::as_ref))
            .bind(failure.map(|failure| failure.kind.code()))
            .bind(failure.map(|failure| failure.message.as_str()))
            .bind(&self.defaults.idle_timeout)
            .bind(&self.defaults.silence)
            .fetch_one(conn)
            .await?;
        added.try_get(0)
    }
}

impl PgQueue {
    async fn record_done(&self, conn: &mut PgConnection, task: &Task, outcome: &[u8]) -> Result<bool, sqlx::Error> {
        let added = self
            .sql
            .record_done
            .query()
            .bind(*task.id().as_uuid())
            .bind(task.kind())
            .bind(task.key())
            .bind(task.lane().as_str())
            .bind(task.payload().as_ref())
            .bind(version_code(task.version()))
            .bind(outcome)
            .bind(&self.defaults.idle_timeout)
            .bind(&self.defaults.silence)
            .fetch_optional(conn)
            .await?;
        Ok(added.is_some())
    }
}

/// Who raises the same waits here until the other transaction has ended, and is then judged by what that one has left.
pub(super) fn raise_sql(marks: &str) -> String {
    format!(
        "insert into {marks} as m (name, number, raised_at) values ($1, $2, {NOW})
         on conflict (name) do update set number = excluded.number, raised_at = excluded.raised_at
             where m.number < excluded.number
         returning true"
    )
}

/// Forgets marks that nobody has raised for a while.
pub(super) fn prune_marks(sessions: Arc<Sessions>, place: &Place) -> Sweeper {
    let expired = format!("raised_at <= {NOW} - $3 * interval '1 millisecond'");
    Sweeper::of(sessions, &place.marks(), "name", &expired, "select count(*) from gone")
}

/// The fence is that of a first lease. How long the session may be silent is set only by who has added the task, and never to longer
/// than it may already.
pub(super) fn sql(table: &str, attempts: &str) -> String {
    let silence = silence("$12", "$13");
    let uncounted = uncounted();
    format!(
        "with t as materialized (select {NOW} as now, floor(1000 * extract(epoch from {NOW}))::int8 + 1 as fence),
         added as (
             insert into {table} (due_at, enqueued_at, started_at, ended_at, fence, version, failures, state,
                                  failure_kind, id, kind, key, lane, payload, outcome, failure)
             select case when $7::int2 = 0 then t.now + $8::int8 * interval '1 millisecond' end, t.now, t.now,
                    case when $7 > 1 then t.now end, t.fence, $6::int4,
                    coalesce(($10::int2 not in ({uncounted}))::int4, 0), $7, $10, $1::uuid, $2::text, $3::text, $4::text,
                    $5::bytea, $9::bytea, $11::text
             from t
             on conflict (id) do nothing
             returning id
         ),
         noted as (
             insert into {attempts} (task, fence, started_at, ended_at, then_state, kind, message)
             select a.id, t.fence, t.now, t.now, $7, $10, $11 from added a, t
             where $10 is not null
         )
         select case when exists (select from added) then {silence} is not null else false end"
    )
}

/// The same for one that is done: nothing is noted of the attempt, and nothing comes back if the key is there.
pub(super) fn done_sql(table: &str) -> String {
    let silence = silence("$8", "$9");
    format!(
        "insert into {table} (enqueued_at, started_at, ended_at, fence, version, state, id, kind, key, lane, payload, outcome)
         select t.now, t.now, t.now, floor(1000 * date_part('epoch', t.now))::int8 + 1, $6::int4, 3, $1::uuid, $2::text,
                $3::text, $4::text, $5::bytea, $7::bytea
         from (select {NOW} as now) t
         on conflict (id) do nothing
         returning {silence}"
    )
}

/// Sets how long the session may be silent in this transaction. If that is as `usual` for sessions, what comes of it is known.
fn silence(usual: &str, then: &str) -> String {
    let setting = format!("current_setting('{IDLE_TIMEOUT}')");
    format!(
        "set_config('{IDLE_TIMEOUT}', case when {setting} = {usual}::text then {then}::text else {} end, true)",
        least_silence()
    )
}

/// How long a transaction of this session that has recorded something may be silent, in milliseconds.
pub(in crate::postgres) fn least_silence() -> String {
    format!(
        "ceil(least({SILENCE_MS_MAX}, 1000 * extract(epoch from
             nullif(current_setting('{IDLE_TIMEOUT}')::interval, interval '0'))))::int8::text"
    )
}
