//! CREATE, ALTER and DROP TRIGGER.

use sqlparser::tokenizer::Token;

use super::tokens::Words;
use super::trigger_body::{self, RowNames};
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
    /// UPDATE OF; empty: of any column.
    pub columns: Vec<String>,
    pub table: Qualified,
    pub constraint: Option<Characteristics>,
    pub old_table: Option<String>,
    pub new_table: Option<String>,
    /// SQL text.
    pub when: Option<String>,
    pub runs: Runs,
    /// The schema that a trigger in Oracle's form is named with, which is its table's.
    pub schema: Option<String>,
    /// It is made with DISABLE, which Oracle's form has.
    pub disabled: bool,
}

/// What a trigger runs.
#[derive(Clone, Debug)]
pub enum Runs {
    Function {
        name: Qualified,
        arguments: Vec<String>,
    },
    /// A body of its own, in Oracle's words.
    Body(String),
}

/// What a constraint trigger has that others have not.
#[derive(Clone, Debug, Default)]
pub struct Characteristics {
    pub from: Option<Qualified>,
    pub deferrable: bool,
    pub initially_deferred: bool,
}

/// After the word CREATE.
pub fn create(w: &mut Words<'_>) -> Result<Option<CreateTrigger>> {
    let begin = w.mark();
    let or_replace = w.accept("or replace");
    let editionable = w.mark();
    let has_edition = w.accept("editionable") || w.accept("noneditionable");
    let is_constraint = !has_edition && w.accept("constraint trigger");
    if !is_constraint && !w.accept("trigger") {
        w.back_to(begin);
        return Ok(None);
    }
    if is_constraint && or_replace {
        let message = "CREATE OR REPLACE CONSTRAINT TRIGGER is not supported";
        return Err(Error::new("0A000", message));
    }
    let mut name = w.name()?;
    let (mut schema, mut of_oracle) = (None, has_edition.then_some(editionable));
    if !is_constraint && w.peek() == Some(&Token::Period) {
        of_oracle = of_oracle.or(Some(w.mark()));
        w.bump();
        schema = Some(std::mem::replace(&mut name, w.name()?));
    }
    let before = !is_constraint && w.accept("before");
    let instead = !is_constraint && w.accept("instead of");
    if !before && !instead {
        if !is_constraint && w.precedes("for") {
            return Err(Error::unsupported("COMPOUND TRIGGER"));
        }
        w.expect("after")?;
    }
    let (mut ops, columns) = operations(w)?;
    w.expect("on")?;
    let table = w.relation()?;
    let constraint = match is_constraint {
        true => Some(characteristics(w)?),
        false => None,
    };
    let named = match !is_constraint && w.accept("referencing") {
        true => transitions(w)?,
        false => Transitions::default(),
    };
    let mut row = false;
    if is_constraint {
        w.expect("for")?;
        w.accept("each");
        w.expect("row")?;
        row = true;
    } else if w.accept("for") {
        w.accept("each");
        row = w.accept("row");
        if !row {
            w.expect("statement")?;
        }
    }
    for refused in ["follows", "precedes"] {
        if w.precedes(refused) {
            let clause = format!("{} of a trigger", refused.to_uppercase());
            return Err(Error::unsupported(clause));
        }
    }
    let state = w.mark();
    let disabled = w.accept("disable");
    if disabled || w.accept("enable") {
        of_oracle = of_oracle.or(Some(state));
    }
    let mut when = None;
    if w.accept("when") {
        w.expect_token(&Token::LParen)?;
        let before = w.position() - 1;
        let condition = trigger_body::condition(w.parenthesized()?, &named.rows);
        when = Some(condition.map_err(|e| e.moved(before))?);
    }
    let body = match is_constraint {
        true => None,
        false => trigger_body::body(w, &named.rows)?,
    };
    let runs = match (body, of_oracle) {
        (Some(body), _) => Runs::Body(body),
        (None, Some(mark)) => {
            w.back_to(mark);
            return Err(w.unexpected());
        }
        (None, None) => function(w)?,
    };
    if named.has_rows && matches!(runs, Runs::Function { .. }) {
        let message = "ROW variable naming in the REFERENCING clause is not supported";
        return Err(Error::new("0A000", message)
            .hint("Use OLD TABLE or NEW TABLE for naming transition tables."));
    }
    ops.sort_by_key(|op| place(*op));
    Ok(Some(CreateTrigger {
        name,
        or_replace,
        before,
        instead,
        row,
        ops,
        columns,
        table,
        constraint,
        old_table: named.old_table,
        new_table: named.new_table,
        when,
        runs,
        schema,
        disabled,
    }))
}

/// EXECUTE FUNCTION.
fn function(w: &mut Words<'_>) -> Result<Runs> {
    w.expect("execute")?;
    if !w.accept("function") {
        w.expect("procedure")?;
    }
    let name = w.relation()?;
    w.expect_token(&Token::LParen)?;
    let arguments = arguments(w)?;
    Ok(Runs::Function { name, arguments })
}

/// What it is fired by, and the columns of UPDATE OF.
fn operations(w: &mut Words<'_>) -> Result<(Vec<Op>, Vec<String>)> {
    let (mut ops, mut columns) = (Vec::new(), Vec::new());
    loop {
        let next = op(w)?;
        if ops.contains(&next) {
            return Err(Error::new("42601", "duplicate trigger events specified"));
        }
        ops.push(next);
        if next == Op::Update && w.accept("of") {
            columns.push(w.name()?);
            while w.accept_token(&Token::Comma) {
                columns.push(w.name()?);
            }
        }
        if !w.accept("or") {
            return Ok((ops, columns));
        }
    }
}

/// FROM and when it is checked.
fn characteristics(w: &mut Words<'_>) -> Result<Characteristics> {
    let mut found = Characteristics::default();
    if w.accept("from") {
        found.from = Some(w.relation()?);
    }
    let (mut deferrable, mut deferred) = (None, None);
    let twice = |what: &str| {
        let message = format!("multiple {what} clauses not allowed");
        Error::new("42601", message)
    };
    let conflict = || Error::new("42601", "conflicting constraint properties");
    loop {
        if w.accept("not deferrable") {
            if deferrable.replace(false).is_some() {
                return Err(conflict());
            }
        } else if w.accept("deferrable") {
            if deferrable.replace(true).is_some() {
                return Err(conflict());
            }
        } else if w.accept("initially") {
            let late = w.accept("deferred");
            if !late {
                w.expect("immediate")?;
            }
            if deferred.replace(late).is_some() {
                return Err(twice("INITIALLY IMMEDIATE/DEFERRED"));
            }
        } else {
            break;
        }
    }
    found.initially_deferred = deferred == Some(true);
    if found.initially_deferred && deferrable == Some(false) {
        let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
        return Err(Error::new("42601", message));
    }
    found.deferrable = deferrable.unwrap_or(found.initially_deferred);
    Ok(found)
}

/// What REFERENCING names.
#[derive(Default)]
struct Transitions {
    old_table: Option<String>,
    new_table: Option<String>,
    /// The rows, which only Oracle's form names.
    rows: RowNames,
    has_rows: bool,
}

/// Behind the word REFERENCING.
fn transitions(w: &mut Words<'_>) -> Result<Transitions> {
    let mut named = Transitions::default();
    let mut is_first = true;
    loop {
        let is_new = match w.word().as_deref() {
            Some("old") => false,
            Some("new") => true,
            _ if is_first => return Err(w.unexpected()),
            _ => return Ok(named),
        };
        is_first = false;
        w.bump();
        let is_table = w.accept("table");
        if !is_table {
            w.accept("row");
        }
        w.accept("as");
        let name = w.name()?;
        if !is_table {
            named.has_rows = true;
            let row = match is_new {
                true => &mut named.rows.new,
                false => &mut named.rows.old,
            };
            *row = name;
            continue;
        }
        let (side, word) = match is_new {
            true => (&mut named.new_table, "NEW"),
            false => (&mut named.old_table, "OLD"),
        };
        if side.replace(name).is_some() {
            let message = format!("{word} TABLE cannot be specified multiple times");
            return Err(Error::new("42P17", message));
        }
    }
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
    found.map(|(_, op)| op).ok_or_else(|| w.unexpected())
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

/// After the words DROP TRIGGER: the name, its table, and whether it may be missing. Oracle's form
/// has no table, and perhaps a schema before the name.
pub fn drop(w: &mut Words<'_>) -> Result<(Qualified, Option<Qualified>, bool)> {
    let if_exists = w.accept("if exists");
    let begin = w.mark();
    let name = w.relation()?;
    if !if_exists && w.at_end() {
        return Ok((name, None, false));
    }
    if name.schema.is_some() {
        w.back_to(begin);
        w.bump();
        return Err(w.unexpected());
    }
    w.expect("on")?;
    let table = w.relation()?;
    if !w.accept("cascade") {
        w.accept("restrict");
    }
    Ok((name, Some(table), if_exists))
}

/// After the words ALTER TRIGGER: the name, its table, and the new name.
pub fn alter(w: &mut Words<'_>) -> Result<(String, Qualified, String)> {
    let name = w.name()?;
    w.expect("on")?;
    let table = w.relation()?;
    if w.precedes("depends") || w.precedes("no depends") {
        return Err(Error::unsupported("ALTER TRIGGER .. DEPENDS ON EXTENSION"));
    }
    w.expect("rename")?;
    w.expect("to")?;
    Ok((name, table, w.name()?))
}
