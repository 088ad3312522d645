//! The functions by which PostgreSQL hashes values, `hashtext` and its kin, with its results:
//! clients make the keys of advisory locks of them.

use block::value::{Datum, DatumRef};

use super::{Function, function, int};
use crate::error::{Error, Result};
use crate::pgtype::number;
use crate::types::SqlType;

use SqlType::{Char, Float4, Float8, Int2, Int4, Int8, InternalChar, Name, Numeric, Oid};
use SqlType::{Text, Time, Timestamp, Uuid};

macro_rules! hashes {
    ($(($plain:literal, $extended:literal, $ty:expr, $of:expr)),* $(,)?) => {
        pub const FUNCTIONS: &[Function] = &[$(
            function($plain, &[$ty], Int4, $plain, |v, _| plain($of(v)?)),
            function($extended, &[$ty, Int8], Int8, $extended, |v, _| extended($of(v)?, v)),
        )*];
    };
}

hashes! {
    ("hashchar", "hashcharextended", InternalChar, character),
    ("hashint2", "hashint2extended", Int2, narrow),
    ("hashint4", "hashint4extended", Int4, narrow),
    ("hashoid", "hashoidextended", Oid, narrow),
    ("hashint8", "hashint8extended", Int8, wide),
    ("hashfloat4", "hashfloat4extended", Float4, float),
    ("hashfloat8", "hashfloat8extended", Float8, float),
    ("hashname", "hashnameextended", Name, string),
    ("hashtext", "hashtextextended", Text, string),
    ("hashbpchar", "hashbpcharextended", Char, padded),
    ("uuid_hash", "uuid_hash_extended", Uuid, uuid),
    ("interval_hash", "interval_hash_extended", SqlType::Interval, interval),
    ("time_hash", "time_hash_extended", Time, wide),
    ("timestamp_hash", "timestamp_hash_extended", Timestamp, wide),
    ("hash_numeric", "hash_numeric_extended", Numeric, numeric),
}

/// What is hashed.
enum Key<'v> {
    Number(u32),
    Bytes(std::borrow::Cow<'v, [u8]>),
    /// The hash is this number, and the extended one the seed and the other number.
    Fixed(u32, i64),
    /// The hash of the bytes is mixed with the number.
    Weighed(Vec<u8>, i64),
}

fn plain(key: Key<'_>) -> Result<Datum> {
    let hash = match key {
        Key::Number(n) => of_number(n, None).0,
        Key::Bytes(bytes) => of_bytes(&bytes, None).0,
        Key::Fixed(hash, _) => hash,
        Key::Weighed(bytes, weight) => of_bytes(&bytes, None).0 ^ weight as u32,
    };
    Ok(Datum::Int4(hash as i32))
}

fn extended(key: Key<'_>, values: &[DatumRef<'_>]) -> Result<Datum> {
    let given = int(values, 1)?;
    let seed = Some(given as u64);
    let wide = |(low, high): (u32, u32)| u64::from(high) << 32 | u64::from(low);
    let hash = match key {
        Key::Number(n) => wide(of_number(n, seed)),
        Key::Bytes(bytes) => wide(of_bytes(&bytes, seed)),
        Key::Fixed(_, more) => given.wrapping_add(more) as u64,
        Key::Weighed(bytes, weight) => wide(of_bytes(&bytes, seed)) ^ weight as u64,
    };
    Ok(Datum::Int8(hash as i64))
}

fn mismatch(value: DatumRef<'_>) -> Error {
    Error::internal(format!("a hash of {value:?}"))
}

fn narrow<'v>(v: &[DatumRef<'v>]) -> Result<Key<'v>> {
    Ok(Key::Number(int(v, 0)? as u32))
}

fn character<'v>(v: &[DatumRef<'v>]) -> Result<Key<'v>> {
    match v[0] {
        DatumRef::Text(c) => {
            let byte = c.bytes().next().unwrap_or(0);
            Ok(Key::Number(i32::from(byte as i8) as u32))
        }
        other => Err(mismatch(other)),
    }
}

fn of_wide<'v>(n: i64) -> Key<'v> {
    let (low, high) = (n as u32, (n >> 32) as u32);
    Key::Number(low ^ if n >= 0 { high } else { !high })
}

fn wide<'v>(v: &[DatumRef<'v>]) -> Result<Key<'v>> {
    match v[0] {
        DatumRef::Timestamp(n) | DatumRef::TimestampTz(n) => Ok(of_wide(n)),
        _ => Ok(of_wide(int(v, 0)?)),
    }
}

fn float<'v>(v: &[DatumRef<'v>]) -> Result<Key<'v>> {
    let n = match v[0] {
        DatumRef::Float4(n) => f64::from(n),
        DatumRef::Float8(n) => n,
        other => return Err(mismatch(other)),
    };
    // Both zeros are equal, and so is what is no number.
    Ok(match n {
        0.0 => Key::Fixed(0, 0),
        n if n.is_nan() => Key::Bytes(f64::NAN.to_le_bytes().to_vec().into()),
        n => Key::Bytes(n.to_le_bytes().to_vec().into()),
    })
}

fn string<'v>(v: &[DatumRef<'v>]) -> Result<Key<'v>> {
    match v[0] {
        DatumRef::Text(s) => Ok(Key::Bytes(s.as_bytes().into())),
        other => Err(mismatch(other)),
    }
}

fn padded<'v>(v: &[DatumRef<'v>]) -> Result<Key<'v>> {
    match v[0] {
        DatumRef::Text(s) => Ok(Key::Bytes(s.trim_end_matches(' ').as_bytes().into())),
        other => Err(mismatch(other)),
    }
}

fn uuid<'v>(v: &[DatumRef<'v>]) -> Result<Key<'v>> {
    match v[0] {
        DatumRef::Uuid(bytes) => Ok(Key::Bytes(bytes.to_vec().into())),
        other => Err(mismatch(other)),
    }
}

fn interval<'v>(v: &[DatumRef<'v>]) -> Result<Key<'v>> {
    match v[0] {
        DatumRef::Interval(interval) => Ok(of_wide(interval.span() as i64)),
        other => Err(mismatch(other)),
    }
}

/// Its digits to the base of 10,000, and how many of them stand before the point.
fn numeric<'v>(v: &[DatumRef<'v>]) -> Result<Key<'v>> {
    const SPECIAL: u16 = 0xC000;
    let DatumRef::Numeric(n) = v[0] else {
        return Err(mismatch(v[0]));
    };
    let mut form = Vec::new();
    number::write_numeric_binary(&mut form, n);
    let mut words = form
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let mut header = || words.next().unwrap_or(0);
    let (_, weight, sign, _) = (header(), header(), header(), header());
    if sign & SPECIAL == SPECIAL {
        return Ok(Key::Fixed(0, 0));
    }
    let digits: Vec<u16> = words.collect();
    let first = digits.iter().position(|d| *d != 0);
    let last = digits.iter().rposition(|d| *d != 0);
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(Key::Fixed(u32::MAX, -1));
    };
    let bytes = digits[first..=last].iter().flat_map(|d| d.to_le_bytes());
    let weight = i64::from(weight as i16) - first as i64;
    Ok(Key::Weighed(bytes.collect(), weight))
}

/// Bob Jenkins' hash as PostgreSQL has it (`hash_bytes`): three words that are mixed.
struct Words {
    a: u32,
    b: u32,
    c: u32,
}

impl Words {
    fn of(length: u32, seed: Option<u64>) -> Words {
        let begin = 0x9e37_79b9_u32.wrapping_add(length).wrapping_add(3_923_095);
        let mut words = Words {
            a: begin,
            b: begin,
            c: begin,
        };
        if let Some(seed) = seed.filter(|seed| *seed != 0) {
            words.add((seed >> 32) as u32, seed as u32, 0);
            words.mix();
        }
        words
    }

    fn add(&mut self, a: u32, b: u32, c: u32) {
        self.a = self.a.wrapping_add(a);
        self.b = self.b.wrapping_add(b);
        self.c = self.c.wrapping_add(c);
    }

    fn mix(&mut self) {
        let Words { a, b, c } = self;
        let step = |x: &mut u32, y: &mut u32, z: &mut u32, by: u32| {
            *x = x.wrapping_sub(*z) ^ z.rotate_left(by);
            *z = z.wrapping_add(*y);
        };
        step(a, b, c, 4);
        step(b, c, a, 6);
        step(c, a, b, 8);
        step(a, b, c, 16);
        step(b, c, a, 19);
        step(c, a, b, 4);
    }

    /// The hash, and what is above it in the extended one.
    fn end(mut self) -> (u32, u32) {
        let step = |x: &mut u32, y: u32, by: u32| {
            *x = (*x ^ y).wrapping_sub(y.rotate_left(by));
        };
        step(&mut self.c, self.b, 14);
        step(&mut self.a, self.c, 11);
        step(&mut self.b, self.a, 25);
        step(&mut self.c, self.b, 16);
        step(&mut self.a, self.c, 4);
        step(&mut self.b, self.a, 14);
        step(&mut self.c, self.b, 24);
        (self.c, self.b)
    }
}

fn of_number(n: u32, seed: Option<u64>) -> (u32, u32) {
    let mut words = Words::of(4, seed);
    words.add(n, 0, 0);
    words.end()
}

fn of_bytes(bytes: &[u8], seed: Option<u64>) -> (u32, u32) {
    let mut words = Words::of(bytes.len() as u32, seed);
    let word = |bytes: &[u8], at: usize| {
        let four = bytes.iter().skip(at).take(4).enumerate();
        four.fold(0, |word, (place, byte)| {
            word | u32::from(*byte) << (8 * place)
        })
    };
    let mut chunks = bytes.chunks_exact(12);
    for chunk in &mut chunks {
        words.add(word(chunk, 0), word(chunk, 4), word(chunk, 8));
        words.mix();
    }
    let rest = chunks.remainder();
    // The lowest byte of the last word is the length's.
    words.add(word(rest, 0), word(rest, 4), word(rest, 8) << 8);
    words.end()
}
