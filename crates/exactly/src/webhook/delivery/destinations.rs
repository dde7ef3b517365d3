//! Which addresses may be dialled.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::{Network, Target};

/// Which addresses may be dialled: public ones, and those that are allowed.
///
/// Who registers an endpoint chooses where this process sends requests to, from inside its network. Without a limit that
/// reaches what was never meant to be reached from outside: databases, the machine itself, the cloud's own services. The check
/// is on the address that is dialled, so a name that stands for something else each time it is asked for gets nowhere either.
#[derive(Clone, Debug, Default)]
pub struct Destinations {
    private: bool,
    https_only: bool,
    allowed: Vec<Network>,
}

impl Destinations {
    /// Also this machine and private networks: `127.0.0.0/8`, `10.0.0.0/8`, `172.16.0.0/12`, `192.168.0.0/16`,
    /// `100.64.0.0/10`, `::1` and `fc00::/7`.
    ///
    /// Still not link-local addresses, where clouds give out the credentials of a machine, and nothing that is no single
    /// receiver's address; those need [`allow`](Self::allow).
    #[must_use]
    pub fn allow_private(mut self) -> Self {
        self.private = true;
        self
    }

    /// Also what is in this network, whatever it is.
    #[must_use]
    pub fn allow(mut self, network: Network) -> Self {
        self.allowed.push(network);
        self
    }

    /// Whether plain `http` is refused. By default it is not: a signature shows who sent a body, but anybody on the way can
    /// read it.
    #[must_use]
    pub fn require_https(mut self, required: bool) -> Self {
        self.https_only = required;
        self
    }

    /// Whether this address may be dialled.
    pub fn check(&self, address: IpAddr) -> Result<(), Refused> {
        // The system dials ::ffff:10.0.0.1 as 10.0.0.1.
        let address = address.to_canonical();
        if self.allowed.iter().any(|network| network.contains(address)) {
            return Ok(());
        }
        if let Some(inner) = embedded(address) {
            let checked = self.check(inner.into());
            return checked.map_err(|refused| Refused {
                what: refused.what,
                address: Some(address),
            });
        }
        match nature(address) {
            None => Ok(()),
            Some((_, Reach::Private)) if self.private => Ok(()),
            Some((what, _)) => Err(Refused {
                what,
                address: Some(address),
            }),
        }
    }

    /// Whether it may be tried to send there. If it names its address, that is checked; a name is, each time it is dialled.
    pub fn check_target(&self, target: &Target) -> Result<(), Refused> {
        if self.https_only && !target.is_https() {
            return Err(Refused {
                what: "plain http",
                address: None,
            });
        }
        target.address().map_or(Ok(()), |address| self.check(address))
    }
}

/// Who can be reached at an address that is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Somebody, from within a network.
    Private,
    /// Nobody in particular, or what nobody should be able to send to.
    Nobody,
}

/// An IPv4 address that packets to this one end at, after a gateway has unpacked them.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    const NAT64: Network = Network::v6(0x64, 0xff9b, 0, 96);
    const SIX_TO_FOUR: Network = Network::v6(0x2002, 0, 0, 16);

    let IpAddr::V6(v6) = address else { return None };
    let octets = v6.octets();
    let at = |start: usize| Ipv4Addr::new(octets[start], octets[start + 1], octets[start + 2], octets[start + 3]);
    if NAT64.contains(address) {
        Some(at(12))
    } else if SIX_TO_FOUR.contains(address) {
        Some(at(2))
    } else {
        None
    }
}

/// What an address is, if it is not public. By the registries of special addresses that the IANA keeps.
fn nature(address: IpAddr) -> Option<(&'static str, Reach)> {
    use Reach::{Nobody, Private};

    const SPECIAL: &[(Network, &str, Reach)] = &[
        (Network::v4(0, 0, 0, 8), "an unspecified address", Nobody),
        (Network::v4(10, 0, 0, 8), "a private address", Private),
        (
            Network::v4(100, 64, 0, 10),
            "an address behind a carrier's NAT",
            Private,
        ),
        (Network::v4(127, 0, 0, 8), "a loopback address", Private),
        (Network::v4(169, 254, 0, 16), "a link-local address", Nobody),
        (Network::v4(172, 16, 0, 12), "a private address", Private),
        (Network::v4(192, 0, 0, 24), "an address kept for protocols", Nobody),
        (Network::v4(192, 0, 2, 24), "an address for documentation", Nobody),
        (Network::v4(192, 88, 99, 24), "a relay's address", Nobody),
        (Network::v4(192, 168, 0, 16), "a private address", Private),
        (Network::v4(198, 18, 0, 15), "an address for benchmarks", Nobody),
        (Network::v4(198, 51, 100, 24), "an address for documentation", Nobody),
        (Network::v4(203, 0, 113, 24), "an address for documentation", Nobody),
        (Network::v4(224, 0, 0, 4), "a multicast address", Nobody),
        (Network::v4(240, 0, 0, 4), "a reserved or broadcast address", Nobody),
        (Network::v6(0xfc00, 0, 0, 7), "a private address", Private),
        (Network::v6(0xfe80, 0, 0, 10), "a link-local address", Nobody),
        (Network::v6(0xff00, 0, 0, 8), "a multicast address", Nobody),
        // With Teredo in it, whose addresses hide an IPv4 address of anybody's choice.
        (Network::v6(0x2001, 0, 0, 23), "an address kept for protocols", Nobody),
        (
            Network::v6(0x2001, 0xdb8, 0, 32),
            "an address for documentation",
            Nobody,
        ),
        (Network::v6(0x3fff, 0, 0, 20), "an address for documentation", Nobody),
    ];
    const GLOBAL: Network = Network::v6(0x2000, 0, 0, 3);

    match address {
        IpAddr::V6(v6) if v6.is_loopback() => return Some(("a loopback address", Private)),
        IpAddr::V6(v6) if v6.is_unspecified() => return Some(("an unspecified address", Nobody)),
        _ => {}
    }
    let special = SPECIAL.iter().find(|(network, ..)| network.contains(address));
    match special {
        Some((_, what, reach)) => Some((what, *reach)),
        // Of IPv6 only an eighth is given out.
        None if address.is_ipv6() && !GLOBAL.contains(address) => Some(("not a public address", Nobody)),
        None => None,
    }
}

/// Why something is not dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    what: &'static str,
    address: Option<IpAddr>,
}

impl Refused {
    /// The address that is not dialled, if it was about one.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what;
        match self.address {
            Some(address) => write!(
                f,
                "refused to dial {address}: it is or leads to {what}; allow its network, or give the endpoint a public address"
            ),
            None => write!(f, "refused to send over {what}: give the endpoint an https address"),
        }
    }
}

impl std::error::Error for Refused {}
