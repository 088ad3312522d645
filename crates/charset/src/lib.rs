//! Encodings of clients: PostgreSQL's names for them, and conversion from and to UTF-8.
//!
//! The server's encoding is UTF-8. A client names its own in `client_encoding`; the names and
//! numbers are those of PostgreSQL 15. Encodings of one byte a character are converted, in both
//! directions, with the tables of the crate `encoding_rs`, less the bytes that PostgreSQL leaves
//! undefined. The encodings of East Asia have no conversion here: their ASCII passes, and the first
//! other byte is an error.
//!
//! **Invariant.** What [`Encoding::encode`] makes, [`Encoding::decode`] makes into the same text.

mod names;
mod table;

use std::borrow::Cow;
use std::fmt;

use table::Table;

/// An encoding that PostgreSQL knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Encoding(u8);

impl Default for Encoding {
    fn default() -> Encoding {
        Encoding::UTF8
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Text that cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The character exists in `from` and not in `to`.
    #[error(
        "character with byte sequence {} in encoding \"{}\" has no equivalent in encoding \"{}\"",
        hex(bytes), from.name(), to.name()
    )]
    Untranslatable {
        bytes: Vec<u8>,
        from: Encoding,
        to: Encoding,
    },
    /// A byte that no text holds.
    #[error("invalid byte sequence for encoding \"{}\": {}", encoding.name(), hex(bytes))]
    Invalid { bytes: Vec<u8>, encoding: Encoding },
    /// A character beyond ASCII, of an encoding that is not converted here.
    #[error("conversion between {} and UTF8 is not supported: {}", encoding.name(), hex(bytes))]
    NoConversion { bytes: Vec<u8>, encoding: Encoding },
}

impl Error {
    /// PostgreSQL's code for it.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Error::Untranslatable { .. } => "22P05",
            Error::Invalid { .. } => "22021",
            Error::NoConversion { .. } => "0A000",
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let shown: Vec<String> = bytes.iter().map(|b| format!("0x{b:02x}")).collect();
    shown.join(" ")
}

impl Encoding {
    pub const SQL_ASCII: Encoding = Encoding(0);
    pub const UTF8: Encoding = Encoding(6);
    pub const MULE_INTERNAL: Encoding = Encoding(7);
    pub const LATIN1: Encoding = Encoding(8);

    /// The encoding of that name. Only letters and digits of a name count, in any case: `UTF-8`,
    /// `'utf8'` and `unicode` are one.
    pub fn find(name: &str) -> Option<Encoding> {
        names::find(name).map(Encoding)
    }

    /// The encoding that PostgreSQL has under this number.
    pub fn from_number(number: i64) -> Option<Encoding> {
        let number = u8::try_from(number).ok()?;
        (usize::from(number) < names::NAMES.len()).then_some(Encoding(number))
    }

    /// All encodings, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Encoding> {
        (0..names::NAMES.len() as u8).map(Encoding)
    }

    /// PostgreSQL's number for it.
    pub fn number(self) -> u8 {
        self.0
    }

    /// PostgreSQL's name for it, as SHOW and ParameterStatus give it.
    pub fn name(self) -> &'static str {
        names::NAMES[usize::from(self.0)]
    }

    /// Whether text is converted at all. That of a client with SQL_ASCII is taken for UTF-8, and
    /// sent as UTF-8, as PostgreSQL does.
    #[inline]
    pub fn converts(self) -> bool {
        self != Encoding::UTF8 && self != Encoding::SQL_ASCII
    }

    /// Whether a client may have it. PostgreSQL refuses MULE_INTERNAL where the database has UTF-8.
    pub fn is_for_clients(self) -> bool {
        self != Encoding::MULE_INTERNAL
    }

    /// The text of bytes in this encoding, which must be one that [converts](Encoding::converts).
    /// The bytes may be cut anywhere: no state is carried from one piece to the next.
    pub fn decode(self, bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
        let mut out = String::new();
        match self.decode_into(bytes, &mut out) {
            Ok(None) => Ok(Cow::Owned(out)),
            Ok(Some(same)) => Ok(Cow::Borrowed(same)),
            Err(e) => Err(e),
        }
    }

    /// Appends the text of the bytes up to the first that cannot be converted, and says why it
    /// cannot. ASCII alone is given back, and nothing appended.
    fn decode_into<'b>(self, bytes: &'b [u8], out: &mut String) -> Result<Option<&'b str>, Error> {
        debug_assert!(self.converts(), "invariant: UTF-8 is not converted");
        if bytes.is_ascii()
            && !bytes.contains(&0)
            && let Ok(same) = std::str::from_utf8(bytes)
        {
            return Ok(Some(same));
        }
        let table = Table::of(self);
        out.reserve(bytes.len() + bytes.len() / 2);
        for &byte in bytes {
            let c = match (byte, table) {
                (0, _) => {
                    return Err(Error::Invalid {
                        bytes: vec![byte],
                        encoding: self,
                    });
                }
                (1..=0x7f, _) => char::from(byte),
                (_, None) => {
                    return Err(Error::NoConversion {
                        bytes: vec![byte],
                        encoding: self,
                    });
                }
                (_, Some(table)) => table.decode(byte).ok_or(Error::Untranslatable {
                    bytes: vec![byte],
                    from: self,
                    to: Encoding::UTF8,
                })?,
            };
            out.push(c);
        }
        Ok(None)
    }

    /// Appends the text of the bytes up to the first that cannot be converted, and says why it
    /// cannot: what came before it is good.
    pub fn decode_prefix(self, bytes: &[u8], out: &mut String) -> Result<(), Error> {
        if let Some(same) = self.decode_into(bytes, out)? {
            out.push_str(same);
        }
        Ok(())
    }

    /// The text in this encoding, which must be one that [converts](Encoding::converts).
    pub fn encode(self, text: &str) -> Result<Cow<'_, [u8]>, Error> {
        if text.is_ascii() {
            return Ok(Cow::Borrowed(text.as_bytes()));
        }
        let mut out = Vec::with_capacity(text.len());
        self.encode_into(text, &mut out)?;
        Ok(Cow::Owned(out))
    }

    /// Appends the text in this encoding. After an error what was appended is to be dropped.
    pub fn encode_into(self, text: &str, out: &mut Vec<u8>) -> Result<(), Error> {
        debug_assert!(self.converts(), "invariant: UTF-8 is not converted");
        if text.is_ascii() {
            out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        let table = Table::of(self);
        for c in text.chars() {
            if c.is_ascii() {
                out.push(c as u8);
                continue;
            }
            let bytes = || c.encode_utf8(&mut [0; 4]).as_bytes().to_vec();
            let table = table.ok_or_else(|| Error::NoConversion {
                bytes: bytes(),
                encoding: self,
            })?;
            out.push(table.encode(c).ok_or_else(|| Error::Untranslatable {
                bytes: bytes(),
                from: Encoding::UTF8,
                to: self,
            })?);
        }
        Ok(())
    }

    /// The text in this encoding with `?` for each character that it does not have.
    pub fn encode_lossy(self, text: &str) -> Vec<u8> {
        let table = Table::of(self);
        let byte = |c: char| match c.is_ascii() {
            true => c as u8,
            false => table.and_then(|t| t.encode(c)).unwrap_or(b'?'),
        };
        text.chars().map(byte).collect()
    }
}
