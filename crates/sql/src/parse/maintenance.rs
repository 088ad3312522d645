//! The tables of VACUUM and ANALYZE, LOCK TABLE, and the statements on sequences.

use sqlparser::ast;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::dialect::Postgres;
use super::tokens::Words;
use super::utility::{SequenceOption, TableLock, Utility};
use crate::bind::names::Qualified;
use crate::error::Result;

/// A table of ANALYZE, and the columns that it is for: all, if none is named.
#[derive(Clone, Debug, PartialEq)]
pub struct Analyzed {
    pub table: Qualified,
    pub columns: Vec<String>,
}

/// Tables, each perhaps with a list of columns.
pub fn table_list(w: &mut Words<'_>) -> Result<Vec<Analyzed>> {
    let mut tables = Vec::new();
    while !w.at_end() {
        let table = w.relation()?;
        let mut columns = Vec::new();
        if w.accept_token(&Token::LParen) {
            columns.push(w.name()?);
            while w.accept_token(&Token::Comma) {
                columns.push(w.name()?);
            }
            w.expect_token(&Token::RParen)?;
        }
        tables.push(Analyzed { table, columns });
        if !w.accept_token(&Token::Comma) {
            break;
        }
    }
    Ok(tables)
}

pub fn lock_table(w: &mut Words<'_>) -> Result<Utility> {
    w.bump();
    w.accept("table");
    let mut tables = Vec::new();
    loop {
        w.accept("only");
        tables.push(w.relation()?);
        w.accept_token(&Token::Mul);
        if !w.accept_token(&Token::Comma) {
            break;
        }
    }
    let mut mode = TableLock::AccessExclusive;
    if w.accept("in") {
        mode = lock_mode(w)?;
        w.expect("mode")?;
    }
    Ok(Utility::LockTable {
        tables,
        mode,
        no_wait: w.accept("nowait"),
    })
}

fn lock_mode(w: &mut Words<'_>) -> Result<TableLock> {
    // Longer names first: each is tried as a whole.
    let modes = [
        ("access share", TableLock::AccessShare),
        ("row share", TableLock::RowShare),
        ("row exclusive", TableLock::RowExclusive),
        ("share update exclusive", TableLock::ShareUpdateExclusive),
        ("share row exclusive", TableLock::ShareRowExclusive),
        ("share", TableLock::Share),
        ("access exclusive", TableLock::AccessExclusive),
        ("exclusive", TableLock::Exclusive),
    ];
    modes
        .into_iter()
        .find(|(words, _)| w.accept(words))
        .map(|(_, mode)| mode)
        .ok_or_else(|| w.unexpected())
}

/// For how long a sequence is to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    Permanent,
    Unlogged,
    Temporary,
}

/// What CREATE makes, if it is a sequence.
pub fn accept_sequence(w: &mut Words<'_>) -> Option<Persistence> {
    let begin = w.mark();
    if w.accept("unlogged sequence") {
        return Some(Persistence::Unlogged);
    }
    let _ = w.accept("local") || w.accept("global");
    let temporary = w.accept("temporary") || w.accept("temp");
    if w.accept("sequence") {
        return Some(match temporary {
            true => Persistence::Temporary,
            false => Persistence::Permanent,
        });
    }
    w.back_to(begin);
    None
}

pub fn create_sequence(w: &mut Words<'_>, persistence: Persistence) -> Result<Utility> {
    let if_not_exists = w.accept("if not exists");
    let name = w.relation()?;
    let mut ty = None;
    if w.accept("as") {
        ty = Some(data_type(&w.name()?)?);
    }
    let mut options = Vec::new();
    if persistence == Persistence::Unlogged {
        options.push(SequenceOption::Logged(false));
    }
    while !w.at_end() {
        options.push(sequence_option(w)?);
    }
    Ok(Utility::CreateSequence {
        name,
        temporary: persistence == Persistence::Temporary,
        if_not_exists,
        ty,
        options,
    })
}

pub fn alter_sequence(w: &mut Words<'_>) -> Result<Utility> {
    let if_exists = w.accept("if exists");
    let name = w.relation()?;
    let mut options = Vec::new();
    while !w.at_end() {
        options.push(sequence_option(w)?);
    }
    Ok(Utility::AlterSequence {
        name,
        if_exists,
        options,
    })
}

fn data_type(name: &str) -> Result<ast::DataType> {
    let syntax = |e| super::syntax_error(e, name);
    Parser::new(&Postgres)
        .try_with_sql(name)
        .map_err(syntax)?
        .parse_data_type()
        .map_err(syntax)
}

pub(super) fn sequence_option(w: &mut Words<'_>) -> Result<SequenceOption> {
    Ok(if w.accept("increment") {
        w.accept("by");
        SequenceOption::Increment(w.integer()?)
    } else if w.accept("no minvalue") {
        SequenceOption::Min(None)
    } else if w.accept("no maxvalue") {
        SequenceOption::Max(None)
    } else if w.accept("minvalue") {
        SequenceOption::Min(Some(w.integer()?))
    } else if w.accept("maxvalue") {
        SequenceOption::Max(Some(w.integer()?))
    } else if w.accept("start") {
        w.accept("with");
        SequenceOption::Start(w.integer()?)
    } else if w.accept("restart") {
        let given = w.accept("with") || matches!(w.peek(), Some(Token::Number(..) | Token::Minus));
        SequenceOption::Restart(if given { Some(w.integer()?) } else { None })
    } else if w.accept("cache") {
        SequenceOption::Cache(w.integer()?)
    } else if w.accept("nocache") || w.accept("no cache") {
        SequenceOption::Cache(1)
    } else if w.accept("order") {
        SequenceOption::Order(true)
    } else if w.accept("noorder") || w.accept("no order") {
        SequenceOption::Order(false)
    } else if w.accept("no cycle") || w.accept("nocycle") {
        SequenceOption::Cycle(false)
    } else if w.accept("cycle") {
        SequenceOption::Cycle(true)
    } else if w.accept("as") {
        SequenceOption::Type(data_type(&w.name()?)?)
    } else if w.accept("sequence name") {
        SequenceOption::Name(w.relation()?)
    } else if w.accept("rename to") {
        SequenceOption::Rename(w.name()?)
    } else if w.accept("owner to") {
        SequenceOption::Owner(super::role::role_name(w)?)
    } else if w.accept("owned by") {
        if w.accept("none") {
            SequenceOption::OwnedBy(None)
        } else {
            let mut path = vec![w.name()?];
            while w.accept_token(&Token::Period) {
                path.push(w.name()?);
            }
            match (path.pop(), path.pop()) {
                (Some(column), Some(name)) if path.len() < 2 => {
                    let schema = path.pop();
                    SequenceOption::OwnedBy(Some((Qualified { schema, name }, column)))
                }
                _ => return Err(w.unexpected()),
            }
        }
    } else {
        return Err(w.unexpected());
    })
}
