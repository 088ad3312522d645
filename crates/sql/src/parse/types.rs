//! CREATE TYPE, and ALTER TYPE.

use sqlparser::ast::DataType;
use sqlparser::tokenizer::Token;

use super::define::{Change, Definition};
use super::function::data_type;
use super::range_type::{self, RangeAttributes};
use super::role::role_name;
use super::tokens::Words;
use crate::bind::names::Qualified;
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub enum TypeDefinition {
    CreateEnum {
        name: Qualified,
        labels: Vec<String>,
    },
    CreateComposite {
        name: Qualified,
        attributes: Vec<(String, DataType)>,
    },
    CreateRange {
        name: Qualified,
        attributes: Box<RangeAttributes>,
    },
    Alter {
        name: Qualified,
        change: TypeChange,
    },
}

#[derive(Clone, Debug)]
pub enum TypeChange {
    AddValue {
        label: String,
        if_not_exists: bool,
        /// Before (`true`) or after another label; without one at the end.
        place: Option<(bool, String)>,
    },
    RenameValue(String, String),
    Attribute(AttributeChange),
    /// What types have in common with relations.
    Common(Change),
}

/// Of a composite type.
#[derive(Clone, Debug)]
pub enum AttributeChange {
    Rename(String, String),
    Add(String, DataType),
    Drop { name: String, if_exists: bool },
    Retype(String, DataType),
}

/// The attributes of a new type, behind its parenthesis.
fn attributes(w: &mut Words<'_>) -> Result<Vec<(String, DataType)>> {
    let mut all = Vec::new();
    if w.accept_token(&Token::RParen) {
        return Ok(all);
    }
    loop {
        let name = w.name()?;
        all.push((name, attribute_type(w)?));
        if !w.accept_token(&Token::Comma) {
            break;
        }
    }
    w.expect_token(&Token::RParen)?;
    Ok(all)
}

fn attribute_type(w: &mut Words<'_>) -> Result<DataType> {
    let ty = data_type(w)?;
    match w.accept("collate") {
        true => Err(Error::unsupported("COLLATE of an attribute")),
        false => Ok(ty),
    }
}

/// ALTER TYPE of attributes; `None`: of something else.
fn attribute_change(w: &mut Words<'_>) -> Result<Option<AttributeChange>> {
    let change = if w.accept("rename attribute") {
        let from = w.name()?;
        w.expect("to")?;
        AttributeChange::Rename(from, w.name()?)
    } else if w.accept("add attribute") {
        let name = w.name()?;
        AttributeChange::Add(name, attribute_type(w)?)
    } else if w.accept("drop attribute") {
        let if_exists = w.accept("if exists");
        let name = w.name()?;
        AttributeChange::Drop { name, if_exists }
    } else if w.accept("alter attribute") {
        let name = w.name()?;
        let _ = w.accept("set data");
        w.expect("type")?;
        AttributeChange::Retype(name, attribute_type(w)?)
    } else {
        return Ok(None);
    };
    // What depends on the type is refused whatever this says.
    let _ = w.accept("cascade") || w.accept("restrict");
    match w.peek() {
        Some(Token::Comma) => Err(Error::unsupported("several changes of a type at once")),
        _ => Ok(Some(change)),
    }
}

/// After the word CREATE.
pub fn create(w: &mut Words<'_>) -> Result<Option<Definition>> {
    if !w.accept("type") {
        return Ok(None);
    }
    let name = w.relation()?;
    if w.accept("as range") {
        let attributes = Box::new(range_type::attributes(w)?);
        let made = TypeDefinition::CreateRange { name, attributes };
        return Ok(Some(Definition::Type(made)));
    }
    if !w.precedes("as enum") {
        if w.accept("as") && w.accept_token(&Token::LParen) {
            let attributes = attributes(w)?;
            let made = TypeDefinition::CreateComposite { name, attributes };
            return Ok(Some(Definition::Type(made)));
        }
        let what = "CREATE TYPE other than AS ENUM, AS RANGE and of attributes";
        return Err(Error::unsupported(what));
    }
    w.expect("as enum")?;
    w.expect_token(&Token::LParen)?;
    let mut labels = Vec::new();
    if !w.accept_token(&Token::RParen) {
        loop {
            labels.push(w.string()?);
            if !w.accept_token(&Token::Comma) {
                break;
            }
        }
        w.expect_token(&Token::RParen)?;
    }
    let made = TypeDefinition::CreateEnum { name, labels };
    Ok(Some(Definition::Type(made)))
}

/// After the word ALTER.
pub fn alter(w: &mut Words<'_>) -> Result<Option<Definition>> {
    if !w.accept("type") {
        return Ok(None);
    }
    let name = w.relation()?;
    let change = if let Some(change) = attribute_change(w)? {
        TypeChange::Attribute(change)
    } else if w.accept("add value") {
        let if_not_exists = w.accept("if not exists");
        let label = w.string()?;
        let place = match (w.accept("before"), w.accept("after")) {
            (false, false) => None,
            (before, _) => Some((before, w.string()?)),
        };
        TypeChange::AddValue {
            label,
            if_not_exists,
            place,
        }
    } else if w.accept("rename value") {
        let from = w.string()?;
        w.expect("to")?;
        TypeChange::RenameValue(from, w.string()?)
    } else if w.accept("rename to") {
        TypeChange::Common(Change::Rename(w.name()?))
    } else if w.accept("owner to") {
        TypeChange::Common(Change::Owner(role_name(w)?))
    } else if w.accept("set schema") {
        TypeChange::Common(Change::Schema(w.name()?))
    } else {
        return match w.word().as_deref() {
            Some("add" | "drop" | "alter" | "rename" | "set") => {
                Err(Error::unsupported("this form of ALTER TYPE"))
            }
            _ => Err(w.unexpected()),
        };
    };
    Ok(Some(Definition::Type(TypeDefinition::Alter {
        name,
        change,
    })))
}
