//! Bounds how often an address may try to log in with a wrong token.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Number of wrong tokens that an address may send in a minute.
const TRIES_MAX: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// Number of addresses that are remembered. Further addresses share one count, so that a client
/// gains nothing from many addresses.
const ADDRESSES_MAX: usize = 10_000;

/// Wrong tokens by address, in the last minute.
#[derive(Debug, Default)]
pub(crate) struct LoginTries(Mutex<HashMap<Option<IpAddr>, TriesOfAddress>>);

#[derive(Clone, Copy, Debug)]
struct TriesOfAddress {
    since: Instant,
    wrong: u32,
}

impl LoginTries {
    /// Counts a try. If the address has used up its tries, the error is the time until the next
    /// one. The caller takes a successful try back with [`LoginTries::succeeded`].
    pub(crate) fn begin(&self, address: Option<IpAddr>) -> Result<(), Duration> {
        let now = Instant::now();
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut address = address.map(network);
        if !tries.contains_key(&address) && tries.len() >= ADDRESSES_MAX {
            tries.retain(|_, of| now - of.since < MINUTE);
            if tries.len() >= ADDRESSES_MAX {
                address = None;
            }
        }
        let fresh = TriesOfAddress { since: now, wrong: 0 };
        let of = tries.entry(address).or_insert(fresh);
        if now - of.since >= MINUTE {
            *of = fresh;
        }
        if of.wrong >= TRIES_MAX {
            return Err(MINUTE - (now - of.since));
        }
        of.wrong += 1;
        Ok(())
    }

    /// Takes back the last try of an address, because its token was right.
    pub(crate) fn succeeded(&self, address: Option<IpAddr>) {
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = tries.get_mut(&address.map(network)) {
            of.wrong = of.wrong.saturating_sub(1);
        }
    }
}

/// Returns an IPv4 address unchanged, and for an IPv6 address its 64-bit network, because one
/// client has the whole network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ten_wrong_tokens_a_minute_and_an_address() {
        let tries = LoginTries::default();
        let address = |text: &str| Some(text.parse().unwrap());
        for _ in 0..TRIES_MAX {
            tries.begin(address("10.0.0.1")).unwrap();
        }
        assert_eq!(tries.begin(address("10.0.0.1")), Err(MINUTE));
        assert_eq!(tries.begin(address("::ffff:10.0.0.1")), Err(MINUTE), "the same address");
        tries.begin(address("10.0.0.2")).unwrap();
        tokio::time::advance(MINUTE).await;
        tries.begin(address("10.0.0.1")).unwrap();
        for _ in 0..30 {
            tries.begin(address("2001:db8::1")).unwrap();
            tries.succeeded(address("2001:db8::2"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_share_one_count() {
        let tries = LoginTries::default();
        let address = |number: u32| Some(IpAddr::from(number.to_be_bytes()));
        let limit = u32::try_from(ADDRESSES_MAX).unwrap();
        for number in 0..limit + TRIES_MAX {
            tries.begin(address(number)).unwrap();
        }
        assert!(tries.begin(address(limit + 99)).is_err());
        assert!(tries.0.lock().unwrap().len() <= ADDRESSES_MAX + 1);
    }
}
