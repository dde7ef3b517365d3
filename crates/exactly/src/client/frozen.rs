//! A call whose every attempt is the same.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::Url;

use super::account::Attempt;
use super::error::{Error, ErrorKind};
use super::wire::is_safe;
use crate::Key;
use crate::digest::{Digest, Hex};
use crate::retry::Policy;

/// What every attempt of a call carries.
pub(super) struct Frozen {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) payload: Payload,
    pub(super) key: Option<Key>,
    /// The caller chose the key, so it may have been used before.
    pub(super) is_key_given: bool,
    /// It was sent by somebody who did not learn what came of it.
    pub(super) was_sent: bool,
    /// It is not sent on to where answers point.
    pub(super) is_straight: bool,
    pub(super) key_header: HeaderName,
    /// What the caller calls it, over restarts.
    pub(super) operation: Option<String>,
    pub(super) policy: Policy,
    pub(super) on_attempt: OnAttempt,
}

/// Who is told of every attempt, and of the wait before the next one.
#[derive(Clone, Default)]
pub(super) struct OnAttempt(pub(super) Option<Arc<Told>>);

type Told = dyn Fn(&Attempt, Option<Duration>) + Send + Sync;

impl OnAttempt {
    pub(super) fn tell(&self, attempt: &Attempt, wait: Option<Duration>) {
        if let Some(told) = &self.0 {
            told(attempt, wait);
        }
    }
}

/// Without headers and content: an outcome is printed where its request must not be.
impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen")
            .field("method", &self.method)
            .field("place", &self.place())
            .field("key", &self.key)
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OnAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnAttempt").field(&self.0.is_some()).finish()
    }
}

/// What is sent.
#[derive(Debug)]
pub(super) enum Payload {
    Whole(Bytes),
    /// Can be sent once; none, if it was.
    Stream(Option<reqwest::Body>),
}

impl Payload {
    /// What the attempts of one run send.
    pub(super) fn lend(&mut self) -> Self {
        match self {
            Self::Whole(bytes) => Self::Whole(bytes.clone()),
            Self::Stream(stream) => Self::Stream(stream.take()),
        }
    }
}

impl Frozen {
    /// Whether sending it again does no harm, and is possible.
    pub(super) fn is_repeatable(&self) -> bool {
        !self.is_streamed() && (self.key.is_some() || is_safe(&self.method))
    }

    pub(super) fn is_streamed(&self) -> bool {
        matches!(self.payload, Payload::Stream(_))
    }

    /// Gives the call another key, from a journal that knows it.
    pub(super) fn rename(&mut self, key: Key) -> Result<(), Error> {
        self.headers.insert(self.key_header.clone(), spelled(&key)?);
        self.key = Some(key);
        Ok(())
    }

    /// Whom the call goes to.
    pub(super) fn destination(&self) -> &str {
        // There is nobody's name in it, so it begins with its origin.
        let tail = |part: Option<&str>| part.map_or(0, |part| part.len() + 1);
        let behind = self.url.path().len() + tail(self.url.query()) + tail(self.url.fragment());
        let address = self.url.as_str();
        &address[..address.len() - behind]
    }

    /// The address without what tells two calls to it apart.
    pub(super) fn place(&self) -> String {
        self.destination().to_owned() + self.url.path()
    }

    /// What a journal calls it if nobody named it. Two services may be given the same key, and a key is nobody else's
    /// business, so it is not in the name.
    pub(super) fn name(&self, key: &Key) -> String {
        let mut digest = Digest::new("exactly client operation 1");
        digest.part(key.as_str().as_bytes());
        format!("{} {} #{}", self.method, self.place(), Hex(&digest.finish()[..16]))
    }

    /// What two calls with one key must have in common.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut digest = Digest::new("exactly client request 1");
        digest.part(self.method.as_str().as_bytes());
        digest.part(self.place().as_bytes());
        digest.optional(self.url.query().map(str::as_bytes));
        digest.optional(self.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes));
        match &self.payload {
            Payload::Whole(bytes) => digest.optional(Some(bytes)),
            // What it will hold is not known before it is gone.
            Payload::Stream(_) => digest.optional(None),
        }
        digest.finish()
    }
}

/// The address of a call, or what is wrong with it. A password in it would be sent to nobody and shown to everybody.
pub(super) fn address(text: &str) -> Result<Url, Error> {
    let invalid = |why: &str| Error::new(ErrorKind::Invalid, format!("call {}: {why}", shown(text)));
    let url = text
        .parse::<Url>()
        .map_err(|error| Error::caused(ErrorKind::Invalid, format!("call {}", shown(text)), error))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(invalid("only http and https addresses can be called"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("put the name and the password into an Authorization header"));
    }
    Ok(url)
}

/// An address for people to read, without what may be a password.
fn shown(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, behind)| behind)
}

/// The key as a header carries it: bare where every server reads it alike, else as a structured-field string.
pub(super) fn spelled(key: &Key) -> Result<HeaderValue, Error> {
    let text = key.as_str();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b'\\');
    let value = if text.bytes().all(is_plain) {
        HeaderValue::from_str(text)
    } else if text.is_ascii() {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        HeaderValue::try_from(format!("\"{escaped}\""))
    } else {
        let context = "put the key into a header: only visible ASCII and spaces can stand there";
        return Err(Error::new(ErrorKind::Invalid, context));
    };
    let mut value = value.map_err(|error| Error::caused(ErrorKind::Invalid, "put the key into a header", error))?;
    // Whoever holds a key can ask for its answer.
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::Class;

    #[test]
    fn a_destination_is_the_origin_of_its_address() {
        for address in [
            "http://shop.example",
            "https://shop.example:443/orders?a=1#b",
            "http://shop.example:8080/a/b?c",
            "http://[::1]:3000/?",
            "https://münchen.example/#",
        ] {
            let url: Url = address.parse().unwrap();
            let call = Frozen {
                method: Method::POST,
                url: url.clone(),
                headers: HeaderMap::new(),
                payload: Payload::Whole(Bytes::new()),
                key: None,
                is_key_given: false,
                was_sent: false,
                is_straight: false,
                key_header: super::super::KEY_HEADER,
                operation: None,
                policy: Policy::of(Class::UserFacing),
                on_attempt: OnAttempt::default(),
            };
            assert_eq!(call.destination(), url.origin().ascii_serialization());
        }
    }
}
