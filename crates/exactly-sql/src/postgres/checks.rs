//! What a server must be like for the promise to hold.
//!
//! A record that a crash of the server can take back is an effect that can happen twice, and nothing would say so. It
//! is cheaper to refuse the start.

use exactly::{StoreError, StoreErrorKind};
use sqlx::{PgConnection, Row as _};

use super::schema::{Layout, Place};
use crate::error::failed;

/// The oldest server: older ones scan the whole table to sweep a part of it.
const SERVER_VERSION_MIN: i32 = 140_000;

/// Which of the things are accepted that let a crash take back what was committed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Accept {
    pub(super) unsynced: bool,
    pub(super) unlogged: bool,
}

/// What is read of a server and of the session that will write records.
#[derive(Debug)]
struct Server {
    version: i32,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    transaction_read_only: String,
    in_recovery: bool,
}

/// Refuses a server that may forget what it committed, unless that is accepted, and one that cannot write at all. Returns
/// by which setting of `synchronous_commit` the session's commits are durable, if they are.
pub(super) async fn check_server(conn: &mut PgConnection, accept: Accept) -> Result<Option<String>, StoreError> {
    let server = read(conn).await.map_err(failed("check server settings"))?;
    if server.version < SERVER_VERSION_MIN {
        return Err(refused(&format!(
            "server_version_num is {}, and {SERVER_VERSION_MIN} is the oldest supported: upgrade PostgreSQL",
            server.version
        )));
    }
    if server.in_recovery {
        return Err(read_only(
            "the server is a standby (pg_is_in_recovery() is true): connect to the primary",
        ));
    }
    if server.transaction_read_only == "on" {
        return Err(read_only(
            "transaction_read_only is on: set default_transaction_read_only = off for this role and database",
        ));
    }
    let unsafe_settings = [
        (
            "fsync",
            server.fsync,
            "a crash of the machine can lose every record; set it to on and restart",
        ),
        (
            "full_page_writes",
            server.full_page_writes,
            "a crash of the machine can corrupt records; set it to on",
        ),
        (
            "synchronous_commit",
            server.synchronous_commit.clone(),
            "a crash can forget calls that were answered; set it to on, local or more for this role and database",
        ),
    ];
    for (name, value, fix) in unsafe_settings {
        if value == "off" {
            accept_or_refuse(
                accept.unsynced,
                &format!("{name} is {value}: {fix}"),
                "accept_unsynced()",
            )?;
        }
    }
    Ok(Some(server.synchronous_commit).filter(|value| value != "off"))
}

/// Refuses a table that a crash of the server empties, unless that is accepted.
pub(super) async fn check_table(conn: &mut PgConnection, place: &Place, accept: Accept) -> Result<(), StoreError> {
    let tables = match place.layout {
        Layout::Calls => vec![place.quoted()],
        Layout::Tasks => vec![place.quoted(), place.bundles(), place.sheaves()],
    };
    let unlogged = sqlx::query(
        "select c.oid::regclass::text, c.relpersistence::text
         from unnest($1::text[]) as t (name) join pg_class c on c.oid = to_regclass(t.name)
         where c.relpersistence <> 'p' limit 1",
    );
    let unlogged = unlogged.bind(tables).fetch_optional(conn).await;
    let unlogged = unlogged.map_err(failed(format!("check table {}", place.readable())))?;
    let Some(row) = unlogged else { return Ok(()) };
    let read = |column| row.try_get::<String, _>(column).map_err(failed("check tables"));
    let (table, persistence) = (read(0)?, read(1)?);
    let found = format!(
        "table {table} is unlogged (relpersistence is {persistence}): a crash empties it; run `alter table {table} set \
         logged`"
    );
    accept_or_refuse(accept.unlogged, &found, "accept_unlogged()")
}

async fn read(conn: &mut PgConnection) -> Result<Server, sqlx::Error> {
    let row = sqlx::query(
        "select current_setting('server_version_num')::integer, current_setting('fsync'),
                current_setting('full_page_writes'), current_setting('synchronous_commit'),
                current_setting('transaction_read_only'), pg_is_in_recovery()",
    )
    .fetch_one(conn)
    .await?;
    Ok(Server {
        version: row.try_get(0)?,
        fsync: row.try_get(1)?,
        full_page_writes: row.try_get(2)?,
        synchronous_commit: row.try_get(3)?,
        transaction_read_only: row.try_get(4)?,
        in_recovery: row.try_get(5)?,
    })
}

fn accept_or_refuse(accepted: bool, found: &str, method: &str) -> Result<(), StoreError> {
    if accepted {
        tracing::warn!("accepted although calls may run twice after a crash: {found}");
        return Ok(());
    }
    Err(refused(&format!(
        "{found}; or accept that effects may repeat with `{method}`"
    )))
}

fn refused(found: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, format!("check server settings: {found}"))
}

fn read_only(found: &str) -> StoreError {
    StoreError::new(StoreErrorKind::ReadOnly, format!("check server settings: {found}"))
}
