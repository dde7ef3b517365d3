//! Standard Webhooks: signatures over `id.timestamp.body`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;

use super::header::{fresh, is_id, one, seconds};
use super::mac::{self, Code};
use super::{ID_HEADER, Rejected, SIGNATURE_HEADER, SIGNATURES_MAX, Signer, TIMESTAMP_HEADER, Verified, VerifyWith};
use crate::clock::Timestamp;
use crate::webhook::EventId;

const V1: &str = "v1";
const V1A: &str = "v1a";
/// The length of an ed25519 signature, in bytes.
const ED25519_BYTES: usize = 64;

/// The value of `webhook-signature` for a body that is sent with this `webhook-id` and `webhook-timestamp`: one signature per
/// signer, with spaces between them.
///
/// All secrets that are valid sign, so that receivers can change theirs when they like. The timestamp is signed, and has to be
/// sent, in whole seconds.
pub fn sign<'a>(
    signers: impl IntoIterator<Item = &'a Signer>,
    id: &EventId,
    timestamp: Timestamp,
    body: &[u8],
) -> String {
    let lead = lead(id.as_str(), &(timestamp.as_millis() / 1000).to_string());
    let mut signatures = String::new();
    for signer in signers {
        if !signatures.is_empty() {
            signatures.push(' ');
        }
        match signer {
            Signer::V1(secret) => {
                let code = Code::over(secret.key(), &[lead.as_bytes(), body]).into_bytes();
                add(&mut signatures, V1, &code);
            }
            Signer::V1a(key) => {
                let message = [lead.as_bytes(), body].concat();
                add(&mut signatures, V1A, &key.sign(&message));
            }
        }
    }
    signatures
}

fn add(signatures: &mut String, version: &str, signature: &[u8]) {
    signatures.push_str(version);
    signatures.push(',');
    STANDARD.encode_string(signature, signatures);
}

/// What is signed in front of the body.
fn lead(id: &str, timestamp: &str) -> String {
    [id, ".", timestamp, "."].concat()
}

pub(super) fn verify(
    with: &[VerifyWith],
    tolerance: Duration,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<Verified, Rejected> {
    let malformed = |header, expected| Rejected::Malformed { header, expected };
    let id = one(headers, ID_HEADER)?;
    // With a dot in the id, `a.1.2.{}` is signed for the id `a` with the body `2.{}`, and for the id `a.1` with the body `{}`:
    // whoever may choose one of them has a signature for the other. The libraries of others take such ids all the same.
    if !is_id(id) || id.contains('.') {
        let expected = "1 to 256 visible ASCII characters without a dot";
        return Err(malformed(ID_HEADER, expected));
    }
    let signed_at = one(headers, TIMESTAMP_HEADER)?;
    let timestamp = seconds(signed_at)
        .ok_or_else(|| malformed(TIMESTAMP_HEADER, "seconds since the Unix epoch, in digits only"))?;
    let claimed = Claimed::read(one(headers, SIGNATURE_HEADER)?);
    // Before the body is hashed, because it is cheap.
    fresh(timestamp, now, tolerance)?;
    if !claimed.is_right(with, lead(id, signed_at).as_bytes(), body) {
        return Err(Rejected::WrongSignature);
    }
    Ok(Verified {
        event_id: id.into(),
        timestamp: Some(timestamp),
    })
}

/// The signatures of a header that have a version and a length that we know.
#[derive(Default)]
struct Claimed {
    v1: Vec<[u8; mac::BYTES]>,
    v1a: Vec<[u8; ED25519_BYTES]>,
}

impl Claimed {
    /// Whatever else there is may be of a version that comes after us, and is passed over.
    fn read(header: &str) -> Self {
        let mut claimed = Self::default();
        let signatures = header.split(' ').filter(|signature| !signature.is_empty());
        for signature in signatures.take(SIGNATURES_MAX) {
            match signature.split_once(',') {
                Some((V1, encoded)) => claimed.v1.extend(decode(encoded)),
                Some((V1A, encoded)) => claimed.v1a.extend(decode(encoded)),
                _ => {}
            }
        }
        claimed
    }

    /// Whether one of them is by one of these.
    fn is_right(&self, with: &[VerifyWith], lead: &[u8], body: &[u8]) -> bool {
        let mut message = Vec::new();
        with.iter().any(|with| match with {
            VerifyWith::Secret(_) if self.v1.is_empty() => false,
            VerifyWith::Secret(secret) => {
                let code = Code::over(secret.key(), &[lead, body]);
                self.v1.iter().any(|claimed| code.is(claimed))
            }
            VerifyWith::Key(_) if self.v1a.is_empty() => false,
            VerifyWith::Key(key) => {
                if message.is_empty() {
                    message = [lead, body].concat();
                }
                self.v1a.iter().any(|claimed| key.verifies(&message, claimed))
            }
        })
    }
}

fn decode<const BYTES: usize>(encoded: &str) -> Option<[u8; BYTES]> {
    // Others compare texts, so there is one way to write a signature; and a long one is not worth decoding.
    let expected_len = BYTES.div_ceil(3) * 4;
    let decoded = (encoded.len() == expected_len).then(|| STANDARD.decode(encoded).ok())?;
    decoded?.try_into().ok()
}
