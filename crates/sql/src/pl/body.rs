//! A body, read and with room for the plans of its pieces.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use plpgsql::Body;
use plpgsql::tree::{Block, Declared, RowsOf, Sql, Statement, What};

use super::piece::Planned;
use crate::dict::Function;
use crate::dict::function::Language;
use crate::error::{Error, Result};
use crate::parse;

pub struct Code {
    function: Option<Arc<Function>>,
    /// Of a body in SQL there is none.
    pub body: Option<Body>,
    pub text: String,
    /// By the numbers of the pieces.
    pub plans: Vec<ArcSwapOption<Planned>>,
    /// As contexts of errors call it.
    pub called: String,
}

impl Code {
    pub fn new(function: &Arc<Function>) -> Result<Code> {
        let mut code = Code::of_text(&function.body, function.language)?;
        code.called = function.signature();
        code.function = Some(function.clone());
        Ok(code)
    }

    pub fn of_block(text: &str) -> Result<Code> {
        Code::of_text(text, Language::PlPgSql)
    }

    fn of_text(text: &str, language: Language) -> Result<Code> {
        let (body, pieces) = match language {
            Language::PlPgSql => {
                let body = plpgsql::parse(text).map_err(|e| syntax(e, text))?;
                let pieces = body.pieces;
                (Some(body), pieces)
            }
            Language::Sql => (None, parse::split(text).len()),
        };
        Ok(Code {
            function: None,
            body,
            text: text.to_string(),
            plans: (0..pieces).map(|_| ArcSwapOption::empty()).collect(),
            called: "inline_code_block".to_string(),
        })
    }

    pub fn is_of(&self, function: &Arc<Function>) -> bool {
        let own = self.function.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, function))
    }
}

fn syntax(e: plpgsql::Error, text: &str) -> Error {
    let position = text[..e.at].chars().count() as u32 + 1;
    let error = Error::new(e.sqlstate, e.message)
        .at(position)
        .in_statement(text);
    match e.hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// Reads each piece of SQL in a body, so that what is no SQL is an error at once.
pub fn check(code: &Code) -> Result<()> {
    match &code.body {
        Some(body) => check_block(&body.block),
        None => Ok(()),
    }
}

fn check_block(block: &Block) -> Result<()> {
    for declaration in &block.declarations {
        if let Declared::Variable {
            default: Some(default),
            ..
        } = &declaration.what
        {
            expression(default)?;
        }
    }
    check_all(&block.body)?;
    for handler in block.handlers.iter().flatten() {
        super::condition::check(&handler.conditions)?;
        check_all(&handler.body)?;
    }
    Ok(())
}

fn check_all(list: &[Statement]) -> Result<()> {
    list.iter().try_for_each(|s| check_one(&s.what))
}

fn expression(piece: &Sql) -> Result<()> {
    query(&format!("SELECT {}", piece.text), &piece.text)
}

fn query(text: &str, shown: &str) -> Result<()> {
    let moved = (text.chars().count() - shown.chars().count()) as u32;
    parse::statement(text)
        .map(drop)
        .map_err(|e| e.moved_back(moved).in_statement(shown))
}

fn check_rows(rows: &RowsOf) -> Result<()> {
    match rows {
        RowsOf::Query(sql) => query(&sql.text, &sql.text),
        RowsOf::Text { text, using } => {
            expression(text)?;
            using.iter().try_for_each(expression)
        }
    }
}

fn check_one(what: &What) -> Result<()> {
    match what {
        What::Block(block) => check_block(block),
        What::Assign { value, .. } => expression(value),
        What::If {
            branches,
            otherwise,
        } => {
            for (condition, body) in branches {
                expression(condition)?;
                check_all(body)?;
            }
            check_all(otherwise)
        }
        What::Case {
            subject,
            branches,
            otherwise,
        } => {
            subject.iter().try_for_each(|(e, _)| expression(e))?;
            for (condition, body) in branches {
                expression(condition)?;
                check_all(body)?;
            }
            check_all(otherwise.as_deref().unwrap_or_default())
        }
        What::Loop { body, .. } => check_all(body),
        What::While {
            condition, body, ..
        } => {
            expression(condition)?;
            check_all(body)
        }
        What::ForRange {
            from,
            to,
            step,
            body,
            ..
        } => {
            expression(from)?;
            expression(to)?;
            step.iter().try_for_each(expression)?;
            check_all(body)
        }
        What::ForRows { rows, body, .. } => {
            check_rows(rows)?;
            check_all(body)
        }
        What::ForEach { array, body, .. } => {
            expression(array)?;
            check_all(body)
        }
        What::Exit { when, .. } => when.iter().try_for_each(expression),
        What::Return(value) => match value {
            // A record stands for its row.
            Some(value) => expression(value),
            None => Ok(()),
        },
        What::ReturnNext(_) | What::ReturnQuery(_) => Err(Error::new(
            "42804",
            format!("cannot use {} in a non-SETOF function", what.called()),
        )),
        What::Raise(raise) => super::raise::check(raise),
        What::Assert { condition, message } => {
            expression(condition)?;
            message.iter().try_for_each(expression)
        }
        What::Perform(sql) => expression(sql),
        What::Execute { sql, .. } => query(&sql.text, &sql.text),
        What::ExecuteText { text, using, .. } => {
            expression(text)?;
            using.iter().try_for_each(expression)
        }
        What::Diagnostics { .. } | What::Null => Ok(()),
        What::Commit { .. } | What::Rollback { .. } => {
            Err(Error::unsupported("COMMIT and ROLLBACK within a body"))
        }
    }
}
