//! Functions and operators of addresses of network cards.

use block::value::{Datum, DatumRef};

use super::{Function, Operator, Prefix, binary, function, int, prefix};
use crate::error::{Error, Result};
use crate::pgtype::mac::{address8, kept8};
use crate::types::SqlType;

use SqlType::{MacAddr, MacAddr8};

/// The bits of six octets.
const ALL: i64 = 0xffff_ffff_ffff;

pub const OPERATORS: &[Operator] = &[
    binary("&", MacAddr, MacAddr, MacAddr, "macaddr_and", |v, _| {
        Ok(Datum::Int8(int(v, 0)? & int(v, 1)?))
    }),
    binary("|", MacAddr, MacAddr, MacAddr, "macaddr_or", |v, _| {
        Ok(Datum::Int8(int(v, 0)? | int(v, 1)?))
    }),
    binary("&", MacAddr8, MacAddr8, MacAddr8, "macaddr8_and", |v, _| {
        Ok(kept(eight(v, 0)? & eight(v, 1)?))
    }),
    binary("|", MacAddr8, MacAddr8, MacAddr8, "macaddr8_or", |v, _| {
        Ok(kept(eight(v, 0)? | eight(v, 1)?))
    }),
];

pub const PREFIXES: &[Prefix] = &[
    prefix("~", MacAddr, MacAddr, "macaddr_not", |v, _| {
        Ok(Datum::Int8(!int(v, 0)? & ALL))
    }),
    prefix("~", MacAddr8, MacAddr8, "macaddr8_not", |v, _| {
        Ok(kept(!eight(v, 0)?))
    }),
];

pub const FUNCTIONS: &[Function] = &[
    function("trunc", &[MacAddr], MacAddr, "macaddr_trunc", |v, _| {
        Ok(Datum::Int8(int(v, 0)? & ALL << 24))
    }),
    function("trunc", &[MacAddr8], MacAddr8, "macaddr8_trunc", |v, _| {
        Ok(kept(eight(v, 0)? & u64::MAX << 40))
    }),
    function(
        "macaddr8_set7bit",
        &[MacAddr8],
        MacAddr8,
        "macaddr8_set7bit",
        |v, _| Ok(kept(eight(v, 0)? | 2 << 56)),
    ),
];

fn eight(values: &[DatumRef<'_>], at: usize) -> Result<u64> {
    int(values, at).map(address8)
}

fn kept(address: u64) -> Datum {
    Datum::Int8(kept8(address))
}

/// Six octets as eight.
pub fn to_eight(six: i64) -> Datum {
    let (high, low) = ((six >> 24) as u64, (six & 0xff_ffff) as u64);
    kept(high << 40 | 0xff_fe00_0000 | low)
}

/// Eight octets as six, if they have what says that they were six.
pub fn to_six(eight: i64) -> Result<Datum> {
    let address = address8(eight);
    if address >> 24 & 0xffff != 0xfffe {
        let message = "macaddr8 data out of range to convert to macaddr";
        return Err(Error::new("22003", message).hint(
            "Only addresses that have FF and FE as values in the 4th and 5th bytes from the \
             left, for example xx:xx:xx:ff:fe:xx:xx:xx, are eligible to be converted from \
             macaddr8 to macaddr.",
        ));
    }
    Ok(Datum::Int8(
        ((address >> 40 << 24) | address & 0xff_ffff) as i64,
    ))
}
