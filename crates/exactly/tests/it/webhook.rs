//! Events that go out and come in.

mod interop;
mod keys;
mod reference;
mod senders;
mod signature;

use exactly::clock::Timestamp;
use exactly::webhook::{EventId, ID_HEADER, SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER, VerifyWith, sign};
use http::{HeaderMap, HeaderValue};

/// A request as it arrives.
#[derive(Clone, Debug)]
struct Request {
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Request {
    fn new(headers: &[(&'static str, &str)], body: impl Into<Vec<u8>>) -> Self {
        let mut request = Self {
            headers: HeaderMap::new(),
            body: body.into(),
        };
        for (name, value) in headers {
            request.set(name, value);
        }
        request
    }

    /// Signed by us.
    fn signed(signers: &[Signer], id: &str, seconds: u64, body: &[u8]) -> Self {
        let signature = sign(signers, &EventId::new(id).unwrap(), at(seconds), body);
        Self::standard(id, &seconds.to_string(), &signature, body)
    }

    fn standard(id: &str, timestamp: &str, signature: &str, body: &[u8]) -> Self {
        let headers = [
            (ID_HEADER, id),
            (TIMESTAMP_HEADER, timestamp),
            (SIGNATURE_HEADER, signature),
        ];
        Self::new(&headers, body)
    }

    fn set(&mut self, name: &'static str, value: &str) {
        self.headers.insert(name, HeaderValue::from_str(value).unwrap());
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.set(name, value);
        self
    }

    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// What verifies what this signs.
fn counterpart(signer: &Signer) -> VerifyWith {
    match signer {
        Signer::V1(secret) => VerifyWith::Secret(secret.clone()),
        Signer::V1a(key) => VerifyWith::Key(key.public()),
    }
}
