//! Settings without which a commit is not durable.

use sqlx::{Row, SqliteConnection};

use exactly::{StoreError, StoreErrorKind};

use crate::error::failed;

/// Which settings are accepted although a power cut, or the end of the process, can take commits back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overrides {
    pub(super) unsynced: bool,
    pub(super) in_memory: bool,
}

/// What was found on a connection that was accepted.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Where the database is, from the root; empty if it is in memory.
    pub(super) path: String,
}

impl Settings {
    /// Connections to one in-memory database share a cache, in which a reader fails while a writer is at work.
    pub(super) fn in_memory(&self) -> bool {
        self.path.is_empty()
    }
}

/// Refuses a connection on which `commit` can return before the commit is durable.
pub(super) async fn check(connection: &mut SqliteConnection, accept: Overrides) -> Result<Settings, StoreError> {
    let path = text(connection, "select file from pragma_database_list where name = 'main'").await?;
    let settings = Settings { path };
    if settings.in_memory() {
        return if accept.in_memory {
            Ok(settings)
        } else {
            Err(refused(IN_MEMORY))
        };
    }
    let journal_mode = text(connection, "select journal_mode from pragma_journal_mode")
        .await?
        .to_lowercase();
    let synchronous = text(connection, "select cast(synchronous as text) from pragma_synchronous").await?;
    if !accept.unsynced {
        durable(&journal_mode, &synchronous)?;
    }
    Ok(settings)
}

const IN_MEMORY: &str = "open store: the database is in memory, so a restart forgets every key and effects repeat; \
     use a file, or `accept_in_memory()` if the effects are in the same memory";

fn durable(journal_mode: &str, synchronous: &str) -> Result<(), StoreError> {
    match (journal_mode, synchronous) {
        ("wal" | "truncate" | "persist", "2" | "3") | ("delete", "3") => Ok(()),
        // The journal's unlinking is what commits, and only `extra` makes that durable.
        ("delete", "2") => Err(refused(
            "open store: journal_mode=delete with synchronous=full can lose the last commit in a power cut; \
             set journal_mode=wal, or synchronous=extra, or `accept_unsynced()` to run without durability",
        )),
        ("wal" | "truncate" | "persist" | "delete", _) => Err(refused(format!(
            "open store: synchronous={} can lose commits in a power cut; \
             set synchronous=full (or extra) on every connection, or `accept_unsynced()` to run without durability",
            synchronous_name(synchronous),
        ))),
        _ => Err(refused(format!(
            "open store: journal_mode={journal_mode} can lose commits or the whole file in a crash; \
             set journal_mode=wal (or delete, truncate, persist), or `accept_unsynced()` to run without durability",
        ))),
    }
}

fn synchronous_name(level: &str) -> &str {
    match level {
        "0" => "off",
        "1" => "normal",
        other => other,
    }
}

fn refused(context: impl Into<Box<str>>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, context)
}

async fn text(connection: &mut SqliteConnection, sql: &'static str) -> Result<String, StoreError> {
    let row = sqlx::query(sql)
        .fetch_one(connection)
        .await
        .map_err(failed("read the database's settings"))?;
    row.try_get(0).map_err(failed("read the database's settings"))
}

#[cfg(test)]
mod tests {
    use super::durable;

    #[test]
    fn only_settings_that_survive_a_power_cut_are_accepted() {
        for (journal_mode, synchronous, accepted) in [
            ("wal", "2", true),
            ("wal", "3", true),
            ("wal", "1", false),
            ("wal", "0", false),
            ("truncate", "2", true),
            ("persist", "2", true),
            ("delete", "2", false),
            ("delete", "3", true),
            ("memory", "2", false),
            ("off", "3", false),
        ] {
            let verdict = durable(journal_mode, synchronous);
            assert_eq!(verdict.is_ok(), accepted, "{journal_mode} {synchronous}: {verdict:?}");
        }
    }
}
