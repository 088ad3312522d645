//! Networks whose clients are let in.

use std::net::IpAddr;
use std::str::FromStr;

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl FromStr for Network {
    type Err = String;

    /// Reads `10.1.0.0/16`, or a single address.
    fn from_str(text: &str) -> Result<Network, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let wrong = || format!("\"{text}\" is not an address, nor a network as 10.1.0.0/16");
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let all = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let bits = match bits {
            Some(bits) => bits.trim().parse().map_err(|_| wrong())?,
            None => all,
        };
        let network = Network { address, bits };
        if bits > all {
            return Err(wrong());
        }
        if low_bits(address, bits) != 0 {
            return Err(format!(
                "\"{text}\": the address has bits beyond the {bits} of the network"
            ));
        }
        Ok(network)
    }
}

impl Network {
    /// The addresses that begin with the first `bits` of `address`, which has no more.
    pub(crate) fn new(address: IpAddr, bits: u32) -> Network {
        Network { address, bits }
    }

    /// Whether all addresses of the other network are in this one.
    pub(crate) fn includes(&self, other: &Network) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && (number(self.address) ^ number(address)) & mask(self.address, self.bits) == 0
    }
}

/// An address as a number whose upper bits are those of the address, for both versions of IP.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn mask(of: IpAddr, bits: u32) -> u128 {
    debug_assert!(bits <= if of.is_ipv4() { 32 } else { 128 });
    u128::MAX.checked_shl(128 - bits).unwrap_or(0)
}

fn low_bits(address: IpAddr, bits: u32) -> u128 {
    number(address) & !mask(address, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_alike() {
        let network = |text: &str| text.parse::<Network>();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (net, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.1", "10.2.0.1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "203.0.113.1", "::1"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("::/0", "fe80::1", "10.0.0.1"),
        ] {
            let net = network(net).unwrap();
            assert!(net.contains(address(inside)), "{net:?} {inside}");
            assert!(!net.contains(address(outside)), "{net:?} {outside}");
        }
        for wrong in ["", "x", "10.0.0.0/33", "10.0.0.1/24", "10.0.0.0/", "::/129"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }
}
