//! What PostgreSQL's grammar says of constraints and the parser's does not: INCLUDE, WITH and USING
//! INDEX TABLESPACE of a key, NULLS [NOT] DISTINCT of a column's own UNIQUE, and the columns of ON
//! DELETE SET NULL and SET DEFAULT.
//!
//! They are taken out of the tokens and put where the parser keeps what only MySQL has: a table's
//! key has them as the comment of its index, a table's foreign key as the name of an index, and a
//! column's constraint as a comment of the column, which stands before the constraint. No user can
//! write such a text, because it begins with the character 1.

use serde::{Deserialize, Serialize};
use sqlparser::ast::{ColumnOption, ColumnOptionDef, ForeignKeyConstraint, IndexOption};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::forms::{closing, insert, opening, word};
use super::storage;
use super::tokens::keyword;
use super::view::Given;
use crate::bind::names;
use crate::error::{Error, Result};
use crate::place::Place;

/// Begins the text that stands for what was taken.
const MARK: &str = "\u{1}constraint ";

/// What is said of a constraint beside what the tree has of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Clauses {
    /// Columns of INCLUDE.
    pub include: Vec<String>,
    /// NULLS NOT DISTINCT of a column's UNIQUE.
    pub nulls_not_distinct: bool,
    /// Columns of ON DELETE SET NULL or SET DEFAULT.
    pub set: Vec<String>,
    /// Parameters of a key's index.
    pub options: Vec<Given>,
}

impl Clauses {
    fn text(&self) -> Option<String> {
        if *self == Clauses::default() {
            return None;
        }
        // Strings and a truth have a JSON form.
        let json = serde_json::to_string(self).ok()?;
        Some(format!("{MARK}{json}"))
    }

    fn of_text(text: &str) -> Option<Clauses> {
        serde_json::from_str(text.strip_prefix(MARK)?).ok()
    }

    /// Those of a table's key.
    pub fn of_key(options: &[IndexOption]) -> Result<Clauses> {
        match options {
            [] => Ok(Clauses::default()),
            [IndexOption::Comment(text)] => Clauses::of_text(text).ok_or_else(|| wrong("comment")),
            [IndexOption::Comment(_), ..] => Err(wrong("comment")),
            [IndexOption::Using(_), ..] => Err(wrong("using")),
        }
    }

    /// Those of a table's foreign key.
    pub fn of_foreign(key: &ForeignKeyConstraint) -> Result<Clauses> {
        match &key.index_name {
            None => Ok(Clauses::default()),
            Some(name) => Clauses::of_text(&name.value).ok_or_else(|| wrong(&name.value)),
        }
    }
}

fn wrong(word: &str) -> Error {
    Error::new("42601", format!("syntax error at or near \"{word}\""))
}

/// The options of a column, each with what was taken out of it.
pub fn of_column(options: &[ColumnOptionDef]) -> Vec<(&ColumnOptionDef, Clauses)> {
    let mut found = Vec::with_capacity(options.len());
    let mut taken = Clauses::default();
    for option in options {
        match &option.option {
            ColumnOption::Comment(text) if text.starts_with(MARK) => {
                taken = Clauses::of_text(text).unwrap_or_default();
            }
            _ => found.push((option, std::mem::take(&mut taken))),
        }
    }
    found
}

/// Takes the clauses of all constraints of a CREATE TABLE or ALTER TABLE.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    if !is_of_table(tokens) {
        return Ok(());
    }
    let mut at = 0;
    while at < tokens.len() {
        let follows_name = at
            .checked_sub(1)
            .is_some_and(|b| is(tokens, b, &Token::Period));
        match keyword(tokens.get(at)) {
            _ if follows_name => {}
            Keyword::UNIQUE => key(tokens, at, at + 1)?,
            Keyword::PRIMARY if keyword(tokens.get(at + 1)) == Keyword::KEY => {
                key(tokens, at, at + 2)?;
            }
            Keyword::ON => columns_set(tokens, at)?,
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Whether the statement begins with CREATE [TEMPORARY ..] TABLE or ALTER TABLE.
fn is_of_table(tokens: &[TokenWithSpan]) -> bool {
    let first = keyword(tokens.first());
    let table = tokens
        .iter()
        .take(5)
        .position(|t| keyword(Some(t)) == Keyword::TABLE);
    matches!(first, Keyword::CREATE | Keyword::ALTER) && table.is_some()
}

fn is(tokens: &[TokenWithSpan], at: usize, token: &Token) -> bool {
    tokens.get(at).is_some_and(|t| t.token == *token)
}

/// Takes a list of names in parentheses out of the tokens; `None`: there is none.
fn names_at(tokens: &mut Vec<TokenWithSpan>, open: usize) -> Option<Vec<String>> {
    if !is(tokens, open, &Token::LParen) {
        return None;
    }
    let close = closing(tokens, open)?;
    let mut names = Vec::new();
    for (n, t) in tokens[open + 1..close].iter().enumerate() {
        match (&t.token, n % 2) {
            (Token::Word(w), 0) => names.push(names::ident(&w.to_ident(t.span))),
            (Token::Comma, 1) => {}
            _ => return None,
        }
    }
    // Of a list that ends in a comma the last name is missing.
    if !(close - open).is_multiple_of(2) || names.is_empty() {
        return None;
    }
    tokens.drain(open..=close);
    Some(names)
}

/// A key, which begins at `first` and whose first words end before `at`.
fn key(tokens: &mut Vec<TokenWithSpan>, first: usize, mut at: usize) -> Result<()> {
    let mut taken = Clauses::default();
    let nulls = match (word(tokens, at).as_str(), word(tokens, at + 1).as_str()) {
        ("nulls", "distinct") => Some((2, false)),
        ("nulls", "not") if word(tokens, at + 2) == "distinct" => Some((3, true)),
        _ => None,
    };
    let columns = at + nulls.map_or(0, |(words, _)| words);
    if is(tokens, columns, &Token::LParen) {
        let Some(close) = closing(tokens, columns) else {
            return Ok(());
        };
        at = close + 1;
        if word(tokens, at) == "include"
            && let Some(names) = names_at(tokens, at + 1)
        {
            tokens.remove(at);
            taken.include = names;
        }
        taken.options = of_index(tokens, at)?;
        if let Some(text) = taken.text() {
            let comment = [
                Token::make_keyword("COMMENT"),
                Token::SingleQuotedString(text),
            ];
            insert(tokens, at, comment);
        }
        return Ok(());
    }
    if let Some((words, not_distinct)) = nulls {
        tokens.drain(at..at + words);
        taken.nulls_not_distinct = not_distinct;
    }
    taken.options = of_index(tokens, at)?;
    before_column_constraint(tokens, first, &taken);
    Ok(())
}

/// WITH and USING INDEX TABLESPACE behind a key.
fn of_index(tokens: &mut Vec<TokenWithSpan>, at: usize) -> Result<Vec<Given>> {
    let options = storage::take_with(tokens, at).unwrap_or_default();
    if word(tokens, at) == "using"
        && word(tokens, at + 1) == "index"
        && word(tokens, at + 2) == "tablespace"
    {
        storage::tablespace(tokens, at + 2)?;
        tokens.drain(at..at + 2);
    }
    Ok(options)
}

/// Puts what was taken before the constraint of a column that begins at `first`, or before its
/// name.
fn before_column_constraint(tokens: &mut Vec<TokenWithSpan>, first: usize, taken: &Clauses) {
    let Some(text) = taken.text() else {
        return;
    };
    let named = first
        .checked_sub(2)
        .filter(|at| keyword(tokens.get(*at)) == Keyword::CONSTRAINT);
    let comment = [
        Token::make_keyword("COMMENT"),
        Token::SingleQuotedString(text),
    ];
    insert(tokens, named.unwrap_or(first), comment);
}

/// The columns of SET NULL or SET DEFAULT of the action that begins at a place.
fn columns_set(tokens: &mut Vec<TokenWithSpan>, at: usize) -> Result<()> {
    let what = match (word(tokens, at + 2).as_str(), word(tokens, at + 3).as_str()) {
        ("set", "null") => "SET NULL",
        ("set", "default") => "SET DEFAULT",
        _ => return Ok(()),
    };
    let is_update = match keyword(tokens.get(at + 1)) {
        Keyword::DELETE => false,
        Keyword::UPDATE => true,
        _ => return Ok(()),
    };
    let place = Place::of_span(tokens[at].span);
    let Some(set) = names_at(tokens, at + 4) else {
        return Ok(());
    };
    if is_update {
        let message = format!("a column list with {what} is only supported for ON DELETE actions");
        return Err(Error::new("0A000", message).placed(place));
    }
    let taken = Clauses {
        set,
        ..Clauses::default()
    };
    let mut earlier = (0..at).rev();
    let references = earlier.find(|at| keyword(tokens.get(*at)) == Keyword::REFERENCES);
    let Some(references) = references else {
        return Ok(());
    };
    // Behind the columns of a FOREIGN KEY, or of a column.
    let open = references
        .checked_sub(1)
        .filter(|at| is(tokens, *at, &Token::RParen))
        .and_then(|_| opening(tokens, references - 1));
    let of_table =
        open.filter(|open| *open >= 2 && keyword(tokens.get(open - 2)) == Keyword::FOREIGN);
    match (of_table, taken.text()) {
        (Some(open), Some(text)) => insert(tokens, open, [Token::make_word(&text, Some('"'))]),
        _ => before_column_constraint(tokens, references, &taken),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{parsed, statement};

    #[test]
    fn what_the_parser_does_not_know_is_kept() {
        let sql = "create table t (a int constraint x unique nulls not distinct, b int, primary key \
                   (a) include (b, \"C\") deferrable)";
        let text = parsed(sql);
        let at = |part: &str| {
            text.find(part)
                .unwrap_or_else(|| panic!("{part} in {text}"))
        };
        assert!(at("\"nulls_not_distinct\":true") < at("CONSTRAINT x UNIQUE"));
        assert!(at("PRIMARY KEY (a)") < at("[\"b\",\"C\"]"));
        assert!(at("[\"b\",\"C\"]") < at("DEFERRABLE"));
    }

    #[test]
    fn actions_have_columns() {
        let text = parsed(
            "alter table t add foreign key (a, b) references p on update cascade on delete set \
             null (b)",
        );
        assert!(text.contains("[\"\"b\"\"]"), "{text}");
        let text = parsed("create table t (a int references p (x) on delete set default (a))");
        assert!(text.contains("\"set\":[\"a\"]"), "{text}");
        let wrong = "create table t (a int references p on update set default (a))";
        let error = statement(wrong).expect_err(wrong);
        assert_eq!(error.sqlstate(), "0A000");
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
        for sql in [
            "create table t (a int, unique (a) include ())",
            "create table t (a int, unique (a) include (b,))",
            "create table t (a int unique (a) include (b))",
            "create table t (a int primary key include (a))",
            "create table t (a int references p on delete set null ())",
            "create table t (a int references p on delete cascade (a))",
        ] {
            let error = statement(sql).expect_err(sql);
            assert_eq!(error.sqlstate(), "42601", "{sql}: {error}");
        }
    }
}
