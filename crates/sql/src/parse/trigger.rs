//! CREATE and DROP TRIGGER.

use sqlparser::tokenizer::Token;

use super::tokens::Words;
use crate::bind::names::Qualified;
use crate::dict::trigger::Op;
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct CreateTrigger {
    pub name: String,
    pub or_replace: bool,
    pub before: bool,
    pub instead: bool,
    pub row: bool,
    pub ops: Vec<Op>,
    pub table: Qualified,
    /// SQL text.
    pub when: Option<String>,
    pub function: Qualified,
    pub arguments: Vec<String>,
}

/// After the word CREATE.
pub fn create(w: &mut Words<'_>) -> Result<Option<CreateTrigger>> {
    let begin = w.mark();
    let or_replace = w.accept("or replace");
    if w.precedes("constraint trigger") {
        return Err(Error::unsupported("constraint triggers"));
    }
    if !w.accept("trigger") {
        w.back_to(begin);
        return Ok(None);
    }
    let name = w.name()?;
    let before = w.accept("before");
    let instead = w.accept("instead of");
    if !before && !instead {
        w.expect("after")?;
    }
    let mut ops = vec![op(w)?];
    while w.accept("or") {
        let next = op(w)?;
        if ops.contains(&next) {
            return Err(Error::new("42601", "duplicate trigger events specified"));
        }
        ops.push(next);
    }
    w.expect("on")?;
    let table = w.relation()?;
    if w.precedes("referencing") {
        return Err(Error::unsupported("transition tables"));
    }
    let mut row = false;
    if w.accept("for") {
        w.accept("each");
        row = w.accept("row");
        if !row {
            w.expect("statement")?;
        }
    }
    let when = match w.accept("when") {
        true => {
            w.expect_token(&Token::LParen)?;
            let text = w.parenthesized()?;
            Some(super::expression(text)?.to_string())
        }
        false => None,
    };
    w.expect("execute")?;
    if !w.accept("function") {
        w.expect("procedure")?;
    }
    let function = w.relation()?;
    w.expect_token(&Token::LParen)?;
    let arguments = arguments(w)?;
    ops.sort_by_key(|op| place(*op));
    Ok(Some(CreateTrigger {
        name,
        or_replace,
        before,
        instead,
        row,
        ops,
        table,
        when,
        function,
        arguments,
    }))
}

/// The order in which definitions name them.
fn place(op: Op) -> usize {
    match op {
        Op::Insert => 0,
        Op::Delete => 1,
        Op::Update => 2,
        Op::Truncate => 3,
    }
}

fn op(w: &mut Words<'_>) -> Result<Op> {
    let ops = [
        ("insert", Op::Insert),
        ("update", Op::Update),
        ("delete", Op::Delete),
        ("truncate", Op::Truncate),
    ];
    let found = ops.into_iter().find(|(word, _)| w.accept(word));
    let (_, op) = found.ok_or_else(|| w.unexpected())?;
    if op == Op::Update && w.precedes("of") {
        return Err(Error::unsupported("UPDATE OF in a trigger"));
    }
    Ok(op)
}

/// Literals and names, as texts, to the closing parenthesis.
fn arguments(w: &mut Words<'_>) -> Result<Vec<String>> {
    let mut list = Vec::new();
    if w.accept_token(&Token::RParen) {
        return Ok(list);
    }
    loop {
        list.push(match w.peek() {
            Some(Token::Number(n, _)) => {
                let n = n.clone();
                w.bump();
                n
            }
            _ => w.name_or_string()?,
        });
        if w.accept_token(&Token::RParen) {
            return Ok(list);
        }
        w.expect_token(&Token::Comma)?;
    }
}

/// After the words DROP TRIGGER: the name, its table, and whether it may be missing.
pub fn drop(w: &mut Words<'_>) -> Result<(String, Qualified, bool)> {
    let if_exists = w.accept("if exists");
    let name = w.name()?;
    w.expect("on")?;
    let table = w.relation()?;
    if !w.accept("cascade") {
        w.accept("restrict");
    }
    Ok((name, table, if_exists))
}
