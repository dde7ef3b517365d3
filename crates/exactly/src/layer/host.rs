//! Which host a request is for.
//!
//! One service may answer for many hosts, and do something else for each. They share their keys, so the host is part of
//! what a request asks for: the key that comes again for another one is a conflict, never a foreign answer.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::str;

use http::header::HOST;
use http::request::Parts;

use super::{request, route};

/// The host that a request names, in lower case and without its port: the one in its target, which is all that HTTP/2 has, or
/// else the header. None if it names none, as requests do that never were on a wire.
///
/// Nor if it is an address or `localhost`: those name a machine, and of several instances that share a store each has its own.
pub(super) fn of(parts: &Parts) -> Option<Cow<'_, [u8]>> {
    let mut host = match route::uri(parts).authority() {
        Some(authority) => Cow::Borrowed(without_user(authority.as_str()).as_bytes()),
        None => request::joined(parts, HOST)?,
    };
    let kept = name_of(&host)?.len();
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

fn name_of(host: &[u8]) -> Option<&[u8]> {
    let colon = host.iter().rposition(|byte| *byte == b':');
    let name = &host[..colon.unwrap_or(host.len())];
    let is_address = |text: &str| text.parse::<Ipv4Addr>().is_ok() || text.eq_ignore_ascii_case("localhost");
    // Whatever still has a colon is an IPv6 address, in brackets or bare.
    let is_machine = name.contains(&b':') || str::from_utf8(name).is_ok_and(is_address);
    (!is_machine).then_some(name)
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
        check("/", &[b"shop.example:8080"], Some(b"shop.example"));
        for machine in [
            "127.0.0.1:7701",
            "10.0.0.7",
            "[::1]:80",
            "[::1]",
            "::1",
            "LocalHost:3000",
        ] {
            check("/", &[machine.as_bytes()], None);
        }
        check("http://127.0.0.1:7702/x", &[b"shop.example"], None);
        check("/", &[b"127.0.0.1.example"], Some(b"127.0.0.1.example"));
        check("/", &[b"caf\xe9"], Some(b"caf\xe9"));
        check("/", &[b"a", b"b:80"], Some(b"a\nb"));
    }
}
