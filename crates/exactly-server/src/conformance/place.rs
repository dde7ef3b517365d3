//! Where a server is.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;

use super::socket::Trust;

/// A server, and the part of its address that stands before every path.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Who is believed about who it is; none where nothing is encrypted.
    pub(super) tls: Option<Trust>,
    pub(super) host: String,
    pub(super) port: u16,
    /// Without a slash at its end.
    pub(super) prefix: String,
}

impl Place {
    /// As the `Host` header names it.
    pub(super) fn authority(&self) -> String {
        let host = &self.host;
        match self.port {
            port if host.contains(':') => format!("[{host}]:{port}"),
            port if port == port_of(self.is_tls()) => host.clone(),
            port => format!("{host}:{port}"),
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The same place, if TLS is spoken there believing only `trust`.
    pub(super) fn trusting(mut self, trust: &Trust) -> Self {
        if let Some(believed) = &mut self.tls {
            *believed = trust.clone();
        }
        self
    }
}

/// The port of an address that names none.
fn port_of(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || "it must look like http://HOST:PORT or https://HOST, with or without a path".to_owned();
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let authority = uri.authority().ok_or_else(refused)?;
        let is_tls = uri.scheme() == Some(&Scheme::HTTPS);
        let is_spoken = is_tls || uri.scheme() == Some(&Scheme::HTTP);
        if !is_spoken || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(refused());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        Ok(Self {
            tls: is_tls.then(Trust::by_default),
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(port_of(is_tls)),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls() { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in [
            "http://shop.example",
            "http://127.0.0.1:8080",
            "http://[::1]:8080/api/v1",
            "https://shop.example",
            "https://shop.example:8443/api",
            "http://shop.example:443",
            "https://shop.example:80",
        ] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        assert_eq!("http://shop/".parse::<Place>().unwrap().prefix, "");
        assert_eq!("https://shop/".parse::<Place>().unwrap().port, 443);
    }

    #[test]
    fn what_cannot_be_reached_is_refused() {
        for text in [
            "",
            "shop:80",
            "/pay",
            "ftp://shop",
            "http://shop/?x=1",
            "http://me:secret@shop",
            "https://me:secret@shop",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
