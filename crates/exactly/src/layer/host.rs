//! Which host a request is for.
//!
//! One service may answer for many hosts, and do something else for each. They share their keys, so the host is part of
//! what a request asks for: the key that comes again for another one is a conflict, never a foreign answer.

use std::borrow::Cow;

use http::header::HOST;
use http::request::Parts;

use super::{request, route};

/// What stands for no port at all, whichever the scheme is: behind whoever ends TLS, nobody knows it.
const NO_PORT: [&[u8]; 3] = [b":", b":80", b":443"];

/// The host that a request names, in one form: the one in its target, which is all that HTTP/2 has, or else the header.
/// None if it names none, as requests do that never were on a wire.
pub(super) fn of(parts: &Parts) -> Option<Cow<'_, [u8]>> {
    let mut host = match route::uri(parts).authority() {
        Some(authority) => Cow::Borrowed(without_user(authority.as_str()).as_bytes()),
        None => request::joined(parts, HOST)?,
    };
    let kept = without_port(&host).len();
    match &mut host {
        Cow::Borrowed(host) => *host = &host[..kept],
        Cow::Owned(host) => host.truncate(kept),
    }
    if host.iter().any(u8::is_ascii_uppercase) {
        host.to_mut().make_ascii_lowercase();
    }
    Some(host)
}

/// As the header has it.
fn without_user(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, place)| place)
}

fn without_port(host: &[u8]) -> &[u8] {
    let ported = NO_PORT.iter().find_map(|port| host.strip_suffix(*port));
    // The last group of a bare IPv6 address is no port.
    ported
        .filter(|host| host.ends_with(b"]") || !host.contains(&b':'))
        .unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_host_has_one_form() {
        let check = |target: &str, lines: &[&[u8]], expected: Option<&[u8]>| {
            let mut request = Request::post(target);
            for line in lines {
                request = request.header(HOST, *line);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(of(&parts).as_deref(), expected, "{target} {lines:?}");
        };
        check("/", &[], None);
        check("/", &[b""], Some(b""));
        for same in [
            "shop.example",
            "SHOP.example",
            "shop.example:",
            "shop.example:80",
            "shop.Example:443",
        ] {
            check("/", &[same.as_bytes()], Some(b"shop.example"));
        }
        check("http://Shop.example:80/x", &[], Some(b"shop.example"));
        check(
            "https://ada:pw@shop.example:443/x",
            &[b"other.example"],
            Some(b"shop.example"),
        );
        check("/", &[b"shop.example:8080"], Some(b"shop.example:8080"));
        check("/", &[b"shop.example:180"], Some(b"shop.example:180"));
        check("/", &[b"[::80]:80"], Some(b"[::80]"));
        check("/", &[b"::80"], Some(b"::80"));
        check("/", &[b"caf\xe9"], Some(b"caf\xe9"));
        check("/", &[b"a", b"b:80"], Some(b"a\nb"));
    }
}
