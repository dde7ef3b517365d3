//! What a failed batch means for its steps.

use std::borrow::Cow;
use std::io;

/// A transaction elsewhere holds a row, and did not let go of it in time.
pub(super) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code == "55P03")
}

/// No answer came in time, and one may still come.
pub(super) fn is_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}

/// A prepared statement no longer fits the table, which was altered, or is gone from the server. Nothing was done.
pub(super) fn is_stale_plan(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| matches!(&*code, "0A000" | "26000"))
}

/// What happened to this session has happened to all that were open before.
pub(super) fn concerns_every_session(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(_) => {
            is_stale_plan(error) || code(error).is_some_and(|code| code.starts_with("08") || code.starts_with("57P0"))
        }
        _ => false,
    }
}

/// A lost connection, a server that shuts down, a stale statement, or a conflict with another transaction. Not a timeout: what hangs once
/// hangs again, and the callers have waited long enough.
pub(super) fn is_worth_repeating(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => !is_timeout(error),
        sqlx::Error::Database(_) => {
            concerns_every_session(error)
                || code(error).is_some_and(|code| matches!(&*code, "40001" | "40P01" | "53300"))
        }
        _ => false,
    }
}

/// Whether the error may be due to what one of the steps carries, or to who holds its row. A server that is read-only or
/// too slow is so for every step.
pub(super) fn may_be_one_steps_fault(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) => false,
        sqlx::Error::Database(_) => {
            !is_worth_repeating(error) && code(error).is_none_or(|code| !matches!(&*code, "25006" | "57014"))
        }
        _ => true,
    }
}

fn code(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code)
}
