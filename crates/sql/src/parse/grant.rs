//! GRANT and REVOKE, ALTER DEFAULT PRIVILEGES, REASSIGN OWNED and DROP OWNED.

use sqlparser::tokenizer::Token;

use super::function::{FunctionName, function_name};
use super::role::{RoleName, role_name};
use super::tokens::Words;
use crate::bind::names::Qualified;
use crate::dict::acl::{Kind, Privileges};
use crate::error::{Error, Result};

/// A statement about rights.
#[derive(Clone, Debug)]
pub enum Security {
    Grant(Grant),
    Membership(Membership),
    DefaultPrivileges(DefaultGrant),
    ReassignOwned { from: Vec<RoleName>, to: RoleName },
    DropOwned { of: Vec<RoleName>, cascade: bool },
}

impl Security {
    pub fn command(&self) -> &'static str {
        match self {
            Security::Grant(g) => g.give.command(),
            Security::Membership(m) => m.command(),
            Security::DefaultPrivileges(_) => "ALTER DEFAULT PRIVILEGES",
            Security::ReassignOwned { .. } => "REASSIGN OWNED",
            Security::DropOwned { .. } => "DROP OWNED",
        }
    }
}

/// What is done with privileges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Give {
    /// With the grant option or without.
    Grant { option: bool },
    /// The grant option only, or all.
    Revoke { option: bool, cascade: bool },
}

impl Give {
    fn command(self) -> &'static str {
        match self {
            Give::Grant { .. } => "GRANT",
            Give::Revoke { .. } => "REVOKE",
        }
    }
}

/// A grantee.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Grantee {
    Everybody,
    Role(RoleName),
}

/// A privilege as it is written, with the columns that it is on, if any. `None`: all of them.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub privilege: Option<String>,
    pub columns: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub give: Give,
    pub wanted: Vec<Wanted>,
    pub on: On,
    pub grantees: Vec<Grantee>,
    pub by: Option<RoleName>,
}

/// What privileges are granted on.
#[derive(Clone, Debug)]
pub enum On {
    Relations(Vec<Qualified>),
    Sequences(Vec<Qualified>),
    Databases(Vec<String>),
    Schemas(Vec<String>),
    Functions(Vec<FunctionName>),
    Types(Vec<Qualified>),
    LargeObjects(Vec<u32>),
    /// All of a kind in schemas.
    AllIn(Kind, Vec<String>),
}

/// GRANT and REVOKE of roles.
#[derive(Clone, Debug)]
pub struct Membership {
    pub is_grant: bool,
    /// It is written as ALTER GROUP.
    pub is_group: bool,
    /// WITH ADMIN OPTION; of REVOKE, that option only.
    pub admin: bool,
    pub roles: Vec<String>,
    pub members: Vec<RoleName>,
    pub by: Option<RoleName>,
}

impl Membership {
    pub fn command(&self) -> &'static str {
        match (self.is_group, self.is_grant) {
            (true, _) => "ALTER ROLE",
            (false, true) => "GRANT ROLE",
            (false, false) => "REVOKE ROLE",
        }
    }
}

/// ALTER DEFAULT PRIVILEGES.
#[derive(Clone, Debug)]
pub struct DefaultGrant {
    /// Whose new objects; none named: the current role's.
    pub roles: Vec<RoleName>,
    /// In which schemas; none named: in any.
    pub schemas: Vec<String>,
    pub give: Give,
    pub wanted: Vec<Wanted>,
    pub kind: Kind,
    pub grantees: Vec<Grantee>,
}

/// After the word GRANT.
pub fn grant(w: &mut Words<'_>) -> Result<Security> {
    let wanted = wanted(w)?;
    if !w.accept("on") {
        let roles = roles_of(wanted)?;
        w.expect("to")?;
        let members = list(w, role_name)?;
        let admin = w.accept("with admin option");
        let by = granted_by(w)?;
        return Ok(Security::Membership(Membership {
            is_grant: true,
            is_group: false,
            admin,
            roles,
            members,
            by,
        }));
    }
    let on = on(w)?;
    w.expect("to")?;
    let grantees = list(w, grantee)?;
    let option = w.accept("with grant option");
    Ok(Security::Grant(Grant {
        give: Give::Grant { option },
        wanted,
        on,
        grantees,
        by: granted_by(w)?,
    }))
}

/// After the word REVOKE.
pub fn revoke(w: &mut Words<'_>) -> Result<Security> {
    let admin = w.accept("admin option for");
    let option = !admin && w.accept("grant option for");
    let wanted = wanted(w)?;
    if admin || !option && w.precedes("from") {
        let roles = roles_of(wanted)?;
        w.expect("from")?;
        let members = list(w, role_name)?;
        let by = granted_by(w)?;
        let _ = cascade(w);
        return Ok(Security::Membership(Membership {
            is_grant: false,
            is_group: false,
            admin,
            roles,
            members,
            by,
        }));
    }
    w.expect("on")?;
    let on = on(w)?;
    w.expect("from")?;
    let grantees = list(w, grantee)?;
    let by = granted_by(w)?;
    let cascade = cascade(w);
    Ok(Security::Grant(Grant {
        give: Give::Revoke { option, cascade },
        wanted,
        on,
        grantees,
        by,
    }))
}

/// After ALTER DEFAULT PRIVILEGES.
pub fn default_privileges(w: &mut Words<'_>) -> Result<Security> {
    let (mut roles, mut schemas) = (Vec::new(), Vec::new());
    loop {
        if w.accept("for role") || w.accept("for user") {
            roles = list(w, role_name)?;
        } else if w.accept("in schema") {
            schemas = list(w, |w| w.name())?;
        } else {
            break;
        }
    }
    let is_grant = w.accept("grant");
    if !is_grant {
        w.expect("revoke")?;
    }
    let mut option = !is_grant && w.accept("grant option for");
    let wanted = wanted(w)?;
    w.expect("on")?;
    let kinds = [
        ("tables", Kind::Table),
        ("sequences", Kind::Sequence),
        ("functions", Kind::Function),
        ("routines", Kind::Function),
        ("types", Kind::Type),
        ("schemas", Kind::Schema),
    ];
    let kind = kinds.into_iter().find(|(word, _)| w.accept(word));
    let (_, kind) = kind.ok_or_else(|| w.unexpected())?;
    w.expect(if is_grant { "to" } else { "from" })?;
    let grantees = list(w, grantee)?;
    let give = match is_grant {
        true => {
            option |= w.accept("with grant option");
            Give::Grant { option }
        }
        false => Give::Revoke {
            option,
            cascade: cascade(w),
        },
    };
    Ok(Security::DefaultPrivileges(DefaultGrant {
        roles,
        schemas,
        give,
        wanted,
        kind,
        grantees,
    }))
}

/// After the word REASSIGN.
pub fn reassign(w: &mut Words<'_>) -> Result<Security> {
    w.expect("owned by")?;
    let from = list(w, role_name)?;
    w.expect("to")?;
    let to = role_name(w)?;
    Ok(Security::ReassignOwned { from, to })
}

/// After DROP OWNED.
pub fn drop_owned(w: &mut Words<'_>) -> Result<Security> {
    w.expect("by")?;
    let of = list(w, role_name)?;
    let cascade = cascade(w);
    Ok(Security::DropOwned { of, cascade })
}

fn cascade(w: &mut Words<'_>) -> bool {
    let cascade = w.accept("cascade");
    if !cascade {
        w.accept("restrict");
    }
    cascade
}

fn granted_by(w: &mut Words<'_>) -> Result<Option<RoleName>> {
    match w.accept("granted by") {
        true => role_name(w).map(Some),
        false => Ok(None),
    }
}

fn grantee(w: &mut Words<'_>) -> Result<Grantee> {
    w.accept("group");
    match w.accept("public") {
        true => Ok(Grantee::Everybody),
        false => role_name(w).map(Grantee::Role),
    }
}

fn list<T>(w: &mut Words<'_>, one: impl Fn(&mut Words<'_>) -> Result<T>) -> Result<Vec<T>> {
    let mut all = vec![one(w)?];
    while w.accept_token(&Token::Comma) {
        all.push(one(w)?);
    }
    Ok(all)
}

/// Privileges, or the names of roles, which look like them.
fn wanted(w: &mut Words<'_>) -> Result<Vec<Wanted>> {
    let columns = |w: &mut Words<'_>| -> Result<Vec<String>> {
        if !w.accept_token(&Token::LParen) {
            return Ok(Vec::new());
        }
        let columns = list(w, |w| w.name())?;
        w.expect_token(&Token::RParen)?;
        Ok(columns)
    };
    if w.accept("all") {
        w.accept("privileges");
        let columns = columns(w)?;
        return Ok(vec![Wanted {
            privilege: None,
            columns,
        }]);
    }
    list(w, |w| {
        Ok(Wanted {
            privilege: Some(w.name()?),
            columns: columns(w)?,
        })
    })
}

fn roles_of(wanted: Vec<Wanted>) -> Result<Vec<String>> {
    let name = |one: Wanted| match (one.privilege, one.columns.is_empty()) {
        (Some(name), true) => Ok(name),
        (Some(_), false) => Err(Error::new(
            "0LP01",
            "column names cannot be included in GRANT/REVOKE ROLE",
        )),
        (None, _) => Err(Error::new("42601", "syntax error: GRANT ALL without ON")),
    };
    wanted.into_iter().map(name).collect()
}

fn on(w: &mut Words<'_>) -> Result<On> {
    if w.accept("all") {
        let kinds = [
            ("tables", Kind::Table),
            ("sequences", Kind::Sequence),
            ("functions", Kind::Function),
            ("routines", Kind::Function),
            ("procedures", Kind::Function),
        ];
        let kind = kinds.into_iter().find(|(word, _)| w.accept(word));
        let (_, kind) = kind.ok_or_else(|| w.unexpected())?;
        w.expect("in schema")?;
        return Ok(On::AllIn(kind, list(w, |w| w.name())?));
    }
    for refused in [
        "tablespace",
        "language",
        "parameter",
        "foreign data wrapper",
        "foreign server",
    ] {
        if w.accept(refused) {
            let what = refused.to_uppercase();
            return Err(Error::unsupported(format!("privileges on a {what}")));
        }
    }
    if w.accept("large object") {
        return Ok(On::LargeObjects(list(w, super::define::large_object)?));
    }
    if w.accept("sequence") {
        return Ok(On::Sequences(list(w, |w| w.relation())?));
    }
    if w.accept("database") {
        return Ok(On::Databases(list(w, |w| w.name())?));
    }
    if w.accept("schema") {
        return Ok(On::Schemas(list(w, |w| w.name())?));
    }
    if w.accept("function") || w.accept("procedure") || w.accept("routine") {
        return Ok(On::Functions(list(w, function_name)?));
    }
    if w.accept("type") || w.accept("domain") {
        return Ok(On::Types(list(w, |w| w.relation())?));
    }
    w.accept("table");
    Ok(On::Relations(list(w, |w| w.relation())?))
}

/// The privilege of a name, as it is written in GRANT.
pub fn privilege(name: &str) -> Result<Privileges> {
    let unknown = || Error::new("42601", format!("unrecognized privilege type \"{name}\""));
    Privileges::named(&name.to_uppercase()).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sql: &str) -> Result<Security> {
        let mut w = Words::new(sql)?;
        let found = match w.bump() {
            Some(Token::Word(first)) if first.value == "grant" => grant(&mut w),
            _ => revoke(&mut w),
        }?;
        w.end()?;
        Ok(found)
    }

    #[test]
    fn roles_and_privileges_are_told_apart() {
        let of_roles = |sql: &str| matches!(parsed(sql), Ok(Security::Membership(_)));
        let of_privileges = |sql: &str| matches!(parsed(sql), Ok(Security::Grant(_)));
        assert!(of_roles("grant a, b to c with admin option granted by d"));
        assert!(of_roles("revoke admin option for a from c cascade"));
        assert!(of_roles("revoke \"select\" from c"));
        assert!(of_privileges("grant select (a, b), update on t to public"));
        assert!(of_privileges(
            "grant all privileges on all tables in schema s to group g"
        ));
        assert!(of_privileges(
            "revoke grant option for execute on function f(int, text) from a cascade"
        ));
        for wrong in [
            "grant a(b) to c",
            "grant all to c",
            "grant select on t",
            "grant usage on language sql to c",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
