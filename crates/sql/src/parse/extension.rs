//! CREATE, ALTER and DROP EXTENSION.

use sqlparser::tokenizer::Token;

use super::tokens::Words;
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub enum ExtensionStatement {
    Create(CreateExtension),
    Alter {
        name: String,
        change: ExtensionChange,
    },
    Drop {
        names: Vec<String>,
        if_exists: bool,
        cascade: bool,
    },
}

#[derive(Clone, Debug, Default)]
pub struct CreateExtension {
    pub name: String,
    pub if_not_exists: bool,
    pub schema: Option<String>,
    pub version: Option<String>,
}

#[derive(Clone, Debug)]
pub enum ExtensionChange {
    /// To a version; `None`: to the newest.
    Update(Option<String>),
    Schema(String),
}

impl ExtensionStatement {
    pub fn command(&self) -> &'static str {
        match self {
            ExtensionStatement::Create(_) => "CREATE EXTENSION",
            ExtensionStatement::Alter { .. } => "ALTER EXTENSION",
            ExtensionStatement::Drop { .. } => "DROP EXTENSION",
        }
    }
}

/// After the word CREATE. CASCADE makes the extensions that one needs, and none of those that there
/// are needs another.
pub fn create(w: &mut Words<'_>) -> Result<Option<ExtensionStatement>> {
    if !w.accept("extension") {
        return Ok(None);
    }
    let mut new = CreateExtension {
        if_not_exists: w.accept("if not exists"),
        name: w.name()?,
        ..CreateExtension::default()
    };
    w.accept("with");
    let again = || Error::new("42601", "conflicting or redundant options");
    let mut cascade = false;
    while !w.at_end() {
        let repeated = if w.accept("schema") {
            new.schema.replace(w.name()?).is_some()
        } else if w.accept("version") {
            new.version.replace(w.name_or_string()?).is_some()
        } else {
            w.expect("cascade")?;
            std::mem::replace(&mut cascade, true)
        };
        if repeated {
            return Err(again());
        }
    }
    Ok(Some(ExtensionStatement::Create(new)))
}

/// After the word ALTER.
pub fn alter(w: &mut Words<'_>) -> Result<Option<ExtensionStatement>> {
    if !w.accept("extension") {
        return Ok(None);
    }
    let name = w.name()?;
    let change = if w.accept("update") {
        let to = match w.accept("to") {
            true => Some(w.name_or_string()?),
            false => None,
        };
        ExtensionChange::Update(to)
    } else if w.accept("set schema") {
        ExtensionChange::Schema(w.name()?)
    } else if w.precedes("add") || w.precedes("drop") {
        return Err(Error::unsupported("ALTER EXTENSION .. ADD and DROP"));
    } else {
        return Err(w.unexpected());
    };
    w.end()?;
    Ok(Some(ExtensionStatement::Alter { name, change }))
}

/// After the word DROP.
pub fn drop(w: &mut Words<'_>) -> Result<Option<ExtensionStatement>> {
    if !w.accept("extension") {
        return Ok(None);
    }
    let if_exists = w.accept("if exists");
    let mut names = vec![w.name()?];
    while w.accept_token(&Token::Comma) {
        names.push(w.name()?);
    }
    let cascade = w.accept("cascade");
    if !cascade {
        w.accept("restrict");
    }
    Ok(Some(ExtensionStatement::Drop {
        names,
        if_exists,
        cascade,
    }))
}
