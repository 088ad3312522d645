//! `ONLY t` and `t *`: without inheritance both are `t`.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;

/// Takes out each ONLY before a table and each `*` behind one.
pub fn take_out(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    while at < tokens.len() {
        if is_only(tokens, at) || is_star(tokens, at) {
            tokens.remove(at);
        } else {
            at += 1;
        }
    }
}

/// Whether this is the word that, being reserved, begins a table but in `ROWS ONLY`.
fn is_only(tokens: &[TokenWithSpan], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|at| tokens.get(at));
    let begins = match before.map(|t| &t.token) {
        Some(Token::Comma) => true,
        _ => matches!(
            keyword(before),
            Keyword::FROM
                | Keyword::JOIN
                | Keyword::UPDATE
                | Keyword::TABLE
                | Keyword::TRUNCATE
                | Keyword::EXISTS
                | Keyword::ON
                | Keyword::USING
        ),
    };
    let table = tokens.get(at + 1).map(|t| &t.token);
    begins
        && keyword(tokens.get(at)) == Keyword::ONLY
        && matches!(table, Some(Token::Word(_) | Token::LParen))
}

/// Whether this is a `*` behind the table of FROM, JOIN or UPDATE.
fn is_star(tokens: &[TokenWithSpan], at: usize) -> bool {
    let word = |at: usize| matches!(tokens.get(at).map(|t| &t.token), Some(Token::Word(_)));
    at >= 2
        && tokens[at].token == Token::Mul
        && word(at - 1)
        && matches!(
            keyword(tokens.get(at - 2)),
            Keyword::FROM | Keyword::JOIN | Keyword::UPDATE
        )
        && !is_distinct_from(tokens, at - 2)
        && is_in_query(&tokens[..at])
}

/// Whether no parentheses are open but those of a query: in `substring(a from b * 2)` others are.
fn is_in_query(before: &[TokenWithSpan]) -> bool {
    let mut depth = 0;
    for (at, t) in before.iter().enumerate().rev() {
        match t.token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => {
                return matches!(keyword(before.get(at + 1)), Keyword::SELECT | Keyword::WITH);
            }
            Token::LParen => depth -= 1,
            _ => {}
        }
    }
    true
}

/// FROM as the operator's last word, behind which an operand comes.
fn is_distinct_from(tokens: &[TokenWithSpan], from: usize) -> bool {
    let before = from.checked_sub(1).and_then(|at| tokens.get(at));
    keyword(before) == Keyword::DISTINCT
}

#[cfg(test)]
mod tests {
    use crate::parse::parsed;

    #[test]
    fn a_table_alone_is_all_there_is() {
        for (written, plain) in [
            ("select * from only t", "select * from t"),
            ("select * from t * as x", "select * from t as x"),
            ("select * from a, only b x", "select * from a, b x"),
            (
                "delete from only t where a = 1",
                "delete from t where a = 1",
            ),
            ("update only t set a = 1", "update t set a = 1"),
        ] {
            assert_eq!(parsed(written), parsed(plain), "{written}");
        }
        for sql in [
            "select a is distinct from b * 2 from t",
            "select a from t order by a fetch first 2 rows only",
        ] {
            assert!(parsed(sql).to_lowercase().contains(" from "), "{sql}");
        }
        for product in [
            "select a is distinct from b * 2 from t",
            "select substring(a from b * c) from t",
        ] {
            assert!(parsed(product).contains(" * "), "{product}");
        }
    }
}
