//! What a database's error means to a caller.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use exactly::{StoreError, StoreErrorKind};

/// One failure that every caller of a batch is told about.
///
/// Shared, because a [`sqlx::Error`] cannot be cloned, and a caller who only gets a copy of its text can no longer look
/// into it.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<sqlx::Error>);

impl Shared {
    pub(crate) fn new(error: sqlx::Error) -> Self {
        Self(Arc::new(error))
    }

    /// This failure as the answer to whoever attempted `context`.
    pub(crate) fn told(&self, context: impl Into<Box<str>>) -> StoreError {
        StoreError::new(kind(&self.0), context).with_source(self.clone())
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Shared {
    // What lies below the shared error; the error itself is already shown by `Display`.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// The error of an attempt at `context` that only one caller is told about.
pub(crate) fn failed(context: impl Into<Box<str>>) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| StoreError::new(kind(&error), context).with_source(error)
}

/// What a program can branch on.
pub(crate) fn kind(error: &sqlx::Error) -> StoreErrorKind {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => StoreErrorKind::Unavailable,
        // What is no configuration at all, or one that the store itself refused.
        sqlx::Error::Configuration(error) => error
            .downcast_ref::<StoreError>()
            .map_or(StoreErrorKind::Refused, StoreError::kind),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreErrorKind::Corrupt,
        sqlx::Error::Database(error) => error.code().map_or(StoreErrorKind::Other, |code| code_kind(&code)),
        _ => StoreErrorKind::Other,
    }
}

/// SQLSTATE has five characters. SQLite's codes are shorter numbers whose low byte is the primary one.
fn code_kind(code: &str) -> StoreErrorKind {
    if code.len() == 5 {
        return sqlstate_kind(code);
    }
    match code.parse::<u32>().map(|code| code & 0xff) {
        // Busy, locked, out of memory, an I/O error, or a file that cannot be opened.
        Ok(5 | 6 | 7 | 10 | 14) => StoreErrorKind::Unavailable,
        Ok(8) => StoreErrorKind::ReadOnly,
        Ok(13) => StoreErrorKind::Full,
        Ok(11 | 26) => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Other,
    }
}

fn sqlstate_kind(code: &str) -> StoreErrorKind {
    match code {
        // Disk full, out of memory.
        "53100" | "53200" => StoreErrorKind::Full,
        "25006" => StoreErrorKind::ReadOnly,
        // Data or index corrupted.
        "XX001" | "XX002" => StoreErrorKind::Corrupt,
        // Serialization failure, deadlock, lock not available, query cancelled (a statement timeout), and a prepared
        // statement that no longer fits the table or is gone. They are repeated where that is safe; whoever sees them
        // can try later.
        "40001" | "40P01" | "55P03" | "57014" | "0A000" | "26000" => StoreErrorKind::Unavailable,
        // Connection exceptions, other exhausted resources, an operator's intervention, system errors.
        code if ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use exactly::StoreErrorKind;

    use super::{Shared, code_kind};

    #[test]
    fn a_code_is_told_as_what_a_program_can_branch_on() {
        for (code, kind) in [
            ("57P01", StoreErrorKind::Unavailable),
            ("57P03", StoreErrorKind::Unavailable),
            ("53300", StoreErrorKind::Unavailable),
            ("08006", StoreErrorKind::Unavailable),
            ("40P01", StoreErrorKind::Unavailable),
            ("53100", StoreErrorKind::Full),
            ("53200", StoreErrorKind::Full),
            ("25006", StoreErrorKind::ReadOnly),
            ("XX001", StoreErrorKind::Corrupt),
            ("42P01", StoreErrorKind::Other),
            ("5", StoreErrorKind::Unavailable),
            ("522", StoreErrorKind::Unavailable),
            ("13", StoreErrorKind::Full),
            ("1032", StoreErrorKind::ReadOnly),
            ("267", StoreErrorKind::Corrupt),
            ("2067", StoreErrorKind::Other),
        ] {
            assert_eq!(code_kind(code), kind, "{code}");
        }
    }

    #[test]
    fn every_caller_of_a_batch_learns_what_failed() {
        let shared = Shared::new(sqlx::Error::PoolTimedOut);
        for context in ["begin record", "complete record"] {
            let error = shared.told(context);
            assert_eq!(error.kind(), StoreErrorKind::Unavailable);
            assert!(error.to_string().starts_with(context));
            assert!(error.to_string().contains("pool timed out"));
        }
    }
}
