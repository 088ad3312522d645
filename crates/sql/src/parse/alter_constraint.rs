//! `ALTER TABLE .. ALTER CONSTRAINT`, which the parser does not read: it becomes a default of a
//! column of the constraint's name, one that no user can write, because it begins with the
//! character 1.

use sqlparser::ast::Expr;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::forms::{insert, word};
use super::tokens::keyword;
use crate::error::{Error, Result};

const DEFERRED: &str = "\u{1}constraint deferred";
const DEFERRABLE: &str = "\u{1}constraint deferrable";
const NEITHER: &str = "\u{1}constraint at once";

/// Whether a default stands for a change of a constraint: whether it becomes deferrable, and
/// initially deferred.
pub fn change_of(default: &Expr) -> Option<(bool, bool)> {
    let Expr::Identifier(name) = default else {
        return None;
    };
    match name.value.as_str() {
        DEFERRED => Some((true, true)),
        DEFERRABLE => Some((true, false)),
        NEITHER => Some((false, false)),
        _ => None,
    }
}

/// Writes out the changes of constraints of an ALTER TABLE.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    if keyword(tokens.first()) != Keyword::ALTER || keyword(tokens.get(1)) != Keyword::TABLE {
        return Ok(());
    }
    for at in (2..tokens.len()).rev() {
        let begins = word(tokens, at) == "alter" && word(tokens, at + 1) == "constraint";
        if begins && matches!(tokens.get(at + 2).map(|t| &t.token), Some(Token::Word(_))) {
            change(tokens, at)?;
        }
    }
    Ok(())
}

fn change(tokens: &mut Vec<TokenWithSpan>, at: usize) -> Result<()> {
    let (mut deferrable, mut deferred) = (None, false);
    let mut end = at + 3;
    loop {
        match (word(tokens, end).as_str(), word(tokens, end + 1).as_str()) {
            ("deferrable", _) => {
                deferrable = Some(true);
                end += 1;
            }
            ("not", "deferrable") => {
                deferrable = Some(false);
                end += 2;
            }
            ("initially", "deferred") => {
                deferred = true;
                end += 2;
            }
            ("initially", "immediate") => end += 2,
            _ => break,
        }
    }
    // What follows is another action, or is left to the parser to complain about.
    let default = match (deferrable, deferred) {
        (Some(false), true) => {
            let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
            return Err(Error::new("42601", message));
        }
        (_, true) => DEFERRED,
        (Some(true), false) => DEFERRABLE,
        (_, false) => NEITHER,
    };
    tokens[at + 1].token = Token::make_keyword("COLUMN");
    tokens.drain(at + 3..end);
    let words = [
        Token::make_keyword("SET"),
        Token::make_keyword("DEFAULT"),
        Token::make_word(default, Some('"')),
    ];
    insert(tokens, at + 3, words);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::statement;

    #[test]
    fn attributes_are_in_any_order() {
        for sql in [
            "alter table t alter constraint c",
            "alter table t alter constraint c deferrable initially deferred, add column d int",
            "alter table t alter constraint c initially immediate not deferrable",
        ] {
            statement(sql).expect(sql);
        }
        for sql in [
            "alter table t alter constraint c not deferrable initially deferred",
            "alter table t alter constraint c nosuch",
            "alter table t alter constraint",
        ] {
            assert_eq!(statement(sql).expect_err(sql).sqlstate(), "42601", "{sql}");
        }
    }
}
