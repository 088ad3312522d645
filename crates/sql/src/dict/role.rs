//! Roles as the dictionary has them, and what the door of the database needs beside them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Dict;
use super::membership::Membership;

/// Object id of the superuser that the first start makes, as in PostgreSQL. It is below those that are given out.
pub const FIRST_SUPERUSER: u32 = 10;
/// Key of the dictionary's entry [`Door`].
pub const DOOR: u32 = 9;
/// Object id of the role that owns the schema `public`: whoever owns the database has its rights.
pub const DATABASE_OWNER: u32 = 6171;

/// A role; a user if it may log in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    pub oid: u32,
    pub name: String,
    #[serde(default)]
    pub superuser: bool,
    #[serde(default)]
    pub inherit: bool,
    #[serde(default)]
    pub create_role: bool,
    #[serde(default)]
    pub create_db: bool,
    #[serde(default)]
    pub login: bool,
    #[serde(default)]
    pub replication: bool,
    #[serde(default)]
    pub bypass_rls: bool,
    /// Sessions at once, over all instances; -1: no limit.
    pub connection_limit: i32,
    #[serde(default)]
    pub password: Option<Password>,
    /// When the password ends, in microseconds from 2000; `None`: never.
    #[serde(default)]
    pub valid_until: Option<i64>,
    #[serde(default)]
    pub comment: Option<String>,
    #[serde(default)]
    pub member_of: Vec<Membership>,
    /// Parameters of its sessions.
    #[serde(default)]
    pub settings: RoleSettings,
}

/// Parameters that sessions begin with: name and value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSettings {
    #[serde(default)]
    pub everywhere: Vec<(String, String)>,
    /// IN DATABASE, which come before those.
    #[serde(default)]
    pub in_database: Vec<(String, String)>,
}

/// The verifier of a password, in PostgreSQL's text form. It is shown to superusers, and in no `Debug` output.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl Password {
    pub fn new(verifier: &scram::Verifier) -> Password {
        Password(verifier.to_string())
    }

    pub fn as_text(&self) -> &str {
        &self.0
    }
}

impl Role {
    /// A role that may do nothing yet.
    pub fn new(oid: u32, name: &str) -> Role {
        Role {
            oid,
            name: name.to_string(),
            superuser: false,
            inherit: true,
            create_role: false,
            create_db: false,
            login: false,
            replication: false,
            bypass_rls: false,
            connection_limit: -1,
            password: None,
            valid_until: None,
            comment: None,
            member_of: Vec::new(),
            settings: RoleSettings::default(),
        }
    }
}

/// A secret of the database, from which follows what users who do not exist are asked: the same on every instance, and at every
/// time.
#[derive(Clone, Serialize, Deserialize)]
pub struct Door {
    secret: Vec<u8>,
    /// Parameters of the sessions of all roles.
    #[serde(default)]
    pub settings: RoleSettings,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door(..)")
    }
}

impl Dict {
    /// The parameters that sessions of a role begin with; of two of a name the later one counts.
    pub fn settings_of(&self, role: u32) -> Vec<(String, String)> {
        let all = self.door().map(|d| &d.settings);
        let own = self.role_by_oid(role).map(|r| &r.settings);
        let lists = all.iter().chain(&own);
        let each = lists.flat_map(|s| s.everywhere.iter().chain(&s.in_database));
        each.cloned().collect()
    }
}

impl Door {
    pub fn new(secret: [u8; 32]) -> Door {
        Door {
            secret: secret.to_vec(),
            settings: RoleSettings::default(),
        }
    }

    /// A seal that every instance makes the same ([`scram::seal`]).
    pub fn seal(&self, parts: &[&[u8]]) -> [u8; 32] {
        scram::seal(&self.secret, parts)
    }

    /// What a user is asked who does not exist, or has no password.
    pub fn mock(&self, user: &str) -> scram::Verifier {
        scram::Verifier::mock(&self.secret, user)
    }
}
