//! SHA-256 over a sequence of parts.
//!
//! Feeding parts to a hash one after another makes `("ab", "c")` and `("a", "bc")` equal. Here every part carries its
//! length and every hash opens with a tag of its own, so two different sequences, or the same bytes hashed for two
//! purposes, never meet.

use std::fmt::{self, Write as _};

use sha2::{Digest as _, Sha256};

/// How many bytes of a digest stand for a secret in logs: enough to tell lines apart, too few to be mistaken for the
/// identity that a store uses.
const SHORT_BYTES: usize = 6;

/// A running hash of length-prefixed parts.
pub(crate) struct Digest(Sha256);

/// Bytes shown as lower-case hex.
///
/// ```
/// assert_eq!(exactly::Hex(&[0xc0, 0x0f]).to_string(), "c00f");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl Digest {
    pub(crate) fn new(tag: &str) -> Self {
        let mut digest = Self(Sha256::new());
        digest.part(tag.as_bytes());
        digest
    }

    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    /// Absent and empty are told apart.
    pub(crate) fn optional(&mut self, bytes: Option<&[u8]>) {
        self.count(usize::from(bytes.is_some()));
        if let Some(bytes) = bytes {
            self.part(bytes);
        }
    }

    /// A number on its own, such as how many parts a list has.
    pub(crate) fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_be_bytes());
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Digits that are looked up: what writes a number with zeros in front takes thirty times as long.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |value: u8| char::from(DIGITS[usize::from(value & 0xf)]);
        self.0.iter().try_for_each(|byte| {
            f.write_char(digit(byte >> 4))?;
            f.write_char(digit(*byte))
        })
    }
}

/// The first bytes of the plain SHA-256 of `text`, in hex. It has no tag, so that an operator who holds a key finds its
/// lines with `printf %s "$key" | sha256sum | cut -c1-12`.
pub(crate) fn short(text: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    Hex(&digest[..SHORT_BYTES]).to_string()
}

/// The value of one hex digit, in either case.
pub(crate) fn hex_digit(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}
