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
