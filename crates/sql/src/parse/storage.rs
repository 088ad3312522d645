//! How tables, columns and indexes are to be stored, which the parser reads but a part of: lists of
//! parameters in WITH, SET and RESET, and TABLESPACE.
//!
//! A list in WITH is written so that the parser reads it, `"name" = 'value'`. A change of ALTER
//! TABLE becomes a default that no user can write, because it begins with the character 1; one of
//! the whole table is of a column whose name begins so.

use serde::{Deserialize, Serialize};
use sqlparser::ast::Expr;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::forms::{closing, insert, word};
use super::tokens::keyword;
use super::view::{Given, plain};
use crate::error::{Error, Result};
use crate::place::Place;

/// Begins the default that stands for a change.
const CHANGE: &str = "\u{1}storage ";
/// In the place of a column: the change is of the table.
pub const WHOLE_TABLE: &str = "\u{1}table";

/// A change of how a table or a column is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StorageChange {
    /// SET STATISTICS of a column.
    Statistics(i64),
    /// SET STORAGE of a column.
    Storage(String),
    /// SET and RESET of parameters.
    Options { given: Vec<Given>, reset: bool },
    /// Nothing that there is a choice of.
    Nothing,
}

impl StorageChange {
    /// The change that a default stands for, if it does.
    pub fn of_default(default: &Expr) -> Option<StorageChange> {
        let Expr::Identifier(name) = default else {
            return None;
        };
        serde_json::from_str(name.value.strip_prefix(CHANGE)?).ok()
    }
}

/// Writes out what a CREATE or an ALTER TABLE says.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let has = |kind| tokens.iter().take(5).any(|t| keyword(Some(t)) == kind);
    let is_table = has(Keyword::TABLE);
    match keyword(tokens.first()) {
        Keyword::CREATE if is_table || has(Keyword::INDEX) => created(tokens, is_table),
        Keyword::ALTER if keyword(tokens.get(1)) == Keyword::TABLE => altered(tokens),
        _ => Ok(()),
    }
}

fn is(tokens: &[TokenWithSpan], at: usize, token: &Token) -> bool {
    tokens.get(at).is_some_and(|t| t.token == *token)
}

/// The parameters of a list in parentheses, and the place behind it; `None`: it is none.
fn list(tokens: &[TokenWithSpan], open: usize) -> Option<(Vec<Given>, usize)> {
    if !is(tokens, open, &Token::LParen) {
        return None;
    }
    let close = closing(tokens, open)?;
    let items = tokens[open + 1..close].split(|t| t.token == Token::Comma);
    let given: Option<Vec<Given>> = items.map(parameter).collect();
    Some((given?, close + 1))
}

/// `name`, `space.name`, `name = value`.
fn parameter(tokens: &[TokenWithSpan]) -> Option<Given> {
    let at = tokens.iter().position(|t| t.token == Token::Eq);
    let (name, value) = tokens.split_at(at.unwrap_or(tokens.len()));
    let is_name = |(n, t): (usize, &TokenWithSpan)| match n % 2 {
        0 => matches!(t.token, Token::Word(_)),
        _ => t.token == Token::Period,
    };
    let named = matches!(name.len(), 1 | 3) && name.iter().enumerate().all(is_name);
    let is_value = match value {
        [] => true,
        [_, one] => matches!(
            one.token,
            Token::Word(_) | Token::Number(..) | Token::SingleQuotedString(_)
        ),
        [_, sign, one] => {
            matches!(sign.token, Token::Minus | Token::Plus)
                && matches!(one.token, Token::Number(..))
        }
        _ => false,
    };
    if !named || !is_value {
        return None;
    }
    let value = value.get(1..).map(|value| {
        let value = value.iter().filter(|t| t.token != Token::Plus);
        value.map(plain).collect()
    });
    Some((name.iter().map(plain).collect(), value))
}

/// The parameters of WITH behind a key's columns or an index, if they come next, as the parser
/// reads them.
fn with_list(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let Some((given, end)) = list(tokens, at + 1) else {
        return;
    };
    let items = given.into_iter().flat_map(|(name, value)| {
        [
            Token::Comma,
            Token::make_word(&name, Some('"')),
            Token::Eq,
            Token::SingleQuotedString(value.unwrap_or_else(|| "true".to_string())),
        ]
    });
    let items: Vec<Token> = items.skip(1).chain([Token::RParen]).collect();
    tokens.drain(at + 2..end);
    insert(tokens, at + 2, items);
}

/// Takes the parameters in WITH out of the tokens; `None`: there are none.
pub fn take_with(tokens: &mut Vec<TokenWithSpan>, at: usize) -> Option<Vec<Given>> {
    if keyword(tokens.get(at)) != Keyword::WITH {
        return None;
    }
    let (given, end) = list(tokens, at + 1)?;
    tokens.drain(at..end);
    Some(given)
}

/// WITH, TABLESPACE and USING of what is made, outside of parentheses and before its query.
fn created(tokens: &mut Vec<TokenWithSpan>, is_table: bool) -> Result<()> {
    let (mut at, mut depth) = (0, 0usize);
    while at < tokens.len() {
        match tokens[at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        match keyword(tokens.get(at)) {
            _ if depth > 0 => {}
            Keyword::AS => return Ok(()),
            Keyword::WITH if is(tokens, at + 1, &Token::LParen) => {
                if let Some(none) = tokens.get(at + 2).filter(|t| t.token == Token::RParen) {
                    let error = Error::new("42601", "syntax error at or near \")\"");
                    return Err(error.placed(Place::of_span(none.span)));
                }
                with_list(tokens, at);
            }
            Keyword::WITHOUT if is_table && word(tokens, at + 1) == "oids" => {
                tokens.drain(at..at + 2);
                continue;
            }
            Keyword::USING if is_table && !word(tokens, at + 1).is_empty() => {
                known_access_method(&word(tokens, at + 1))?;
                tokens.drain(at..at + 2);
                continue;
            }
            Keyword::TABLESPACE if at > 2 => tablespace(tokens, at)?,
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Takes out TABLESPACE with the name of the only one for what users make.
pub fn tablespace(tokens: &mut Vec<TokenWithSpan>, at: usize) -> Result<()> {
    let Some(Token::Word(w)) = tokens.get(at + 1).map(|t| &t.token) else {
        return Ok(());
    };
    // An index of that name.
    if w.keyword == Keyword::ON && w.quote_style.is_none() {
        return Ok(());
    }
    known_tablespace(&plain(&tokens[at + 1]))?;
    tokens.drain(at..at + 2);
    Ok(())
}

fn known_access_method(name: &str) -> Result<()> {
    match name {
        "heap" => Ok(()),
        _ => {
            let message = format!("access method \"{name}\" does not exist");
            Err(Error::new("42704", message))
        }
    }
}

/// Refuses a tablespace that there is not, or that is not for what users make.
pub fn known_tablespace(name: &str) -> Result<()> {
    match name {
        "pg_default" => Ok(()),
        "pg_global" => {
            let message = "only shared relations can be placed in pg_global tablespace";
            Err(Error::new("22023", message))
        }
        _ => {
            let message = format!("tablespace \"{name}\" does not exist");
            Err(Error::new("42704", message))
        }
    }
}

/// Where the action that begins at a place ends.
fn end_of_action(tokens: &[TokenWithSpan], from: usize) -> usize {
    let mut depth = 0_usize;
    let ends = |t: &TokenWithSpan| {
        match t.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Comma => return depth == 0,
            Token::SemiColon | Token::EOF => return true,
            _ => {}
        }
        false
    };
    let end = tokens[from..].iter().position(ends);
    end.map_or(tokens.len(), |n| from + n)
}

/// The actions of an ALTER TABLE.
fn altered(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    // Behind IF EXISTS and the table's name.
    let mut at = match word(tokens, 2).as_str() {
        "if" => 5,
        _ => 3,
    };
    while is(tokens, at, &Token::Period) {
        at += 2;
    }
    while at < tokens.len() {
        let end = end_of_action(tokens, at);
        let is_column = word(tokens, at) == "alter" && word(tokens, at + 1) != "constraint";
        let (column, first) = match is_column {
            true => {
                let name = at + 1 + usize::from(word(tokens, at + 1) == "column");
                (tokens.get(name).map(|t| t.token.clone()), name + 1)
            }
            false => (Some(Token::make_word(WHOLE_TABLE, Some('"'))), at),
        };
        let made = match change(tokens, first, end, is_column)? {
            Some(change) => column.zip(text(&change)),
            None => None,
        };
        let Some((column, text)) = made else {
            at = end + 1;
            continue;
        };
        if let Token::Number(..) = column {
            let message = "cannot refer to non-index column by number";
            return Err(Error::new("0A000", message));
        }
        tokens.drain(at..end);
        let keywords = |words: [&str; 2]| words.map(Token::make_keyword);
        let name = [column];
        let default = [Token::make_word(&text, Some('"'))];
        let new = keywords(["ALTER", "COLUMN"])
            .into_iter()
            .chain(name)
            .chain(keywords(["SET", "DEFAULT"]))
            .chain(default);
        insert(tokens, at, new);
        at += 7;
    }
    Ok(())
}

fn text(change: &StorageChange) -> Option<String> {
    // Strings, numbers and truths have a JSON form.
    let json = serde_json::to_string(change).ok()?;
    Some(format!("{CHANGE}{json}"))
}

/// The change that stands between two places.
fn change(
    tokens: &[TokenWithSpan],
    at: usize,
    end: usize,
    is_column: bool,
) -> Result<Option<StorageChange>> {
    let words: Vec<String> = (at..end.min(at + 4)).map(|n| word(tokens, n)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["set" | "reset", ..] = words[..]
        && let Some((given, behind)) = list(tokens, at + 1)
        && behind == end
    {
        let reset = words[0] == "reset";
        return Ok(Some(StorageChange::Options { given, reset }));
    }
    let shown = |n: usize| tokens.get(n).map_or(String::new(), plain);
    Ok(match (is_column, &words[..]) {
        (true, ["set", "statistics", ..]) => {
            let digits: String = (at + 2..end).map(shown).collect();
            digits.parse().ok().map(StorageChange::Statistics)
        }
        (true, ["set", "storage", _]) => Some(StorageChange::Storage(shown(at + 2))),
        (false, ["set", "tablespace", _]) => {
            known_tablespace(&shown(at + 2))?;
            Some(StorageChange::Nothing)
        }
        (false, ["set", "access", "method", _]) => {
            known_access_method(&shown(at + 3))?;
            Some(StorageChange::Nothing)
        }
        (false, ["set", "without", "oids" | "cluster"]) => Some(StorageChange::Nothing),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{parsed, statement};

    #[test]
    fn lists_are_read() {
        let text = parsed("create table t (a int) with (fillfactor = 70, autovacuum_enabled)");
        assert!(text.contains("\"fillfactor\" = '70'"), "{text}");
        assert!(text.contains("\"autovacuum_enabled\" = 'true'"), "{text}");
        let text = parsed("create index i on t (a) with (fillfactor = 70) tablespace pg_default");
        assert!(text.contains("\"fillfactor\" = '70'"), "{text}");
        for sql in [
            "alter table s.t set (toast.autovacuum_enabled = off), reset (fillfactor)",
            "alter table if exists t alter a set statistics -1, alter column b set storage plain",
            "alter table t alter a set (n_distinct = -0.5), add column b int",
            "alter table t set tablespace pg_default, set without oids",
        ] {
            statement(sql).expect(sql);
        }
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
        for (sql, state) in [
            ("create table t (a int) with (fillfactor = )", "42601"),
            ("create table t (a int) with ()", "42601"),
            ("alter table t set ()", "42601"),
            ("alter table t alter a set statistics x", "0A000"),
            ("alter table t set tablespace x", "42704"),
            ("create index i on t (a) tablespace pg_global", "22023"),
        ] {
            let error = statement(sql).expect_err(sql);
            assert_eq!(error.sqlstate(), state, "{sql}: {error}");
        }
    }
}
