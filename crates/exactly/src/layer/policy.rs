//! What a route promises, and what it answers when it cannot.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, StatusCode, header};

use super::reconcile::{Doubt, Found, OnReconciled, Reconcile, Telling};
use super::seal::KeyRing;
use super::{ConfigError, Settlement, answer};
use crate::fingerprint::LeaveOut;
use crate::key::{KeyFormat, KeySyntax};
use crate::{Keep, LEASE_DEFAULT, OnLost};

/// The request header that carries the key.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What a route's clients can rely on when something breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Record and effect commit in one SQL transaction: rolled back or complete, never unknown.
    Transactional,
    /// The claim is durable before the effect starts. A lost attempt is in doubt, and never silently run again.
    AtMostOnce,
    /// The same claim, but a lost attempt is run again: for effects that may happen twice.
    Rerunnable,
    /// The same claim, and the upstream completes it in the transaction that makes the effect, with the headers of
    /// [`CallInfo::join_headers`](super::CallInfo::join_headers) and a function of its database: rolled back or complete,
    /// never unknown.
    ///
    /// That holds only if *every* effect of the route commits together with that completion. An upstream that commits
    /// without it is taken for one that did nothing, and is run again.
    Joined,
}

/// Whether a route wants a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// A request without a key is refused.
    Required,
    /// A request without a key passes unprotected.
    Optional,
    /// Keys are not looked at.
    Off,
}

/// The statuses in which the presets differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses {
    /// The key is missing where it is required.
    pub key_missing: StatusCode,
    /// The key is malformed.
    pub key_invalid: StatusCode,
    /// The key was used for another request.
    pub mismatch: StatusCode,
}

/// What a route promises.
///
/// Start from a preset and change what differs:
///
/// ```
/// use std::time::Duration;
/// use exactly::Keep;
/// use exactly::layer::{Guarantee, KeyRule, Policy};
///
/// let refunds = Policy::playbook().key(KeyRule::Required).guarantee(Guarantee::Transactional);
/// let one_time_codes = Policy::playbook().keep(Keep::For(Duration::from_secs(600)));
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) key: KeyRule,
    pub(super) key_headers: Vec<HeaderName>,
    pub(super) key_field: Option<Arc<str>>,
    pub(super) key_format: KeyFormat,
    pub(super) key_syntax: KeySyntax,
    pub(super) guarantee: Guarantee,
    pub(super) keep: Keep,
    pub(super) lease: Duration,
    pub(super) wait: Duration,
    pub(super) body_max: usize,
    pub(super) answer_max: usize,
    pub(super) leave_out: LeaveOut,
    pub(super) compare_host: bool,
    pub(super) compared_headers: Vec<HeaderName>,
    pub(super) withheld_headers: Vec<HeaderName>,
    pub(super) replayed_headers: Vec<HeaderName>,
    pub(super) store_answer: bool,
    pub(super) sealed_by: Option<Arc<KeyRing>>,
    pub(super) reconcile: Option<Reconcile>,
    pub(super) on_reconciled: Option<OnReconciled>,
    pub(super) statuses: Statuses,
}

impl Default for Policy {
    fn default() -> Self {
        Self::playbook()
    }
}

impl Policy {
    /// The defaults: requests that carry a key are protected; 422 for a malformed key or one that is missing where
    /// required, 409 for one that was used otherwise; duplicates wait up to ten seconds; answers are kept for 24 hours.
    pub fn playbook() -> Self {
        Self {
            key: KeyRule::Optional,
            key_headers: vec![IDEMPOTENCY_KEY],
            key_field: None,
            key_format: KeyFormat::Opaque,
            key_syntax: KeySyntax::Lenient,
            guarantee: Guarantee::AtMostOnce,
            keep: Keep::DAY,
            lease: LEASE_DEFAULT,
            wait: Duration::from_secs(10),
            body_max: 1024 * 1024,
            answer_max: 1024 * 1024,
            leave_out: LeaveOut::nothing(),
            compare_host: true,
            compared_headers: vec![header::IF_MATCH, header::IF_NONE_MATCH, header::IF_UNMODIFIED_SINCE],
            withheld_headers: Vec::new(),
            replayed_headers: Vec::new(),
            store_answer: true,
            sealed_by: None,
            reconcile: None,
            on_reconciled: None,
            statuses: Statuses {
                key_missing: StatusCode::UNPROCESSABLE_ENTITY,
                key_invalid: StatusCode::UNPROCESSABLE_ENTITY,
                mismatch: StatusCode::CONFLICT,
            },
        }
    }

    /// As the IETF draft on the `Idempotency-Key` header has it: 400 for a missing or malformed key, 422 for one that
    /// was used otherwise, 409 at once for one in flight.
    pub fn ietf() -> Self {
        let statuses = Statuses {
            key_missing: StatusCode::BAD_REQUEST,
            key_invalid: StatusCode::BAD_REQUEST,
            mismatch: StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self {
            statuses,
            wait: Duration::ZERO,
            ..Self::playbook()
        }
    }

    /// As Stripe's API does it: 400 for a malformed key and for one that was used otherwise, 409 at once for one in
    /// flight.
    pub fn stripe() -> Self {
        let statuses = Statuses {
            key_missing: StatusCode::BAD_REQUEST,
            key_invalid: StatusCode::BAD_REQUEST,
            mismatch: StatusCode::BAD_REQUEST,
        };
        Self {
            statuses,
            wait: Duration::ZERO,
            ..Self::playbook()
        }
    }

    /// Whether the route wants a key.
    #[must_use]
    pub fn key(mut self, rule: KeyRule) -> Self {
        self.key = rule;
        self
    }

    /// Another header that may carry the key, beside `Idempotency-Key`.
    #[must_use]
    pub fn key_header(mut self, name: HeaderName) -> Self {
        self.key_headers.push(name);
        self
    }

    /// A top-level string member of a JSON body that may carry the key, such as `clientMutationId`.
    #[must_use]
    pub fn key_field(mut self, name: impl Into<Arc<str>>) -> Self {
        self.key_field = Some(name.into());
        self
    }

    /// What a key looks like.
    #[must_use]
    pub fn key_format(mut self, format: KeyFormat) -> Self {
        self.key_format = format;
        self
    }

    /// Whether a bare key is accepted beside the quoted structured-field string.
    #[must_use]
    pub fn key_syntax(mut self, syntax: KeySyntax) -> Self {
        self.key_syntax = syntax;
        self
    }

    /// What clients can rely on when something breaks.
    #[must_use]
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = guarantee;
        self
    }

    /// How long an answer is kept, counted from when it was stored.
    #[must_use]
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// How long a claim outlives a process that died. It is renewed while the handler runs.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long a duplicate waits for the first answer before it is told that it is in progress.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The longest body of a request with a key, and of every protected one where the key may be in the body; a longer one
    /// is refused with 413.
    #[must_use]
    pub fn body_max(mut self, bytes: usize) -> Self {
        self.body_max = bytes;
        self
    }

    /// The longest answer body that is kept. A longer one reaches the first caller, the key stays consumed, and
    /// duplicates are told that it cannot be replayed.
    #[must_use]
    pub fn answer_max(mut self, bytes: usize) -> Self {
        self.answer_max = bytes;
        self
    }

    /// Fields that may differ between a request and its retry.
    #[must_use]
    pub fn leave_out(mut self, fields: LeaveOut) -> Self {
        self.leave_out = fields;
        self
    }

    /// Whether the host that a request names is part of what it asks for. It is, unless the service has several names:
    /// then a retry may go to another of them.
    #[must_use]
    pub fn compare_host(mut self, compare: bool) -> Self {
        self.compare_host = compare;
        self
    }

    /// A request header that is part of what the request asks for, beside the preconditions (`If-Match` and the like).
    #[must_use]
    pub fn compared_header(mut self, name: HeaderName) -> Self {
        self.compared_headers.push(name);
        self
    }

    /// An answer header that is not replayed, beside cookies, credentials, dates and CORS headers.
    #[must_use]
    pub fn withheld_header(mut self, name: HeaderName) -> Self {
        self.withheld_headers.push(name);
        self
    }

    /// An answer header that is replayed although it is one of those, such as a cookie that every repetition is to set.
    #[must_use]
    pub fn replayed_header(mut self, name: HeaderName) -> Self {
        self.replayed_headers.push(name);
        self
    }

    /// Never keeps an answer: the key is consumed, and duplicates are told that it cannot be replayed. For answers that
    /// are secrets.
    #[must_use]
    pub fn never_store_answers(mut self) -> Self {
        self.store_answer = false;
        self
    }

    /// Encrypts what is kept.
    #[must_use]
    pub fn sealed_by(mut self, keys: Arc<KeyRing>) -> Self {
        self.sealed_by = Some(keys);
        self
    }

    /// Whom to ask what came of an attempt that is in doubt: on the next request with its key, and whenever
    /// [`IdempotencyLayer::reconcile_all`](super::IdempotencyLayer::reconcile_all) is called. It must end by itself, and
    /// say nothing that it does not know.
    #[must_use]
    pub fn reconcile(mut self, ask: impl Fn(Doubt) -> Found + Send + Sync + 'static) -> Self {
        self.reconcile = Some(Reconcile::new(ask));
        self
    }

    /// Who hears that what [`reconcile`](Self::reconcile) found has ended a doubt: not before it is stored, and not if
    /// somebody else was faster.
    #[must_use]
    pub fn on_reconciled(mut self, tell: impl Fn(&Doubt, &Settlement) -> Telling + Send + Sync + 'static) -> Self {
        self.on_reconciled = Some(OnReconciled::new(tell));
        self
    }

    /// The statuses of refusals.
    #[must_use]
    pub fn statuses(mut self, statuses: Statuses) -> Self {
        self.statuses = statuses;
        self
    }

    pub(super) fn on_lost(&self) -> OnLost {
        match self.guarantee {
            // Of a joined call that was lost the next attempt's token fences out what is left.
            Guarantee::Rerunnable | Guarantee::Joined => OnLost::Rerun,
            Guarantee::AtMostOnce | Guarantee::Transactional => OnLost::Doubt,
        }
    }

    /// Everything that is wrong with the policy of `route`.
    pub(super) fn faults(&self, route: &str, has_transactions: bool) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut require = |held: bool, key: &str, value: String, accepted: &str| {
            if !held {
                faults.push(ConfigError::new(route, key, &value, accepted));
            }
        };
        let lease_ok = (Duration::from_secs(1)..=Duration::from_hours(24)).contains(&self.lease);
        require(lease_ok, "lease", format!("{:?}", self.lease), "1 s to 24 h");
        require(
            self.wait <= Duration::from_hours(1),
            "wait",
            format!("{:?}", self.wait),
            "at most 1 h",
        );
        let keep_ok = !matches!(self.keep, Keep::For(keep) if keep < Duration::from_secs(1));
        require(keep_ok, "keep", format!("{:?}", self.keep), "at least 1 s, or forever");
        let transactional = self.guarantee == Guarantee::Transactional;
        require(
            !transactional || has_transactions,
            "guarantee",
            "transactional".to_owned(),
            "a layer built with IdempotencyLayer::transactional, on a store with transactions",
        );
        require(
            self.guarantee != Guarantee::Joined || (self.sealed_by.is_none() && self.store_answer),
            "guarantee",
            "joined".to_owned(),
            "answers that are neither sealed nor withheld: the upstream stores them, in plain",
        );
        let statuses = [
            self.statuses.key_missing,
            self.statuses.key_invalid,
            self.statuses.mismatch,
        ];
        for name in &self.replayed_headers {
            let accepted = "a header that does not belong to one connection";
            require(
                !answer::is_of_connection(name),
                "replayed_header",
                name.to_string(),
                accepted,
            );
        }
        for status in statuses {
            require(status.is_client_error(), "statuses", status.to_string(), "a 4xx status");
        }
        faults
    }
}
