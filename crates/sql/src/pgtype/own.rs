//! Text and binary forms of the types that extensions bring.

use block::value::Datum;
use charset::Encoding;

use super::{client_text, hstore};
use crate::error::Result;
use crate::types::own::Kind;

pub fn parse(kind: Kind, text: &str) -> Result<Datum> {
    Ok(match kind {
        Kind::Citext => Datum::Folded(text.to_string()),
        Kind::Hstore => Datum::Json(hstore::made(hstore::parse(text)?)),
    })
}

pub fn binary_in(kind: Kind, bytes: &[u8], encoding: Encoding) -> Result<Datum> {
    Ok(match kind {
        Kind::Citext => Datum::Folded(client_text(bytes, encoding)?.into_owned()),
        Kind::Hstore => Datum::Json(hstore::made(hstore::binary_in(bytes, encoding)?)),
    })
}
