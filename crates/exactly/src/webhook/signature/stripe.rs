//! Stripe: `stripe-signature: t=…,v1=…`, over `timestamp.body`.

use std::borrow::Cow;
use std::time::Duration;

use http::HeaderMap;
use serde::Deserialize;

use super::header::{fresh, hex, is_id, one, seconds};
use super::mac::{self, Code};
use super::{Rejected, SIGNATURES_MAX, SharedSecret, Verified};
use crate::clock::Timestamp;

const SIGNATURE: &str = "stripe-signature";

pub(super) fn verify(
    secrets: &[SharedSecret],
    tolerance: Duration,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<Verified, Rejected> {
    let claimed = Claimed::read(one(headers, SIGNATURE)?).ok_or(Rejected::Malformed {
        header: SIGNATURE,
        expected: "`t=<seconds since the Unix epoch>,v1=<hex>`, with one `t`",
    })?;
    fresh(claimed.timestamp, now, tolerance)?;
    let lead = format!("{}.", claimed.signed_at);
    let by = |secret: &SharedSecret| {
        let code = Code::over(secret.key(), &[lead.as_bytes(), body]);
        claimed.codes.iter().any(|claimed| code.is(claimed))
    };
    if claimed.codes.is_empty() || !secrets.iter().any(by) {
        return Err(Rejected::WrongSignature);
    }
    Ok(Verified {
        event_id: event_id(body).ok_or(Rejected::NoEventId)?,
        timestamp: Some(claimed.timestamp),
    })
}

struct Claimed<'h> {
    signed_at: &'h str,
    timestamp: Timestamp,
    codes: Vec<[u8; mac::BYTES]>,
}

impl<'h> Claimed<'h> {
    /// `v0` is what Stripe signs test events with beside `v1`. It and what is not known yet are passed over: taking another
    /// version for a good one would let a sender choose the weakest.
    fn read(header: &'h str) -> Option<Self> {
        let mut signed_at = None;
        let mut codes = Vec::new();
        for item in header.split(',') {
            match item.split_once('=') {
                Some(("t", _)) if signed_at.is_some() => return None,
                Some(("t", seconds)) => signed_at = Some(seconds),
                Some(("v1", code)) if codes.len() < SIGNATURES_MAX => codes.extend(hex(code)),
                _ => {}
            }
        }
        let signed_at = signed_at?;
        let timestamp = seconds(signed_at)?;
        Some(Self {
            signed_at,
            timestamp,
            codes,
        })
    }
}

/// Read only from a body that is known to be Stripe's.
fn event_id(body: &[u8]) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct Named<'b> {
        #[serde(borrow)]
        id: Cow<'b, str>,
    }

    let named: Named<'_> = serde_json::from_slice(body).ok()?;
    is_id(&named.id).then(|| named.id.into())
}
