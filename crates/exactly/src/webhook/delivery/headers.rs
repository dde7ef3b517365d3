//! Headers that an endpoint's owner adds, and those that nobody else may set.

use std::fmt;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// What is sent as `User-Agent`.
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("exactly/", env!("CARGO_PKG_VERSION")));

/// Of the connection and the message on it; only who writes them to the wire can know them.
const OF_THE_WIRE: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "http2-settings",
];

/// What the sender says of itself and of the body.
const OF_THE_SENDER: &[&str] = &["accept-encoding", "content-encoding", "content-type", "user-agent"];

/// What begins so is the signature, and what it is over.
const OF_THE_SIGNATURE: &str = "webhook-";

/// Headers that an endpoint's owner wants to be sent along, as an `authorization`.
///
/// None of them can change what is delivered, how it is signed or where the message ends.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CustomHeaders(HeaderMap);

impl CustomHeaders {
    /// How many there may be.
    pub const COUNT_MAX: usize = 32;
    /// How long they may be together, names and values, in bytes.
    pub const BYTES_MAX: usize = 8 * 1024;

    /// Reads names and values. The values are kept out of logs.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, InvalidHeader> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let invalid = |why: &str| InvalidHeader(format!("{name:?}: {why}"));
            let known: HeaderName = name
                .parse()
                .map_err(|_| invalid("a name is made of letters, digits and hyphens"))?;
            let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
            let mut value = HeaderValue::from_str(value)
                .ok()
                .filter(|_| is_plain)
                .ok_or_else(|| invalid("a value is one line of visible ASCII"))?;
            value.set_sensitive(true);
            // Checked while it grows, since a map of headers has a limit that it panics at.
            if headers.len() == Self::COUNT_MAX {
                return Err(too_many());
            }
            headers.append(known, value);
        }
        Self::try_from(headers)
    }

    /// Adds them to the headers of a delivery.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        headers.extend(self.0.clone());
    }
}

impl TryFrom<HeaderMap> for CustomHeaders {
    type Error = InvalidHeader;

    fn try_from(headers: HeaderMap) -> Result<Self, InvalidHeader> {
        if let Some(name) = headers.keys().find(|name| is_reserved(name)) {
            return Err(InvalidHeader(format!(
                "{name:?}: it belongs to the delivery itself; leave it out"
            )));
        }
        let bytes: usize = headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len())
            .sum();
        if headers.len() > Self::COUNT_MAX || bytes > Self::BYTES_MAX {
            return Err(too_many());
        }
        Ok(Self(headers))
    }
}

/// With names only: the values are often secrets.
impl fmt::Debug for CustomHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CustomHeaders")
            .field(&self.0.keys().collect::<Vec<_>>())
            .finish()
    }
}

fn is_reserved(name: &HeaderName) -> bool {
    let name = name.as_str();
    OF_THE_WIRE.contains(&name) || OF_THE_SENDER.contains(&name) || name.starts_with(OF_THE_SIGNATURE)
}

fn too_many() -> InvalidHeader {
    let (count, bytes) = (CustomHeaders::COUNT_MAX, CustomHeaders::BYTES_MAX);
    InvalidHeader(format!("there are at most {count}, of {bytes} bytes together"))
}

/// What goes over the wire: as asked, without what is not the caller's to say, and with what the sender says of itself.
pub(super) fn dressed(mut headers: HeaderMap, host: &HeaderValue) -> HeaderMap {
    let of_others = |name: &HeaderName| OF_THE_WIRE.contains(&name.as_str()) || *name == header::CONTENT_ENCODING;
    let of_others: Vec<HeaderName> = headers.keys().filter(|name| of_others(name)).cloned().collect();
    for name in of_others {
        headers.remove(name);
    }
    headers.insert(header::HOST, host.clone());
    headers.insert(header::USER_AGENT, USER_AGENT);
    // Nothing is unpacked here, so that nothing can be packed to burst.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
        .entry(header::CONTENT_TYPE)
        .or_insert(HeaderValue::from_static("application/json"));
    headers
}

/// What was wrong with a custom header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHeader(String);

impl fmt::Display for InvalidHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read custom header: {}", self.0)
    }
}

impl std::error::Error for InvalidHeader {}
