//! One logical operation, and the claim to carry it out.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::time::Duration;

use crate::{CallId, Fingerprint, Key, Scope};

/// How long a claim lasts without renewal, unless the call says otherwise.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// One logical operation as its caller named it: who and what ([`Scope`]), which one ([`Key`]), and with which content
/// ([`Fingerprint`]).
///
/// A call carries the token that its claim will have, so beginning the *same* `Call` value again after a lost reply
/// finds its own claim instead of a stranger's. Build a new value for every request received.
#[derive(Debug)]
pub struct Call {
    id: CallId,
    scope: Scope,
    key: Key,
    fingerprint: Fingerprint,
    /// Drawn when a store first asks for it, since most duplicates need none.
    token: OnceLock<Token>,
    lease: Duration,
    on_lost: OnLost,
}

impl Call {
    /// A call with the default lease whose lost attempts are held in doubt.
    pub fn new(scope: Scope, key: Key, fingerprint: Fingerprint) -> Self {
        let id = CallId::new(&scope, &key);
        Self {
            id,
            scope,
            key,
            fingerprint,
            token: OnceLock::new(),
            lease: LEASE_DEFAULT,
            on_lost: OnLost::Doubt,
        }
    }

    /// The claim lasts `lease` unless renewed.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// What becomes of an attempt whose lease ended.
    #[must_use]
    pub fn with_on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// The claim will carry `token`, which the caller drew. Whoever sends a call over a network draws it before the first
    /// byte and keeps it on every repetition, so that a claim whose reply was lost is found again. Never use one twice.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = OnceLock::from(token);
        self
    }

    /// The same operation asked for by another request, so that its claim is another one.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            token: OnceLock::new(),
            ..self.clone()
        }
    }

    /// The record's primary key in every store.
    pub fn id(&self) -> &CallId {
        &self.id
    }

    /// Who asked for what.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Which one of its scope's operations this is.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The content of the request.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// The fence that a claim on this call will carry.
    pub fn token(&self) -> Token {
        *self.token.get_or_init(Token::random)
    }

    /// How long a claim lasts without renewal.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// What becomes of an attempt whose lease ended.
    pub fn on_lost(&self) -> OnLost {
        self.on_lost
    }

    /// The claim that `attempt` of this call holds.
    pub fn claim(&self, attempt: Attempt) -> Claim {
        Claim {
            id: self.id,
            token: self.token(),
            attempt,
        }
    }
}

impl Clone for Call {
    /// The same call: the token is drawn before there are two of it.
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            scope: self.scope.clone(),
            key: self.key.clone(),
            fingerprint: self.fingerprint,
            token: OnceLock::from(self.token()),
            lease: self.lease,
            on_lost: self.on_lost,
        }
    }
}

/// What becomes of an attempt that ended without a word: its process died, or its answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLost {
    /// Nobody knows whether the effect happened: hold the key until someone settles it.
    Doubt,
    /// The effect may be repeated: the next caller runs it again.
    Rerun,
}

/// The right to carry out a call, and the fence on every write about it.
///
/// Dropping a claim releases nothing: what is dropped without a word is an unknown, and its lease decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a dropped claim blocks its key until the lease ends, and is then in doubt"]
pub struct Claim {
    /// The call that is claimed.
    pub id: CallId,
    /// The fence.
    pub token: Token,
    /// Which attempt this is, counted from one.
    pub attempt: Attempt,
}

/// Which attempt at a call, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(NonZeroU32);

impl Attempt {
    /// The first attempt.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// The attempt numbered `n`, unless that is zero.
    pub fn new(n: u32) -> Option<Self> {
        NonZeroU32::new(n).map(Self)
    }

    /// Its number, counted from one.
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// The attempt after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fence of one claim: 128 random bits, so that it is never met again, even after the record was freed and its
/// attempts count from one once more.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// A token that no other claim has.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system has randomness once it has booted");
        Self(bytes)
    }

    /// The token stored as `bytes`.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// What to store.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever knows a token can complete the claim, so logs get only enough of it to tell two claims apart.
        write!(f, "Token({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}
