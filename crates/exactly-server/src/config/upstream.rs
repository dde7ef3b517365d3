//! The service behind the gateway.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// A fixed place, never one that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upstream(pub(crate) Authority);

impl Upstream {
    pub(crate) const ACCEPTED: &str = "http://HOST:PORT, without a path";
}

impl FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is not accepted; it must be {}", Self::ACCEPTED);
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let is_root = matches!(
            uri.path_and_query().map(http::uri::PathAndQuery::as_str),
            None | Some("/")
        );
        let authority = uri.authority().ok_or_else(refused)?;
        let is_place = !authority.as_str().contains('@') && !authority.host().is_empty();
        // A port that is none would pass for no port at all.
        let has_port = authority.port_u16().is_some() || authority.as_str() == authority.host();
        if uri.scheme() == Some(&Scheme::HTTP) && is_root && is_place && has_port {
            Ok(Self(authority.clone()))
        } else {
            Err(refused())
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}
