//! What goes over the wire between a worker and its calls.

use exactly::{Attempt, CallId, Claim, OnLost, Token};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::admin::input::{
    AttemptNumber, Base64, FingerprintText, KeepMs, KeyText, LeaseMs, OperationName, PrincipalText, TokenText,
};

/// A call to begin. Exactly one of `fingerprint` and `content` says what is asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "principal": "customer-7",
    "operation": "mail.welcome",
    "key": "signup-1066",
    "content": {"to": "ada@example.org"},
    "token": "5f2b8a0c9d3e4f61a7b8c9d0e1f2a3b4"
}))]
pub(crate) struct Begin {
    /// Whose key it is. Without one the key is everyone's.
    #[serde(default)]
    #[schema(inline)]
    pub(crate) principal: Option<PrincipalText>,
    /// What is asked for.
    #[schema(inline)]
    pub(crate) operation: OperationName,
    /// Which one of its kind: made once, and kept on every repetition.
    #[schema(inline)]
    pub(crate) key: KeyText,
    /// A SHA-256 of the content that you made yourself.
    #[serde(default)]
    #[schema(inline)]
    pub(crate) fingerprint: Option<FingerprintText>,
    /// The content itself: any JSON without a name that stands twice in an object. Neither the order of members nor white
    /// space counts; a number counts as it is written. It is not stored.
    #[serde(default, deserialize_with = "raw")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(crate) content: Option<Box<RawValue>>,
    /// How long the claim lasts without renewal, in milliseconds.
    #[serde(default = "lease_default")]
    #[schema(inline, default = 30_000)]
    pub(crate) lease_ms: LeaseMs,
    /// What becomes of an attempt whose lease ended.
    #[serde(default)]
    #[schema(inline, default = "doubt")]
    pub(crate) on_lost: Lost,
    /// 128 random bits, drawn by the caller before the first try and kept on every repetition: then a claim whose reply
    /// was lost is found again. Without one, a lost reply blocks the key until the lease ends.
    #[serde(default)]
    #[schema(inline)]
    pub(crate) token: Option<TokenText>,
}

/// What becomes of an attempt whose lease ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lost {
    /// Nobody knows whether it happened: the key is held until someone settles it.
    #[default]
    Doubt,
    /// It may be repeated: the next caller runs it again.
    Rerun,
}

/// What a begin found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub(crate) enum Found {
    /// Yours: make the effect happen, then complete, abandon or lose the claim.
    Run {
        id: String,
        /// The fence: send it with every later step, and show it to nobody.
        token: String,
        /// Counted from one: above that, an earlier attempt was lost.
        #[schema(minimum = 1)]
        attempt: u32,
        lease_ms: u64,
    },
    /// It happened; this is its outcome.
    Replay {
        id: String,
        outcome_base64: String,
        /// When the key is forgotten; null if never.
        #[schema(required)]
        expires_in_ms: Option<u64>,
    },
    /// Another attempt holds the lease.
    InFlight {
        id: String,
        /// When its lease ends if nobody renews it.
        retry_after_ms: u64,
    },
    /// The key was first used for other content.
    Mismatch {
        id: String,
        /// How long the key stays taken; null while that is not decided, or if it is never forgotten.
        #[schema(required)]
        expires_in_ms: Option<u64>,
    },
    /// An attempt was lost mid-effect, and somebody has to say what came of it.
    InDoubt {
        id: String,
        #[schema(minimum = 1)]
        attempt: u32,
        /// Names its claim, for `resolve`.
        claim: String,
    },
}

/// The claim that a begin gave.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"token": "5f2b8a0c9d3e4f61a7b8c9d0e1f2a3b4", "attempt": 1}))]
pub(crate) struct Held {
    #[schema(inline)]
    pub(crate) token: TokenText,
    #[schema(inline)]
    pub(crate) attempt: AttemptNumber,
}

/// A longer lease for a claim.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"token": "5f2b8a0c9d3e4f61a7b8c9d0e1f2a3b4", "attempt": 1, "lease_ms": 30000}))]
pub(crate) struct Renew {
    #[schema(inline)]
    pub(crate) token: TokenText,
    #[schema(inline)]
    pub(crate) attempt: AttemptNumber,
    /// How long it lasts from now, in milliseconds.
    #[serde(default = "lease_default")]
    #[schema(inline, default = 30_000)]
    pub(crate) lease_ms: LeaseMs,
}

/// The outcome of an effect that happened.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"token": "5f2b8a0c9d3e4f61a7b8c9d0e1f2a3b4", "attempt": 1, "outcome_base64": "MjUwIHF1ZXVlZA=="}))]
pub(crate) struct Complete {
    #[schema(inline)]
    pub(crate) token: TokenText,
    #[schema(inline)]
    pub(crate) attempt: AttemptNumber,
    /// What every repetition gets: at most 1 MiB.
    #[schema(inline)]
    pub(crate) outcome_base64: Base64,
    /// How long it is kept, in milliseconds; a day unless told otherwise, forever if null.
    #[serde(default = "keep_default")]
    #[schema(inline, default = 86_400_000)]
    pub(crate) keep_ms: Option<KeepMs>,
}

/// The step was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Applied {
    pub(crate) id: String,
    pub(crate) result: AppliedWord,
}

/// That a step got past the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AppliedWord {
    Applied,
}

/// The claim of `id` that the caller holds.
pub(super) fn claim(id: CallId, token: TokenText, attempt: AttemptNumber) -> Claim {
    Claim {
        id,
        token: Token::from_bytes(token.0),
        attempt: Attempt::new(attempt.get()).unwrap_or(Attempt::FIRST),
    }
}

impl From<Lost> for OnLost {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Doubt => Self::Doubt,
            Lost::Rerun => Self::Rerun,
        }
    }
}

fn lease_default() -> LeaseMs {
    LeaseMs::try_from(30_000).expect("the default is within bounds")
}

#[expect(clippy::unnecessary_wraps, reason = "none is a keep without end")]
fn keep_default() -> Option<KeepMs> {
    Some(KeepMs::try_from(86_400_000).expect("the default is within bounds"))
}

/// Content that is null is content.
fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}
