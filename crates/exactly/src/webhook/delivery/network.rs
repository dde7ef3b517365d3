//! Addresses that lie side by side.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// All addresses that begin with the same bits, as `10.0.0.0/8` or `fd00::/8`. An address alone is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

impl Network {
    pub(super) const fn v4(a: u8, b: u8, c: u8, bits: u8) -> Self {
        Self {
            first: IpAddr::V4(Ipv4Addr::new(a, b, c, 0)),
            bits,
        }
    }

    pub(super) const fn v6(a: u16, b: u16, c: u16, bits: u8) -> Self {
        Self {
            first: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)),
            bits,
        }
    }

    /// Whether the address is one of them. An IPv4 address is the same in its IPv6 notation, `::ffff:10.0.0.1`.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differing = first.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differing = first.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }

    /// The first address of a network with so many bits around this one.
    fn first_of(address: IpAddr, bits: u8) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = |why: String| InvalidNetwork(format!("{text:?}: {why}"));
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| invalid("write an address and how many bits count, as 10.0.0.0/8 or fd00::/8".to_owned()))?;
        if address != address.to_canonical() {
            let plain = address.to_canonical();
            return Err(invalid(format!("write the IPv4 address {plain} as such")));
        }
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => {
                let read = bits.parse().ok().filter(|bits| *bits <= most);
                read.ok_or_else(|| invalid(format!("after the slash is a number of bits, 0 to {most}")))?
            }
        };
        let first = Self::first_of(address, bits);
        if first != address {
            // Somebody who writes 10.1.2.3/8 may mean one address or sixteen million.
            return Err(invalid(format!(
                "write {first}/{bits} for the network, {address} for the address"
            )));
        }
        Ok(Self { first, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

/// What was wrong with the text of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNetwork(String);

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read network {}", self.0)
    }
}

impl std::error::Error for InvalidNetwork {}
