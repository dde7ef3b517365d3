//! GitHub: `x-hub-signature-256: sha256=…`, over the body alone.

use http::HeaderMap;

use super::header::{hex, is_id, one};
use super::mac::Code;
use super::{Rejected, SharedSecret, Verified};

/// The one of SHA-1, `x-hub-signature`, is sent beside it for old receivers and is worth nothing here.
const SIGNATURE: &str = "x-hub-signature-256";
const DELIVERY: &str = "x-github-delivery";
/// Which event it is. Bodies do not say.
pub(super) const EVENT: &str = "x-github-event";

pub(super) fn verify(secrets: &[SharedSecret], headers: &HeaderMap, body: &[u8]) -> Result<Verified, Rejected> {
    let malformed = |header, expected| Rejected::Malformed { header, expected };
    let signature = one(headers, SIGNATURE)?;
    let claimed = signature
        .strip_prefix("sha256=")
        .and_then(hex)
        .ok_or_else(|| malformed(SIGNATURE, "`sha256=` and 64 hex digits"))?;
    let id = one(headers, DELIVERY)?;
    if !is_id(id) {
        return Err(malformed(DELIVERY, "1 to 256 visible ASCII characters"));
    }
    if !secrets
        .iter()
        .any(|secret| Code::over(secret.key(), &[body]).is(&claimed))
    {
        return Err(Rejected::WrongSignature);
    }
    Ok(Verified {
        event_id: id.into(),
        timestamp: None,
    })
}
