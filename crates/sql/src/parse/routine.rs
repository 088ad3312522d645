//! CREATE PROCEDURE and CREATE FUNCTION in Oracle's form, whose body stands behind IS or AS without
//! quotes, and EXEC.

use sqlparser::tokenizer::Token;

use super::block::{CLAUSES, TESTS};
use super::function::{self, CreateFunction};
use super::tokens::Words;
use crate::dict::function::Volatility;
use crate::error::{Error, Result};

/// Behind CREATE, OR REPLACE and the word for the kind. `None`: it is PostgreSQL's form.
pub fn create(
    w: &mut Words<'_>,
    or_replace: bool,
    procedure: bool,
) -> Result<Option<CreateFunction>> {
    let begin = w.mark();
    let name = w.relation()?;
    let text = match w.accept_token(&Token::LParen) {
        true => w.parenthesized()?,
        false => "",
    };
    let is_one = match procedure {
        true => begins_body(w),
        false => returns_type(w),
    };
    if !is_one {
        w.back_to(begin);
        return Ok(None);
    }
    let result = match w.accept("return") {
        true => Some(function::data_type(w)?),
        false => None,
    };
    let mut made = CreateFunction {
        procedure,
        name,
        or_replace,
        parameters: function::parameters(text)?,
        result,
        returns_set: false,
        language: Some("plsql".to_string()),
        volatility: Volatility::Volatile,
        strict: false,
        parallel: 'u',
        leakproof: false,
        security_definer: false,
        settings: Vec::new(),
        cost: None,
        rows: None,
        body: String::new(),
    };
    while !w.accept("is") && !w.accept("as") {
        clause(w, &mut made)?;
    }
    if w.precedes("language") {
        return Err(Error::unsupported("functions in C or Java"));
    }
    if w.at_end() {
        return Err(w.unexpected());
    }
    made.body = w.rest().to_string();
    Ok(Some(made))
}

/// Whether a clause or the word before a body comes next.
fn begins_body(w: &mut Words<'_>) -> bool {
    let begin = w.mark();
    let found = w.precedes("is")
        || w.precedes("authid")
        || w.precedes("accessible")
        || w.accept("as") && matches!(w.peek(), Some(Token::Word(_) | Token::ShiftLeft));
    w.back_to(begin);
    found
}

/// Whether RETURN and a type come next, which something of Oracle's form follows. In PostgreSQL's
/// form an expression stands behind RETURN.
fn returns_type(w: &mut Words<'_>) -> bool {
    let begin = w.mark();
    let has_type = w.accept("return") && function::data_type(w).is_ok();
    let has_word = w.accept("is") || w.accept("as");
    let found = match has_word {
        true => !TESTS.iter().any(|word| w.precedes(word)),
        false => CLAUSES.iter().any(|word| w.precedes(word)),
    };
    w.back_to(begin);
    has_type && found
}

fn clause(w: &mut Words<'_>, made: &mut CreateFunction) -> Result<()> {
    if w.accept("authid") {
        made.security_definer = w.accept("definer");
        if !made.security_definer {
            w.expect("current_user")?;
        }
    } else if w.accept("deterministic") {
        made.volatility = Volatility::Immutable;
    } else if w.accept("parallel_enable") {
        made.parallel = 's';
    } else {
        let refused = [
            ("pipelined", "PIPELINED"),
            ("result_cache", "RESULT_CACHE of a function"),
            ("accessible", "ACCESSIBLE BY"),
            ("aggregate", "AGGREGATE USING"),
        ];
        let found = refused.into_iter().find(|(word, _)| w.precedes(word));
        return Err(match found {
            Some((_, what)) => Error::unsupported(what),
            None => w.unexpected(),
        });
    }
    Ok(())
}

/// Behind the word EXEC: the call as a block.
pub fn exec(w: &mut Words<'_>) -> Result<String> {
    if w.at_end() {
        return Err(w.unexpected());
    }
    let call = w.rest().trim_end_matches(';');
    // A comment may end the line.
    Ok(format!("begin {call}\n; end;"))
}
