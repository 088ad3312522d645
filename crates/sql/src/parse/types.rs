//! CREATE TYPE .. AS ENUM and ALTER TYPE.

use sqlparser::tokenizer::Token;

use super::define::{Change, Definition};
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
    /// What types have in common with relations.
    Common(Change),
}

/// After the word CREATE.
pub fn create(w: &mut Words<'_>) -> Result<Option<Definition>> {
    if !w.accept("type") {
        return Ok(None);
    }
    let name = w.relation()?;
    if w.accept("as range") {
        return Err(Error::unsupported("range types"));
    }
    if !w.precedes("as enum") {
        let what = match w.accept("as") && w.peek() == Some(&Token::LParen) {
            true => "composite types",
            false => "CREATE TYPE other than AS ENUM",
        };
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
    let change = if w.accept("add value") {
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
                Err(Error::unsupported("ALTER TYPE of composite and base types"))
            }
            _ => Err(w.unexpected()),
        };
    };
    Ok(Some(Definition::Type(TypeDefinition::Alter {
        name,
        change,
    })))
}
