//! `pg_ls_waldir`, `pg_ls_tmpdir` and their kin: files of the instance that is asked. When a file
//! was changed is not known: NULL.

use block::value::Datum;

use super::Source::Here;
use super::value::{NULL, int8, text};
use super::{Context, Rows, VirtualTable};
use crate::dict::membership::MONITOR;
use crate::error::{Error, Result};
use crate::types::SqlType::{self, Int8, Text, TimestampTz};

/// Tables that functions give, under the functions' names.
pub const VIEWS: &[VirtualTable] = &[
    listing("pg_ls_waldir", redo),
    listing("pg_ls_tmpdir", temporary),
    // There is no archive.
    listing("pg_ls_archive_statusdir", |cx| {
        checked(cx, "pg_ls_archive_statusdir", Vec::new())
    }),
];

const COLUMNS: &[(&str, SqlType)] = &[
    ("name", Text),
    ("size", Int8),
    ("modification", TimestampTz),
];

const fn listing(name: &'static str, rows: fn(&Context) -> Result<Rows>) -> VirtualTable {
    VirtualTable {
        schema: super::FUNCTIONS,
        name,
        columns: COLUMNS,
        rows: Here(rows),
    }
}

/// The redo files of one member.
fn redo(cx: &Context) -> Result<Rows> {
    checked(cx, "pg_ls_waldir", cx.database.engine().redo_files())
}

fn temporary(cx: &Context) -> Result<Rows> {
    checked(cx, "pg_ls_tmpdir", cx.database.engine().temp_files()?)
}

/// The rows of files, for those who may see them.
fn checked(cx: &Context, function: &str, files: Vec<(String, u64)>) -> Result<Rows> {
    if !cx.authority.has_rights_of(&cx.dict, MONITOR) {
        let message = format!("permission denied for function {function}");
        return Err(Error::new("42501", message));
    }
    let row = |(name, bytes): (String, u64)| -> Vec<Datum> {
        let name = name.rsplit('/').next().unwrap_or_default().to_string();
        vec![text(name), int8(bytes), NULL]
    };
    Ok(files.into_iter().map(row).collect())
}
