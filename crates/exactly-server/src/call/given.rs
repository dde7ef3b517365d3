//! What a command line says of a request.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;
use std::time::Duration;

use exactly::Key;
use http::{HeaderName, HeaderValue, Method};
use serde::de::IgnoredAny;
use url::Url;

use crate::calls::Refused;

/// The longest body, since it is kept in memory to be the same on every attempt.
const BODY_BYTES_MAX: u64 = 64 << 20;
const HEADERS_BYTES_MAX: u64 = 1 << 20;

/// A method as people write it.
pub(super) fn method(text: &str) -> Result<Method, String> {
    let upper = text.to_ascii_uppercase();
    Method::from_bytes(upper.as_bytes()).map_err(|_| "accepted is a word such as POST".to_owned())
}

/// An address that can be called, read as the client reads it. What is wrong with it is found before anything is sent.
pub(super) fn url(text: &str) -> Result<String, String> {
    let accepted = "accepted are http://HOST/… and https://HOST/…";
    let url = Url::parse(text).map_err(|error| format!("{accepted}: {error}"))?;
    // The client would also take `http:HOST`, which is more likely a mistake.
    if matches!(url.scheme(), "http" | "https") && url.has_host() && text.contains("://") {
        Ok(text.to_owned())
    } else {
        Err(accepted.to_owned())
    }
}

pub(super) fn key(text: &str) -> Result<String, String> {
    let key = Key::new(text).map_err(|error| error.to_string())?;
    if !key.as_str().is_ascii() {
        return Err("accepted are visible ASCII and spaces, which can stand in a header".to_owned());
    }
    Ok(key.as_str().to_owned())
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let accepted = || "accepted are a number and a unit: 500ms, 10s, 5m, 24h or 7d".to_owned();
    crate::config::duration(text)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(accepted)
}

pub(super) fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("accepted is NAME: VALUE")?;
    let name = name.trim().parse().map_err(|_| "this is no name of a header")?;
    let value = value
        .trim()
        .parse()
        .map_err(|_| "there is a control character in the value")?;
    Ok((name, value))
}

/// The headers in a file, one on each line. Whoever puts them into a file does not want them to be seen, so they are not
/// sent to another origin.
pub(super) fn headers(path: &Path) -> Result<Vec<(HeaderName, HeaderValue)>, Refused> {
    let usage = |why: String| Refused::Usage(format!("--header-file {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| usage(error.to_string()))?;
    let bytes = read(file, HEADERS_BYTES_MAX).map_err(usage)?;
    let text = String::from_utf8(bytes).map_err(|_| usage("it is not text".to_owned()))?;
    let mut headers = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        // The line itself is not shown: it may be a token.
        let (name, mut value) = header(line).map_err(|why| usage(format!("line {}: {why}", number + 1)))?;
        value.set_sensitive(true);
        headers.push((name, value));
    }
    Ok(headers)
}

/// The body, by whichever flag it came.
pub(super) fn body(data: Option<&str>, json: Option<&str>) -> Result<Option<Vec<u8>>, Refused> {
    let (flag, text) = match (data, json) {
        (Some(text), _) => ("--data", text),
        (None, Some(text)) => ("--data-json", text),
        (None, None) => return Ok(None),
    };
    let usage = |why: String| Refused::Usage(format!("{flag}: {why}"));
    let bytes = match (text, text.strip_prefix('@')) {
        ("-" | "@-", _) => read(stdin().lock(), BODY_BYTES_MAX).map_err(usage)?,
        (_, Some(path)) => {
            let told = |why: String| usage(format!("{path}: {why}"));
            let file = File::open(path).map_err(|error| told(error.to_string()))?;
            read(file, BODY_BYTES_MAX).map_err(told)?
        }
        (text, None) => text.as_bytes().to_vec(),
    };
    if json.is_some() {
        // Sent as it was written: another order of members would be another request to some servers.
        let checked = serde_json::from_slice::<IgnoredAny>(&bytes);
        checked.map_err(|error| usage(format!("this is no JSON: {error}")))?;
    }
    Ok(Some(bytes))
}

fn read(source: impl Read, max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = source.take(max + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > max {
        return Err(format!("it is longer than {} MiB", max >> 20));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value() {
        let (name, value) = header("X-Tenant:  acme: west ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-tenant", "acme: west"));
        for wrong in ["", "X-Tenant", ": acme", "X Tenant: acme", "X-Tenant: a\u{7}b"] {
            assert!(header(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn no_time_at_all_is_a_mistake() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["0s", "10", "-1s", "s"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
