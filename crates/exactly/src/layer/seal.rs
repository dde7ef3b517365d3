//! Encryption at rest of stored answers.

use std::collections::BTreeMap;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key as CipherKey, XChaCha20Poly1305, XNonce};

use crate::CallId;

const NONCE_LEN: usize = 24;

/// The keys that stored answers are encrypted with: one that seals, and retired ones that still open.
///
/// To rotate, make the new key current and retire the old one; drop it once the longest retention has passed. Answers
/// are bound to their call, so that one cannot be copied over another.
///
/// XChaCha20-Poly1305, because its nonces are long enough to be random without counting them.
pub struct KeyRing {
    current: u32,
    ciphers: BTreeMap<u32, XChaCha20Poly1305>,
}

impl KeyRing {
    /// Seals with `key`, which is stored nowhere: `id` is, to find it again.
    pub fn new(id: u32, key: &[u8; 32]) -> Self {
        Self {
            current: id,
            ciphers: BTreeMap::from([(id, cipher(key))]),
        }
    }

    /// Also opens what was sealed with an earlier key.
    #[must_use]
    pub fn with_retired(mut self, id: u32, key: &[u8; 32]) -> Self {
        self.ciphers.entry(id).or_insert_with(|| cipher(key));
        self
    }

    pub(super) fn seal(&self, id: &CallId, plain: &[u8]) -> Bytes {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).expect("the operating system has randomness once it has booted");
        let payload = Payload {
            msg: plain,
            aad: id.as_bytes(),
        };
        let sealed = self.ciphers[&self.current]
            .encrypt(&XNonce::from(nonce), payload)
            .expect("an answer is far shorter than the 256 GiB that one nonce covers");
        let mut bytes = BytesMut::with_capacity(size_of::<u32>() + NONCE_LEN + sealed.len());
        bytes.put_u32(self.current);
        bytes.put_slice(&nonce);
        bytes.put_slice(&sealed);
        bytes.freeze()
    }

    /// `None`: sealed with a key that is not on the ring, or not what was sealed.
    pub(super) fn open(&self, id: &CallId, sealed: &[u8]) -> Option<Bytes> {
        let (key_id, rest) = sealed.split_first_chunk::<4>()?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>()?;
        let cipher = self.ciphers.get(&u32::from_be_bytes(*key_id))?;
        let payload = Payload {
            msg: text,
            aad: id.as_bytes(),
        };
        cipher.decrypt(&XNonce::from(*nonce), payload).ok().map(Bytes::from)
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.ciphers.keys().collect();
        f.debug_struct("KeyRing")
            .field("current", &self.current)
            .field("ids", &ids)
            .finish_non_exhaustive()
    }
}

fn cipher(key: &[u8; 32]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&CipherKey::from(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> CallId {
        CallId::from_bytes([byte; 32])
    }

    #[test]
    fn a_retired_key_still_opens_and_a_dropped_one_does_not() {
        let sealed = KeyRing::new(1, &[1; 32]).seal(&id(7), b"token");
        assert!(!sealed.windows(5).any(|window| window == b"token"));
        let rotated = KeyRing::new(2, &[2; 32]).with_retired(1, &[1; 32]);
        assert_eq!(rotated.open(&id(7), &sealed).unwrap(), "token");
        assert_eq!(KeyRing::new(2, &[2; 32]).open(&id(7), &sealed), None);
    }

    #[test]
    fn a_sealed_answer_opens_for_its_own_call_only_and_only_unchanged() {
        let ring = KeyRing::new(1, &[1; 32]);
        let sealed = ring.seal(&id(7), b"token");
        assert_eq!(ring.open(&id(8), &sealed), None);
        for byte in 0..sealed.len() {
            let mut forged = sealed.to_vec();
            forged[byte] ^= 1;
            assert_eq!(ring.open(&id(7), &forged), None, "byte {byte}");
        }
        assert_eq!(ring.open(&id(7), b""), None);
    }
}
