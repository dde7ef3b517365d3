//! Reading what is sent beside a body.

use std::time::Duration;

use http::HeaderMap;

use super::Rejected;
use super::mac;
use crate::clock::Timestamp;
use crate::digest::hex_digit;

/// The longest id of an event of others, in bytes.
pub(super) const ID_BYTES_MAX: usize = 256;

/// The one value of this header. Of two, others may read the other one.
pub(super) fn one<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<&'h str, Rejected> {
    let malformed = |expected| Rejected::Malformed { header: name, expected };
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(Rejected::MissingHeader(name))?;
    if values.next().is_some() {
        return Err(malformed("a single line"));
    }
    value.to_str().map_err(|_| malformed("visible ASCII"))
}

/// Whether this can be an event's id.
pub(super) fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Seconds since the Unix epoch, in the one way to write them. What is signed is the text, and others sign the number that they
/// read from it: both are the same.
pub(super) fn seconds(text: &str) -> Option<Timestamp> {
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let seconds: u64 = text.parse().ok().filter(|_| canonical)?;
    seconds.checked_mul(1000).map(Timestamp::from_millis)
}

/// Refuses what was sent too long ago, which may be a copy that somebody kept, and what is ahead of our time, which could be
/// sent again for that much longer.
pub(super) fn fresh(sent: Timestamp, now: Timestamp, tolerance: Duration) -> Result<(), Rejected> {
    let (age, ahead) = (now.since(sent), sent.since(now));
    if age > tolerance {
        return Err(Rejected::TooOld { age, tolerance });
    }
    if ahead > tolerance {
        return Err(Rejected::TooNew { ahead, tolerance });
    }
    Ok(())
}

/// A code in hex.
pub(super) fn hex(text: &str) -> Option<[u8; mac::BYTES]> {
    let mut code = [0; mac::BYTES];
    if text.len() != 2 * code.len() {
        return None;
    }
    for (byte, digits) in code.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = hex_digit(digits[0])? << 4 | hex_digit(digits[1])?;
    }
    Some(code)
}
