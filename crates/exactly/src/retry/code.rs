//! The error taxonomy.

use std::fmt;

/// What an error means, by the code that a server gave it.
///
/// Codes are `CATEGORY.detail`; what is not known by its whole name is judged by its category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// `VALIDATION.*`, `IDEMPOTENCY_KEY_REQUIRED`, `IDEMPOTENCY_KEY_INVALID`: the input is wrong.
    Validation,
    /// `AUTH.*`: the caller is not known, or may not do this.
    Auth,
    /// `CONFLICT.idempotency.payload_mismatch`: the key belongs to a request with other content.
    PayloadMismatch,
    /// `CONFLICT.idempotency.in_progress`: an attempt with this key is still running.
    InProgress,
    /// `CONFLICT.*`: the state of things does not allow it.
    Conflict,
    /// `RATE_LIMIT.*`: too many requests.
    RateLimit,
    /// `DEPENDENCY.timeout`: something behind the server did not answer in time.
    DependencyTimeout,
    /// `DEPENDENCY.*`: something behind the server is away.
    DependencyUnavailable,
    /// `TRANSIENT.*`: a failure that will pass.
    Transient,
    /// `PROVIDER.duplicate`: it was done before.
    ProviderDuplicate,
    /// `OUTCOME.replay_unavailable`: it was done, and its answer cannot be shown again.
    ReplayUnavailable,
    /// `OUTCOME.*`: nobody knows whether it was done.
    OutcomeUnknown,
    /// `DEADLINE.*`: there was not enough time.
    DeadlineExceeded,
    /// `BUDGET.*`: too many retries to this destination.
    BudgetExhausted,
}

/// Whether repeating the same call can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It can, with the same key.
    Helps,
    /// The answer would be the same.
    IsUseless,
}

impl Code {
    /// Every meaning there is.
    pub const ALL: [Self; 14] = [
        Self::Validation,
        Self::Auth,
        Self::PayloadMismatch,
        Self::InProgress,
        Self::Conflict,
        Self::RateLimit,
        Self::DependencyTimeout,
        Self::DependencyUnavailable,
        Self::Transient,
        Self::ProviderDuplicate,
        Self::ReplayUnavailable,
        Self::OutcomeUnknown,
        Self::DeadlineExceeded,
        Self::BudgetExhausted,
    ];

    /// The meaning of a code as servers write it. `None`: it is not of this taxonomy, so the status has to tell.
    pub fn of(text: &str) -> Option<Self> {
        match text {
            "CONFLICT.idempotency.payload_mismatch" => return Some(Self::PayloadMismatch),
            "CONFLICT.idempotency.in_progress" => return Some(Self::InProgress),
            "DEPENDENCY.timeout" => return Some(Self::DependencyTimeout),
            "PROVIDER.duplicate" => return Some(Self::ProviderDuplicate),
            "OUTCOME.replay_unavailable" => return Some(Self::ReplayUnavailable),
            "IDEMPOTENCY_KEY_REQUIRED" | "IDEMPOTENCY_KEY_INVALID" => return Some(Self::Validation),
            _ => {}
        }
        let (category, _) = text.split_once('.')?;
        Some(match category {
            "VALIDATION" => Self::Validation,
            "AUTH" => Self::Auth,
            "CONFLICT" => Self::Conflict,
            "RATE_LIMIT" => Self::RateLimit,
            "DEPENDENCY" => Self::DependencyUnavailable,
            "TRANSIENT" => Self::Transient,
            "OUTCOME" => Self::OutcomeUnknown,
            "DEADLINE" => Self::DeadlineExceeded,
            "BUDGET" => Self::BudgetExhausted,
            _ => return None,
        })
    }

    /// The code as servers write it; of a whole category, its most usual one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validation => "VALIDATION.invalid",
            Self::Auth => "AUTH.denied",
            Self::PayloadMismatch => "CONFLICT.idempotency.payload_mismatch",
            Self::InProgress => "CONFLICT.idempotency.in_progress",
            Self::Conflict => "CONFLICT.state",
            Self::RateLimit => "RATE_LIMIT.exceeded",
            Self::DependencyTimeout => "DEPENDENCY.timeout",
            Self::DependencyUnavailable => "DEPENDENCY.unavailable",
            Self::Transient => "TRANSIENT.failure",
            Self::ProviderDuplicate => "PROVIDER.duplicate",
            Self::ReplayUnavailable => "OUTCOME.replay_unavailable",
            Self::OutcomeUnknown => "OUTCOME.unknown",
            Self::DeadlineExceeded => "DEADLINE.exceeded",
            Self::BudgetExhausted => "BUDGET.exhausted",
        }
    }

    /// Whether repeating the call can help, unless the server says otherwise of this answer.
    pub const fn repeat(self) -> Repeat {
        match self {
            Self::InProgress
            | Self::RateLimit
            | Self::DependencyTimeout
            | Self::DependencyUnavailable
            | Self::Transient => Repeat::Helps,
            Self::Validation
            | Self::Auth
            | Self::PayloadMismatch
            | Self::Conflict
            | Self::ProviderDuplicate
            | Self::ReplayUnavailable
            | Self::OutcomeUnknown
            | Self::DeadlineExceeded
            | Self::BudgetExhausted => Repeat::IsUseless,
        }
    }

    /// What the caller can do, in words.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Validation => "fix the input",
            Self::Auth => "sign in again, or ask for permission",
            Self::PayloadMismatch => "use a new key for a new operation",
            Self::InProgress => "wait, then repeat with the same key",
            Self::Conflict => "resolve the conflict",
            Self::RateLimit => "wait, then repeat",
            Self::DependencyTimeout => "repeat with the same key",
            Self::DependencyUnavailable => "repeat later",
            Self::Transient => "repeat",
            Self::ProviderDuplicate => "show the existing result",
            Self::ReplayUnavailable => "it happened; its answer cannot be shown again",
            Self::OutcomeUnknown => "find out before doing it again",
            Self::DeadlineExceeded => "allow more time",
            Self::BudgetExhausted => "the destination is failing; try later",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
