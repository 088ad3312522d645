//! Functions and operators of addresses of hosts and networks.

use block::value::{Datum, DatumRef};

use super::{Function, Operator, Prefix, binary, function, int, prefix};
use crate::error::{Error, Result};
use crate::pgtype::inet::{Inet, abbreviated};
use crate::types::SqlType;

use SqlType::{Bool, Cidr, Inet as Address, Int4, Int8, Text};

pub const OPERATORS: &[Operator] = &[
    binary("<<", Address, Address, Bool, "network_sub", |v, _| {
        let (l, r) = (inet(v, 0)?, inet(v, 1)?);
        Ok(Datum::Bool(l.bits > r.bits && l.is_within(r)))
    }),
    binary("<<=", Address, Address, Bool, "network_subeq", |v, _| {
        Ok(Datum::Bool(inet(v, 0)?.is_within(inet(v, 1)?)))
    }),
    binary(">>", Address, Address, Bool, "network_sup", |v, _| {
        let (l, r) = (inet(v, 0)?, inet(v, 1)?);
        Ok(Datum::Bool(l.bits < r.bits && r.is_within(l)))
    }),
    binary(">>=", Address, Address, Bool, "network_supeq", |v, _| {
        Ok(Datum::Bool(inet(v, 1)?.is_within(inet(v, 0)?)))
    }),
    binary("&&", Address, Address, Bool, "network_overlap", |v, _| {
        let (l, r) = (inet(v, 0)?, inet(v, 1)?);
        Ok(Datum::Bool(l.is_within(r) || r.is_within(l)))
    }),
    binary("&", Address, Address, Address, "inetand", |v, _| {
        both(v, "AND", |l, r| l & r)
    }),
    binary("|", Address, Address, Address, "inetor", |v, _| {
        both(v, "OR", |l, r| l | r)
    }),
    binary("+", Address, Int8, Address, "inetpl", |v, _| {
        moved(inet(v, 0)?, int(v, 1)?.into())
    }),
    binary("+", Int8, Address, Address, "int8pl_inet", |v, _| {
        moved(inet(v, 1)?, int(v, 0)?.into())
    }),
    binary("-", Address, Int8, Address, "inetmi_int8", |v, _| {
        moved(inet(v, 0)?, -i128::from(int(v, 1)?))
    }),
    binary("-", Address, Address, Int8, "inetmi", |v, _| {
        difference(inet(v, 0)?, inet(v, 1)?)
    }),
];

pub const PREFIXES: &[Prefix] = &[prefix("~", Address, Address, "inetnot", |v, _| {
    let of = inet(v, 0)?;
    let address = !of.address & of.ones();
    Ok(datum(Inet { address, ..of }))
})];

pub const FUNCTIONS: &[Function] = &[
    function("host", &[Address], Text, "network_host", |v, _| {
        Ok(Datum::Text(inet(v, 0)?.host_text()))
    }),
    function("text", &[Address], Text, "network_show", |v, _| {
        Ok(Datum::Text(inet(v, 0)?.text_with_bits()))
    }),
    function("abbrev", &[Address], Text, "inet_abbrev", |v, _| {
        Ok(Datum::Text(inet(v, 0)?.text()))
    }),
    function("abbrev", &[Cidr], Text, "cidr_abbrev", |v, _| {
        Ok(Datum::Text(abbreviated(inet(v, 0)?)))
    }),
    function("family", &[Address], Int4, "network_family", |v, _| {
        Ok(Datum::Int4(if inet(v, 0)?.v6 { 6 } else { 4 }))
    }),
    function("masklen", &[Address], Int4, "network_masklen", |v, _| {
        Ok(Datum::Int4(inet(v, 0)?.bits.into()))
    }),
    function(
        "broadcast",
        &[Address],
        Address,
        "network_broadcast",
        |v, _| {
            let of = inet(v, 0)?;
            let address = of.address | of.ones() & !of.mask();
            Ok(datum(Inet { address, ..of }))
        },
    ),
    function("network", &[Address], Cidr, "network_network", |v, _| {
        Ok(datum(inet(v, 0)?.network()))
    }),
    function("netmask", &[Address], Address, "network_netmask", |v, _| {
        let of = inet(v, 0)?;
        Ok(datum(host(of, of.mask())))
    }),
    function(
        "hostmask",
        &[Address],
        Address,
        "network_hostmask",
        |v, _| {
            let of = inet(v, 0)?;
            Ok(datum(host(of, of.ones() & !of.mask())))
        },
    ),
    function(
        "set_masklen",
        &[Address, Int4],
        Address,
        "inet_set_masklen",
        |v, _| Ok(datum(with_bits(v)?)),
    ),
    function(
        "set_masklen",
        &[Cidr, Int4],
        Cidr,
        "cidr_set_masklen",
        |v, _| Ok(datum(with_bits(v)?.network())),
    ),
    function(
        "inet_same_family",
        &[Address, Address],
        Bool,
        "inet_same_family",
        |v, _| Ok(Datum::Bool(inet(v, 0)?.v6 == inet(v, 1)?.v6)),
    ),
    function(
        "inet_merge",
        &[Address, Address],
        Cidr,
        "inet_merge",
        |v, _| merged(inet(v, 0)?, inet(v, 1)?),
    ),
];

/// What PostgreSQL's output functions write, of `inet` and of `cidr`; casts to text do not.
pub const AS_WRITTEN: [super::Routine; 2] = [
    super::Routine {
        name: "inet_out",
        run: |v, _| Ok(Datum::Text(inet(v, 0)?.text())),
    },
    super::Routine {
        name: "cidr_out",
        run: |v, _| Ok(Datum::Text(inet(v, 0)?.text_with_bits())),
    },
];

/// What a cast to text writes: always with the bits of the network.
pub fn shown(stored: &[u8]) -> String {
    Inet::stored(stored).text_with_bits()
}

/// The network of an address.
pub fn network(stored: &[u8]) -> Datum {
    datum(Inet::stored(stored).network())
}

fn inet(values: &[DatumRef<'_>], at: usize) -> Result<Inet> {
    match values.get(at) {
        Some(DatumRef::Bytea(stored)) => Ok(Inet::stored(stored)),
        other => Err(Error::internal(format!("{other:?} as an address"))),
    }
}

fn datum(inet: Inet) -> Datum {
    Datum::Bytea(inet.to_stored())
}

/// An address all of whose bits are the network's.
fn host(of: Inet, address: u128) -> Inet {
    Inet {
        bits: of.width(),
        address,
        ..of
    }
}

fn both(v: &[DatumRef<'_>], verb: &str, how: fn(u128, u128) -> u128) -> Result<Datum> {
    let (l, r) = (inet(v, 0)?, inet(v, 1)?);
    if l.v6 != r.v6 {
        let message = format!("cannot {verb} inet values of different sizes");
        return Err(Error::new("22023", message));
    }
    Ok(datum(Inet {
        bits: l.bits.max(r.bits),
        address: how(l.address, r.address),
        ..l
    }))
}

fn out_of_range() -> Error {
    Error::new("22003", "result is out of range")
}

fn moved(from: Inet, by: i128) -> Result<Datum> {
    let address = from.address.checked_add_signed(by);
    let address = address.filter(|address| *address <= from.ones());
    let address = address.ok_or_else(out_of_range)?;
    Ok(datum(Inet { address, ..from }))
}

fn difference(l: Inet, r: Inet) -> Result<Datum> {
    if l.v6 != r.v6 {
        let message = "cannot subtract inet values of different sizes";
        return Err(Error::new("22023", message));
    }
    let distance = i128::try_from(l.address.abs_diff(r.address)).map_err(|_| out_of_range())?;
    let signed = if l.address < r.address {
        -distance
    } else {
        distance
    };
    i64::try_from(signed)
        .map(Datum::Int8)
        .map_err(|_| out_of_range())
}

fn with_bits(v: &[DatumRef<'_>]) -> Result<Inet> {
    let (of, bits) = (inet(v, 0)?, int(v, 1)?);
    let bits = if bits == -1 { of.width().into() } else { bits };
    let fits = u8::try_from(bits).ok().filter(|bits| *bits <= of.width());
    let Some(bits) = fits else {
        let message = format!("invalid mask length: {bits}");
        return Err(Error::new("22023", message));
    };
    Ok(Inet { bits, ..of })
}

/// The smallest network that has both.
fn merged(l: Inet, r: Inet) -> Result<Datum> {
    if l.v6 != r.v6 {
        let message = "cannot merge addresses from different families";
        return Err(Error::new("22023", message));
    }
    let unused = 128 - u32::from(l.width());
    let common = (l.address ^ r.address).leading_zeros() - unused;
    let bits = l.bits.min(r.bits).min(common as u8);
    Ok(datum(Inet { bits, ..l }.network()))
}
