//! Statements about rights, and what a role must have to define something.

use std::sync::Arc;

use super::role::denied;
use super::{Core, grant, membership, owned};
use crate::api::Tag;
use crate::bind::names;
use crate::dict::acl::{Acl, DefaultPrivileges, Granted, Item, Kind, Privileges, default_items};
use crate::dict::role::FIRST_SUPERUSER;
use crate::dict::{Dict, Function, Object, Relation};
use crate::error::{Error, Result};
use crate::parse::grant::{DefaultGrant, Give, Security};
use crate::parse::role::RoleName;
use crate::parse::utility::TableLock;
use crate::views::DATABASE;

impl Core {
    /// Runs a statement about rights, in whatever transaction there is.
    pub fn run_security(&mut self, statement: &Security) -> Result<Tag> {
        self.refuse_if_read_only(statement.command())?;
        match statement {
            Security::Grant(g) => grant::privileges(self, g),
            Security::Membership(m) => membership::change(self, m),
            Security::DefaultPrivileges(g) => default_privileges(self, g),
            Security::ReassignOwned { from, to } => owned::reassign(self, from, to),
            Security::DropOwned { of, cascade } => owned::drop(self, of, *cascade),
        }
    }

    /// What the role may do, as the dictionary is now.
    pub fn rights(&self) -> Rights {
        Rights {
            dict: self.dict(),
            role: self.roles.current,
        }
    }

    /// Refuses what only the owner of an object may do, and who has the owner's rights.
    pub fn check_owner(&self, owner: u32, what: impl std::fmt::Display) -> Result<()> {
        self.rights().check_owner(owner, what)
    }

    /// Refuses who has none of these privileges on a relation as a whole.
    pub fn check_relation(&self, found: &Relation, any: Privileges) -> Result<()> {
        self.rights().check_relation(found, any)
    }

    /// Refuses who may not look into a schema that a statement names.
    pub fn check_schema_usage(&self, schema: Option<&str>) -> Result<()> {
        let dict = self.dict();
        match schema.and_then(|name| dict.schema(name)) {
            Some(oid) => self.check_schema(oid, Privileges::USAGE),
            None => Ok(()),
        }
    }

    pub fn check_schema(&self, oid: u32, wanted: Privileges) -> Result<()> {
        let dict = self.dict();
        let held = dict.privileges_on_schema(self.roles.current, oid, wanted);
        match held.is_empty() {
            false => Ok(()),
            true => {
                let name = dict.schema_name(oid);
                Err(denied(format!("permission denied for schema {name}")))
            }
        }
    }

    /// Refuses who may not make schemas.
    pub fn check_database(&self, wanted: Privileges) -> Result<()> {
        let dict = self.dict();
        let role = self.roles.current;
        let held = dict.privileges(role, Kind::Database, DATABASE, FIRST_SUPERUSER, wanted);
        match held.is_empty() {
            false => Ok(()),
            true => {
                let name = &self.database_name;
                Err(denied(format!("permission denied for database {name}")))
            }
        }
    }

    /// Refuses who may not call a function.
    pub fn check_execute(&self, f: &Function) -> Result<()> {
        let dict = self.dict();
        let execute = Privileges::EXECUTE;
        let held = dict.privileges(self.roles.current, Kind::Function, f.oid, f.owner, execute);
        match held.is_empty() {
            false => Ok(()),
            true => Err(denied(format!("permission denied for function {}", f.name))),
        }
    }

    /// Gives a new object what ALTER DEFAULT PRIVILEGES has said of such ones of its owner.
    pub fn give_defaults(&mut self, kind: Kind, oid: u32, owner: u32, schema: u32) -> Result<()> {
        let Some(items) = self.dict().default_items_of(kind, owner, schema) else {
            return Ok(());
        };
        let acl = Acl {
            oid: self.database.engine().allocate_object_id()?.0,
            object: oid,
            items: Some(items),
            columns: Vec::new(),
        };
        self.define(Object::Acl(Arc::new(acl)))
    }
}

/// What a role may do by a picture of the dictionary.
pub struct Rights {
    dict: Arc<Dict>,
    role: u32,
}

impl Rights {
    /// Refuses what only the owner of an object may do, and who has the owner's rights.
    pub fn check_owner(&self, owner: u32, what: impl std::fmt::Display) -> Result<()> {
        match self.dict.has_rights_of(self.role, owner) {
            true => Ok(()),
            false => Err(denied(format!("must be owner of {what}"))),
        }
    }

    /// Refuses who has not the rights of a relation's owner.
    pub fn check_owner_of(&self, found: &Relation) -> Result<()> {
        let what = match found {
            Relation::Table(t) => format!("{} {}", t.word(), t.name),
            Relation::View(v) => format!("view {}", v.name),
            Relation::Sequence(s) => format!("sequence {}", s.name),
            Relation::Index(t, at) => format!("index {}", t.indexes[*at].name),
        };
        self.check_owner(found.owner(), what)
    }

    /// Refuses to drop a relation that is neither the role's own nor in a schema of its own.
    pub fn check_may_drop(&self, found: &Relation) -> Result<()> {
        let schema = self.dict.schema_owner(found.schema());
        match self.dict.has_rights_of(self.role, schema) {
            true => Ok(()),
            false => self.check_owner_of(found),
        }
    }

    /// Refuses who has none of these privileges on a relation as a whole.
    pub fn check_relation(&self, found: &Relation, any: Privileges) -> Result<()> {
        let (kind, oid, owner, word, name) = match found {
            Relation::Table(t) | Relation::Index(t, _) => {
                (Kind::Table, t.oid, t.owner, t.word(), &t.name)
            }
            Relation::View(v) => (Kind::Table, v.oid, v.owner, "view", &v.name),
            Relation::Sequence(s) => (Kind::Sequence, s.oid, s.role, "sequence", &s.name),
        };
        let held = self.dict.privileges(self.role, kind, oid, owner, any);
        match held.is_empty() {
            false => Ok(()),
            true => Err(denied(format!("permission denied for {word} {name}"))),
        }
    }
}

impl Dict {
    /// The wanted privileges that a role has on an object as a whole.
    pub fn privileges(
        &self,
        role: u32,
        kind: Kind,
        oid: u32,
        owner: u32,
        wanted: Privileges,
    ) -> Privileges {
        use crate::dict::membership::{READ_ALL_DATA, WRITE_ALL_DATA};
        if self.is_superuser(role) {
            return wanted;
        }
        let mut held = self.granted(kind, oid, owner).held(role, wanted);
        use Privileges as P;
        let table = self.table_by_oid(oid).filter(|_| kind == Kind::Table);
        if table.is_some_and(|t| crate::large::is_open(t)) {
            held = held.and(wanted.common(P::SELECT));
        }
        let mut more = |of: u32, privileges: Privileges| {
            let more = wanted.common(privileges).without(held);
            if !more.is_empty() && self.has_rights_of(role, of) {
                held = held.and(more);
            }
        };
        if matches!(kind, Kind::Table | Kind::Sequence) {
            more(READ_ALL_DATA, P::SELECT);
        }
        let is_users = !table.is_some_and(|t| crate::large::is_of_system(t));
        if matches!(kind, Kind::Table | Kind::Sequence) && is_users {
            more(WRITE_ALL_DATA, P::INSERT.and(P::UPDATE).and(P::DELETE));
        }
        if kind == Kind::Schema {
            more(READ_ALL_DATA, P::USAGE);
            more(WRITE_ALL_DATA, P::USAGE);
        }
        held
    }

    pub fn privileges_on_schema(&self, role: u32, oid: u32, wanted: Privileges) -> Privileges {
        self.privileges(role, Kind::Schema, oid, self.schema_owner(oid), wanted)
    }

    /// What a new object has, if ALTER DEFAULT PRIVILEGES has said anything of it.
    fn default_items_of(&self, kind: Kind, owner: u32, schema: u32) -> Option<Vec<Item>> {
        let said = |schema: u32| {
            let mut all = self.default_privileges();
            all.find(|d| (d.role, d.kind, d.schema) == (owner, kind, schema))
        };
        let (general, there) = (said(0), said(schema));
        if general.is_none() && there.is_none() {
            return None;
        }
        let mut granted = Granted {
            dict: self,
            owner,
            items: general.map_or_else(|| default_items(kind, owner), |d| d.items.clone()),
        };
        for item in there.map_or(&[][..], |d| d.items.as_slice()) {
            match granted
                .items
                .iter_mut()
                .find(|i| (i.grantee, i.grantor) == (item.grantee, item.grantor))
            {
                Some(known) => {
                    known.privileges = known.privileges.and(item.privileges);
                    known.grantable = known.grantable.and(item.grantable);
                }
                None => granted.items.push(*item),
            }
        }
        Some(granted.items)
    }
}

fn default_privileges(core: &mut Core, g: &DefaultGrant) -> Result<Tag> {
    let word = match g.kind {
        Kind::Table => "relation",
        Kind::Sequence => "sequence",
        Kind::Function => "function",
        Kind::Type => "type",
        _ => "schema",
    };
    let word = if g.kind == Kind::Table { "table" } else { word };
    let wanted = grant::check_named(&g.wanted, g.kind, word)?;
    if g.wanted.iter().any(|w| !w.columns.is_empty()) {
        let message = "default privileges cannot be set for columns";
        return Err(Error::new("0LP01", message));
    }
    let grantees = grant::grantees(core, &g.grantees)?;
    let current = [RoleName::CurrentUser];
    let roles = match g.roles.as_slice() {
        [] => &current[..],
        named => named,
    };
    for name in roles {
        let role = core.role_of(name)?;
        if !core.dict().has_rights_of(core.roles.current, role.oid) {
            return Err(denied(format!("must be member of role \"{}\"", role.name)));
        }
        if g.schemas.is_empty() {
            set_defaults(core, (role.oid, 0, g.kind), wanted, &grantees, g.give)?;
        }
        for schema in &g.schemas {
            if g.kind == Kind::Schema {
                let message = "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS";
                return Err(Error::new("0LP01", message));
            }
            let oid = core.dict().schema(schema);
            let oid = oid.ok_or_else(|| names::no_schema(schema))?;
            set_defaults(core, (role.oid, oid, g.kind), wanted, &grantees, g.give)?;
        }
    }
    Ok(Tag::Plain("ALTER DEFAULT PRIVILEGES"))
}

fn set_defaults(
    core: &mut Core,
    (role, schema, kind): (u32, u32, Kind),
    wanted: Privileges,
    grantees: &[u32],
    give: Give,
) -> Result<()> {
    core.claim_name(&format!("default privileges {role} {schema} {kind:?}"))?;
    if role != FIRST_SUPERUSER {
        core.lock_table(role, TableLock::AccessShare, false)?;
    }
    let dict = core.dict();
    let known = dict
        .default_privileges()
        .find(|d| (d.role, d.schema, d.kind) == (role, schema, kind));
    let usual = match schema {
        0 => default_items(kind, role),
        _ => Vec::new(),
    };
    let mut granted = Granted {
        dict: &dict,
        owner: role,
        items: known.map_or(usual.clone(), |d| d.items.clone()),
    };
    for grantee in grantees {
        grant::give(&mut granted, *grantee, role, wanted, give)?;
    }
    // In this order PostgreSQL keeps them.
    granted.items.sort_by_key(|i| (i.grantee, i.grantor));
    let same =
        |items: &[Item]| items.len() == usual.len() && items.iter().all(|i| usual.contains(i));
    match (same(&granted.items), known) {
        (true, None) => Ok(()),
        (true, Some(known)) => core.undefine(known.oid.into()),
        (false, known) => {
            let oid = match known {
                Some(known) => known.oid,
                None => core.database.engine().allocate_object_id()?.0,
            };
            let items = granted.items;
            core.define(Object::DefaultPrivileges(Arc::new(DefaultPrivileges {
                oid,
                role,
                schema,
                kind,
                items,
            })))
        }
    }
}
