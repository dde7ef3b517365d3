//! Who sent an event, and that nobody changed it on the way.
//!
//! Events go out signed as [Standard Webhooks](https://www.standardwebhooks.com) has it, so that receivers can verify them with
//! the libraries that they already use: HMAC-SHA256 with a [`Secret`] that both sides know (`v1`), or ed25519 with a
//! [`SigningKey`] whose public half is enough to verify (`v1a`). What comes in is verified by a [`Verifier`], which also knows
//! the signatures of Stripe and GitHub.
//!
//! To rotate, sign with the old and the new one until every receiver knows the new one: each of them is content with one
//! signature that it can verify. A receiver does the same with what it verifies by.
//!
//! ```
//! use exactly::clock::Timestamp;
//! use exactly::webhook::{EventId, Secret, Signer, Verifier, VerifyWith, sign};
//!
//! let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
//! let id = EventId::new("msg_p5jXN8AQM9LWM0D4loKWxJek")?;
//! let at = Timestamp::from_millis(1_614_265_330_000);
//! let body = br#"{"test": 2432232314}"#;
//! let signature = sign(&[Signer::V1(secret.clone())], &id, at, body);
//! assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
//!
//! let mut headers = http::HeaderMap::new();
//! headers.insert("webhook-id", id.as_str().parse()?);
//! headers.insert("webhook-timestamp", "1614265330".parse()?);
//! headers.insert("webhook-signature", signature.parse()?);
//! let verified = Verifier::standard([VerifyWith::Secret(secret)]).verify(&headers, body, at)?;
//! assert_eq!(&*verified.event_id, id.as_str());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod github;
mod header;
mod mac;
mod pair;
mod rejected;
mod secret;
mod signer;
mod standard;
mod stripe;
mod verifier;

pub use self::pair::{SigningKey, VerifyingKey};
pub use self::rejected::Rejected;
pub use self::secret::{InvalidKey, Secret, SharedSecret};
pub use self::signer::{Signer, VerifyWith};
pub use self::standard::sign;
pub use self::verifier::{Verified, Verifier};

/// Names what happened, the same on every attempt.
pub const ID_HEADER: &str = "webhook-id";
/// When this attempt was made, in seconds since the Unix epoch.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// What [`sign`] makes of both and the body.
pub const SIGNATURE_HEADER: &str = "webhook-signature";

/// How many signatures of one request are looked at. Rotation needs two; a stranger may send as many as a header holds, and
/// each of them costs us a hash of the body where it is one of ed25519.
const SIGNATURES_MAX: usize = 32;
