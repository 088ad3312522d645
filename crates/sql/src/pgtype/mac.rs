//! Addresses of network cards, `macaddr` of six and `macaddr8` of eight octets, as integers whose
//! order is theirs: of eight octets, as the highest bit is no sign, it is inverted.

use super::number::is_c_space;
use crate::error::{Error, Result};

const SIGN: u64 = 1 << 63;

/// As eight octets are kept.
pub fn kept8(address: u64) -> i64 {
    (address ^ SIGN) as i64
}

/// Eight octets that are kept so.
pub fn address8(kept: i64) -> u64 {
    kept as u64 ^ SIGN
}

fn invalid(name: &str, text: &str) -> Error {
    let message = format!("invalid input syntax for type {name}: \"{text}\"");
    Error::new("22P02", message)
}

/// What stands between the octets of each form, and whether an octet has no more than two digits.
const FORMS: [([&str; 5], bool); 7] = [
    ([":"; 5], false),
    (["-"; 5], false),
    (["", "", ":", "", ""], true),
    (["", "", "-", "", ""], true),
    (["", ".", "", ".", ""], true),
    (["", "-", "", "-", ""], true),
    ([""; 5], true),
];

/// Reads six octets in one of the forms that C's `sscanf` reads.
pub fn parse(text: &str) -> Result<i64> {
    let read = FORMS
        .iter()
        .find_map(|(between, short)| scan(text, between, *short));
    let octets = read.ok_or_else(|| invalid("macaddr", text))?;
    let mut address = 0;
    for octet in octets {
        if !(0..=255).contains(&octet) {
            let message = format!("invalid octet value in \"macaddr\" value: \"{text}\"");
            return Err(Error::new("22003", message));
        }
        address = address << 8 | octet;
    }
    Ok(address)
}

fn scan(text: &str, between: &[&str; 5], short: bool) -> Option<[i64; 6]> {
    let mut octets = [0; 6];
    let mut rest = text;
    for (at, octet) in octets.iter_mut().enumerate() {
        if let Some(separator) = at.checked_sub(1).map(|at| between[at]) {
            rest = rest.strip_prefix(separator)?;
        }
        (*octet, rest) = hexadecimal(rest, short)?;
    }
    rest.chars().all(is_c_space).then_some(octets)
}

/// A hexadecimal number, before which there may be blanks, a sign and `0x`, and what follows.
fn hexadecimal(text: &str, short: bool) -> Option<(i64, &str)> {
    let text = text.trim_start_matches(is_c_space);
    let mut most = if short { 2 } else { usize::MAX };
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    most -= text.len() - unsigned.len();
    let prefix = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"));
    let digits = prefix.filter(|_| !short).unwrap_or(unsigned);
    let is_digit = |b: &u8| b.is_ascii_hexdigit();
    let count = digits.bytes().take(most).take_while(is_digit).count();
    let (number, rest) = digits.split_at(count);
    // Beyond any octet it is all the same.
    let value = i64::from_str_radix(number, 16).or_else(|_| match count {
        0 => Err(()),
        _ => Ok(i64::from(i32::MAX)),
    });
    let value = value.ok()?;
    Some((if negative { -value } else { value }, rest))
}

/// Reads eight octets, or six, between which two are put that say so.
pub fn parse8(text: &str) -> Result<i64> {
    let bad = || invalid("macaddr8", text);
    let bytes = text.trim_start_matches(is_c_space).as_bytes();
    let mut octets = Vec::new();
    let mut spacer = None;
    let mut at = 0;
    while at + 1 < bytes.len() {
        let digit = |b: u8| char::from(b).to_digit(16).ok_or_else(bad);
        if octets.len() == 8 {
            return Err(bad());
        }
        octets.push((digit(bytes[at])? << 4 | digit(bytes[at + 1])?) as u8);
        at += 2;
        if let Some(next @ (b':' | b'-' | b'.')) = bytes.get(at) {
            if *spacer.get_or_insert(*next) != *next {
                return Err(bad());
            }
            at += 1;
        }
        let is_space = |b: &u8| is_c_space(char::from(*b));
        if matches!(octets.len(), 6 | 8) && bytes.get(at).is_some_and(is_space) {
            if !bytes[at..].iter().all(is_space) {
                return Err(bad());
            }
            at = bytes.len();
        }
    }
    match octets.as_slice() {
        &[a, b, c, d, e, f] => octets = vec![a, b, c, 0xff, 0xfe, d, e, f],
        all if all.len() == 8 => {}
        _ => return Err(bad()),
    }
    Ok(of_octets8(&octets))
}

fn of_octets8(octets: &[u8]) -> i64 {
    kept8(octets.iter().fold(0, |a, octet| a << 8 | u64::from(*octet)))
}

pub fn binary_in(bytes: [u8; 6]) -> i64 {
    bytes.iter().fold(0, |a, octet| a << 8 | i64::from(*octet))
}

/// Eight octets, or six.
pub fn binary_in8(bytes: &[u8]) -> Result<i64> {
    match bytes {
        [a, b, c, d, e, f] => Ok(of_octets8(&[*a, *b, *c, 0xff, 0xfe, *d, *e, *f])),
        bytes if bytes.len() == 8 => Ok(of_octets8(bytes)),
        bytes if bytes.len() < 8 => Err(Error::new("08P01", "no data left in message")),
        _ => Err(Error::new("22P03", "incorrect binary data format")),
    }
}

/// The octets of a value that is kept as an integer.
pub fn octets(kept: i64, eight: bool) -> Vec<u8> {
    match eight {
        true => address8(kept).to_be_bytes().to_vec(),
        false => kept.to_be_bytes()[2..].to_vec(),
    }
}

pub fn write(kept: i64, eight: bool, out: &mut Vec<u8>) {
    for (at, octet) in octets(kept, eight).into_iter().enumerate() {
        if at > 0 {
            out.push(b':');
        }
        out.extend_from_slice(format!("{octet:02x}").as_bytes());
    }
}
