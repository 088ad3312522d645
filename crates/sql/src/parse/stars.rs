//! `(row).*`: the parser knows a star behind names only, so that it becomes a field of a name that
//! no user can write. Whole rows that are compared, `old.* is distinct from new.*`, lose their
//! star: the name alone is the same.

use sqlparser::ast::{AccessExpr, Expr};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;

/// The name of all fields.
pub const ALL: &str = "\u{2}all";

pub fn write_out(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 3;
    while at < tokens.len() {
        let star = matches!(tokens[at - 2].token, Token::Word(_))
            && tokens[at - 1].token == Token::Period
            && tokens[at].token == Token::Mul;
        let is_before = keyword(tokens.get(at + 1)) == Keyword::IS;
        let is_behind = keyword(tokens.get(at - 3)) == Keyword::FROM
            && at >= 4
            && keyword(tokens.get(at - 4)) == Keyword::DISTINCT;
        if star && (is_before || is_behind) {
            tokens.drain(at - 1..=at);
        }
        at += 1;
    }
    for at in 2..tokens.len() {
        let behind = matches!(tokens[at - 2].token, Token::RParen | Token::RBracket);
        if behind && tokens[at - 1].token == Token::Period && tokens[at].token == Token::Mul {
            tokens[at].token = Token::make_word(ALL, Some('"'));
        }
    }
}

/// The row of which an expression is all fields.
pub fn row_of(e: &Expr) -> Option<Expr> {
    let Expr::CompoundFieldAccess { root, access_chain } = e else {
        return None;
    };
    match access_chain.split_last() {
        Some((AccessExpr::Dot(Expr::Identifier(i)), rest)) if i.value == ALL => {
            Some(match rest.is_empty() {
                true => (**root).clone(),
                false => Expr::CompoundFieldAccess {
                    root: root.clone(),
                    access_chain: rest.to_vec(),
                },
            })
        }
        _ => None,
    }
}
