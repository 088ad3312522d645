//! CREATE and DROP CAST.

use sqlparser::ast::DataType;
use sqlparser::tokenizer::Token;

use super::function::{self, FunctionName};
use super::tokens::Words;
use crate::dict::cast::Happens;
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub enum CastStatement {
    Create {
        types: Pair,
        method: NewMethod,
        context: Happens,
    },
    Drop {
        types: Pair,
        if_exists: bool,
    },
}

/// The types that a cast is from and to.
#[derive(Clone, Debug)]
pub struct Pair {
    pub source: DataType,
    pub target: DataType,
}

#[derive(Clone, Debug)]
pub enum NewMethod {
    Function(FunctionName),
    WithoutFunction,
    InOut,
}

impl CastStatement {
    pub fn command(&self) -> &'static str {
        match self {
            CastStatement::Create { .. } => "CREATE CAST",
            CastStatement::Drop { .. } => "DROP CAST",
        }
    }
}

/// After the word CREATE.
pub fn create(w: &mut Words<'_>) -> Result<Option<CastStatement>> {
    if !w.accept("cast") {
        return Ok(None);
    }
    let types = pair(w)?;
    let method = if w.accept("without function") {
        NewMethod::WithoutFunction
    } else if w.accept("with inout") {
        NewMethod::InOut
    } else {
        w.expect("with")?;
        w.expect("function")?;
        NewMethod::Function(function::function_name(w)?)
    };
    let context = if w.accept("as implicit") {
        Happens::Implicitly
    } else if w.accept("as assignment") {
        Happens::OnAssignment
    } else if w.accept("as") {
        return Err(w.unexpected());
    } else {
        Happens::WhenWritten
    };
    w.end()?;
    Ok(Some(CastStatement::Create {
        types,
        method,
        context,
    }))
}

/// After the word DROP. Nothing depends on a cast, whatever is to be done with what does.
pub fn drop(w: &mut Words<'_>) -> Result<Option<CastStatement>> {
    if !w.accept("cast") {
        return Ok(None);
    }
    let if_exists = w.accept("if exists");
    let types = pair(w)?;
    let _behaviour = w.accept("cascade") || w.accept("restrict");
    w.end()?;
    Ok(Some(CastStatement::Drop { types, if_exists }))
}

fn pair(w: &mut Words<'_>) -> Result<Pair> {
    w.expect_token(&Token::LParen)?;
    let source = function::data_type(w)?;
    w.expect("as")?;
    let target = function::data_type(w)?;
    w.expect_token(&Token::RParen)?;
    let of_column = |ty: &DataType| match ty {
        DataType::Custom(_, modifiers) => modifiers.iter().any(|m| m.starts_with('%')),
        _ => false,
    };
    match of_column(&source) || of_column(&target) {
        true => Err(Error::unsupported("casts of %TYPE")),
        false => Ok(Pair { source, target }),
    }
}
