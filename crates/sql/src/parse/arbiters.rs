//! `ON CONFLICT (lower(a), b) WHERE c`: the parser has room for names of columns only. An expression
//! is written as a name that no user can write, because it begins with the character 1, and so is
//! the condition, as the last of the names.

use sqlparser::ast::Ident;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;

const EXPRESSION: &str = "\u{1}expression ";
const CONDITION: &str = "\u{1}where ";

/// One part of what says which unique index decides.
pub enum Arbiter<'a> {
    Column(&'a Ident),
    /// SQL text of an expression.
    Expression(&'a str),
    /// SQL text of the condition that an index's own has to follow from.
    Condition(&'a str),
}

impl Arbiter<'_> {
    pub fn of(name: &Ident) -> Arbiter<'_> {
        match (
            name.value.strip_prefix(EXPRESSION),
            name.value.strip_prefix(CONDITION),
        ) {
            (Some(text), _) => Arbiter::Expression(text),
            (_, Some(text)) => Arbiter::Condition(text),
            (None, None) => Arbiter::Column(name),
        }
    }
}

/// Writes out what stands behind the CONFLICT at `at`.
pub fn write_out(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    let is_on = at
        .checked_sub(1)
        .is_some_and(|on| keyword(tokens.get(on)) == Keyword::ON);
    let opens = tokens.get(at + 1).is_some_and(|t| t.token == Token::LParen);
    if !is_on || !opens {
        return;
    }
    let Some(close) = closing(tokens, at + 1) else {
        return;
    };
    let mut items = items(&tokens[at + 2..close]);
    let mut end = close + 1;
    if keyword(tokens.get(end)) == Keyword::WHERE {
        let Some(length) = condition(&tokens[end + 1..]) else {
            return;
        };
        let text = text(&tokens[end + 1..end + 1 + length]);
        items.push(Token::make_word(&format!("{CONDITION}{text}"), Some('"')));
        end += 1 + length;
    }
    let span = tokens[at + 1].span;
    let mut written = Vec::with_capacity(items.len() * 2);
    for item in items {
        if !written.is_empty() {
            written.push(TokenWithSpan::new(Token::Comma, span));
        }
        written.push(TokenWithSpan::new(item, span));
    }
    written.push(TokenWithSpan::new(Token::RParen, span));
    tokens.splice(at + 2..end, written);
}

/// The place of the parenthesis that closes the one at `open`.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0;
    let place = |(_, t): &(usize, &TokenWithSpan)| {
        match t.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0
    };
    tokens
        .iter()
        .enumerate()
        .skip(open)
        .find(place)
        .map(|(at, _)| at)
}

/// The parts between commas: a word stays, what is more becomes a name.
fn items(tokens: &[TokenWithSpan]) -> Vec<Token> {
    let mut depth = 0;
    let outer = |t: &TokenWithSpan| {
        match t.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth -= 1,
            _ => {}
        }
        depth == 0 && t.token == Token::Comma
    };
    let item = |part: &[TokenWithSpan]| match part {
        [one] => one.token.clone(),
        more => Token::make_word(&format!("{EXPRESSION}{}", text(more)), Some('"')),
    };
    tokens.split(outer).map(item).collect()
}

/// How many tokens come before the DO that ends a condition.
fn condition(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0;
    for (at, t) in tokens.iter().enumerate() {
        match t.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ if depth == 0 && keyword(Some(t)) == Keyword::DO => return Some(at),
            _ => {}
        }
    }
    None
}

fn text(tokens: &[TokenWithSpan]) -> String {
    let one = |t: &TokenWithSpan| match &t.token {
        Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => {
            format!("'{}'", s.replace('\'', "''"))
        }
        other => other.to_string(),
    };
    let all: Vec<String> = tokens.iter().map(one).collect();
    all.join(" ")
}
