//! The attributes of `CREATE TYPE .. AS RANGE`.

use sqlparser::ast::DataType;
use sqlparser::tokenizer::Token;

use super::function::data_type;
use super::tokens::Words;
use crate::bind::names::Qualified;
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct RangeAttributes {
    pub subtype: DataType,
    pub class: Option<Qualified>,
    pub collation: Option<Qualified>,
    /// What says how far bounds are from each other.
    pub difference: Option<Qualified>,
    pub canonical: Option<Qualified>,
    pub multirange: Option<Qualified>,
}

/// A name that may be written as a string.
fn named(w: &mut Words<'_>) -> Result<Qualified> {
    match w.peek() {
        Some(Token::Word(_)) => w.relation(),
        _ => Ok(Qualified::bare(&w.string()?)),
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new("42601", "conflicting or redundant options")),
    }
}

/// After the words AS RANGE.
pub fn attributes(w: &mut Words<'_>) -> Result<RangeAttributes> {
    w.expect_token(&Token::LParen)?;
    let mut subtype = None;
    let mut made = RangeAttributes {
        subtype: DataType::Unspecified,
        class: None,
        collation: None,
        difference: None,
        canonical: None,
        multirange: None,
    };
    loop {
        let name = w.name()?;
        w.expect_token(&Token::Eq)?;
        match name.as_str() {
            "subtype" => once(&mut subtype, data_type(w)?)?,
            "subtype_opclass" => once(&mut made.class, named(w)?)?,
            "collation" => once(&mut made.collation, named(w)?)?,
            "subtype_diff" => once(&mut made.difference, named(w)?)?,
            "canonical" => once(&mut made.canonical, named(w)?)?,
            "multirange_type_name" => once(&mut made.multirange, named(w)?)?,
            _ => {
                let message = format!("type attribute \"{name}\" not recognized");
                return Err(Error::new("42601", message));
            }
        }
        if !w.accept_token(&Token::Comma) {
            break;
        }
    }
    w.expect_token(&Token::RParen)?;
    made.subtype =
        subtype.ok_or_else(|| Error::new("42601", "type attribute \"subtype\" is required"))?;
    Ok(made)
}
