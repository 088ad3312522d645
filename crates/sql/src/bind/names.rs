//! Names: folded to lower case unless quoted, with the schemas there are.

use std::fmt;

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use crate::dict::{Dict, NameRef};
use crate::error::{Error, Result};

/// PostgreSQL's limit of an identifier; longer ones are cut.
pub const MAX_NAME_BYTES: usize = 63;

pub fn ident(i: &Ident) -> String {
    let mut name = if i.quote_style.is_some() {
        i.value.clone()
    } else {
        i.value.to_lowercase()
    };
    if name.len() > MAX_NAME_BYTES {
        let cut = (0..=MAX_NAME_BYTES)
            .rev()
            .find(|at| name.is_char_boundary(*at))
            .unwrap_or(0);
        name.truncate(cut);
    }
    name
}

pub fn parts(name: &ObjectName) -> Result<Vec<String>> {
    name.0
        .iter()
        .map(|p| match p {
            ObjectNamePart::Identifier(i) => Ok(ident(i)),
            ObjectNamePart::Function(f) => Err(Error::new(
                "42601",
                format!("syntax error at or near \"{f}\""),
            )),
        })
        .collect()
}

/// A possibly qualified name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Qualified {
    pub schema: Option<String>,
    pub name: String,
}

/// The error of a relation's name that begins with the name of another database.
pub fn other_database(path: &[&str]) -> Error {
    let message = format!(
        "cross-database references are not implemented: \"{}\"",
        path.join(".")
    );
    Error::new("0A000", message)
}

impl Qualified {
    pub fn new(name: &ObjectName) -> Result<Qualified> {
        let mut parts = parts(name)?;
        let last = parts
            .pop()
            .ok_or_else(|| Error::new("42601", "empty name"))?;
        let schema = parts.pop();
        if parts.len() > 1 {
            return Err(Error::new(
                "42601",
                format!("improper qualified name (too many dotted names): {name}"),
            ));
        }
        Ok(Qualified { schema, name: last })
    }

    /// The object that the name means by its number, as stored texts have it
    /// ([`super::numbered`]).
    pub fn number(&self) -> Option<u32> {
        super::numbered::number_in(self.schema.as_deref()?)
    }

    /// A name without a schema.
    pub fn bare(name: &str) -> Qualified {
        Qualified {
            schema: None,
            name: name.to_string(),
        }
    }
}

/// As PostgreSQL's messages show it: not quoted.
impl fmt::Display for Qualified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(_) if self.number().is_some() => f.write_str(&self.name),
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The name of a relation that a user may define, write to or drop.
pub fn of_user(name: &ObjectName) -> Result<Qualified> {
    let q = Qualified::new(name)?;
    match q.schema.as_deref() {
        // These are tables, and judged when they are found.
        Some("pg_catalog") if crate::large::is_table(&q.name) => Ok(q),
        Some("pg_catalog" | "information_schema") => Err(Error::new(
            "42501",
            format!("permission denied: \"{}\" is a system catalog", q.name),
        )),
        _ => Ok(q),
    }
}

pub fn no_schema(name: &str) -> Error {
    Error::new("3F000", format!("schema \"{name}\" does not exist"))
}

/// As it must be written in SQL: quoted unless it is a plain lower-case word.
pub fn quote(name: &str) -> String {
    let plain = !crate::views::needs_quotes(name)
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if plain {
        name.to_string()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// Whether a name is that of a function that is called without parentheses.
pub fn is_bare_function(name: &Ident) -> bool {
    let known = [
        "current_user",
        "session_user",
        "user",
        "current_role",
        "current_catalog",
        "current_schema",
        "current_date",
        "current_timestamp",
        "localtimestamp",
    ];
    name.quote_style.is_none() && known.contains(&ident(name).as_str())
}

/// Names that no column of a user's table can have, since every table has a column of that name.
pub fn is_system_column(name: &str) -> bool {
    matches!(
        name,
        "ctid" | "xmin" | "xmax" | "cmin" | "cmax" | "tableoid"
    )
}

/// A column that is not there, as messages show it. Of those that tables have besides their own,
/// queries of the tree lane know some.
pub fn no_column_of_query(shown: &str, name: &str) -> Error {
    match name {
        "xmax" | "cmin" | "cmax" => no_column(shown, name),
        _ => Error::new("42703", format!("column {shown} does not exist")),
    }
}

/// The same where no system column is known.
pub fn no_column(shown: &str, name: &str) -> Error {
    if is_system_column(name) {
        return Error::unsupported(format!("the system column {name}"));
    }
    Error::new("42703", format!("column {shown} does not exist"))
}

pub fn no_relation<'n>(name: impl Into<NameRef<'n>>) -> Error {
    let NameRef { schema, name } = name.into();
    if crate::views::find(schema, name).is_some() {
        return Error::unsupported(format!("this statement on the catalog or view \"{name}\""));
    }
    let shown = schema.map_or(name.to_string(), |schema| format!("{schema}.{name}"));
    Error::new("42P01", format!("relation \"{shown}\" does not exist"))
}

/// Whether a column of a table in sight may be called by a schema's name: the table of that oid is
/// of the schema, and has no other name here. A table of no oid is one that is not defined yet, or
/// none of the dictionary.
pub fn is_in_schema(dict: &Dict, schema: &str, table: &str, oid: u32) -> bool {
    let of = dict.schema(schema);
    match dict.table_by_oid(oid) {
        Some(t) => of == Some(t.schema) && t.name == table,
        None => of.is_some() || schema == "pg_catalog",
    }
}

/// The error for a column of a table of another schema than the one in sight.
pub fn in_no_schema(table: &str) -> Error {
    let message = format!("invalid reference to FROM-clause entry for table \"{table}\"");
    Error::new("42P01", message).hint(format!(
        "There is an entry for table \"{table}\", but it cannot be referenced from this part of the \
         query."
    ))
}
