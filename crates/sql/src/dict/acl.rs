//! Privileges on objects: who has granted whom what, as it is stored, and what follows from it.
//!
//! The privileges of an object are an entry of the dictionary beside the object's: a grant changes
//! no definition, and makes no plan stale. An object without such an entry has those that every
//! new one of its kind has ([`default_items`]).
//!
//! **Invariants.**
//! - The entry of an object is changed under the enqueue of its name and a shared lock on the
//!   object, and goes with the object.
//! - A grant stands only as long as its grantor has the grant option: REVOKE takes with it what
//!   depends on it, or refuses.

use serde::{Deserialize, Serialize};

use super::object::kind;
use super::path::{INFORMATION_SCHEMA, PG_CATALOG, PUBLIC};
use super::{Dict, Object};
use crate::error::{Error, Result};

/// The grantee that is everybody.
pub const EVERYBODY: u32 = 0;

/// A set of privileges, in the order in which they are written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Privileges(u16);

/// Each privilege with its letter and its name.
pub const ALL: [(Privileges, char, &str); 12] = [
    (Privileges::INSERT, 'a', "INSERT"),
    (Privileges::SELECT, 'r', "SELECT"),
    (Privileges::UPDATE, 'w', "UPDATE"),
    (Privileges::DELETE, 'd', "DELETE"),
    (Privileges::TRUNCATE, 'D', "TRUNCATE"),
    (Privileges::REFERENCES, 'x', "REFERENCES"),
    (Privileges::TRIGGER, 't', "TRIGGER"),
    (Privileges::EXECUTE, 'X', "EXECUTE"),
    (Privileges::USAGE, 'U', "USAGE"),
    (Privileges::CREATE, 'C', "CREATE"),
    (Privileges::TEMPORARY, 'T', "TEMPORARY"),
    (Privileges::CONNECT, 'c', "CONNECT"),
];

impl Privileges {
    pub const NONE: Privileges = Privileges(0);
    pub const INSERT: Privileges = Privileges(1);
    pub const SELECT: Privileges = Privileges(1 << 1);
    pub const UPDATE: Privileges = Privileges(1 << 2);
    pub const DELETE: Privileges = Privileges(1 << 3);
    pub const TRUNCATE: Privileges = Privileges(1 << 4);
    pub const REFERENCES: Privileges = Privileges(1 << 5);
    pub const TRIGGER: Privileges = Privileges(1 << 6);
    pub const EXECUTE: Privileges = Privileges(1 << 7);
    pub const USAGE: Privileges = Privileges(1 << 8);
    pub const CREATE: Privileges = Privileges(1 << 9);
    pub const TEMPORARY: Privileges = Privileges(1 << 10);
    pub const CONNECT: Privileges = Privileges(1 << 11);

    pub const fn and(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }

    pub fn common(self, other: Privileges) -> Privileges {
        Privileges(self.0 & other.0)
    }

    pub fn without(self, other: Privileges) -> Privileges {
        Privileges(self.0 & !other.0)
    }

    pub fn has(self, all: Privileges) -> bool {
        self.0 & all.0 == all.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// A privilege by its name in capitals.
    pub fn named(name: &str) -> Option<Privileges> {
        if name == "TEMP" {
            return Some(Privileges::TEMPORARY);
        }
        let found = ALL.iter().find(|(_, _, known)| *known == name);
        found.map(|(one, ..)| *one)
    }

    /// Each of the set, with its letter and name.
    pub fn each(self) -> impl Iterator<Item = (Privileges, char, &'static str)> {
        ALL.into_iter().filter(move |(one, ..)| self.has(*one))
    }
}

/// What kind of thing privileges are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// Views too.
    Table,
    Column,
    Sequence,
    Database,
    Function,
    Schema,
    Type,
    LargeObject,
}

impl Kind {
    /// All privileges that there are on such a thing.
    pub fn all(self) -> Privileges {
        use Privileges as P;
        match self {
            Kind::Table => Kind::Column
                .all()
                .and(P::DELETE)
                .and(P::TRUNCATE)
                .and(P::TRIGGER),
            Kind::Column => P::INSERT.and(P::SELECT).and(P::UPDATE).and(P::REFERENCES),
            Kind::Sequence => P::SELECT.and(P::UPDATE).and(P::USAGE),
            Kind::Database => P::CREATE.and(P::TEMPORARY).and(P::CONNECT),
            Kind::Function => P::EXECUTE,
            Kind::Schema => P::USAGE.and(P::CREATE),
            Kind::Type => P::USAGE,
            Kind::LargeObject => P::SELECT.and(P::UPDATE),
        }
    }

    /// What everybody has on a new one.
    fn of_everybody(self) -> Privileges {
        use Privileges as P;
        match self {
            Kind::Table | Kind::Column | Kind::Sequence | Kind::Schema | Kind::LargeObject => {
                P::NONE
            }
            Kind::Database => P::TEMPORARY.and(P::CONNECT),
            Kind::Function => P::EXECUTE,
            Kind::Type => P::USAGE,
        }
    }
}

/// What one role has granted another one, or everybody.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Item {
    pub grantee: u32,
    pub grantor: u32,
    pub privileges: Privileges,
    /// Those that the grantee may grant in turn.
    #[serde(default)]
    pub grantable: Privileges,
}

/// The privileges on an object that are others than those of a new one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Acl {
    /// Of the entry itself.
    pub oid: u32,
    /// Of the object.
    pub object: u32,
    /// `None`: as a new one has.
    #[serde(default)]
    pub items: Option<Vec<Item>>,
    /// Those on columns of a relation, by number from 1.
    #[serde(default)]
    pub columns: Vec<(i16, Vec<Item>)>,
}

/// What objects that a role makes have from their beginning: ALTER DEFAULT PRIVILEGES.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DefaultPrivileges {
    pub oid: u32,
    pub role: u32,
    /// Zero: in any schema. Then the items are all there are, else they come on top.
    pub schema: u32,
    /// Stored under another name: what kind of definition this is stands under `kind`.
    #[serde(rename = "objects")]
    pub kind: Kind,
    pub items: Vec<Item>,
}

/// The privileges that an object of a kind has whose privileges nobody has changed.
pub fn default_items(kind: Kind, owner: u32) -> Vec<Item> {
    if kind == Kind::Column {
        return Vec::new();
    }
    let item = |grantee, privileges| Item {
        grantee,
        grantor: owner,
        privileges,
        grantable: Privileges::NONE,
    };
    let all = [
        item(EVERYBODY, kind.of_everybody()),
        item(owner, kind.all()),
    ];
    all.into_iter()
        .filter(|i| !i.privileges.is_empty())
        .collect()
}

/// A change of one grantee's privileges.
#[derive(Clone, Copy)]
pub struct Grant {
    pub grantee: u32,
    pub grantor: u32,
    pub privileges: Privileges,
    pub grantable: Privileges,
}

impl Grant {
    fn is_of(&self, item: &Item) -> bool {
        (self.grantee, self.grantor) == (item.grantee, item.grantor)
    }
}

/// Items of one object, with what they are judged by.
pub struct Granted<'d> {
    pub dict: &'d Dict,
    pub owner: u32,
    pub items: Vec<Item>,
}

impl Granted<'_> {
    /// The wanted privileges that a role has, itself, as one of everybody, or by the roles whose
    /// rights it has.
    pub fn held(&self, role: u32, wanted: Privileges) -> Privileges {
        let counts = |i: &&Item| {
            i.grantee == EVERYBODY || i.grantee == role || self.dict.has_rights_of(role, i.grantee)
        };
        let found = self.items.iter().filter(counts);
        let all = found.fold(Privileges::NONE, |all, i| all.and(i.privileges));
        all.common(wanted)
    }

    /// Those that it may grant.
    pub fn grantable(&self, role: u32, wanted: Privileges) -> Privileges {
        if self.dict.has_rights_of(role, self.owner) {
            return wanted;
        }
        let counts = |i: &&Item| {
            i.grantee != EVERYBODY
                && (i.grantee == role || self.dict.has_rights_of(role, i.grantee))
        };
        let found = self.items.iter().filter(counts);
        let all = found.fold(Privileges::NONE, |all, i| all.and(i.grantable));
        all.common(wanted)
    }

    /// Those that a role may grant by itself.
    fn grantable_alone(&self, role: u32, wanted: Privileges) -> Privileges {
        if role == self.owner {
            return wanted;
        }
        let own = self.items.iter().filter(|i| i.grantee == role);
        let all = own.fold(Privileges::NONE, |all, i| all.and(i.grantable));
        all.common(wanted)
    }

    /// The role in whose name a role grants privileges best, and what that one may grant of them.
    pub fn best_grantor(&self, role: u32, wanted: Privileges) -> (u32, Privileges) {
        if self.dict.has_rights_of(role, self.owner) {
            return (self.owner, wanted);
        }
        let mut best = (role, Privileges::NONE);
        for other in self.dict.rights_of(role) {
            let may = self.grantable_alone(other, wanted);
            if may == wanted {
                return (other, may);
            }
            if may.count() > best.1.count() {
                best = (other, may);
            }
        }
        best
    }

    pub fn add(&mut self, grant: Grant) -> Result<()> {
        if !grant.grantable.is_empty() {
            self.check_not_back(grant)?;
        }
        match self.items.iter_mut().find(|i| grant.is_of(i)) {
            Some(item) => {
                item.privileges = item.privileges.and(grant.privileges);
                item.grantable = item.grantable.and(grant.grantable);
            }
            None => self.items.push(Item {
                grantee: grant.grantee,
                grantor: grant.grantor,
                privileges: grant.privileges,
                grantable: grant.grantable,
            }),
        }
        Ok(())
    }

    /// Takes privileges away, and with `cascade` what was granted by them; without, that is an
    /// error.
    pub fn remove(&mut self, grant: Grant, cascade: bool) -> Result<()> {
        let Some(at) = self.items.iter().position(|i| grant.is_of(i)) else {
            return Ok(());
        };
        let item = &mut self.items[at];
        let lost = item.grantable.common(grant.grantable);
        item.privileges = item.privileges.without(grant.privileges);
        item.grantable = item.grantable.without(grant.grantable);
        if item.privileges.is_empty() && item.grantable.is_empty() {
            self.items.remove(at);
        }
        match lost.is_empty() {
            true => Ok(()),
            false => self.remove_granted_by(grant.grantee, lost, cascade),
        }
    }

    /// What a role has granted that may not grant that any more.
    fn remove_granted_by(&mut self, role: u32, lost: Privileges, cascade: bool) -> Result<()> {
        if role == self.owner {
            return Ok(());
        }
        let lost = lost.without(self.grantable(role, lost));
        let depends = |i: &Item| i.grantor == role && !i.privileges.common(lost).is_empty();
        while let Some(found) = self.items.iter().copied().find(depends) {
            if !cascade {
                return Err(Error::new("2BP01", "dependent privileges exist")
                    .hint("Use CASCADE to revoke them too."));
            }
            let gone = Grant {
                grantee: found.grantee,
                grantor: role,
                privileges: lost,
                grantable: lost,
            };
            self.remove(gone, true)?;
        }
        Ok(())
    }

    /// Refuses a grant option to a role by which the grantor has its own.
    fn check_not_back(&self, grant: Grant) -> Result<()> {
        if grant.grantor == self.owner {
            return Ok(());
        }
        let mut without = Granted {
            dict: self.dict,
            owner: self.owner,
            items: self.items.clone(),
        };
        let has = |i: &Item| i.grantee == grant.grantee && !i.grantable.is_empty();
        while let Some(found) = without.items.iter().copied().find(has) {
            let gone = Grant {
                grantee: found.grantee,
                grantor: found.grantor,
                privileges: found.privileges,
                grantable: found.grantable,
            };
            without.remove(gone, true)?;
        }
        let left = without.grantable(grant.grantor, grant.grantable);
        match left == grant.grantable {
            true => Ok(()),
            false => {
                let message = "grant options cannot be granted back to your own grantor";
                Err(Error::new("0LP01", message))
            }
        }
    }
}

/// Items with another owner in the place of one.
pub fn with_owner(items: &[Item], from: u32, to: u32) -> Vec<Item> {
    let change = |role: u32| if role == from { to } else { role };
    let mut all: Vec<Item> = Vec::with_capacity(items.len());
    for item in items {
        let next = Item {
            grantee: change(item.grantee),
            grantor: change(item.grantor),
            ..*item
        };
        let same = |i: &&mut Item| (i.grantee, i.grantor) == (next.grantee, next.grantor);
        match all.iter_mut().find(same) {
            Some(known) => {
                known.privileges = known.privileges.and(next.privileges);
                known.grantable = known.grantable.and(next.grantable);
            }
            None => all.push(next),
        }
    }
    all
}

impl Dict {
    /// The entry with an object's privileges, if it has one.
    pub fn acl(&self, object: u32) -> Option<&std::sync::Arc<Acl>> {
        match &self.maps.entries.get(self.maps.acls.get(&object)?)?.object {
            Object::Acl(acl) => Some(acl),
            _ => None,
        }
    }

    pub fn acls(&self) -> impl Iterator<Item = &std::sync::Arc<Acl>> {
        let entries = self.maps.acls.values();
        let entries = entries.filter_map(|key| self.maps.entries.get(key));
        entries.filter_map(|e| match &e.object {
            Object::Acl(acl) => Some(acl),
            _ => None,
        })
    }

    pub fn default_privileges(&self) -> impl Iterator<Item = &std::sync::Arc<DefaultPrivileges>> {
        let all = self.maps.of_kind(kind::DEFAULT_PRIVILEGES);
        all.filter_map(|o| match o {
            Object::DefaultPrivileges(d) => Some(d),
            _ => None,
        })
    }

    /// The items of an object's privileges, if they are not those of a new one.
    pub fn changed_items(&self, object: u32) -> Option<Vec<Item>> {
        let stored = self.acl(object).and_then(|acl| acl.items.clone());
        stored.or_else(|| self.built_in_items(object))
    }

    pub fn granted(&self, kind: Kind, object: u32, owner: u32) -> Granted<'_> {
        let items = self.changed_items(object);
        Granted {
            dict: self,
            owner,
            items: items.unwrap_or_else(|| default_items(kind, owner)),
        }
    }

    /// Privileges on a column alone.
    pub fn granted_of_column(&self, relation: u32, column: i16, owner: u32) -> Granted<'_> {
        let columns = self.acl(relation).map(|acl| acl.columns.as_slice());
        let found = columns.unwrap_or_default().iter();
        let found = found.clone().find(|(at, _)| *at == column);
        Granted {
            dict: self,
            owner,
            items: found.map_or(Vec::new(), |(_, items)| items.clone()),
        }
    }
}

impl Dict {
    /// What every database begins with.
    fn built_in_items(&self, object: u32) -> Option<Vec<Item>> {
        if ![PUBLIC, PG_CATALOG, INFORMATION_SCHEMA].contains(&object) {
            return None;
        }
        let owner = self.schema_owner(object);
        let item = |grantee, privileges| Item {
            grantee,
            grantor: owner,
            privileges,
            grantable: Privileges::NONE,
        };
        Some(vec![
            item(owner, Kind::Schema.all()),
            item(EVERYBODY, Privileges::USAGE),
        ])
    }
}
