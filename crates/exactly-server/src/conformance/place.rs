//! Where a server is.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;

/// A server, and the part of its address that stands before every path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
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
            80 => host.clone(),
            port => format!("{host}:{port}"),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("https://") {
            let fix = "give the http:// address behind whatever ends TLS, or put a proxy in between";
            return Err(format!("https is not spoken; {fix}"));
        }
        let refused = || "it must look like http://HOST:PORT, with or without a path".to_owned();
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let authority = uri.authority().ok_or_else(refused)?;
        if uri.scheme() != Some(&Scheme::HTTP) || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(refused());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        Ok(Self {
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(80),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.prefix)
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
        ] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        assert_eq!("http://shop/".parse::<Place>().unwrap().prefix, "");
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
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        assert!(
            "https://shop"
                .parse::<Place>()
                .unwrap_err()
                .contains("https is not spoken")
        );
    }
}
