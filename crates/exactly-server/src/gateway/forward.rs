//! What changes in a message on its way through.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Room for what `Forwarded` commonly says.
const FORWARDED_BYTES: usize = 96;

/// Takes off what belongs to one connection (RFC 9110, section 7.6.1).
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    const OF_CONNECTION: [HeaderName; 8] = [
        header::CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        KEEP_ALIVE,
        PROXY_CONNECTION,
    ];
    // Most messages have none of them, and looking through the few headers there are costs less than asking for each.
    let there = headers.keys().filter(|name| OF_CONNECTION.contains(name)).cloned();
    let named = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok());
    let stripped: Vec<HeaderName> = there.chain(named).collect();
    if stripped.contains(&header::TRANSFER_ENCODING) {
        // The chunks have said how long it is (RFC 9112, section 6.3). What else was said would be passed on as the truth.
        headers.remove(header::CONTENT_LENGTH);
    }
    for name in stripped {
        headers.remove(name);
    }
}

/// Whether whoever sent these headers can make use of what comes after a body.
pub(super) fn wants_trailers(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::TE).iter().filter_map(|line| line.to_str().ok());
    let mut codings = lines.flat_map(|line| line.split(','));
    codings.any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

/// Says so to the next server.
pub(super) fn ask_for_trailers(headers: &mut HeaderMap) {
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
}

/// Adds who asked, and for whom (RFC 7239 and what came before it).
pub(super) fn add_forwarded(headers: &mut HeaderMap, client: IpAddr) {
    // A listener for both kinds of addresses shows one as the other.
    let client = client.to_canonical();
    let host = headers.get(header::HOST).cloned();
    let address = client.to_string();
    let mut forwarded = String::with_capacity(FORWARDED_BYTES);
    forwarded.push_str("for=");
    match client {
        IpAddr::V4(_) => forwarded.push_str(&address),
        IpAddr::V6(_) => forwarded.extend(["\"[", &address, "]\""]),
    }
    forwarded.push_str(";proto=http");
    if let Some(host) = host.as_ref().and_then(|host| host.to_str().ok())
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
    {
        // A port is no part of a bare word.
        forwarded.extend([";host=\"", host, "\""]);
    }
    append(headers, header::FORWARDED, forwarded);
    append(headers, X_FORWARDED_FOR, address);
    headers
        .entry(X_FORWARDED_PROTO)
        .or_insert(HeaderValue::from_static("http"));
    if let Some(host) = host {
        headers.entry(X_FORWARDED_HOST).or_insert(host);
    }
}

fn append(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.append(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn what_belongs_to_one_connection_stays_there() {
        let mut message = headers(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("keep-alive", "timeout=5"),
            ("content-type", "text/plain"),
        ]);
        strip_hop_by_hop(&mut message);
        assert_eq!(message, headers(&[("content-type", "text/plain")]));
    }

    #[test]
    fn the_upstream_learns_who_asked() {
        let mut message = headers(&[("host", "shop.example"), ("x-forwarded-for", "203.0.113.9")]);
        add_forwarded(&mut message, "198.51.100.7".parse().unwrap());
        assert_eq!(
            message["forwarded"],
            "for=198.51.100.7;proto=http;host=\"shop.example\""
        );
        let hops: Vec<_> = message.get_all("x-forwarded-for").iter().collect();
        assert_eq!(hops, ["203.0.113.9", "198.51.100.7"]);
        assert_eq!(message["x-forwarded-host"], "shop.example");
        let mut message = headers(&[("host", "evil\";for=1.2.3.4")]);
        add_forwarded(&mut message, "2001:db8::1".parse().unwrap());
        assert_eq!(message["forwarded"], "for=\"[2001:db8::1]\";proto=http");
    }
}
