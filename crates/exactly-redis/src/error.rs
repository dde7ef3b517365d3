//! What an error of Redis means for a step: what the caller is told, and what is done about it first.

use exactly::{StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// What Redis says before it closes a connection that is one too many.
const TOO_MANY_CLIENTS: &str = "max number of clients";

/// A step that failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: StoreError,
    pub(crate) remedy: Remedy,
}

/// What may help. Every step can be repeated, so a lost answer is asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing that we could do.
    None,
    /// The same step on the same connection.
    Repeat,
    /// The same step on another connection.
    Reconnect,
}

impl Fault {
    pub(crate) fn of(what: &str, error: RedisError) -> Self {
        let (kind, remedy) = classify(&error);
        Self {
            error: StoreError::new(kind, what).with_source(error),
            remedy,
        }
    }

    /// Whether the server understood and said no, so that asking again will not help. An ACL says NOPERM, a renamed
    /// command is unknown, and a managed service has words of its own.
    pub(crate) fn is_denial(error: &RedisError) -> bool {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoPerm) => true,
            ErrorKind::Server(ServerErrorKind::ResponseError) => classify(error).0 == StoreErrorKind::Other,
            ErrorKind::Extension => !matches!(error.code(), Some("NOAUTH" | "WRONGPASS")),
            _ => false,
        }
    }

    pub(crate) fn refused(message: impl Into<Box<str>>) -> Self {
        Self {
            error: StoreError::new(StoreErrorKind::Refused, message),
            remedy: Remedy::None,
        }
    }

    pub(crate) fn corrupt(what: &str, why: &str) -> Self {
        Self {
            error: StoreError::new(StoreErrorKind::Corrupt, format!("{what}: {why}")),
            remedy: Remedy::None,
        }
    }
}

/// Whether the server, or the one that takes its place, may yet carry out what failed.
pub(crate) fn may_pass(kind: StoreErrorKind) -> bool {
    match kind {
        StoreErrorKind::Unavailable | StoreErrorKind::ReadOnly | StoreErrorKind::Refused | StoreErrorKind::Full => true,
        // Somebody else's key, or a right that this user does not have.
        _ => false,
    }
}

fn classify(error: &RedisError) -> (StoreErrorKind, Remedy) {
    match error.kind() {
        ErrorKind::Io => (StoreErrorKind::Unavailable, Remedy::Reconnect),
        ErrorKind::InvalidClientConfig => (StoreErrorKind::Refused, Remedy::None),
        // A reply of another shape than our scripts give: they ran over somebody else's key.
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => (StoreErrorKind::Corrupt, Remedy::None),
        ErrorKind::Server(ServerErrorKind::ResponseError) => by_detail(error.detail().unwrap_or_default()),
        ErrorKind::Server(_) | ErrorKind::Extension => {
            by_code(error.code().unwrap_or_default(), error.detail().unwrap_or_default())
        }
        _ => (StoreErrorKind::Other, Remedy::None),
    }
}

fn by_code(code: &str, detail: &str) -> (StoreErrorKind, Remedy) {
    match code {
        "OOM" => (StoreErrorKind::Full, Remedy::None),
        // Redis stops writing when it cannot persist; only sometimes does it say that the disk is full.
        "MISCONF" if detail.contains("No space left") => (StoreErrorKind::Full, Remedy::None),
        "MISCONF" | "NOREPLICAS" | "BUSY" | "CLUSTERDOWN" | "MASTERDOWN" => (StoreErrorKind::Unavailable, Remedy::None),
        "LOADING" | "TRYAGAIN" | "NOSCRIPT" => (StoreErrorKind::Unavailable, Remedy::Repeat),
        // A primary that was demoted under us: its address may lead to the new one.
        "READONLY" => (StoreErrorKind::ReadOnly, Remedy::Reconnect),
        "WRONGTYPE" | "CORRUPT" => (StoreErrorKind::Corrupt, Remedy::None),
        _ => (StoreErrorKind::Other, Remedy::None),
    }
}

/// Errors without a code of their own. Redis 6 also wraps the error of a command inside a script, with a dash or without:
/// `ERR Error running script (…): @user_script: 7: -OOM command …`.
fn by_detail(detail: &str) -> (StoreErrorKind, Remedy) {
    if detail.contains(TOO_MANY_CLIENTS) {
        return (StoreErrorKind::Unavailable, Remedy::Reconnect);
    }
    ["OOM", "MISCONF", "NOREPLICAS", "READONLY", "WRONGTYPE"]
        .into_iter()
        .find(|code| detail.contains(&format!(": -{code} ")) || detail.contains(&format!(": {code} ")))
        .map_or((StoreErrorKind::Other, Remedy::None), |code| by_code(code, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(reply: &str) -> StoreErrorKind {
        let value = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
        let error = value.extract_error().unwrap_err();
        Fault::of("begin record", error).error.kind()
    }

    #[test]
    fn a_full_server_is_full_however_its_version_says_so() {
        assert_eq!(
            kind_of("OOM command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:7."),
            StoreErrorKind::Full
        );
        assert_eq!(
            kind_of(
                "ERR Error running script (call to f_ab): @user_script:7: @user_script: 7: -OOM command not allowed \
                 when used memory > 'maxmemory'."
            ),
            StoreErrorKind::Full
        );
        assert_eq!(
            kind_of("MISCONF Errors writing to the AOF file: No space left on device"),
            StoreErrorKind::Full
        );
    }

    #[test]
    fn errors_that_pass_are_unavailable_and_others_are_not() {
        for reply in [
            "LOADING Redis is loading the dataset in memory",
            "NOREPLICAS Not enough good replicas to write.",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "BUSY Redis is busy running a script.",
        ] {
            assert_eq!(kind_of(reply), StoreErrorKind::Unavailable, "{reply}");
        }
        assert_eq!(
            kind_of("READONLY You can't write against a read only replica."),
            StoreErrorKind::ReadOnly
        );
        assert_eq!(
            kind_of("WRONGTYPE Operation against a key holding the wrong kind"),
            StoreErrorKind::Corrupt
        );
        assert_eq!(
            kind_of("ERR Error running script (call to f_7b): @user_script:39: WRONGTYPE Operation against a key"),
            StoreErrorKind::Corrupt
        );
        assert_eq!(kind_of("NOPERM this user has no permissions"), StoreErrorKind::Other);
    }
}
