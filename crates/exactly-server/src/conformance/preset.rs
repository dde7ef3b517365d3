//! What each preset answers with.

use clap::ValueEnum;

/// Which statuses the server is expected to answer with, as the layer's policies of the same names do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Preset {
    /// 422 for a missing or malformed key, 409 for one that was used otherwise; duplicates wait.
    #[default]
    Playbook,
    /// The IETF draft: 400 for a missing or malformed key, 422 for one that was used otherwise, 409 at once in flight.
    Ietf,
    /// Stripe's: 400 for a missing or malformed key and for one that was used otherwise, 409 at once in flight.
    Stripe,
}

/// What a route's clients can rely on when something breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Guarantee {
    /// A lost attempt is in doubt, and never run again by itself.
    #[default]
    AtMostOnce,
    /// A lost attempt is run again.
    Rerunnable,
    /// Record and effect commit together; a failure was rolled back.
    Transactional,
}

/// A request that is not carried out, by what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    KeyMissing,
    KeyInvalid,
    Mismatch,
    InProgress,
    Unknown,
    ReplayUnavailable,
    StoreUnavailable,
}

impl Preset {
    pub(super) fn status(self, refusal: Refusal) -> u16 {
        match (refusal, self) {
            (Refusal::KeyMissing | Refusal::KeyInvalid, Self::Playbook) | (Refusal::Mismatch, Self::Ietf) => 422,
            (Refusal::KeyMissing | Refusal::KeyInvalid, _) | (Refusal::Mismatch, Self::Stripe) => 400,
            (Refusal::StoreUnavailable, _) => 503,
            (Refusal::Mismatch | Refusal::InProgress | Refusal::Unknown | Refusal::ReplayUnavailable, _) => 409,
        }
    }

    /// Whether a duplicate waits for the first answer, or is told at once that it is in progress.
    pub(super) fn waits(self) -> bool {
        self == Self::Playbook
    }

    /// Whether refusals must name their code. Where two of them share a status, nothing else tells them apart; the other
    /// presets are also those of servers that know no codes.
    pub(super) fn names_codes(self) -> bool {
        self == Self::Playbook
    }
}

impl Refusal {
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::KeyMissing => "IDEMPOTENCY_KEY_REQUIRED",
            Self::KeyInvalid => "IDEMPOTENCY_KEY_INVALID",
            Self::Mismatch => "CONFLICT.idempotency.payload_mismatch",
            Self::InProgress => "CONFLICT.idempotency.in_progress",
            Self::Unknown => "OUTCOME.unknown",
            Self::ReplayUnavailable => "OUTCOME.replay_unavailable",
            Self::StoreUnavailable => "DEPENDENCY.unavailable",
        }
    }

    /// Whether the same request may be answered otherwise later.
    pub(super) fn is_retryable(self) -> bool {
        matches!(self, Self::InProgress | Self::StoreUnavailable)
    }
}
