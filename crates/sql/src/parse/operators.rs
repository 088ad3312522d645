//! Where operators end: `j->-1` is `j -> -1`, as in PostgreSQL, where a name ends in a sign only if
//! it has a character that no number and no comparison begins with.

use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

/// Takes signs off the ends of operators.
pub fn split(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut all = Vec::with_capacity(tokens.len());
    for token in tokens {
        match parts(&token.token) {
            Some((operator, sign)) => {
                let mut middle = token.span.end;
                middle.column = middle.column.saturating_sub(1);
                let before = Span::new(token.span.start, middle);
                all.push(TokenWithSpan::new(operator, before));
                all.push(TokenWithSpan::new(sign, Span::new(middle, token.span.end)));
            }
            None => all.push(token),
        }
    }
    all
}

/// `x OPERATOR(pg_catalog.=) ANY (..)` as `x = ANY (..)`: the parser knows no ANY behind the
/// former.
pub fn take_names_off(tokens: &mut Vec<TokenWithSpan>) {
    let named = |all: &[TokenWithSpan]| {
        let word = |at: usize, wanted: &str| {
            matches!(&all[at].token, Token::Word(w)
                if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(wanted))
        };
        word(0, "operator")
            && all[1].token == Token::LParen
            && word(2, "pg_catalog")
            && all[3].token == Token::Period
            && all[5].token == Token::RParen
            && ["any", "all", "some"].iter().any(|w| word(6, w))
    };
    let mut at = 0;
    while at + 7 <= tokens.len() {
        if named(&tokens[at..at + 7]) {
            tokens.drain(at + 5..at + 6);
            tokens.drain(at..at + 4);
        }
        at += 1;
    }
}

fn parts(token: &Token) -> Option<(Token, Token)> {
    let Token::CustomBinaryOperator(name) = token else {
        return None;
    };
    if name.contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?']) {
        return None;
    }
    let (operator, sign) = match name.strip_suffix('-') {
        Some(operator) => (operator, Token::Minus),
        None => (name.strip_suffix('+')?, Token::Plus),
    };
    let operator = match operator {
        "->" => Token::Arrow,
        "->>" => Token::LongArrow,
        "=" => Token::Eq,
        "<" => Token::Lt,
        ">" => Token::Gt,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        other => Token::CustomBinaryOperator(other.to_string()),
    };
    Some((operator, sign))
}
