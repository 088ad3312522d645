//! Names by number ([`crate::bind::numbered`]), which stand in stored texts alone: texts of clients
//! and the bodies of functions are refused that have one. A number says which object is meant
//! without a look at the rights on its schema.

use memchr::memchr_iter;
use sqlparser::tokenizer::Token;

use super::escapes;
use crate::bind::{names, numbered};
use crate::error::Result;
use crate::place::Place;

/// Refuses a text in which the number of an object stands in the place of a schema.
pub fn refuse(sql: &str) -> Result<()> {
    if !may_have(sql) {
        return Ok(());
    }
    let tokens = escapes::tokenize(sql)?;
    let mut tokens = tokens
        .iter()
        .filter(|t| !matches!(t.token, Token::Whitespace(_)))
        .peekable();
    while let Some(token) = tokens.next() {
        let Token::Word(word) = &token.token else {
            continue;
        };
        let schema = names::ident(&word.to_ident(token.span));
        let is_qualifier = tokens.peek().is_some_and(|t| t.token == Token::Period);
        if is_qualifier && numbered::number_in(&schema).is_some() {
            let place = Place::At(token.span.start);
            return Err(names::no_schema(&schema).placed(Some(place)).located(sql));
        }
    }
    Ok(())
}

/// Most texts have nothing like it, nor Unicode escapes in names, and are not looked at closer.
fn may_have(sql: &str) -> bool {
    let (before, _) = numbered::PREFIX.split_at(numbered::PREFIX.len() - 1);
    let bytes = sql.as_bytes();
    if memchr_iter(b'&', bytes).any(|at| bytes.get(at + 1) == Some(&b'"')) {
        return true;
    }
    memchr_iter(b'$', bytes).any(|at| {
        let from = at.checked_sub(before.len());
        from.is_some_and(|from| bytes[from..at].eq_ignore_ascii_case(before.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::refuse;

    #[test]
    fn numbers_are_refused_where_a_schema_stands() {
        for sql in [
            "select 'a'::\"braid$16387\".\"en\"",
            "select braid$16387.f(1)",
            "select BRAID$16387 . f(1)",
            "select 1 operator(\"braid$16387\".+) 1",
            "select U&\"braid\\002416387\".f(1)",
        ] {
            assert!(refuse(sql).is_err_and(|e| e.sqlstate() == "3F000"), "{sql}");
        }
        for sql in [
            "select '\"braid$16387\".\"en\"'",
            "select \"braid$16387\" from t",
            "select \"braid$x\".f(1), $braid$1.5$braid$, '$'",
        ] {
            assert!(refuse(sql).is_ok(), "{sql}");
        }
    }
}
