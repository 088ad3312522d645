//! Addresses of hosts and networks, `inet` and `cidr`: how they are stored, and their text and
//! binary forms.
//!
//! ```text
//! family u8 (2, 3) | bits of the network, see `bits` | the other bits, eight a byte
//! ```
//!
//! An address lies in a row as bytes whose plain comparison is PostgreSQL's order: first the bits
//! of the network that both have, then how many these are, then the host's bits.

use super::bits::Bits;
use crate::error::{Error, Result};
use crate::types::SqlType;

const V4: u8 = 2;
const V6: u8 = 3;

/// An address and how many of its bits are those of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inet {
    pub v6: bool,
    pub bits: u8,
    /// Its last 32 or 128 bits.
    pub address: u128,
}

impl Inet {
    /// Bits of an address of the family.
    pub fn width(self) -> u8 {
        if self.v6 { 128 } else { 32 }
    }

    /// All bits of an address of the family.
    pub fn ones(self) -> u128 {
        u128::MAX >> (128 - self.width())
    }

    /// The bits of an address that are the network's.
    pub fn mask(self) -> u128 {
        let host = self.width() - self.bits;
        self.ones() & u128::MAX.checked_shl(host.into()).unwrap_or(0)
    }

    /// The address whose host has no bits set.
    pub fn network(self) -> Inet {
        Inet {
            address: self.address & self.mask(),
            ..self
        }
    }

    /// Whether it is of the network of another address, or is that network.
    pub fn is_within(self, other: Inet) -> bool {
        self.v6 == other.v6
            && self.bits >= other.bits
            && self.address & other.mask() == other.address & other.mask()
    }

    /// The bytes of the address.
    pub fn octets(self) -> Vec<u8> {
        let all = self.address.to_be_bytes();
        all[16 - usize::from(self.width() / 8)..].to_vec()
    }

    pub fn of_octets(octets: &[u8], bits: u8) -> Inet {
        let address = octets
            .iter()
            .fold(0, |a, octet| a << 8 | u128::from(*octet));
        Inet {
            v6: octets.len() > 4,
            bits,
            address,
        }
    }

    pub fn stored(mut bytes: &[u8]) -> Inet {
        let (family, rest) = bytes.split_first().unwrap_or((&V4, &[]));
        let v6 = *family == V6;
        bytes = rest;
        let mut bits = Bits::take(&mut bytes);
        let width = if v6 { 128 } else { 32 };
        let network = bits.count().min(width);
        bits.0.extend(Bits::of_bytes(bytes, width - network).0);
        Inet::of_octets(&bits.bytes().collect::<Vec<_>>(), network as u8)
    }

    pub fn to_stored(self) -> Vec<u8> {
        let octets = self.octets();
        let Bits(all) = Bits::of_bytes(&octets, octets.len() * 8);
        let (network, host) = all.split_at(self.bits.into());
        let mut out = vec![if self.v6 { V6 } else { V4 }];
        Bits(network.to_vec()).put(&mut out);
        out.extend(Bits(host.to_vec()).bytes());
        out
    }

    /// The address alone.
    pub fn host_text(self) -> String {
        match self.v6 {
            true => v6_text(self.octets()),
            false => dotted(&self.octets()),
        }
    }

    /// As `inet` is written: the bits of the network only if they are not all.
    pub fn text(self) -> String {
        match self.bits == self.width() {
            true => self.host_text(),
            false => self.text_with_bits(),
        }
    }

    /// As `cidr` is written.
    pub fn text_with_bits(self) -> String {
        format!("{}/{}", self.host_text(), self.bits)
    }
}

fn dotted(octets: &[u8]) -> String {
    let octets: Vec<String> = octets.iter().map(u8::to_string).collect();
    octets.join(".")
}

fn words(octets: &[u8]) -> Vec<u16> {
    let pairs = octets.chunks_exact(2);
    pairs.map(|p| u16::from_be_bytes([p[0], p[1]])).collect()
}

/// The longest run of words that are zero, the first of several: where it begins, and its length.
fn zeros(words: &[u16]) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    let mut at = 0;
    while at < words.len() {
        let length = words[at..].iter().take_while(|w| **w == 0).count();
        if length > best.map_or(0, |(_, longest)| longest) {
            best = Some((at, length));
        }
        at += length.max(1);
    }
    best
}

fn v6_text(octets: Vec<u8>) -> String {
    let words = words(&octets);
    let run = zeros(&words).filter(|(_, length)| *length > 1);
    let (start, length) = run.unwrap_or((words.len(), 0));
    // An address of the other family within.
    let holds_v4 = start == 0
        && (length == 6 || length == 7 && words[7] != 1 || length == 5 && words[5] == 0xffff);
    let mut text = String::new();
    for (at, word) in words.iter().enumerate() {
        if (start..start + length).contains(&at) {
            if at == start {
                text.push(':');
            }
            continue;
        }
        if at != 0 {
            text.push(':');
        }
        if at == 6 && holds_v4 {
            text.push_str(&dotted(&octets[12..]));
            return text;
        }
        text.push_str(&format!("{word:x}"));
    }
    if length > 0 && start + length == words.len() {
        text.push(':');
    }
    text
}

/// What `abbrev` makes of a network: no more octets than it has bits.
pub fn abbreviated(network: Inet) -> String {
    let bits = usize::from(network.bits);
    let address = match network.v6 {
        true => abbreviated_v6(network),
        false if bits == 0 => "0".to_string(),
        false => dotted(&network.network().octets()[..bits.div_ceil(8)]),
    };
    format!("{address}/{bits}")
}

fn abbreviated_v6(network: Inet) -> String {
    if network.bits == 0 {
        return "::".to_string();
    }
    let octets = network.network().octets();
    let count = usize::from(network.bits).div_ceil(16).max(2);
    let all = words(&octets);
    let shown = &all[..count];
    let (start, length) = zeros(shown).unwrap_or((count, 0));
    let holds_v4 = length != count
        && start == 0
        && (length == 6
            || length == 5 && all[5] == 0xffff
            || length == 7 && octets[14] != 0 && octets[15] != 1);
    let mut text = String::new();
    for (at, word) in shown.iter().enumerate() {
        if (start..start + length).contains(&at) {
            if at == start {
                text.push(':');
            }
            if at == count - 1 {
                text.push(':');
            }
        } else if holds_v4 && at > 5 {
            text.push(if at == 6 { ':' } else { '.' });
            text.push_str(&octets[at * 2].to_string());
            if at != 7 || network.bits > 120 {
                text.push('.');
                text.push_str(&octets[at * 2 + 1].to_string());
            }
        } else {
            if !text.is_empty() {
                text.push(':');
            }
            text.push_str(&format!("{word:x}"));
        }
    }
    text
}

/// Reads `inet`, or the address of a network, `cidr`.
pub fn parse(text: &str, cidr: bool) -> Result<Inet> {
    let read = match (text.contains(':'), cidr) {
        (true, _) => parse_v6(text),
        (false, true) => parse_v4_network(text),
        (false, false) => parse_v4(text),
    };
    let name = if cidr { "cidr" } else { "inet" };
    let Some(read) = read else {
        let message = format!("invalid input syntax for type {name}: \"{text}\"");
        return Err(Error::new("22P02", message));
    };
    if cidr && read.network() != read {
        return Err(
            Error::new("22P02", format!("invalid cidr value: \"{text}\""))
                .detail("Value has bits set to right of mask."),
        );
    }
    Ok(read)
}

/// Digits without a sign; leading zeros are allowed.
fn number(digits: &str, most: u32) -> Option<u8> {
    let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let digits = digits.trim_start_matches('0');
    let value: u32 = match (all, digits) {
        (false, _) => return None,
        (true, "") => 0,
        (true, digits) => digits.parse().ok()?,
    };
    u8::try_from(value).ok().filter(|_| value <= most)
}

/// What stands before a stroke, and the bits behind it.
fn with_bits(text: &str) -> Option<(&str, Option<u8>)> {
    match text.split_once('/') {
        Some((address, bits)) => Some((address, Some(number(bits, 32)?))),
        None => Some((text, None)),
    }
}

fn octets_of(text: &str) -> Option<Vec<u8>> {
    let octets: Option<Vec<u8>> = text.split('.').map(|o| number(o, 255)).collect();
    octets.filter(|octets| octets.len() <= 4)
}

fn parse_v4(text: &str) -> Option<Inet> {
    let (address, bits) = with_bits(text)?;
    // A point may end the last octet.
    let mut octets = octets_of(address.strip_suffix('.').unwrap_or(address))?;
    let bits = match bits {
        Some(bits) => bits,
        None if octets.len() == 4 => 32,
        None => return None,
    };
    if usize::from(bits / 8) > octets.len() {
        return None;
    }
    octets.resize(4, 0);
    Some(Inet::of_octets(&octets, bits))
}

/// The bits of a network of which only octets are known, by their first one, as networks had
/// classes.
fn bits_of_class(octets: &[u8]) -> u8 {
    let first = octets.first().copied().unwrap_or(0);
    let class = match first {
        240.. => 32,
        224.. => 8,
        192.. => 24,
        128.. => 16,
        _ => 8,
    };
    match class.max(octets.len() as u8 * 8) {
        8 if first == 224 => 4,
        bits => bits,
    }
}

fn parse_v4_network(text: &str) -> Option<Inet> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let hexadecimal = hexadecimal.filter(|h| h.starts_with(|c: char| c.is_ascii_hexdigit()));
    let (address, bits) = with_bits(hexadecimal.unwrap_or(text))?;
    let mut octets = match hexadecimal {
        Some(_) => {
            let digits: Option<Vec<u32>> = address.chars().map(|c| c.to_digit(16)).collect();
            let octet = |pair: &[u32]| (pair[0] << 4 | pair.get(1).unwrap_or(&0)) as u8;
            let octets: Vec<u8> = digits?.chunks(2).map(octet).collect();
            Some(octets).filter(|octets| octets.len() <= 4)?
        }
        None => octets_of(address)?,
    };
    let bits = bits.unwrap_or_else(|| bits_of_class(&octets));
    octets.resize(4, 0);
    Some(Inet::of_octets(&octets, bits))
}

/// The bits behind a stroke, which have no leading zeros.
fn v6_bits(text: &str) -> Option<u8> {
    let plain = text == "0" || !text.starts_with('0');
    number(text, 128).filter(|_| plain)
}

/// The octets of an address of the other family at the end.
fn v4_within(text: &str) -> Option<Vec<u8>> {
    let plain = |octet: &str| octet == "0" || !octet.starts_with('0');
    let octets = octets_of(text).filter(|octets| octets.len() == 4);
    octets.filter(|_| text.split('.').all(plain))
}

fn parse_v6(text: &str) -> Option<Inet> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, v6_bits(bits)?),
        None => (text, 128),
    };
    let (head, tail) = match address.split_once("::") {
        Some((head, tail)) => (head, Some(tail)),
        None => (address, None),
    };
    let head = groups(head, tail.is_none())?;
    let Some(tail) = tail else {
        return (head.len() == 16).then(|| Inet::of_octets(&head, bits));
    };
    let tail = groups(tail, true)?;
    // The colons stand for at least one group.
    let missing = 16_usize.checked_sub(head.len() + tail.len())?;
    if missing < 2 {
        return None;
    }
    let mut octets = head;
    octets.resize(octets.len() + missing, 0);
    octets.extend(tail);
    Some(Inet::of_octets(&octets, bits))
}

/// Groups of hexadecimal digits between colons, the last of which may be an address of the other
/// family.
fn groups(text: &str, last: bool) -> Option<Vec<u8>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut octets = Vec::new();
    let mut groups = text.split(':').peekable();
    while let Some(group) = groups.next() {
        if last && groups.peek().is_none() && group.contains('.') {
            octets.extend(v4_within(group)?);
            break;
        }
        let digits = group.len() <= 4 && group.bytes().all(|b| b.is_ascii_hexdigit());
        let group = Some(group).filter(|_| digits)?;
        octets.extend(u16::from_str_radix(group, 16).ok()?.to_be_bytes());
    }
    Some(octets)
}

pub fn binary_in(bytes: &[u8], cidr: bool) -> Result<Inet> {
    let name = if cidr { "cidr" } else { "inet" };
    let invalid = |what: &str| {
        let message = format!("invalid {what} in external \"{name}\" value");
        Error::new("22P03", message)
    };
    let short = || Error::new("08P01", "no data left in message");
    let at = |n: usize| bytes.get(n).copied().ok_or_else(short);
    let (width, octets): (u8, usize) = match at(0)? {
        V4 => (32, 4),
        V6 => (128, 16),
        _ => {
            let message = format!("invalid address family in external \"{name}\" value");
            return Err(Error::new("22P03", message));
        }
    };
    let bits = at(1)?;
    if bits > width {
        return Err(invalid("bits"));
    }
    at(2)?;
    if usize::from(at(3)?) != octets {
        return Err(invalid("length"));
    }
    let address = &bytes[4..];
    if address.len() < octets {
        return Err(short());
    }
    if address.len() > octets {
        return Err(Error::new("22P03", "incorrect binary data format"));
    }
    let read = Inet::of_octets(address, bits);
    if cidr && read.network() != read {
        return Err(Error::new("22P03", "invalid external \"cidr\" value")
            .detail("Value has bits set to right of mask."));
    }
    Ok(read)
}

pub fn binary_out(ty: SqlType, stored: &[u8], out: &mut Vec<u8>) {
    let inet = Inet::stored(stored);
    let family = if inet.v6 { V6 } else { V4 };
    let cidr = u8::from(ty == SqlType::Cidr);
    out.extend_from_slice(&[family, inet.bits, cidr, inet.width() / 8]);
    out.extend(inet.octets());
}

pub fn write(ty: SqlType, stored: &[u8], out: &mut Vec<u8>) {
    let inet = Inet::stored(stored);
    let text = match ty {
        SqlType::Cidr => inet.text_with_bits(),
        _ => inet.text(),
    };
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn any_inet() -> impl Strategy<Value = Inet> {
        let address = prop_oneof![any::<u128>(), (0..4_u128).prop_map(|a| a << 30)];
        (any::<bool>(), any::<u8>(), address).prop_map(|(v6, bits, address)| {
            let inet = Inet {
                v6,
                bits: 0,
                address,
            };
            Inet {
                bits: bits % (inet.width() + 1),
                address: address & inet.ones(),
                ..inet
            }
        })
    }

    /// PostgreSQL's `network_cmp_internal`.
    fn order(l: Inet, r: Inet) -> Ordering {
        let common = |i: Inet| Inet {
            bits: l.bits.min(r.bits),
            ..i
        };
        let network = |i: Inet| common(i).network().address;
        (l.v6.cmp(&r.v6))
            .then_with(|| network(l).cmp(&network(r)))
            .then_with(|| l.bits.cmp(&r.bits))
            .then_with(|| l.address.cmp(&r.address))
    }

    proptest! {
        #[test]
        fn stored_forms_are_in_order(l in any_inet(), r in any_inet(), bits in any::<u8>()) {
            let near = Inet { bits: bits % (l.width() + 1), ..l };
            for (l, r) in [(l, r), (l, near), (near, near.network())] {
                prop_assert_eq!(l.to_stored().cmp(&r.to_stored()), order(l, r));
                prop_assert_eq!(Inet::stored(&l.to_stored()), l);
                prop_assert_eq!(parse(&l.text(), false).unwrap(), l, "{}", l.text());
            }
        }

        #[test]
        fn no_text_panics(text in "[0-9a-fA-Fx:./]{0,24}") {
            for cidr in [false, true] {
                if let Err(e) = parse(&text, cidr) {
                    prop_assert_eq!(e.sqlstate(), "22P02");
                }
            }
        }
    }
}
