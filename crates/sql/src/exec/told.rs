//! What errors tell of rows and keys.
//!
//! **Invariant.** An error shows a role no value that it may not read: none of a table of which
//! row-level security keeps rows from it, and of other tables those of columns that it has the
//! privilege to read, or has given values itself.

use block::value::{Datum, DatumRef};

use crate::dict::acl::{Kind, Privileges};
use crate::dict::{Column, Index, Table};
use crate::error::Error;
use crate::pgtype;
use crate::session::Core;

/// An error that names its table.
pub fn of_table(e: Error, table: &Table, core: &Core) -> Error {
    e.schema(core.dict().schema_name(table.schema))
        .table(&table.name)
}

/// Longest value shown in an error's detail, as PostgreSQL has it.
const MAX_SHOWN_BYTES: usize = 64;

fn shown(ty: crate::SqlType, value: DatumRef<'_>, core: &Core) -> String {
    if matches!(value, DatumRef::Null) {
        return "null".to_string();
    }
    let mut out = Vec::new();
    pgtype::text_out(ty, value, &core.io, &mut out);
    let text = String::from_utf8_lossy(&out);
    if text.len() > MAX_SHOWN_BYTES {
        return format!("{}...", &text[..text.floor_char_boundary(MAX_SHOWN_BYTES)]);
    }
    text.into_owned()
}

/// Whether row-level security keeps rows of a table from the session's role: then no error shows
/// values of them.
pub fn hides_rows(table: &Table, core: &Core) -> bool {
    table.row_security && (core.dict().policies_for(core.roles.current, table)).is_some()
}

/// Whether the session's role may read all columns of a table.
fn shows_all(table: &Table, core: &Core) -> bool {
    let (dict, role) = (core.dict(), core.roles.current);
    let select = Privileges::SELECT;
    let held = dict.privileges(role, Kind::Table, table.oid, table.owner, select);
    !held.is_empty()
}

/// Whether errors show values of a column of a table, whose policies hide nothing: the session's
/// role may read it.
pub fn shows(table: &Table, core: &Core, at: usize) -> bool {
    let (dict, role) = (core.dict(), core.roles.current);
    let column = i16::try_from(at + 1).unwrap_or(i16::MAX);
    let of_column = || dict.granted_of_column(table.oid, column, table.owner);
    shows_all(table, core) || !of_column().held(role, Privileges::SELECT).is_empty()
}

/// An error that shows the row which it is about, as far as the role may see it or has given it.
pub fn with_row(
    e: Error,
    (table, given): (&Table, &[usize]),
    core: &Core,
    row: &[DatumRef<'_>],
) -> Error {
    if hides_rows(table, core) {
        return e;
    }
    let all = shows_all(table, core);
    let seen: Vec<(usize, &Column)> = table
        .live_columns()
        .filter(|(at, _)| all || given.contains(at) || shows(table, core, *at))
        .collect();
    let values = seen.iter().map(|(at, c)| shown(c.ty(), row[*at], core));
    let values = values.collect::<Vec<_>>().join(", ");
    let names: Vec<&str> = seen.iter().map(|(_, c)| c.name.as_str()).collect();
    match all {
        true => e.detail(format!("Failing row contains ({values}).")),
        false if seen.is_empty() => e,
        false => e.detail(format!(
            "Failing row contains ({}) = ({values}).",
            names.join(", ")
        )),
    }
}

/// A row as text, in the form that a value of its type has.
pub fn row_text(table: &Table, core: &Core, row: &[DatumRef<'_>]) -> String {
    let columns = table.live_columns();
    let fields = columns.map(|(i, c)| {
        let mut out = Vec::new();
        if !matches!(row[i], DatumRef::Null) {
            pgtype::text_out(c.ty(), row[i], &core.io, &mut out);
        }
        String::from_utf8_lossy(&out).into_owned()
    });
    format!("({})", fields.collect::<Vec<_>>().join(","))
}

/// Adds to a duplicate key which key it was.
pub fn write_error(e: engine::Error, table: &Table, row: &[DatumRef<'_>], core: &Core) -> Error {
    let engine::Error::UniqueViolation { index_object, .. } = &e else {
        return e.into();
    };
    let segment = index_object.0;
    let error = of_table(Error::from(e), table, core);
    let Some(index) = table.indexes.iter().find(|i| i.segment == segment) else {
        return error;
    };
    if hides_key(table, index, core) {
        return error;
    }
    let key = match index.key_of(row) {
        Ok(Some(key)) => key,
        // It was computed a moment ago.
        Ok(None) => return error,
        Err(e) => return e,
    };
    let key = self::key(table, index, key.iter().map(Datum::borrow), core);
    error.detail(format!("{key} already exists."))
}

/// Whether no error shows a key of an index: the role may not see the rows, or one of the columns.
/// What a key is computed from is not told apart, so of such an index all must be seen.
pub fn hides_key(table: &Table, index: &Index, core: &Core) -> bool {
    let mut columns = index.keys.iter().map(|key| key.column);
    let plain = columns.clone().all(|at| at < table.columns.len());
    let mut all = table.live_columns().map(|(at, _)| at);
    hides_rows(table, core)
        || match plain {
            true => columns.any(|at| !shows(table, core, at)),
            false => all.any(|at| !shows(table, core, at)),
        }
}

/// `Key (a, b)=(1, 2)`
pub fn key<'v>(
    table: &Table,
    index: &Index,
    values: impl Iterator<Item = DatumRef<'v>>,
    core: &Core,
) -> String {
    let names: Vec<String> = (0..index.keys.len())
        .map(|at| index.key_text(table, at))
        .collect();
    let values: Vec<String> = (0..)
        .zip(values)
        .map(|(at, value)| shown(index.type_of(table, at), value, core))
        .collect();
    format!("Key ({})=({})", names.join(", "), values.join(", "))
}
