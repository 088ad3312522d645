//! CREATE, ALTER and DROP of roles, also in Oracle's form `create user x identified by y`.

use sqlparser::tokenizer::Token;

use super::grant::{Membership, Security};
use super::setting;
use super::tokens::Words;
use super::utility::Utility;
use crate::error::{Error, Result};

/// A role that a statement names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RoleName {
    Is(String),
    CurrentUser,
    SessionUser,
}

/// An option of CREATE ROLE and ALTER ROLE.
#[derive(Clone, PartialEq, Eq)]
pub enum RoleOption {
    Superuser(bool),
    CreateDb(bool),
    CreateRole(bool),
    Inherit(bool),
    Login(bool),
    Replication(bool),
    BypassRls(bool),
    ConnectionLimit(i64),
    /// `None`: no password.
    Password(Option<String>),
    ValidUntil(String),
    /// Oracle's names of numbers, which have no meaning any more.
    Sysid,
    /// IN ROLE: those that the new one is a member of.
    InRoles(Vec<String>),
    /// ROLE: the new one's members.
    Members(Vec<RoleName>),
    /// ADMIN: members who may make others members.
    Admins(Vec<RoleName>),
}

/// Without the password.
impl std::fmt::Debug for RoleOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl RoleOption {
    /// What the option is about: it may be given once.
    pub fn name(&self) -> &'static str {
        match self {
            RoleOption::Superuser(_) => "superuser",
            RoleOption::CreateDb(_) => "createdb",
            RoleOption::CreateRole(_) => "createrole",
            RoleOption::Inherit(_) => "inherit",
            RoleOption::Login(_) => "canlogin",
            RoleOption::Replication(_) => "isreplication",
            RoleOption::BypassRls(_) => "bypassrls",
            RoleOption::ConnectionLimit(_) => "connectionlimit",
            RoleOption::Password(_) => "password",
            RoleOption::ValidUntil(_) => "validUntil",
            RoleOption::Sysid => "sysid",
            RoleOption::InRoles(_) => "addroleto",
            RoleOption::Members(_) => "rolemembers",
            RoleOption::Admins(_) => "adminmembers",
        }
    }
}

/// Whether the next words name a role's kind. `user` may log in unless it is told otherwise.
pub fn accept_kind(w: &mut Words<'_>) -> Option<&'static str> {
    // CREATE USER MAPPING is about something else.
    if w.precedes("user mapping") {
        return None;
    }
    ["role", "user", "group"]
        .into_iter()
        .find(|kind| w.accept(kind))
}

pub fn create(w: &mut Words<'_>, kind: &str) -> Result<Utility> {
    let name = w.name()?;
    let mut options = options(w)?;
    if kind == "user" && !options.iter().any(|o| matches!(o, RoleOption::Login(_))) {
        options.push(RoleOption::Login(true));
    }
    Ok(Utility::CreateRole { name, options })
}

pub fn alter(w: &mut Words<'_>, kind: &str) -> Result<Utility> {
    if w.accept("all") {
        return set(w, None)?.ok_or_else(|| w.unexpected());
    }
    let name = role_name(w)?;
    if w.accept("rename to") {
        let from = match name {
            RoleName::Is(name) => name,
            _ => return Err(w.unexpected()),
        };
        return Ok(Utility::RenameRole {
            from,
            to: w.name()?,
        });
    }
    if let Some(set) = set(w, Some(&name))? {
        return Ok(set);
    }
    if kind == "group" {
        let is_grant = w.accept("add user");
        if !is_grant {
            w.expect("drop user")?;
        }
        let RoleName::Is(group) = name else {
            return Err(w.unexpected());
        };
        let members = role_list(w, role_name)?;
        return Ok(Utility::Security(Box::new(Security::Membership(
            Membership {
                is_grant,
                is_group: true,
                admin: false,
                roles: vec![group],
                members,
                by: None,
            },
        ))));
    }
    let options = options(w)?;
    let refused = |o: &&RoleOption| {
        matches!(
            o,
            RoleOption::InRoles(_) | RoleOption::Members(_) | RoleOption::Admins(_)
        )
    };
    match options.iter().find(refused) {
        None => Ok(Utility::AlterRole { name, options }),
        Some(_) => Err(Error::new("42601", "syntax error: members in ALTER ROLE")),
    }
}

/// What ALTER ROLE sets, if it does; `None` for the role: of all.
fn set(w: &mut Words<'_>, role: Option<&RoleName>) -> Result<Option<Utility>> {
    let database = match w.accept("in database") {
        true => Some(w.name()?),
        false => None,
    };
    let Some(clause) = setting::clause(w)? else {
        return match database {
            Some(_) => Err(w.unexpected()),
            None => Ok(None),
        };
    };
    Ok(Some(Utility::SetOfRole {
        role: role.cloned(),
        database,
        clause,
    }))
}

/// After the word ALTER: ALTER DATABASE .. SET and RESET, if it is one.
pub fn alter_database(w: &mut Words<'_>) -> Result<Option<Utility>> {
    let begin = w.mark();
    if w.accept("database") {
        let name = w.name()?;
        if !w.precedes("set tablespace")
            && let Some(clause) = setting::clause(w)?
        {
            return Ok(Some(Utility::SetOfDatabase { name, clause }));
        }
    }
    w.back_to(begin);
    Ok(None)
}

pub fn drop(w: &mut Words<'_>) -> Result<Utility> {
    let if_exists = w.accept("if exists");
    let mut names = vec![role_name(w)?];
    while w.accept_token(&Token::Comma) {
        names.push(role_name(w)?);
    }
    Ok(Utility::DropRole { names, if_exists })
}

pub fn role_name(w: &mut Words<'_>) -> Result<RoleName> {
    if w.accept("current_user") || w.accept("current_role") {
        return Ok(RoleName::CurrentUser);
    }
    if w.accept("session_user") {
        return Ok(RoleName::SessionUser);
    }
    w.name().map(RoleName::Is)
}

fn role_list<T>(w: &mut Words<'_>, one: fn(&mut Words<'_>) -> Result<T>) -> Result<Vec<T>> {
    let mut all = vec![one(w)?];
    while w.accept_token(&Token::Comma) {
        all.push(one(w)?);
    }
    Ok(all)
}

fn options(w: &mut Words<'_>) -> Result<Vec<RoleOption>> {
    w.accept("with");
    let mut options: Vec<RoleOption> = Vec::new();
    while !w.at_end() {
        let option = option(w)?;
        if options.iter().any(|o| o.name() == option.name()) {
            return Err(Error::new("42601", "conflicting or redundant options"));
        }
        options.push(option);
    }
    Ok(options)
}

fn option(w: &mut Words<'_>) -> Result<RoleOption> {
    type Switch = fn(bool) -> RoleOption;
    let switches: [(&str, &str, Switch); 7] = [
        ("superuser", "nosuperuser", RoleOption::Superuser),
        ("createdb", "nocreatedb", RoleOption::CreateDb),
        ("createrole", "nocreaterole", RoleOption::CreateRole),
        ("inherit", "noinherit", RoleOption::Inherit),
        ("login", "nologin", RoleOption::Login),
        ("replication", "noreplication", RoleOption::Replication),
        ("bypassrls", "nobypassrls", RoleOption::BypassRls),
    ];
    for (on, off, option) in switches {
        if w.accept(on) {
            return Ok(option(true));
        }
        if w.accept(off) {
            return Ok(option(false));
        }
    }
    if w.accept("connection limit") {
        return Ok(RoleOption::ConnectionLimit(w.integer()?));
    }
    if w.accept("unencrypted password") {
        return Err(
            Error::new("0A000", "UNENCRYPTED PASSWORD is no longer supported")
                .hint("Remove UNENCRYPTED to store the password in encrypted form instead."),
        );
    }
    if w.accept("encrypted password") || w.accept("password") {
        return Ok(RoleOption::Password(match w.accept("null") {
            true => None,
            false => Some(w.string()?),
        }));
    }
    if w.accept("identified by") {
        return identified(w).map(|password| RoleOption::Password(Some(password)));
    }
    if w.accept("valid until") {
        return Ok(RoleOption::ValidUntil(w.string()?));
    }
    if w.accept("sysid") {
        w.integer()?;
        return Ok(RoleOption::Sysid);
    }
    if w.accept("in role") || w.accept("in group") {
        return role_list(w, |w| w.name()).map(RoleOption::InRoles);
    }
    if w.accept("role") || w.accept("user") {
        return role_list(w, role_name).map(RoleOption::Members);
    }
    if w.accept("admin") {
        return role_list(w, role_name).map(RoleOption::Admins);
    }
    let option = match w.peek() {
        Some(Token::Word(word)) => word.value.clone(),
        _ => return Err(w.unexpected()),
    };
    match w.word() {
        Some(_) => Err(Error::new(
            "42601",
            format!("unrecognized role option \"{option}\""),
        )),
        None => Err(w.unexpected()),
    }
}

/// Oracle's form of a password: a word as it is written, in any of its quotes or none.
fn identified(w: &mut Words<'_>) -> Result<String> {
    match w.peek() {
        Some(Token::Word(word)) => {
            let password = word.value.clone();
            w.bump();
            Ok(password)
        }
        _ => w.string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Command, statement};

    fn parsed(sql: &str) -> Utility {
        match statement(sql) {
            Ok(Command::Utility(u)) => *u,
            Ok(_) => panic!("{sql} is no utility statement"),
            Err(e) => panic!("{sql}: {e}"),
        }
    }

    #[test]
    fn both_forms_are_read() {
        let Utility::CreateRole { name, options } =
            parsed("create user Ann identified by Secret_1 connection limit 3")
        else {
            panic!()
        };
        assert_eq!(name, "ann");
        let wanted = [
            RoleOption::Password(Some("Secret_1".into())),
            RoleOption::ConnectionLimit(3),
            RoleOption::Login(true),
        ];
        assert!(options == wanted, "{options:?}");
        let Utility::AlterRole { name, options } = parsed(
            "ALTER ROLE current_user WITH NOLOGIN ENCRYPTED PASSWORD NULL VALID UNTIL 'infinity'",
        ) else {
            panic!()
        };
        assert_eq!(name, RoleName::CurrentUser);
        assert_eq!(options.len(), 3);
        for (wrong, sqlstate) in [
            ("create role a login nologin", "42601"),
            ("create role a password", "42601"),
            ("create role a fast", "42601"),
            ("alter role a in role b", "42601"),
            ("alter role a role b", "42601"),
            ("create role a unencrypted password 'x'", "0A000"),
            ("drop role", "42601"),
        ] {
            let error = statement(wrong).expect_err(wrong);
            assert_eq!(error.sqlstate(), sqlstate, "{wrong}: {error}");
        }
    }
}
