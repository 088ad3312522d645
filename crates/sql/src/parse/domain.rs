//! CREATE, ALTER and DROP DOMAIN.

use sqlparser::ast::DataType;
use sqlparser::tokenizer::Token;

use super::define::{Change, Definition};
use super::function;
use super::role::role_name;
use super::tokens::Words;
use crate::bind::names::Qualified;
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub enum DomainStatement {
    Create(Box<CreateDomain>),
    Alter {
        name: Qualified,
        change: DomainChange,
    },
    Drop {
        names: Vec<Qualified>,
        if_exists: bool,
        cascade: bool,
    },
}

#[derive(Clone, Debug)]
pub struct CreateDomain {
    pub name: Qualified,
    pub base: DataType,
    pub collation: Option<Qualified>,
    /// SQL text.
    pub default: Option<String>,
    pub constraints: Vec<NewConstraint>,
}

#[derive(Clone, Debug)]
pub struct NewConstraint {
    pub name: Option<String>,
    pub rule: NewRule,
    pub not_valid: bool,
}

#[derive(Clone, Debug)]
pub enum NewRule {
    NotNull,
    Null,
    /// SQL text of the condition.
    Check(String),
}

#[derive(Clone, Debug)]
pub enum DomainChange {
    /// `None`: no default.
    Default(Option<String>),
    NotNull(bool),
    Add(NewConstraint),
    Drop {
        name: String,
        if_exists: bool,
    },
    RenameConstraint(String, String),
    Validate(String),
    Common(Change),
}

impl DomainStatement {
    pub fn command(&self) -> &'static str {
        match self {
            DomainStatement::Create(_) => "CREATE DOMAIN",
            DomainStatement::Alter { .. } => "ALTER DOMAIN",
            DomainStatement::Drop { .. } => "DROP DOMAIN",
        }
    }
}

/// After the word CREATE.
pub fn create(w: &mut Words<'_>) -> Result<Option<Definition>> {
    if !w.accept("domain") {
        return Ok(None);
    }
    let name = w.relation()?;
    w.accept("as");
    let mut made = CreateDomain {
        name,
        base: function::data_type(w)?,
        collation: None,
        default: None,
        constraints: Vec::new(),
    };
    while !w.at_end() {
        if w.accept("collate") {
            if made.collation.replace(w.relation()?).is_some() {
                return Err(Error::new("42601", "multiple COLLATE clauses not allowed"));
            }
        } else if w.accept("default") {
            if made.default.replace(expression(w)?).is_some() {
                return Err(Error::new("42601", "multiple default expressions"));
            }
        } else {
            made.constraints.push(constraint(w)?);
        }
    }
    let rules = || made.constraints.iter().map(|c| &c.rule);
    if rules().any(|r| matches!(r, NewRule::NotNull)) && rules().any(|r| matches!(r, NewRule::Null))
    {
        let message = "conflicting NULL/NOT NULL constraints";
        return Err(Error::new("42601", message));
    }
    let made = DomainStatement::Create(Box::new(made));
    Ok(Some(Definition::Domain(made)))
}

/// An expression up to the next clause, as SQL text.
fn expression(w: &mut Words<'_>) -> Result<String> {
    const CLAUSES: [&str; 5] = ["constraint", "not null", "null", "check", "collate"];
    let (begin, before) = (w.mark(), w.position() - 1);
    let rest = w.rest();
    w.back_to(begin);
    let mut depth = 0usize;
    while !w.at_end() {
        let first = w.mark() == begin;
        if depth == 0 && !first && CLAUSES.iter().any(|c| w.precedes(c)) {
            break;
        }
        match w.bump() {
            Some(Token::LParen | Token::LBracket) => depth += 1,
            Some(Token::RParen | Token::RBracket) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let here = w.mark();
    let after = w.rest().len();
    w.back_to(here);
    let text = rest[..rest.len() - after].trim().trim_end_matches(';');
    let e = super::whole_expression(text).map_err(|e| e.moved(before))?;
    Ok(e.to_string())
}

fn constraint(w: &mut Words<'_>) -> Result<NewConstraint> {
    let name = match w.accept("constraint") {
        true => Some(w.name()?),
        false => None,
    };
    let rule = if w.accept("not null") {
        NewRule::NotNull
    } else if w.accept("null") {
        NewRule::Null
    } else if w.accept("check") {
        w.expect_token(&Token::LParen)?;
        let before = w.position() - 1;
        let e = super::whole_expression(w.parenthesized()?).map_err(|e| e.moved(before))?;
        NewRule::Check(e.to_string())
    } else {
        return Err(refused(w));
    };
    if w.accept("no inherit") {
        let message = "check constraints for domains cannot be marked NO INHERIT";
        return Err(Error::new("42P17", message));
    }
    let not_valid = w.accept("not valid");
    if w.precedes("deferrable") || w.precedes("not deferrable") || w.precedes("initially") {
        let message = "specifying constraint deferrability not supported for domains";
        return Err(Error::new("0A000", message));
    }
    Ok(NewConstraint {
        name,
        rule,
        not_valid,
    })
}

/// What columns have and domains do not.
fn refused(w: &mut Words<'_>) -> Error {
    let kinds = [
        ("unique", "unique"),
        ("primary key", "primary key"),
        ("exclude", "exclusion"),
        ("references", "foreign key"),
        ("foreign key", "foreign key"),
    ];
    let found = kinds.into_iter().find(|(words, _)| w.precedes(words));
    match found {
        Some((_, kind)) => {
            let message = format!("{kind} constraints not possible for domains");
            Error::new("42601", message)
        }
        None => w.unexpected(),
    }
}

/// After the word ALTER.
pub fn alter(w: &mut Words<'_>) -> Result<Option<Definition>> {
    if !w.accept("domain") {
        return Ok(None);
    }
    let name = w.relation()?;
    let change = if w.accept("set default") {
        DomainChange::Default(Some(expression(w)?))
    } else if w.accept("drop default") {
        DomainChange::Default(None)
    } else if w.accept("set not null") {
        DomainChange::NotNull(true)
    } else if w.accept("drop not null") {
        DomainChange::NotNull(false)
    } else if w.accept("add") {
        DomainChange::Add(constraint(w)?)
    } else if w.accept("drop constraint") {
        let if_exists = w.accept("if exists");
        let name = w.name()?;
        if !w.accept("cascade") {
            w.accept("restrict");
        }
        DomainChange::Drop { name, if_exists }
    } else if w.accept("rename constraint") {
        let from = w.name()?;
        w.expect("to")?;
        DomainChange::RenameConstraint(from, w.name()?)
    } else if w.accept("validate constraint") {
        DomainChange::Validate(w.name()?)
    } else if w.accept("rename to") {
        DomainChange::Common(Change::Rename(w.name()?))
    } else if w.accept("owner to") {
        DomainChange::Common(Change::Owner(role_name(w)?))
    } else if w.accept("set schema") {
        DomainChange::Common(Change::Schema(w.name()?))
    } else {
        return Err(w.unexpected());
    };
    Ok(Some(Definition::Domain(DomainStatement::Alter {
        name,
        change,
    })))
}

/// After the word DROP.
pub fn drop(w: &mut Words<'_>) -> Result<Option<Definition>> {
    if !w.accept("domain") {
        return Ok(None);
    }
    let if_exists = w.accept("if exists");
    let mut names = vec![w.relation()?];
    while w.accept_token(&Token::Comma) {
        names.push(w.relation()?);
    }
    let cascade = w.accept("cascade");
    if !cascade {
        w.accept("restrict");
    }
    Ok(Some(Definition::Domain(DomainStatement::Drop {
        names,
        if_exists,
        cascade,
    })))
}
