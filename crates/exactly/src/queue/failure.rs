//! Why attempts end without an outcome.

use std::fmt;

/// Why an attempt ended without an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it means for another attempt.
    pub kind: FailureKind,
    /// What to tell people.
    pub message: String,
}

impl Failure {
    /// The longest message that is kept, in bytes.
    pub const MESSAGE_BYTES_MAX: usize = 4096;

    /// A failure of this kind. A message that is too long is cut.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(Self::MESSAGE_BYTES_MAX));
        // No database keeps it in a text.
        if message.contains('\0') {
            message = message.replace('\0', "\u{fffd}");
        }
        Self { kind, message }
    }

    /// What is noted of an attempt that was stopped because its worker was [drained](crate::worker::Running::drain) for longer
    /// than it may take.
    pub fn stopped() -> Self {
        Self::new(FailureKind::Stopped, "the worker was shut down while it ran")
    }

    /// What is noted of an attempt whose lease ended, the nth in this life of its task.
    pub fn lost(rescues: u32) -> Self {
        Self::new(
            FailureKind::Lost,
            format!("the lease ended without a word (rescue {rescues})"),
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

/// What a failure means for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// It may work later: a database was away, a service was busy.
    Transient,
    /// It took too long, and was stopped.
    Timeout,
    /// The work itself is wrong, and would fail again.
    Logic,
    /// What the work is about contradicts itself, and somebody has to look at it.
    Inconsistent,
    /// The handler panicked.
    Panicked,
    /// The worker vanished, or was too slow to renew its lease.
    Lost,
    /// No worker here knows what to do with this kind.
    UnknownKind,
    /// The payload cannot be read.
    Unreadable,
    /// Whether the effect happened is not known, so nobody may try again before it is.
    Unknown,
    /// The worker was shut down while it ran. How far it had come is not known.
    Stopped,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Transient,
        Self::Timeout,
        Self::Logic,
        Self::Inconsistent,
        Self::Panicked,
        Self::Lost,
        Self::UnknownKind,
        Self::Unreadable,
        Self::Unknown,
        Self::Stopped,
    ];

    /// Its name, as operators write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Timeout => "timeout",
            Self::Logic => "logic",
            Self::Inconsistent => "inconsistent",
            Self::Panicked => "panicked",
            Self::Lost => "lost",
            Self::UnknownKind => "unknown_kind",
            Self::Unreadable => "unreadable",
            Self::Unknown => "unknown",
            Self::Stopped => "stopped",
        }
    }

    /// Whether an attempt that ended so counts among the task's failures, and uses up a retry. It does not if the task had no
    /// part in it.
    pub const fn is_counted(self) -> bool {
        !matches!(self, Self::Lost | Self::Stopped | Self::UnknownKind)
    }

    /// Its number in a database, where it stays what it is.
    pub const fn code(self) -> i16 {
        match self {
            Self::Transient => 0,
            Self::Timeout => 1,
            Self::Logic => 2,
            Self::Inconsistent => 3,
            Self::Panicked => 4,
            Self::Lost => 5,
            Self::UnknownKind => 6,
            Self::Unreadable => 7,
            Self::Unknown => 8,
            Self::Stopped => 9,
        }
    }

    /// The kind of this number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::FailureKind;

    /// They are in databases.
    #[test]
    fn numbers_and_names_stay_what_they_are() {
        let told: Vec<_> = FailureKind::ALL
            .iter()
            .map(|kind| (kind.code(), kind.as_str()))
            .collect();
        let expected = [
            (0, "transient"),
            (1, "timeout"),
            (2, "logic"),
            (3, "inconsistent"),
            (4, "panicked"),
            (5, "lost"),
            (6, "unknown_kind"),
            (7, "unreadable"),
            (8, "unknown"),
            (9, "stopped"),
        ];
        assert_eq!(told, expected);
        for kind in FailureKind::ALL {
            assert_eq!(FailureKind::from_code(kind.code()), Some(*kind));
        }
        for code in [-1, 10, i16::MAX] {
            assert_eq!(FailureKind::from_code(code), None);
        }
    }
}
