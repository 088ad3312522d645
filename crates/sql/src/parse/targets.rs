//! Elements and fields as targets of writes: `SET a[1] = 2`, `INSERT INTO t (a[1], c.f)`. The
//! parser knows columns there only, so that a column with what follows becomes one name that no
//! user can write.

use sqlparser::ast::{AccessExpr, Expr, Ident};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;
use crate::error::{Error, Result};

/// Begins such a name, and stands before the subscripts in it.
const MARK: char = '\u{2}';

/// Writes out the targets of a statement.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>) {
    // A setting has a name with a period in it, too.
    let sets_parameter = matches!(
        keyword(tokens.first()),
        Keyword::SET | Keyword::ALTER | Keyword::CREATE | Keyword::RESET
    );
    if sets_parameter {
        return;
    }
    let mut at = 0;
    while at < tokens.len() {
        match keyword(tokens.get(at)) {
            Keyword::SET => set_list(tokens, at + 1),
            Keyword::INSERT => column_list(tokens, at + 1),
            _ => {}
        }
        at += 1;
    }
}

fn is(tokens: &[TokenWithSpan], at: usize, token: &Token) -> bool {
    tokens.get(at).is_some_and(|t| t.token == *token)
}

/// How much deeper it is behind a token.
fn step(token: &Token) -> isize {
    match token {
        Token::LParen | Token::LBracket => 1,
        Token::RParen | Token::RBracket => -1,
        _ => 0,
    }
}

/// The targets of a SET list; where it ends there is no other list that may hold comparisons.
fn set_list(tokens: &mut Vec<TokenWithSpan>, begin: usize) {
    target(tokens, begin, &[Token::Eq]);
    let (mut at, mut depth) = (begin, 0);
    while let Some(token) = tokens.get(at).map(|t| &t.token) {
        if depth == 0 {
            match keyword(tokens.get(at)) {
                Keyword::WHERE | Keyword::RETURNING | Keyword::WHEN | Keyword::SELECT => return,
                // `IS DISTINCT FROM` is no clause.
                Keyword::FROM if keyword(tokens.get(at.wrapping_sub(1))) != Keyword::DISTINCT => {
                    return;
                }
                _ => {}
            }
        }
        let is_comma = *token == Token::Comma;
        let opens_row = *token == Token::LParen
            && (at == begin || depth == 0 && is(tokens, at - 1, &Token::Comma));
        depth += step(token);
        if depth < 0 {
            return;
        }
        at += 1;
        if is_comma && depth == 0 {
            target(tokens, at, &[Token::Eq]);
        }
        if opens_row {
            columns(tokens, at);
        }
    }
}

/// The columns in parentheses behind an INSERT, unless these hold a query.
fn column_list(tokens: &mut Vec<TokenWithSpan>, begin: usize) {
    let mut at = begin;
    while matches!(
        tokens.get(at).map(|t| &t.token),
        Some(Token::Word(_) | Token::Period)
    ) {
        if matches!(
            keyword(tokens.get(at)),
            Keyword::VALUES | Keyword::SELECT | Keyword::DEFAULT
        ) {
            return;
        }
        at += 1;
    }
    let is_query = matches!(
        keyword(tokens.get(at + 1)),
        Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE
    );
    if is(tokens, at, &Token::LParen) && !is_query {
        columns(tokens, at + 1);
    }
}

/// The targets of a list up to its parenthesis.
fn columns(tokens: &mut Vec<TokenWithSpan>, begin: usize) {
    let ends = [Token::Comma, Token::RParen];
    target(tokens, begin, &ends);
    let (mut at, mut depth) = (begin, 0);
    while let Some(token) = tokens.get(at).map(|t| &t.token) {
        let is_comma = *token == Token::Comma;
        depth += step(token);
        if depth < 0 {
            return;
        }
        at += 1;
        if is_comma && depth == 0 {
            target(tokens, at, &ends);
        }
    }
}

/// Makes one name of a column and its subscripts, if one of `ends` follows.
fn target(tokens: &mut Vec<TokenWithSpan>, at: usize, ends: &[Token]) {
    let Some(Token::Word(column)) = tokens.get(at).map(|t| &t.token) else {
        return;
    };
    let column = match column.quote_style {
        Some(_) => column.value.clone(),
        None => column.value.to_lowercase(),
    };
    let (mut end, mut depth) = (at + 1, 0);
    while let Some(token) = tokens.get(end).map(|t| &t.token) {
        let is_field = *token == Token::Period
            && matches!(tokens.get(end + 1).map(|t| &t.token), Some(Token::Word(_)));
        if depth == 0 && is_field {
            end += 2;
            continue;
        }
        if depth == 0 && *token != Token::LBracket {
            break;
        }
        depth += step(token);
        end += 1;
    }
    let follows = tokens.get(end).is_some_and(|t| ends.contains(&t.token));
    if end == at + 1 || depth != 0 || !follows {
        return;
    }
    let subscripts: Vec<String> = tokens[at + 1..end].iter().map(|t| text(&t.token)).collect();
    let name = format!("{MARK}{column}{MARK}{}", subscripts.join(" "));
    tokens[at].token = Token::make_word(&name, Some('"'));
    tokens.drain(at + 1..end);
}

/// A token as it may be read again.
fn text(token: &Token) -> String {
    match token {
        Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => {
            format!("'{}'", s.replace('\'', "''"))
        }
        Token::Word(w) if w.quote_style.is_some() => {
            format!("\"{}\"", w.value.replace('"', "\"\""))
        }
        other => other.to_string(),
    }
}

/// The fields behind a column.
fn fields(names: &[Ident]) -> Vec<AccessExpr> {
    let fields = names.iter().skip(1).cloned();
    let fields = fields.map(|name| AccessExpr::Dot(Expr::Identifier(name)));
    fields.collect()
}

/// The column of a target, and the subscripts behind it.
pub fn taken_apart(name: &str) -> Result<Option<(String, Vec<AccessExpr>)>> {
    let marked = name.strip_prefix(MARK).and_then(|n| n.rsplit_once(MARK));
    let Some((column, subscripts)) = marked else {
        return Ok(None);
    };
    let unexpected = || Error::internal("subscripts of a target that are none");
    match super::expression(&format!("a{subscripts}"))? {
        Expr::CompoundFieldAccess { root, access_chain } => {
            let mut path = match *root {
                Expr::CompoundIdentifier(names) => fields(&names),
                _ => Vec::new(),
            };
            path.extend(access_chain);
            Ok(Some((column.to_string(), path)))
        }
        Expr::CompoundIdentifier(names) => Ok(Some((column.to_string(), fields(&names)))),
        _ => Err(unexpected()),
    }
}
