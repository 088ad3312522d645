//! Functions of `bytea`: bits and bytes of it, hashes, texts in other encodings.

use block::value::{Datum, DatumRef};
use charset::Encoding;

use super::Val;
use super::func::{Func, PureFunc, Signature};
use super::sha::Sha;
use crate::error::{Error, Result};
use crate::types::SqlType;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BytesFunc {
    Hash(Sha),
    BitCount,
    GetBit,
    SetBit,
    GetByte,
    SetByte,
    Trim { front: bool, back: bool },
    Position,
    Overlay,
    ConvertFrom,
    ConvertTo,
    Convert,
}

/// The overloads of the function of that name that are of bytes.
pub fn overloads(name: &str) -> Vec<Signature> {
    use SqlType::{Bytea, Int4, Int8, Name, Text};
    let of = |func: BytesFunc, args: &'static [SqlType], result: SqlType| Signature {
        func: Func::Pure(PureFunc::Bytes(func)),
        args,
        result,
    };
    let trim = |front, back| {
        let func = BytesFunc::Trim { front, back };
        vec![of(func, &[Bytea, Bytea], Bytea)]
    };
    if let Some(sha) = Sha::named(name) {
        return vec![of(BytesFunc::Hash(sha), &[Bytea], Bytea)];
    }
    match name {
        "bit_count" => vec![of(BytesFunc::BitCount, &[Bytea], Int8)],
        "get_bit" => vec![of(BytesFunc::GetBit, &[Bytea, Int8], Int4)],
        "set_bit" => vec![of(BytesFunc::SetBit, &[Bytea, Int8, Int4], Bytea)],
        "get_byte" => vec![of(BytesFunc::GetByte, &[Bytea, Int4], Int4)],
        "set_byte" => vec![of(BytesFunc::SetByte, &[Bytea, Int4, Int4], Bytea)],
        "btrim" | "trim" => trim(true, true),
        "ltrim" => trim(true, false),
        "rtrim" => trim(false, true),
        "strpos" | "position" => vec![of(BytesFunc::Position, &[Bytea, Bytea], Int4)],
        "overlay" => vec![
            of(BytesFunc::Overlay, &[Bytea, Bytea, Int4], Bytea),
            of(BytesFunc::Overlay, &[Bytea, Bytea, Int4, Int4], Bytea),
        ],
        "convert_from" => vec![of(BytesFunc::ConvertFrom, &[Bytea, Name], Text)],
        "convert_to" => vec![of(BytesFunc::ConvertTo, &[Text, Name], Bytea)],
        "convert" => vec![of(BytesFunc::Convert, &[Bytea, Name, Name], Bytea)],
        _ => Vec::new(),
    }
}

pub fn call(func: BytesFunc, values: &[Val<'_>]) -> Result<Val<'static>> {
    let own = |bytes: Vec<u8>| Val::Own(Datum::Bytea(bytes));
    Ok(match func {
        BytesFunc::Hash(sha) => own(sha.of(bytes(values, 0)?)),
        BytesFunc::BitCount => {
            let ones = bytes(values, 0)?.iter().map(|b| i64::from(b.count_ones()));
            Val::int8(ones.sum())
        }
        BytesFunc::GetBit => {
            let all = bytes(values, 0)?;
            let (at, bit) = bit_place(all, int(values, 1)?)?;
            Val::int4(i32::from(all[at] >> bit & 1))
        }
        BytesFunc::SetBit => {
            let mut all = bytes(values, 0)?.to_vec();
            let (at, bit) = bit_place(&all, int(values, 1)?)?;
            let new = int(values, 2)?;
            if !(0..=1).contains(&new) {
                return Err(Error::new("22023", "new bit must be 0 or 1"));
            }
            all[at] = all[at] & !(1 << bit) | (new as u8) << bit;
            own(all)
        }
        BytesFunc::GetByte => {
            let all = bytes(values, 0)?;
            let at = place(int(values, 1)?, all.len() as i64)?;
            Val::int4(all[at].into())
        }
        BytesFunc::SetByte => {
            let mut all = bytes(values, 0)?.to_vec();
            let at = place(int(values, 1)?, all.len() as i64)?;
            all[at] = int(values, 2)? as u8;
            own(all)
        }
        BytesFunc::Trim { front, back } => own(trimmed(values, front, back)?),
        BytesFunc::Position => Val::int4(position(bytes(values, 0)?, bytes(values, 1)?)),
        BytesFunc::Overlay => own(overlay(values)?),
        BytesFunc::ConvertFrom => {
            let from = encoding(values, 1, "source")?;
            Val::text(decoded(bytes(values, 0)?, from)?)
        }
        BytesFunc::ConvertTo => {
            let DatumRef::Text(text) = values[0].get() else {
                return Err(Error::internal("an encoding of no text"));
            };
            own(encoded(text, encoding(values, 1, "destination")?)?)
        }
        BytesFunc::Convert => {
            let from = encoding(values, 1, "source")?;
            let text = decoded(bytes(values, 0)?, from)?;
            own(encoded(&text, encoding(values, 2, "destination")?)?)
        }
    })
}

fn bytes<'v>(values: &'v [Val<'_>], at: usize) -> Result<&'v [u8]> {
    match values.get(at).map(Val::get) {
        Some(DatumRef::Bytea(b)) => Ok(b),
        other => Err(Error::internal(format!("{other:?} as bytes"))),
    }
}

fn int(values: &[Val<'_>], at: usize) -> Result<i64> {
    let value = values.get(at).map(Val::get);
    let int = value.and_then(super::arith::integer);
    int.ok_or_else(|| Error::internal(format!("{value:?} as a number")))
}

fn place(at: i64, count: i64) -> Result<usize> {
    match (0..count).contains(&at) {
        true => Ok(at as usize),
        false => Err(Error::new(
            "2202E",
            format!("index {at} out of valid range, 0..{}", count - 1),
        )),
    }
}

/// The byte of a bit, and its place there.
fn bit_place(all: &[u8], at: i64) -> Result<(usize, u32)> {
    let at = place(at, all.len() as i64 * 8)?;
    Ok((at / 8, (at % 8) as u32))
}

fn trimmed(values: &[Val<'_>], front: bool, back: bool) -> Result<Vec<u8>> {
    let (all, set) = (bytes(values, 0)?, bytes(values, 1)?);
    let kept = |b: &u8| !set.contains(b);
    let begin = match front {
        true => all.iter().position(kept).unwrap_or(all.len()),
        false => 0,
    };
    let end = match back {
        true => all.iter().rposition(kept).map_or(begin, |last| last + 1),
        false => all.len(),
    };
    Ok(all[begin..end].to_vec())
}

/// Where a part is, from 1; 0 if it is nowhere.
fn position(all: &[u8], part: &[u8]) -> i32 {
    let found = memchr::memmem::find(all, part);
    found.map_or(0, |at| at as i32 + 1)
}

fn overlay(values: &[Val<'_>]) -> Result<Vec<u8>> {
    let (all, new, start) = (bytes(values, 0)?, bytes(values, 1)?, int(values, 2)?);
    let count = match values.len() {
        4 => int(values, 3)?,
        _ => new.len() as i64,
    };
    if start <= 0 {
        return Err(Error::new("22011", "negative substring length not allowed"));
    }
    let end = i32::try_from(start + count);
    let end = end.map_err(|_| Error::new("22003", "integer out of range"))?;
    let before = all.iter().take(start as usize - 1);
    let after = all.iter().skip(usize::try_from(end - 1).unwrap_or(0));
    Ok(before.chain(new).chain(after).copied().collect())
}

fn encoding(values: &[Val<'_>], at: usize, which: &str) -> Result<Encoding> {
    let Some(DatumRef::Text(name)) = values.get(at).map(Val::get) else {
        return Err(Error::internal("an encoding without a name"));
    };
    Encoding::find(name).ok_or_else(|| {
        let message = format!("invalid {which} encoding name \"{name}\"");
        Error::new("22023", message)
    })
}

fn refused(e: charset::Error) -> Error {
    Error::new(e.sqlstate(), e.to_string())
}

/// The text of bytes. `SQL_ASCII` is the server's encoding by another name.
fn decoded(bytes: &[u8], from: Encoding) -> Result<String> {
    if from.converts() {
        let text = from.decode(bytes).map_err(refused)?;
        return Ok(text.into_owned());
    }
    let valid = std::str::from_utf8(bytes);
    let bad = match &valid {
        Err(e) => Some(e.valid_up_to()),
        Ok(_) => bytes.iter().position(|b| *b == 0),
    };
    match (valid, bad) {
        (Ok(text), None) => Ok(text.to_string()),
        (_, bad) => Err(invalid(&bytes[bad.unwrap_or(0)..])),
    }
}

fn invalid(rest: &[u8]) -> Error {
    // PostgreSQL shows as many bytes as the first one promises.
    let length = match rest.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => 1,
    };
    let shown: Vec<String> = rest
        .iter()
        .take(length)
        .map(|b| format!("0x{b:02x}"))
        .collect();
    let message = format!(
        "invalid byte sequence for encoding \"UTF8\": {}",
        shown.join(" ")
    );
    Error::new("22021", message)
}

fn encoded(text: &str, to: Encoding) -> Result<Vec<u8>> {
    match to.converts() {
        true => Ok(to.encode(text).map_err(refused)?.into_owned()),
        false => Ok(text.as_bytes().to_vec()),
    }
}
