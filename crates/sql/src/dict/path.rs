//! Schemas, and the search path: where a name without a schema is looked up.
//!
//! **Invariant.** A path has only schemas that there are, by object id, and no name twice over: two
//! sessions whose settings differ in schemas that do not exist have the same path.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Dict;
use super::acl::Privileges;
use super::role::{DATABASE_OWNER, FIRST_SUPERUSER};
use crate::bind::names::Qualified;

/// Object ids of the schemas that every database has.
pub const PG_CATALOG: u32 = 11;
pub const PUBLIC: u32 = 2200;
pub const INFORMATION_SCHEMA: u32 = 13_000;

const BUILT_IN: [(u32, &str); 3] = [
    (PG_CATALOG, "pg_catalog"),
    (PUBLIC, "public"),
    (INFORMATION_SCHEMA, "information_schema"),
];

/// The owner of a schema that every database has.
fn built_in_owner(schema: u32) -> u32 {
    match schema {
        PUBLIC => DATABASE_OWNER,
        _ => FIRST_SUPERUSER,
    }
}

/// What a session calls the schema of its temporary relations.
pub const TEMPORARY: &str = "pg_temp";

/// What `public` is as long as nobody has changed it.
pub const PUBLIC_COMMENT: &str = "standard public schema";

/// A schema that a user made, or a session for its temporary relations; or `public`, once something
/// of it has been changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Schema {
    pub oid: u32,
    pub name: String,
    /// Object id of the role that owns it.
    pub owner: u32,
    #[serde(default)]
    pub comment: Option<String>,
    /// It is a session's, and goes with it.
    #[serde(default)]
    pub temporary: bool,
    /// Of `public`, whose entry stays, for without one there is a `public` as every database has it.
    #[serde(default)]
    pub dropped: bool,
}

/// The schema of what was made before there were any.
pub fn public() -> u32 {
    PUBLIC
}

/// The name of a relation, as a look-up needs it.
#[derive(Clone, Copy, Debug)]
pub struct NameRef<'n> {
    pub schema: Option<&'n str>,
    pub name: &'n str,
}

impl<'n> From<&'n str> for NameRef<'n> {
    fn from(name: &'n str) -> NameRef<'n> {
        NameRef { schema: None, name }
    }
}

impl<'n> From<&'n String> for NameRef<'n> {
    fn from(name: &'n String) -> NameRef<'n> {
        NameRef::from(name.as_str())
    }
}

impl<'n> From<&'n Qualified> for NameRef<'n> {
    fn from(name: &'n Qualified) -> NameRef<'n> {
        NameRef {
            schema: name.schema.as_deref(),
            name: &name.name,
        }
    }
}

/// The names of a `search_path`, with the session's role in the place of `"$user"`.
pub fn names_of(setting: &str, user: &str) -> Vec<String> {
    let names = names_in(setting)
        .into_iter()
        .map(|name| match name == "$user" {
            true => user.to_string(),
            false => name,
        });
    names.filter(|name| !name.is_empty()).collect()
}

/// The names of a list, as they are written there.
pub fn names_in(setting: &str) -> Vec<String> {
    split(setting, ',').into_iter().map(written_name).collect()
}

/// The names between the points of a qualified name.
pub fn names_in_path(name: &str) -> Vec<String> {
    split(name, '.').into_iter().map(written_name).collect()
}

fn written_name(part: &str) -> String {
    let part = part.trim();
    match part.strip_prefix('"').and_then(|p| p.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => part.to_lowercase(),
    }
}

/// The parts between separators outside of quotes.
fn split(list: &str, separator: char) -> Vec<&str> {
    let (mut quoted, mut from) = (false, 0);
    let mut parts = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '"' => quoted = !quoted,
            c if c == separator && !quoted => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    parts
}

impl Dict {
    /// The object id of a schema.
    pub fn schema(&self, name: &str) -> Option<u32> {
        let built_in = BUILT_IN.iter().find(|(_, n)| *n == name);
        let found = built_in
            .map(|(oid, _)| *oid)
            .filter(|oid| !self.is_changed(*oid))
            .or_else(|| self.maps.schemas.get(name).copied());
        match found {
            None if name == TEMPORARY => {
                let mut path = self.path.iter().copied();
                path.find(|oid| self.is_temporary(*oid))
            }
            found => found,
        }
    }

    /// Whether a schema that every database has is not as it was at first.
    fn is_changed(&self, oid: u32) -> bool {
        oid == PUBLIC && self.maps.entries.get(&i64::from(oid)).is_some()
    }

    /// A schema that may be changed and dropped.
    pub fn changeable_schema(&self, oid: u32) -> Option<Arc<Schema>> {
        if oid == PUBLIC && !self.is_changed(oid) {
            return Some(Arc::new(Schema {
                oid,
                name: "public".into(),
                owner: built_in_owner(oid),
                comment: Some(PUBLIC_COMMENT.into()),
                temporary: false,
                dropped: false,
            }));
        }
        self.schema_by_oid(oid).cloned()
    }

    /// Whether the schema is there that views of Braid's own are listed in.
    pub fn has_public(&self) -> bool {
        self.changeable_schema(PUBLIC).is_some()
    }

    /// Whether what is in a schema is temporary.
    pub fn is_temporary(&self, schema: u32) -> bool {
        self.schema_by_oid(schema).is_some_and(|s| s.temporary)
    }

    pub fn schema_name(&self, oid: u32) -> &str {
        let built_in = BUILT_IN.iter().find(|(o, _)| *o == oid);
        match (built_in, self.schema_by_oid(oid)) {
            (_, Some(schema)) => &schema.name,
            (Some((_, name)), None) => name,
            // Nobody drops a schema with something in it.
            (None, None) => "",
        }
    }

    pub fn schema_owner(&self, oid: u32) -> u32 {
        let made = self.schema_by_oid(oid);
        made.map_or_else(|| built_in_owner(oid), |s| s.owner)
    }

    /// Every schema: object id, name, owner.
    pub fn all_schemas(&self) -> Vec<(u32, String, u32)> {
        let built_in = BUILT_IN.iter().filter(|(oid, _)| !self.is_changed(*oid));
        let built_in = built_in.map(|(oid, name)| (*oid, name.to_string(), built_in_owner(*oid)));
        let made = self.schemas().map(|s| (s.oid, s.name.clone(), s.owner));
        built_in.chain(made).collect()
    }

    /// The schemas of these names that there are, and that a role may look into.
    pub fn path_of(&self, names: &[String], role: u32) -> std::sync::Arc<[u32]> {
        let mut path: Vec<u32> = Vec::with_capacity(names.len());
        for oid in names.iter().filter_map(|name| self.schema(name)) {
            let usage = Privileges::USAGE;
            // A temporary one is the session's, whatever role it has put on.
            let may = || !self.privileges_on_schema(role, oid, usage).is_empty();
            if !path.contains(&oid) && (self.is_temporary(oid) || may()) {
                path.push(oid);
            }
        }
        path.into()
    }

    /// Whether a name without its schema finds the relation of this one.
    pub fn is_visible(&self, schema: u32, name: &str) -> bool {
        let found = self.path.iter().find(|s| self.has_name(**s, name));
        found == Some(&schema)
    }

    /// A relation's name, with its schema if the path does not lead to it, as it is written in SQL.
    pub fn shown(&self, schema: u32, name: &str) -> String {
        let quote = crate::bind::names::quote;
        match self.is_visible(schema, name) {
            true => quote(name),
            false => format!("{}.{}", quote(self.schema_name(schema)), quote(name)),
        }
    }

    /// The same with its schema in any case.
    pub fn full_name(&self, schema: u32, name: &str) -> String {
        let quote = crate::bind::names::quote;
        format!("{}.{}", quote(self.schema_name(schema)), quote(name))
    }
}

#[cfg(test)]
mod tests {
    use super::names_of;

    #[test]
    fn a_path_is_a_list_of_names() {
        let is = |setting: &str, wanted: &[&str]| {
            assert_eq!(names_of(setting, "ann"), wanted, "{setting}");
        };
        is("\"$user\", public", &["ann", "public"]);
        is("App,\"B, \"\"c\"", &["app", "B, \"c"]);
        is("", &[]);
        is("\"\"", &[]);
    }
}
