//! CREATE, ALTER and DROP POLICY.

use super::role::{RoleName, role_name};
use super::tokens::Words;
use crate::bind::names::Qualified;
use crate::dict::policy::PolicyFor;
use crate::error::{Error, Result};
use sqlparser::tokenizer::Token;

#[derive(Clone, Debug)]
pub enum PolicyStatement {
    Create(NewPolicy),
    Alter(PolicyName, PolicyParts),
    Rename(PolicyName, String),
    Drop { policy: PolicyName, if_exists: bool },
}

#[derive(Clone, Debug)]
pub struct PolicyName {
    pub name: String,
    pub table: Qualified,
}

#[derive(Clone, Debug)]
pub struct NewPolicy {
    pub policy: PolicyName,
    pub permissive: bool,
    pub command: PolicyFor,
    pub parts: PolicyParts,
}

/// What ALTER POLICY can change.
#[derive(Clone, Debug, Default)]
pub struct PolicyParts {
    /// Empty: not said.
    pub roles: Vec<PolicyRole>,
    pub using: Option<String>,
    pub check: Option<String>,
}

#[derive(Clone, Debug)]
pub enum PolicyRole {
    Everybody,
    Role(RoleName),
}

impl PolicyStatement {
    pub fn command(&self) -> &'static str {
        match self {
            PolicyStatement::Create(_) => "CREATE POLICY",
            PolicyStatement::Alter(..) | PolicyStatement::Rename(..) => "ALTER POLICY",
            PolicyStatement::Drop { .. } => "DROP POLICY",
        }
    }
}

/// After the word CREATE.
pub fn create(w: &mut Words<'_>) -> Result<Option<PolicyStatement>> {
    if !w.accept("policy") {
        return Ok(None);
    }
    let policy = policy_name(w)?;
    let permissive = match w.accept("as") {
        true => is_permissive(w)?,
        false => true,
    };
    let command = match w.accept("for") {
        true => command(w)?,
        false => PolicyFor::All,
    };
    let parts = parts(w)?;
    Ok(Some(PolicyStatement::Create(NewPolicy {
        policy,
        permissive,
        command,
        parts,
    })))
}

/// After the word ALTER.
pub fn alter(w: &mut Words<'_>) -> Result<Option<PolicyStatement>> {
    if !w.accept("policy") {
        return Ok(None);
    }
    let if_exists = w.accept("if exists");
    let policy = policy_name(w)?;
    if w.accept("rename to") {
        return Ok(Some(PolicyStatement::Rename(policy, w.name()?)));
    }
    if if_exists {
        return Err(w.unexpected());
    }
    Ok(Some(PolicyStatement::Alter(policy, parts(w)?)))
}

/// After the word DROP.
pub fn drop(w: &mut Words<'_>) -> Result<Option<PolicyStatement>> {
    if !w.accept("policy") {
        return Ok(None);
    }
    let if_exists = w.accept("if exists");
    let policy = policy_name(w)?;
    // Nothing depends on a policy.
    if !w.accept("cascade") {
        w.accept("restrict");
    }
    Ok(Some(PolicyStatement::Drop { policy, if_exists }))
}

fn policy_name(w: &mut Words<'_>) -> Result<PolicyName> {
    let name = w.name()?;
    w.expect("on")?;
    let table = w.relation()?;
    Ok(PolicyName { name, table })
}

fn is_permissive(w: &mut Words<'_>) -> Result<bool> {
    let unknown = w.unexpected();
    let word = w.name()?;
    match word.as_str() {
        "permissive" => Ok(true),
        "restrictive" => Ok(false),
        _ => {
            let message = format!("unrecognized row security option \"{word}\"");
            let hint = "Only PERMISSIVE or RESTRICTIVE policies are supported currently.";
            Err(unknown.with_message(message).hint(hint))
        }
    }
}

fn command(w: &mut Words<'_>) -> Result<PolicyFor> {
    let commands = [
        ("all", PolicyFor::All),
        ("select", PolicyFor::Select),
        ("insert", PolicyFor::Insert),
        ("update", PolicyFor::Update),
        ("delete", PolicyFor::Delete),
    ];
    let found = commands.into_iter().find(|(word, _)| w.accept(word));
    found
        .map(|(_, command)| command)
        .ok_or_else(|| w.unexpected())
}

fn parts(w: &mut Words<'_>) -> Result<PolicyParts> {
    let mut parts = PolicyParts::default();
    if w.accept("to") {
        loop {
            parts.roles.push(match w.accept("public") {
                true => PolicyRole::Everybody,
                false => PolicyRole::Role(role_name(w)?),
            });
            if !w.accept_token(&Token::Comma) {
                break;
            }
        }
    }
    if w.accept("using") {
        parts.using = Some(expression(w)?);
    }
    if w.accept("with check") {
        parts.check = Some(expression(w)?);
    }
    Ok(parts)
}

/// An expression in parentheses as the only item of a SELECT, at the place of the statement's text
/// where it stands: so the places of errors are the statement's.
fn expression(w: &mut Words<'_>) -> Result<String> {
    w.expect_token(&Token::LParen)?;
    let text = w.parenthesized()?;
    if text.trim().is_empty() {
        return Err(w.unexpected());
    }
    let before = w.sql.len() - (w.sql.len() - (text.as_ptr() as usize - w.sql.as_ptr() as usize));
    let mut head: Vec<char> = w.sql[..before].chars().collect();
    for c in head.iter_mut().filter(|c| **c != '\n') {
        *c = ' ';
    }
    // The first word, CREATE or ALTER, stands before one that is as long.
    let room = head.windows(SELECT.len()).position(|w| !w.contains(&'\n'));
    let room = room.ok_or_else(|| Error::internal("a policy's statement without its words"))?;
    for (slot, c) in head[room..].iter_mut().zip(SELECT.chars()) {
        *slot = c;
    }
    let last = head.len() - 1;
    head[last] = '(';
    let head: String = head.into_iter().collect();
    Ok(format!("{head}{text})"))
}

const SELECT: &str = "SELECT";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_stays_at_its_place() {
        let sql = "create policy p\n on t as restrictive for all\nusing (a > (1)) with check (b)";
        let mut w = Words::new(sql).unwrap();
        w.bump();
        let Ok(Some(PolicyStatement::Create(new))) = create(&mut w) else {
            panic!("{sql} is none");
        };
        assert!(!new.permissive);
        let using = new.parts.using.unwrap();
        assert!(
            using.starts_with("SELECT") && using.ends_with("(a > (1))"),
            "{using}"
        );
        assert_eq!(using.find("a >"), sql.find("a >"));
        let check = new.parts.check.unwrap();
        assert_eq!(check.find("b)"), sql.find("b)"));
    }

    #[test]
    fn an_unknown_kind_is_told_of() {
        let mut w = Words::new("create policy p on t as ugly").unwrap();
        w.bump();
        let e = create(&mut w).unwrap_err();
        assert_eq!(e.message(), "unrecognized row security option \"ugly\"");
        assert_eq!(e.sqlstate(), "42601");
    }
}
