//! Policies of row-level security, as they are stored: with their table's definition, in the order
//! of their names.
//!
//! **Invariants.**
//! - A policy knows what its expressions read as a view does ([`super::view`]): by object ids and
//!   numbers of columns. Its own table is among [`Policy::sources`], too.
//! - Whom a policy holds for is judged by the memberships of the moment, and stored nowhere: a plan
//!   notes which policies are in it, and is good for every role for which the same ones hold
//!   (`bind::needs::Secured`).

use serde::{Deserialize, Serialize};

use super::acl::EVERYBODY;
use super::{Dict, Source, Table};

/// The statements that a policy is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PolicyFor {
    All,
    Select,
    Insert,
    Update,
    Delete,
}

impl PolicyFor {
    /// As `pg_policy` has it.
    pub fn letter(self) -> char {
        match self {
            PolicyFor::All => '*',
            PolicyFor::Select => 'r',
            PolicyFor::Insert => 'a',
            PolicyFor::Update => 'w',
            PolicyFor::Delete => 'd',
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            PolicyFor::All => "ALL",
            PolicyFor::Select => "SELECT",
            PolicyFor::Insert => "INSERT",
            PolicyFor::Update => "UPDATE",
            PolicyFor::Delete => "DELETE",
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Policy {
    pub oid: u32,
    pub name: String,
    /// Else it is restrictive.
    pub permissive: bool,
    pub command: PolicyFor,
    /// Object ids; [`EVERYBODY`] for PUBLIC.
    pub roles: Vec<u32>,
    /// `SELECT expression FROM table`, in the text of a view.
    #[serde(default)]
    pub using: Option<String>,
    #[serde(default)]
    pub check: Option<String>,
    /// What both expressions read.
    #[serde(default)]
    pub sources: Vec<Source>,
    #[serde(default)]
    pub comment: Option<String>,
}

/// Which expression of a policy is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// That of the rows that are there.
    Using,
    /// That of new rows: USING, if there is no WITH CHECK.
    Check,
}

/// A condition that a row must meet: the expression of one of these policies holds for it. Without
/// any, no row meets it.
#[derive(Clone, PartialEq, Debug)]
pub struct Clause<'t> {
    pub any_of: Vec<(&'t Policy, &'t str)>,
    /// The restrictive policy that it is of.
    pub policy: Option<&'t str>,
}

impl Policy {
    fn text(&self, which: Which) -> Option<&str> {
        let check = self.check.as_deref().filter(|_| which == Which::Check);
        check.or(self.using.as_deref())
    }

    fn is_for(&self, command: PolicyFor) -> bool {
        self.command == PolicyFor::All || self.command == command
    }

    /// Whether it reads a relation, or a column of it.
    pub fn reads(&self, oid: u32, column: Option<i16>) -> bool {
        let is_read = |s: &Source| column.is_none_or(|c| s.used.contains(&c));
        self.sources.iter().any(|s| s.oid == oid && is_read(s))
    }
}

impl Table {
    pub fn policy(&self, name: &str) -> Option<usize> {
        self.policies.iter().position(|p| p.name == name)
    }

    /// What rows of the table must meet for a command, by those of its policies that hold for the
    /// role. The clause of the permissive ones is the first.
    pub fn clauses(&self, holding: &[u32], command: PolicyFor, which: Which) -> Vec<Clause<'_>> {
        let all = self.policies.iter();
        let all = all.filter(|p| holding.contains(&p.oid) && p.is_for(command));
        let with_text = |p| Policy::text(p, which).map(|text| (p, text));
        let (permissive, restrictive): (Vec<_>, Vec<_>) = all
            .filter_map(with_text)
            .partition(|(policy, _)| policy.permissive);
        let denied = permissive.is_empty();
        let mut clauses = vec![Clause {
            any_of: permissive,
            policy: None,
        }];
        if !denied {
            let each = restrictive.into_iter().map(|(policy, text)| Clause {
                any_of: vec![(policy, text)],
                policy: Some(&policy.name),
            });
            clauses.extend(each);
        }
        clauses
    }
}

impl Dict {
    /// Whether row-level security lets a role see and do everything.
    pub fn bypasses_row_security(&self, role: u32) -> bool {
        let role = self.role_by_oid(role);
        role.is_some_and(|r| r.superuser || r.bypass_rls)
    }

    /// The policies that hold for a role's use of a table, by object id; `None`: the table's rows
    /// are not kept from it.
    pub fn policies_for(&self, role: u32, table: &Table) -> Option<Vec<u32>> {
        if !table.row_security || self.bypasses_row_security(role) {
            return None;
        }
        if !table.force_row_security && self.has_rights_of(role, table.owner) {
            return None;
        }
        let holds = |of: &u32| *of == EVERYBODY || self.has_rights_of(role, *of);
        let policies = table.policies.iter();
        let policies = policies.filter(|p| p.roles.iter().any(holds));
        Some(policies.map(|p| p.oid).collect())
    }

    /// The policy of an object id, with its table.
    pub fn policy_by_oid(&self, oid: u32) -> Option<(&std::sync::Arc<Table>, &Policy)> {
        let table = self.table_of_part(oid)?;
        let policy = table.policies.iter().find(|p| p.oid == oid)?;
        Some((table, policy))
    }
}
