//! The bytes of messages between instances: one writer, one reader, and one list for each family of
//! messages, from which both directions are generated.
//!
//! - [`Writer`] and [`Reader`] put and get primitives, little endian and without padding.
//! - [`Wire`] is how a type stands in every message; [`Codec`] is another way for one field.
//! - [`fields!`] lists the fields of a struct, [`tagged!`] the kinds of an enum with tag, name and
//!   fields. A field or a kind that is missing in a list does not compile.
//! - [`Bad`] says what was wrong with bytes, at which offset and in which field.
//!
//! The README has the rules.

mod bad;
mod codec;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod list;
mod reader;
mod tagged;
#[cfg(test)]
mod tests;
mod types;
mod writer;

pub use bad::Bad;
pub use codec::{Codec, List, Maybe, Own, Rest, Short, Wire};
pub use reader::Reader;
pub use tagged::{Tagged, are_distinct};
pub use types::Below62;
pub use writer::Writer;

/// The value that the bytes are, all of them.
#[inline]
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T, Bad> {
    decode_as::<Own, T>(bytes)
}

/// The value that the bytes are in the way of `C`, all of them.
#[inline]
pub fn decode_as<C: Codec<T>, T>(bytes: &[u8]) -> Result<T, Bad> {
    let mut r = Reader::new(bytes);
    let value = C::get(&mut r)?;
    r.finish()?;
    Ok(value)
}
