//! CREATE and DROP EXTENSION.

use sqlparser::tokenizer::Token;

use super::tokens::Words;
use crate::error::Result;

#[derive(Clone, Debug)]
pub enum ExtensionStatement {
    Create { name: String, if_not_exists: bool },
    Drop { names: Vec<String>, if_exists: bool },
}

impl ExtensionStatement {
    pub fn command(&self) -> &'static str {
        match self {
            ExtensionStatement::Create { .. } => "CREATE EXTENSION",
            ExtensionStatement::Drop { .. } => "DROP EXTENSION",
        }
    }
}

/// After the word CREATE. Schema and version have nothing to say about an extension that is there,
/// and there is none that could be made.
pub fn create(w: &mut Words<'_>) -> Result<Option<ExtensionStatement>> {
    if !w.accept("extension") {
        return Ok(None);
    }
    let if_not_exists = w.accept("if not exists");
    let name = w.name()?;
    w.accept("with");
    while !w.at_end() {
        if w.accept("schema") {
            w.name()?;
        } else if w.accept("version") {
            w.name().or_else(|_| w.string())?;
        } else {
            w.expect("cascade")?;
        }
    }
    Ok(Some(ExtensionStatement::Create {
        name,
        if_not_exists,
    }))
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
    let _behaviour = w.accept("cascade") || w.accept("restrict");
    Ok(Some(ExtensionStatement::Drop { names, if_exists }))
}
