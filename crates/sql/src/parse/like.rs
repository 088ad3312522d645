//! `LIKE table [INCLUDING | EXCLUDING what] ..` among the columns of CREATE TABLE: for the parser a
//! column of a name that no user can have, whose type is the table, and the options its modifiers.

use sqlparser::ast::{ColumnDef, DataType, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;

/// The name of such a column.
const MARK: &str = "braid$like";

/// What can be included, in the order of its bits.
const WHAT: [&str; 9] = [
    "comments",
    "compression",
    "constraints",
    "defaults",
    "generated",
    "identity",
    "indexes",
    "statistics",
    "storage",
];

/// What of a table is to be included besides the names and types of its columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Included(u16);

impl Included {
    pub fn has(self, what: &str) -> bool {
        let at = WHAT.iter().position(|w| *w == what);
        at.is_some_and(|at| self.0 & 1 << at != 0)
    }

    fn with(self, what: &str, included: bool) -> Option<Included> {
        let bits = match what {
            "all" => (1 << WHAT.len()) - 1,
            what => 1 << WHAT.iter().position(|w| *w == what)?,
        };
        Some(Included(match included {
            true => self.0 | bits,
            false => self.0 & !bits,
        }))
    }
}

/// Rewrites the LIKE clauses of a CREATE TABLE.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>) {
    let Some(begin) = list_of_columns(tokens) else {
        return;
    };
    let (mut depth, mut at) = (0usize, begin);
    while at < tokens.len() {
        let begins = matches!(tokens[at].token, Token::LParen | Token::Comma);
        match tokens[at].token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 1 => return,
            Token::RParen => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 1 && begins && keyword(tokens.get(at)) == Keyword::LIKE {
            clause(tokens, at);
        }
    }
}

/// Where the parenthesis of CREATE TABLE's columns is.
fn list_of_columns(tokens: &[TokenWithSpan]) -> Option<usize> {
    if keyword(tokens.first()) != Keyword::CREATE {
        return None;
    }
    let table = (1..4).find(|at| keyword(tokens.get(*at)) == Keyword::TABLE)?;
    let end = tokens.len().min(table + 9);
    (table..end).find(|at| tokens[*at].token == Token::LParen)
}

/// Rewrites the clause whose LIKE is at a place, if it is one.
fn clause(tokens: &mut Vec<TokenWithSpan>, like: usize) {
    let span = tokens[like].span;
    let quoted = |name: &str| TokenWithSpan::new(Token::make_word(name, Some('"')), span);
    let mut made = vec![quoted(MARK)];
    let mut at = like + 1;
    loop {
        let Some(Token::Word(word)) = tokens.get(at).map(|t| &t.token) else {
            return;
        };
        let name = match word.quote_style {
            Some(_) => word.value.clone(),
            None => word.value.to_lowercase(),
        };
        made.push(TokenWithSpan::new(
            Token::make_word(&name, Some('"')),
            tokens[at].span,
        ));
        at += 1;
        match tokens.get(at).map(|t| &t.token) {
            Some(Token::Period) => made.push(tokens[at].clone()),
            _ => break,
        }
        at += 1;
    }
    let mut included = Included::default();
    loop {
        let including = match word_at(tokens, at).as_str() {
            "including" => true,
            "excluding" => false,
            _ => break,
        };
        let Some(next) = included.with(&word_at(tokens, at + 1), including) else {
            return;
        };
        included = next;
        at += 2;
    }
    let number = Token::Number(included.0.to_string(), false);
    for token in [Token::LParen, number, Token::RParen] {
        made.push(TokenWithSpan::new(token, span));
    }
    tokens.splice(like..at, made);
}

fn word_at(tokens: &[TokenWithSpan], at: usize) -> String {
    match tokens.get(at).map(|t| &t.token) {
        Some(Token::Word(w)) if w.quote_style.is_none() => w.value.to_lowercase(),
        _ => String::new(),
    }
}

/// The table that a column stands for, and what of it is included; `None`: it is a column.
pub fn of_column(c: &ColumnDef) -> Option<(&ObjectName, Included)> {
    match &c.data_type {
        DataType::Custom(name, modifiers) if c.name.value == MARK => {
            let bits = modifiers.first().and_then(|bits| bits.parse().ok());
            Some((name, Included(bits?)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::of_column;
    use crate::parse::{Command, statement};

    #[test]
    fn like_is_read_among_columns() {
        let sql = "create table t (a int, like \"S\".u including all excluding indexes, b text)";
        let Ok(Command::Sql(s)) = statement(sql) else {
            panic!("{sql}");
        };
        let sqlparser::ast::Statement::CreateTable(c) = *s else {
            panic!("{sql}");
        };
        let found: Vec<_> = c.columns.iter().map(of_column).collect();
        let (name, included) = found[1].unwrap();
        assert_eq!(name.to_string(), "\"S\".\"u\"");
        assert!(included.has("comments") && included.has("storage") && !included.has("indexes"));
        assert!(found[0].is_none() && found[2].is_none());
    }
}
