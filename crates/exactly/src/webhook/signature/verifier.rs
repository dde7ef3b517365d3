//! Whether a request is an event of the sender that it names.

use std::time::Duration;

use http::HeaderMap;

use super::{Rejected, SharedSecret, VerifyWith, github, standard, stripe};
use crate::clock::Timestamp;

/// Verifies events of one sender, by all secrets and keys of theirs that are valid. Without any, it verifies nothing.
///
/// Signatures are compared in a time that does not tell how much of one is right. Of each header there may be one line.
///
/// ```
/// use exactly::webhook::{Verifier, VerifyWith};
///
/// let old: VerifyWith = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
/// let new: VerifyWith = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=".parse()?;
/// let verifier = Verifier::standard([old, new]);
/// # Ok::<_, exactly::webhook::InvalidKey>(())
/// ```
#[derive(Clone, Debug)]
pub struct Verifier {
    scheme: Scheme,
    tolerance: Duration,
}

#[derive(Clone, Debug)]
enum Scheme {
    Standard(Box<[VerifyWith]>),
    Stripe(Box<[SharedSecret]>),
    Github(Box<[SharedSecret]>),
}

impl Verifier {
    /// How old a signature may be, and how far ahead, if nothing else is said. The libraries of Standard Webhooks and Stripe
    /// have the same.
    pub const TOLERANCE_DEFAULT: Duration = Duration::from_mins(5);

    /// As Standard Webhooks has it. The id is `webhook-id`, of 1 to 256 visible ASCII characters without a dot: with one, the
    /// same signature would be good for another id with another body.
    pub fn standard(with: impl IntoIterator<Item = VerifyWith>) -> Self {
        Self::new(Scheme::Standard(with.into_iter().collect()))
    }

    /// As Stripe does it, with the secret `whsec_…` of the endpoint. The id is that of the event in the body.
    pub fn stripe(secrets: impl IntoIterator<Item = SharedSecret>) -> Self {
        Self::new(Scheme::Stripe(secrets.into_iter().collect()))
    }

    /// As GitHub does it, with SHA-256. The id is `X-GitHub-Delivery`.
    ///
    /// GitHub signs the body and nothing else, neither a time nor that id. Whoever got hold of one request can send it again
    /// under another id, whenever they like: have a key of your own in what the handler does.
    pub fn github(secrets: impl IntoIterator<Item = SharedSecret>) -> Self {
        Self::new(Scheme::Github(secrets.into_iter().collect()))
    }

    fn new(scheme: Scheme) -> Self {
        Self {
            scheme,
            tolerance: Self::TOLERANCE_DEFAULT,
        }
    }

    /// How old a signature may be, and how far ahead, both inclusive. Timestamps are in whole seconds, so a tolerance below a
    /// few of them refuses what was just signed. GitHub sends none.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// What of the head belongs to an event beside its id, of every sender that signs so.
    pub(in crate::webhook) fn kept_headers(&self) -> &'static [&'static str] {
        match &self.scheme {
            Scheme::Standard(_) | Scheme::Stripe(_) => &[],
            Scheme::Github(_) => &[github::EVENT],
        }
    }

    /// Whether this is what the sender signed. `body` has to be the bytes as they came, before anything read them.
    ///
    /// Nothing may be kept of a request that is rejected, not even its id: the genuine one would be taken for a duplicate.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Verified, Rejected> {
        match &self.scheme {
            Scheme::Standard(with) => standard::verify(with, self.tolerance, headers, body, now),
            Scheme::Stripe(secrets) => stripe::verify(secrets, self.tolerance, headers, body, now),
            Scheme::Github(secrets) => github::verify(secrets, headers, body),
        }
    }
}

/// What is known of a request that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// What the sender knows the event by: 1 to 256 visible ASCII characters. It is theirs, so it may be longer than an
    /// [`EventId`](crate::webhook::EventId), and Stripe's or GitHub's may have a dot.
    pub event_id: Box<str>,
    /// When it was signed, if the signature says.
    pub timestamp: Option<Timestamp>,
}
