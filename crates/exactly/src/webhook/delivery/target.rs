//! Where a delivery goes.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use http::{HeaderValue, Uri};
use reqwest::Url;

/// The URL of an endpoint: `http` or `https`, with a host.
///
/// Hosts are read as browsers read them, so `http://2130706433/` and `http://0x7f.1/` are seen to be `127.0.0.1`. Not shown
/// whole by `Debug`: many an endpoint's path is its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    /// The same in parts, read once and not for each delivery.
    parts: Parts,
}

#[derive(Clone, PartialEq, Eq)]
struct Parts {
    uri: Uri,
    /// Without what the connection is to.
    path: Uri,
    host: HeaderValue,
    origin: Arc<str>,
    address: Option<IpAddr>,
}

impl Target {
    /// The longest, in bytes.
    pub const BYTES_MAX: usize = 2048;

    /// As text, in the form that is sent.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Scheme, host and port: what can be shown to anybody.
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Whether it is sent to over TLS.
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The address, if the URL names it and no name has to be looked up.
    pub fn address(&self) -> Option<IpAddr> {
        self.parts.address
    }

    /// What is dialled.
    pub(super) fn uri(&self) -> &Uri {
        &self.parts.uri
    }

    /// What is asked for, on a connection to it.
    pub(super) fn path(&self) -> &Uri {
        &self.parts.path
    }

    /// As the header that names it.
    pub(super) fn host(&self) -> &HeaderValue {
        &self.parts.host
    }

    /// What all targets have in common that a connection can be shared by.
    pub(super) fn origin_key(&self) -> &Arc<str> {
        &self.parts.origin
    }
}

impl Parts {
    fn of(url: &Url) -> Option<Self> {
        let uri: Uri = url.as_str().parse().ok()?;
        Some(Self {
            path: uri.path_and_query()?.clone().into(),
            // The port of its scheme is not in a URL, as it is not to be in the header.
            host: HeaderValue::from_str(uri.authority()?.as_str()).ok()?,
            origin: url.origin().ascii_serialization().into(),
            address: address(url),
            uri,
        })
    }
}

fn address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    host.parse().ok()
}

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let most = Self::BYTES_MAX;
        if text.len() > most {
            return Err(InvalidTarget(format!("it has more than {most} bytes")));
        }
        let mut url = Url::parse(text).map_err(|error| InvalidTarget(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(InvalidTarget("it begins with http:// or https://".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidTarget(
                "it contains a name or a password; send them in an `authorization` header".to_owned(),
            ));
        }
        if url.host_str().is_none_or(str::is_empty) || url.port() == Some(0) {
            return Err(InvalidTarget("it needs a host, and a port other than 0".to_owned()));
        }
        url.set_fragment(None);
        // Other than a browser, HTTP has no room for some of what may stand in a URL.
        let unsendable = || {
            let why = format!("it cannot be sent in {most} bytes of visible ASCII; percent-encode the rest");
            InvalidTarget(why)
        };
        let fits = url.as_str().len() <= most;
        let parts = fits.then(|| Parts::of(&url)).flatten();
        let parts = parts.ok_or_else(unsendable)?;
        Ok(Self { url, parts })
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.origin()).finish()
    }
}

/// What was wrong with the URL of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTarget(String);

impl fmt::Display for InvalidTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read the URL of an endpoint: {}", self.0)
    }
}

impl std::error::Error for InvalidTarget {}
