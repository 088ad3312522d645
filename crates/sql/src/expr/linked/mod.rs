//! What computes the functions in C of extensions.
//!
//! The body of such a function is the name of an entry here, which is that of PostgreSQL's symbol.
//! The types of its arguments and of its result are those of the function, as its extension's
//! script defines it: an entry of several types looks at its values. An entry may be called from
//! any thread, knows no session, and never panics, whatever its values are.

mod cipher;
mod digest;
mod fuzzy;
mod hstore;
mod password;
mod pgcrypto;
mod trigram;
mod unaccent;
mod uuid;

use block::value::{Datum, DatumRef};

use super::Val;
use crate::dict::function::Volatility;
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;

pub type Run = fn(&[DatumRef<'_>], &IoSettings) -> Result<Datum>;

pub struct Entry {
    pub name: &'static str,
    run: Run,
}

const fn entry(name: &'static str, run: Run) -> Entry {
    Entry { name, run }
}

/// All entries, a table for each extension.
const TABLES: &[&[Entry]] = &[
    fuzzy::ENTRIES,
    hstore::ENTRIES,
    pgcrypto::ENTRIES,
    trigram::ENTRIES,
    unaccent::ENTRIES,
    uuid::ENTRIES,
];

/// The entry of a name.
pub fn find(name: &str) -> Option<&'static Entry> {
    TABLES.iter().copied().flatten().find(|e| e.name == name)
}

/// A function in C, with what plans must know of it.
#[derive(Clone, Copy)]
pub struct LinkedFunc {
    pub entry: &'static Entry,
    pub volatility: Volatility,
    pub strict: bool,
}

impl PartialEq for LinkedFunc {
    fn eq(&self, other: &LinkedFunc) -> bool {
        let traits = |f: &LinkedFunc| (f.entry.name, f.volatility, f.strict);
        traits(self) == traits(other)
    }
}

impl Eq for LinkedFunc {}

impl std::fmt::Debug for LinkedFunc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.entry.name)
    }
}

impl LinkedFunc {
    /// Of these arguments, none of which is NULL if the function is strict.
    pub fn call(self, values: &[Val<'_>], io: &IoSettings) -> Result<Datum> {
        let refs: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
        (self.entry.run)(&refs, io)
    }
}

/// The text at a place.
fn text<'v>(values: &[DatumRef<'v>], at: usize) -> Result<&'v str> {
    match values.get(at) {
        Some(DatumRef::Text(text)) => Ok(text),
        other => Err(unexpected(*other.unwrap_or(&DatumRef::Null))),
    }
}

/// The bytes of a text or of bytes.
fn bytes<'v>(values: &[DatumRef<'v>], at: usize) -> Result<&'v [u8]> {
    match values.get(at) {
        Some(DatumRef::Text(text)) => Ok(text.as_bytes()),
        Some(DatumRef::Bytea(bytes)) => Ok(bytes),
        other => Err(unexpected(*other.unwrap_or(&DatumRef::Null))),
    }
}

fn integer(values: &[DatumRef<'_>], at: usize) -> Result<i32> {
    match values.get(at) {
        Some(DatumRef::Int4(n)) => Ok(*n),
        other => Err(unexpected(*other.unwrap_or(&DatumRef::Null))),
    }
}

fn unexpected(value: DatumRef<'_>) -> Error {
    Error::internal(format!("{value:?} for a function in C"))
}

/// Random bytes that nobody can guess.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

fn fill_random(bytes: &mut [u8]) -> Result<()> {
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), bytes)
        .map_err(|_| Error::internal("the system gives no random bytes"))
}
