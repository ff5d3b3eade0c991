//! Limits the connections of one address that have not sent a whole request head yet.
//!
//! A client that opens connections and sends nothing holds each of them for `header_timeout`.
//! Without a limit, one machine could hold all connections of the gateway this way, with almost no
//! traffic. So one address may have at most a quarter of `connections_max` in this state. The
//! addresses in `limits.trusted_proxies` have no such limit, because many clients connect through
//! them.
//!
//! IPv6 addresses are counted by their first 64 bits, because one client usually has all addresses
//! with the same 64 bits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// `connections_max` divided by this number is the most that one address may have without a whole
/// head.
const PART_OF_ALL: u64 = 4;

/// Counts the connections without a whole head, by address. An address without such a connection has no entry.
#[derive(Default)]
pub(super) struct HeadlessConnections(Arc<Mutex<HashMap<IpAddr, u64>>>);

/// One connection that has not sent a whole head yet. Dropping the value takes it off the count.
pub(super) struct HeadlessConnection {
    counts: Arc<Mutex<HashMap<IpAddr, u64>>>,
    address: IpAddr,
}

impl HeadlessConnections {
    /// Counts a new connection without a whole head. Returns `None` if its address already has as
    /// many as are allowed when `connections_max` is the limit of all connections.
    pub(super) fn admit(
        &self,
        address: IpAddr,
        connections_max: u64,
    ) -> Option<HeadlessConnection> {
        let address = counted_address(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_insert(0);
        if *count >= connections_max.div_ceil(PART_OF_ALL) {
            return None;
        }
        *count += 1;
        Some(HeadlessConnection { counts: self.0.clone(), address })
    }
}

impl Drop for HeadlessConnection {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Returns the address under which a client's connections are counted.
fn counted_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_gets_a_quarter_and_others_are_not_affected() {
        let connections = HeadlessConnections::default();
        let admit = |address: &str| connections.admit(address.parse().unwrap(), 8);
        let held = (admit("10.0.0.1"), admit("10.0.0.1"));
        assert!(held.0.is_some() && held.1.is_some());
        assert!(admit("10.0.0.1").is_none() && admit("::ffff:10.0.0.1").is_none());
        assert!(admit("10.0.0.2").is_some());
        drop(held);
        assert!(connections.0.lock().unwrap().is_empty(), "no entry is left behind");
        assert!(admit("10.0.0.1").is_some());
    }

    #[test]
    fn one_network_of_ipv6_counts_as_one_address() {
        let connections = HeadlessConnections::default();
        let admit = |address: &str| connections.admit(address.parse().unwrap(), 4);
        let _held = admit("2001:db8::1").unwrap();
        assert!(admit("2001:db8::ffff:2").is_none());
        assert!(admit("2001:db8:0:1::1").is_some());
    }

    #[test]
    fn a_gateway_for_one_connection_serves_one() {
        let connections = HeadlessConnections::default();
        assert!(connections.admit(IpAddr::from([127, 0, 0, 1]), 1).is_some());
    }
}
