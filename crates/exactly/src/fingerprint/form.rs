//! `application/x-www-form-urlencoded` bodies.

use std::borrow::Cow;

use super::LeaveOut;
use crate::digest::hex_digit;

/// One piece between two ampersands, decoded.
pub(super) struct Segment<'a> {
    pub(super) name: Cow<'a, [u8]>,
    /// None without an equals sign: some readers see no value there, others an empty one.
    pub(super) value: Option<Cow<'a, [u8]>>,
}

/// The segments in their order, empty ones included. None when readers could disagree about the body.
///
/// Bytes and not text: `%FF` and `%FE` both read as a replacement character, and must not become equal.
pub(super) fn segments<'a>(body: &'a [u8], leave_out: &LeaveOut) -> Option<Vec<Segment<'a>>> {
    let mut segments = Vec::new();
    for piece in body.split(|&byte| byte == b'&') {
        let (name, value) = match piece.iter().position(|&byte| byte == b'=') {
            Some(at) => (&piece[..at], Some(&piece[at + 1..])),
            None => (piece, None),
        };
        let name = decode(name)?;
        let value = match value {
            Some(value) => Some(decode(value)?),
            None => None,
        };
        if !leave_out.has_field(&name) {
            segments.push(Segment { name, value });
        }
    }
    Some(segments)
}

fn decode(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.iter().all(|&byte| is_plain(byte)) {
        return None;
    }
    if !text.iter().any(|byte| b"%+".contains(byte)) {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => (hex_digit(*high)? << 4 | hex_digit(*low)?, after),
            (b'%', _) => return None,
            (b'+', after) => (b' ', after),
            (byte, after) => (byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    Some(Cow::Owned(decoded))
}

/// What may stand unencoded. Decoding makes `%3B` and `;` equal, and likewise for every other byte; that is safe only
/// for bytes that all readers take as they are. A semicolon separates fields for some of them, white space at the end
/// is trimmed by some, and a byte beyond ASCII is Latin-1 to some and UTF-8 to others.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b';'
}
