//! What a failed batch means for its steps.

use std::borrow::Cow;
use std::io;

/// A transaction elsewhere holds a row, and did not let go of it in time.
pub(super) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code == "55P03")
}

/// A lost connection, a server that shuts down, or a conflict with another transaction. Not a timeout: what hangs once
/// hangs again, and the callers have waited long enough.
pub(super) fn is_worth_repeating(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() != io::ErrorKind::TimedOut,
        sqlx::Error::Database(_) => code(error).is_some_and(|code| {
            ["08", "57P0"].iter().any(|class| code.starts_with(class)) || matches!(&*code, "40001" | "40P01" | "53300")
        }),
        _ => false,
    }
}

/// Whether the error may be due to what one of the steps carries, or to who holds its row. A server that is read-only or
/// too slow is so for every step.
pub(super) fn may_be_one_steps_fault(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) => false,
        sqlx::Error::Database(_) => {
            !is_worth_repeating(error) && code(error).is_none_or(|code| !matches!(&*code, "25006" | "57014"))
        }
        _ => true,
    }
}

fn code(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code)
}
