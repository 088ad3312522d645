//! Bit strings: how they are stored, and their text and binary forms.
//!
//! ```text
//! of each seven bits: bits << 1 | 1 if more follow   | bits of the last of these bytes u8
//! ```
//!
//! A value lies in a row as bytes whose plain comparison is the order of bit strings: bit by bit,
//! and then the shorter one first. So `bit` and `bit varying` need no physical kind of their own.
//! The form also says where it ends, so that other bytes may stand behind it.
//!
//! **Invariant.** There is one form for each bit string: no bits beyond the last are set.

use crate::error::{Error, Result};
use crate::types::SqlType;

/// The longest bit string, PostgreSQL's limit.
pub const MAX_BITS: usize = 0x7fff_fff8;

/// In a byte of the stored form.
const GROUP: usize = 7;

/// A bit string, a truth value for each bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits(pub Vec<bool>);

impl Bits {
    /// Reads the stored form, and leaves in `stored` what stands behind it.
    pub fn take(stored: &mut &[u8]) -> Bits {
        let mut bits = Vec::with_capacity(stored.len() * GROUP);
        while let Some((&byte, rest)) = stored.split_first() {
            *stored = rest;
            bits.extend((1..=GROUP).rev().map(|at| byte >> at & 1 == 1));
            if byte & 1 == 0 {
                break;
            }
        }
        if let Some((&last, rest)) = stored.split_first() {
            *stored = rest;
            let unused = GROUP.saturating_sub(usize::from(last));
            bits.truncate(bits.len().saturating_sub(unused));
        }
        Bits(bits)
    }

    pub fn stored(mut bytes: &[u8]) -> Bits {
        Bits::take(&mut bytes)
    }

    /// Appends the stored form.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut groups = self.0.chunks(GROUP).peekable();
        if groups.peek().is_none() {
            out.extend_from_slice(&[0, 0]);
        }
        while let Some(group) = groups.next() {
            let bits = group.iter().enumerate();
            let byte = bits.fold(0, |byte, (at, bit)| byte | u8::from(*bit) << (GROUP - at));
            out.push(byte | u8::from(groups.peek().is_some()));
            if groups.peek().is_none() {
                out.push(group.len() as u8);
            }
        }
    }

    pub fn to_stored(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len() / GROUP + 2);
        self.put(&mut out);
        out
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Eight bits a byte, the first one the highest, and zeros behind the last.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.chunks(8).map(|group| {
            let bits = group.iter().enumerate();
            bits.fold(0, |byte, (at, bit)| byte | u8::from(*bit) << (7 - at))
        })
    }

    /// The first bits of bytes.
    pub fn of_bytes(bytes: &[u8], count: usize) -> Bits {
        let bits = bytes
            .iter()
            .flat_map(|b| (0..8).rev().map(move |at| b >> at & 1 == 1));
        Bits(bits.take(count).collect())
    }
}

/// Reads digits: binary ones, also behind `b`, or hexadecimal ones behind `x`.
pub fn parse(text: &str) -> Result<Bits> {
    match text.as_bytes().first() {
        Some(b'b' | b'B') => binary_digits(&text[1..]),
        Some(b'x' | b'X') => hexadecimal_digits(&text[1..]),
        _ => binary_digits(text),
    }
}

pub fn binary_digits(digits: &str) -> Result<Bits> {
    let bit = |c: char| match c {
        '0' => Ok(false),
        '1' => Ok(true),
        other => Err(no_digit(other, "binary")),
    };
    digits.chars().map(bit).collect::<Result<_>>().map(Bits)
}

pub fn hexadecimal_digits(digits: &str) -> Result<Bits> {
    if digits.len() > MAX_BITS / 4 {
        return Err(too_many_bits());
    }
    let mut bits = Vec::with_capacity(digits.len() * 4);
    for c in digits.chars() {
        let digit = c.to_digit(16).ok_or_else(|| no_digit(c, "hexadecimal"))?;
        bits.extend((0..4).rev().map(|at| digit >> at & 1 == 1));
    }
    Ok(Bits(bits))
}

fn no_digit(c: char, of: &str) -> Error {
    Error::new("22P02", format!("\"{c}\" is not a valid {of} digit"))
}

pub fn too_many_bits() -> Error {
    let message = format!("bit string length exceeds the maximum allowed ({MAX_BITS})");
    Error::new("54000", message)
}

pub fn write(stored: &[u8], out: &mut Vec<u8>) {
    let bits = Bits::stored(stored);
    out.extend(bits.0.iter().map(|bit| b'0' + u8::from(*bit)));
}

pub fn binary_in(bytes: &[u8]) -> Result<Bits> {
    let short = || Error::new("08P01", "insufficient data left in message");
    let (count, bytes) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok();
    let Some(count) = count.filter(|count| *count <= MAX_BITS) else {
        let message = "invalid length in external bit string";
        return Err(Error::new("22P03", message));
    };
    match bytes.len().cmp(&count.div_ceil(8)) {
        std::cmp::Ordering::Less => Err(short()),
        std::cmp::Ordering::Greater => Err(Error::new("22P03", "incorrect binary data format")),
        std::cmp::Ordering::Equal => Ok(Bits::of_bytes(bytes, count)),
    }
}

pub fn binary_out(stored: &[u8], out: &mut Vec<u8>) {
    let bits = Bits::stored(stored);
    out.extend_from_slice(&(bits.count() as i32).to_be_bytes());
    out.extend(bits.bytes());
}

/// Fits a bit string to a length. An explicit cast cuts it, or fills `bit(n)` up with zeros.
pub fn fit(ty: SqlType, limit: usize, stored: Vec<u8>, explicit: bool) -> Result<Vec<u8>> {
    let mut bits = Bits::stored(&stored);
    let fits = match ty {
        SqlType::Bit => bits.count() == limit,
        _ => bits.count() <= limit,
    };
    if fits {
        return Ok(stored);
    }
    if !explicit {
        return Err(match ty {
            SqlType::Bit => Error::new(
                "22026",
                format!(
                    "bit string length {} does not match type bit({limit})",
                    bits.count()
                ),
            ),
            _ => Error::new(
                "22001",
                format!("bit string too long for type bit varying({limit})"),
            ),
        });
    }
    bits.0.resize(limit, false);
    Ok(bits.to_stored())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Bit strings in order are bytes in order.
        #[test]
        fn stored_forms_are_in_order(
            a in proptest::collection::vec(any::<bool>(), 0..40),
            b in proptest::collection::vec(any::<bool>(), 0..40),
            cut in 0..40usize,
        ) {
            let start: Vec<bool> = a.iter().copied().take(cut).collect();
            let stored = |bits: &[bool]| Bits(bits.to_vec()).to_stored();
            for (l, r) in [(&a, &b), (&a, &start), (&start, &b)] {
                prop_assert_eq!(stored(l).cmp(&stored(r)), l.cmp(r));
                prop_assert_eq!(&Bits::stored(&stored(l)).0, l);
            }
        }
    }
}
