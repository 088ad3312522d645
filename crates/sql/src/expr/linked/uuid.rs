//! The functions of `uuid-ossp` (RFC 4122).

use std::sync::LazyLock;

use block::value::{Datum, DatumRef};
use parking_lot::Mutex;

use super::digest::Hash;
use super::{Entry, entry, random, text, unexpected};
use crate::error::Result;

pub type Uuid = [u8; 16];

pub const ENTRIES: &[Entry] = &[
    entry("uuid_nil", |_, _| Ok(Datum::Uuid([0; 16]))),
    entry("uuid_ns_dns", |_, _| Ok(Datum::Uuid(namespace(0x10)))),
    entry("uuid_ns_url", |_, _| Ok(Datum::Uuid(namespace(0x11)))),
    entry("uuid_ns_oid", |_, _| Ok(Datum::Uuid(namespace(0x12)))),
    entry("uuid_ns_x500", |_, _| Ok(Datum::Uuid(namespace(0x14)))),
    entry("uuid_generate_v1", |_, _| of_time().map(Datum::Uuid)),
    entry("uuid_generate_v1mc", |_, _| of_time().map(Datum::Uuid)),
    entry("uuid_generate_v3", |v, _| {
        Ok(Datum::Uuid(named(Hash::Md5, 3, v)?))
    }),
    entry("uuid_generate_v4", |_, _| {
        Ok(Datum::Uuid(versioned(random()?, 4)))
    }),
    entry("uuid_generate_v5", |v, _| {
        Ok(Datum::Uuid(named(Hash::Sha1, 5, v)?))
    }),
];

/// The standard's namespaces differ in a byte.
fn namespace(byte: u8) -> Uuid {
    let mut uuid = *b"\x6b\xa7\xb8\x10\x9d\xad\x11\xd1\x80\xb4\x00\xc0\x4f\xd4\x30\xc8";
    uuid[3] = byte;
    uuid
}

/// With the bits that say its version and variant.
pub fn versioned(mut uuid: Uuid, version: u8) -> Uuid {
    uuid[6] = uuid[6] & 0x0f | version << 4;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

fn named(hash: Hash, version: u8, values: &[DatumRef<'_>]) -> Result<Uuid> {
    let namespace = match values.first() {
        Some(DatumRef::Uuid(uuid)) => uuid,
        other => return Err(unexpected(*other.unwrap_or(&DatumRef::Null))),
    };
    let made = hash.of(&[&namespace[..], text(values, 1)?.as_bytes()].concat());
    let first: Uuid = std::array::from_fn(|at| made.get(at).copied().unwrap_or(0));
    Ok(versioned(first, version))
}

/// Ticks of 100 ns from the beginning of the Gregorian calendar to 2000.
const TICKS_BEFORE_2000: u64 = 131_659_776_000_000_000;

/// What tells the instance's identifiers from others'.
struct Node {
    /// Random, with the bit that says it is no address of a card.
    address: [u8; 6],
    sequence: u16,
    /// The last ticks that were used.
    last: u64,
}

static NODE: LazyLock<Mutex<Option<Node>>> = LazyLock::new(Mutex::default);

/// Of the time. Both versions have a random node: what the address of a card would tell of the
/// machine is nobody's business.
fn of_time() -> Result<Uuid> {
    let now = u64::try_from(crate::session::now_micros()).unwrap_or(0);
    let now = now.saturating_mul(10).saturating_add(TICKS_BEFORE_2000);
    let mut node = NODE.lock();
    if node.is_none() {
        let mut address = random::<6>()?;
        address[0] |= 1;
        let sequence = u16::from_be_bytes(random()?);
        *node = Some(Node {
            address,
            sequence,
            last: 0,
        });
    }
    let Some(node) = node.as_mut() else {
        return Err(crate::error::Error::internal(
            "an identifier without its node",
        ));
    };
    // Two of one tick, or of a clock that was set back, are still in their order.
    node.last = now.max(node.last + 1);
    let ticks = node.last.to_be_bytes();
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&ticks[4..]);
    uuid[4..6].copy_from_slice(&ticks[2..4]);
    uuid[6..8].copy_from_slice(&ticks[..2]);
    uuid[8..10].copy_from_slice(&node.sequence.to_be_bytes());
    uuid[10..].copy_from_slice(&node.address);
    Ok(versioned(uuid, 1))
}
