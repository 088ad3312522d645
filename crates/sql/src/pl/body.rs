//! A body, read and with room for the plans of its pieces.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use plpgsql::Body;

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
