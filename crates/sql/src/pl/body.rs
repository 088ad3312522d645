//! A body, read and with room for the plans of its pieces.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use plpgsql::Body;
use plpgsql::tree::Sql;

use super::piece::Planned;
use crate::dict::function::Language;
use crate::dict::{Dict, Function, Table};
use crate::error::{Error, Result};
use crate::parse;
use crate::types::SqlType;
use crate::types::composite::CompositeType;

pub struct Code {
    function: Option<Arc<Function>>,
    /// Of a body in SQL there is none.
    pub body: Option<Body>,
    pub text: String,
    /// It is in Oracle's words.
    pub oracle: bool,
    /// By the numbers of the pieces.
    pub plans: Vec<ArcSwapOption<Planned>>,
    /// As contexts of errors call it.
    pub called: String,
    /// The names that pieces are, part by part, as far as somebody has asked. `None`: it is no name.
    names: Vec<OnceLock<Option<Vec<String>>>>,
    /// Whether it may read what only a trigger is told, as `TG_OP`.
    pub asks_trigger: bool,
    row: ArcSwapOption<RowOfFunction>,
}

/// The row that a function gives as a value.
pub struct RowOfFunction {
    /// The table whose row it is, if it is one's. A table is another one when its columns change,
    /// and a function when its types do.
    table: Option<Arc<Table>>,
    /// With their modifiers.
    pub columns: Vec<(SqlType, i32)>,
    pub row: CompositeType,
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

    pub fn of_oracle_block(text: &str) -> Result<Code> {
        Code::of_text(text, Language::PlSql)
    }

    fn of_text(text: &str, language: Language) -> Result<Code> {
        crate::parse::by_number::refuse(text)?;
        match language {
            Language::PlPgSql => {
                let body = plpgsql::parse(text).map_err(|e| syntax(e, text))?;
                Ok(Code::of_body(text, body))
            }
            Language::PlSql => {
                let body = plpgsql::parse_oracle(text).map_err(|e| syntax(e, text))?;
                let mut code = Code::of_body(text, body);
                code.oracle = true;
                Ok(code)
            }
            Language::Sql => Ok(Code::of_pieces(text, None, parse::split(text).len())),
            Language::C => Ok(Code::of_pieces(text, None, 0)),
        }
    }

    fn of_body(text: &str, body: Body) -> Code {
        let pieces = body.pieces;
        Code::of_pieces(text, Some(body), pieces)
    }

    fn of_pieces(text: &str, body: Option<Body>, pieces: usize) -> Code {
        Code {
            function: None,
            body,
            text: text.to_string(),
            oracle: false,
            plans: (0..pieces).map(|_| ArcSwapOption::empty()).collect(),
            called: "inline_code_block".to_string(),
            names: (0..pieces).map(|_| OnceLock::new()).collect(),
            asks_trigger: asks_trigger(text),
            row: ArcSwapOption::empty(),
        }
    }

    /// The row that the function gives as a value. `None`: nobody knows its columns.
    pub fn row(&self, function: &Function, dict: &Dict) -> Option<Arc<RowOfFunction>> {
        let table = function.row_of.and_then(|oid| dict.table_by_oid(oid));
        if let Some(known) = self.row.load_full() {
            let is_same = match (&known.table, table) {
                (Some(known), Some(now)) => Arc::ptr_eq(known, now),
                (known, now) => known.is_none() && now.is_none(),
            };
            if is_same {
                return Some(known);
            }
        }
        let columns = function.columns(dict)?.into_iter();
        let row = Arc::new(RowOfFunction {
            table: table.cloned(),
            columns: columns.map(|(_, ty, typmod)| (ty, typmod)).collect(),
            row: function.row_type(dict)?,
        });
        self.row.store(Some(row.clone()));
        Some(row)
    }

    /// The parts of the name that a piece is, if it is one and nothing else.
    pub fn name(&self, sql: &Sql) -> Option<&[String]> {
        let parts = || {
            let name = crate::session::relation_name(&sql.text).ok()?;
            Some(name.schema.into_iter().chain([name.name]).collect())
        };
        self.names[sql.id].get_or_init(parts).as_deref()
    }

    pub fn is_of(&self, function: &Arc<Function>) -> bool {
        let own = self.function.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, function))
    }
}

/// Whether a text may have a name in it that begins with `tg_`, which may be written by codes.
fn asks_trigger(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("tg_") || text.contains("u&\"")
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
