//! What `ALTER TABLE .. ALTER COLUMN` does to identity columns, of which the SQL grammar reads but
//! a part: it becomes a default that no user can write, with the words as they were.

use sqlparser::ast::Expr;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::forms::{insert, word};
use super::maintenance::sequence_option;
use super::tokens::{Words, keyword};
use super::utility::SequenceOption;
use crate::error::Result;

/// Begins the default.
const IDENTITY: &str = "\u{1}identity ";

/// A change of an identity column.
#[derive(Clone, PartialEq, Debug)]
pub enum IdentityChange {
    Add {
        always: bool,
        options: Vec<SequenceOption>,
    },
    Drop {
        if_exists: bool,
    },
    Set {
        always: Option<bool>,
        options: Vec<SequenceOption>,
    },
}

/// Writes out the change that begins at a place, if one does.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let before = |n: usize| at.checked_sub(n).map(|b| keyword(tokens.get(b)));
    let behind_name = match before(2) {
        Some(Keyword::COLUMN) => before(3) == Some(Keyword::ALTER),
        other => other == Some(Keyword::ALTER),
    };
    let (first, second) = (word(tokens, at), word(tokens, at + 1));
    let of_sequence = [
        "generated",
        "increment",
        "minvalue",
        "maxvalue",
        "no",
        "start",
        "cache",
        "cycle",
    ];
    let begins = match first.as_str() {
        "add" => second == "generated",
        "drop" => second == "identity",
        "set" => of_sequence.contains(&second.as_str()),
        "restart" => true,
        _ => false,
    };
    if !behind_name || !begins {
        return;
    }
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
    let end = tokens[at..].iter().position(ends);
    let end = end.map_or(tokens.len(), |n| at + n);
    let words: Vec<String> = tokens.drain(at..end).map(|t| t.token.to_string()).collect();
    let name = format!("{IDENTITY}{}", words.join(" "));
    let default = [
        Token::make_keyword("SET"),
        Token::make_keyword("DEFAULT"),
        Token::make_word(&name, Some('"')),
    ];
    insert(tokens, at, default);
}

/// Writes out the identity of a new column that begins at a place, if that names its sequence.
pub fn write_out_named(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is = |n: usize, wanted: &str| word(tokens, at + n) == wanted;
    let identity = match is(1, "always") {
        true => 3,
        false if is(1, "by") && is(2, "default") => 4,
        false => return,
    };
    let opens = tokens.get(at + identity + 1).map(|t| &t.token) == Some(&Token::LParen);
    if !opens || !is(identity - 1, "as") || !is(identity, "identity") {
        return;
    }
    let ends = |t: &TokenWithSpan| t.token == Token::RParen;
    let Some(end) = tokens[at..].iter().position(ends).map(|n| at + n) else {
        return;
    };
    let mut within = at + identity + 2..end;
    if !within.any(|n| word(tokens, n) == "sequence" && word(tokens, n + 1) == "name") {
        return;
    }
    let words = tokens.drain(at..=end).map(|t| t.token.to_string());
    let words: Vec<String> = words.collect();
    let name = format!("{IDENTITY}ADD {}", words.join(" "));
    let default = [
        Token::make_keyword("DEFAULT"),
        Token::make_word(&name, Some('"')),
    ];
    insert(tokens, at, default);
}

/// Whether a default stands for a change of an identity column.
pub fn is_change(default: &Expr) -> bool {
    matches!(default, Expr::Identifier(name) if name.value.starts_with(IDENTITY))
}

/// The change that a default stands for, if it does.
pub fn change_of(default: &Expr) -> Result<Option<IdentityChange>> {
    let Expr::Identifier(name) = default else {
        return Ok(None);
    };
    let Some(text) = name.value.strip_prefix(IDENTITY) else {
        return Ok(None);
    };
    let mut w = Words::whole(text)?;
    let change = match () {
        () if w.accept("drop identity") => IdentityChange::Drop {
            if_exists: w.accept("if exists"),
        },
        () if w.accept("add generated") => {
            let always = kind(&mut w)?;
            w.expect("as identity")?;
            let mut options = Vec::new();
            if w.accept_token(&Token::LParen) {
                while !w.accept_token(&Token::RParen) {
                    options.push(sequence_option(&mut w)?);
                }
            }
            IdentityChange::Add { always, options }
        }
        () => {
            let (mut always, mut options) = (None, Vec::new());
            while !w.at_end() {
                if w.accept("set generated") {
                    always = Some(kind(&mut w)?);
                    continue;
                }
                w.accept("set");
                options.push(sequence_option(&mut w)?);
            }
            IdentityChange::Set { always, options }
        }
    };
    match w.at_end() {
        true => Ok(Some(change)),
        false => Err(w.unexpected()),
    }
}

/// `ALWAYS`, or `BY DEFAULT`.
fn kind(w: &mut Words<'_>) -> Result<bool> {
    match w.accept("always") {
        true => Ok(true),
        false => w.expect("by default").map(|()| false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_they_are_written() {
        let read = |text: &str| {
            let name = sqlparser::ast::Ident::with_quote('"', format!("{IDENTITY}{text}"));
            change_of(&Expr::Identifier(name)).unwrap().unwrap()
        };
        assert_eq!(
            read("DROP IDENTITY IF EXISTS"),
            IdentityChange::Drop { if_exists: true }
        );
        assert_eq!(
            read("SET GENERATED BY DEFAULT SET INCREMENT BY 2 RESTART"),
            IdentityChange::Set {
                always: Some(false),
                options: vec![SequenceOption::Increment(2), SequenceOption::Restart(None)],
            }
        );
        let IdentityChange::Add { always, options } =
            read("ADD GENERATED ALWAYS AS IDENTITY ( SEQUENCE NAME a.b START WITH -1 )")
        else {
            panic!("another change");
        };
        assert!(always && options.len() == 2);
    }
}
