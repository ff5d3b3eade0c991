//! Ranges of IP addresses, such as `10.0.0.0/8`.

use std::fmt;
use std::net::IpAddr;

use serde::{Serialize, Serializer};

/// An IP address, or all addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    /// Number of leading bits that all addresses of the range share.
    bits: u8,
}

impl AddressRange {
    /// Parses an address such as `127.0.0.1`, or a range such as `10.0.0.0/8` or `fd00::/8`.
    /// Returns `None` for other text, and for an address with bits after the prefix (`10.1.0.0/8`),
    /// which is mostly a mistake.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let all_bits = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all_bits);
        let range = Self { address, bits };
        let is_first = bits <= all_bits && number(address) & !range.mask() == 0;
        is_first.then_some(range)
    }

    /// Returns true if the address is in the range. An IPv4 address that is written as IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && number(address) & self.mask() == number(self.address)
    }

    /// Returns a mask with ones for the shared bits. IPv4 addresses use the upper 32 bits.
    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Serialize for AddressRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.bits) {
            (IpAddr::V4(address), 32) => address.fmt(f),
            (IpAddr::V6(address), 128) => address.fmt(f),
            (address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_the_addresses_with_their_prefix() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.1"),
            ("192.168.1.7", "192.168.1.7", "192.168.1.8"),
            ("10.0.0.0/8", "::ffff:10.1.1.1", "::10.1.1.1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("::1", "::1", "127.0.0.1"),
            ("0.0.0.0/0", "255.1.1.1", "::1"),
            ("::/0", "::1", "1.1.1.1"),
        ] {
            let parsed = AddressRange::parse(range).unwrap();
            assert_eq!(parsed.to_string(), range);
            assert!(parsed.contains(inside.parse().unwrap()), "{range} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{range} {outside}");
        }
    }

    #[test]
    fn other_text_is_no_range() {
        for text in ["", "localhost", "10.0.0.0/33", "10.1.0.0/8", "::/129", "10.0.0.0/-1", "1/2/3"]
        {
            assert_eq!(AddressRange::parse(text), None, "{text}");
        }
    }
}
