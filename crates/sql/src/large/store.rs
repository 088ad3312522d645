//! Objects and their pages, by statements within the one that runs.

use std::collections::HashMap;
use std::sync::Arc;

use block::value::Datum;

use super::{MAX_SIZE, PAGE, missing};
use crate::bind::ParamTypes;
use crate::dict::Dict;
use crate::dict::acl::{Granted, Item, Kind, Privileges, default_items};
use crate::dict::role::FIRST_SUPERUSER;
use crate::error::{Error, Result};
use crate::parse::{self, Command};
use crate::session::{Core, Keep, Nested};
use crate::types::SqlType::{self, Bytea, Int4, Oid, Text};

/// A statement on the tables, with the types of its parameters.
pub struct Sql(&'static str, &'static [SqlType]);

const OBJECT: Sql = Sql(
    "select owner, acl from pg_catalog.pg_largeobject_object where oid = $1",
    &[Oid],
);
const OBJECTS: Sql = Sql(
    "select oid, owner, acl from pg_catalog.pg_largeobject_object where owner = $1 or acl is not null \
     order by oid",
    &[Oid],
);
/// For who changes its owner or its privileges.
pub const CHANGES: Sql = Sql(
    "select owner, acl from pg_catalog.pg_largeobject_object where oid = $1 for no key update",
    &[Oid],
);
/// For who removes it, which waits for those that write to it, and they for it.
pub const REMOVES: Sql = Sql(
    "select owner, acl from pg_catalog.pg_largeobject_object where oid = $1 for update",
    &[Oid],
);
/// For who writes to it.
const WRITES: Sql = Sql(
    "select owner, acl from pg_catalog.pg_largeobject_object where oid = $1 for key share",
    &[Oid],
);
const ADD: Sql = Sql(
    "insert into pg_catalog.pg_largeobject_object(oid, owner) values ($1, $2)",
    &[Oid, Oid],
);
const REMOVE: Sql = Sql(
    "delete from pg_catalog.pg_largeobject_object where oid = $1",
    &[Oid],
);
const SET_OWNER: Sql = Sql(
    "update pg_catalog.pg_largeobject_object set owner = $2, acl = $3 where oid = $1",
    &[Oid, Oid, Text],
);
const SET_ACL: Sql = Sql(
    "update pg_catalog.pg_largeobject_object set acl = $2 where oid = $1",
    &[Oid, Text],
);
const PAGES: Sql = Sql(
    "select pageno, data from pg_catalog.pg_largeobject_page where loid = $1 and pageno >= $2 \
     and pageno <= $3 order by pageno",
    &[Oid, Int4, Int4],
);
const LAST_PAGE: Sql = Sql(
    "select pageno, data from pg_catalog.pg_largeobject_page where loid = $1 order by pageno desc limit 1",
    &[Oid],
);
/// Pages that are to be written anew, as they are once those that write them now have ended.
const LOCKED_PAGES: Sql = Sql(
    "select pageno, data from pg_catalog.pg_largeobject_page where loid = $1 and pageno >= $2 \
     and pageno <= $3 order by pageno for update",
    &[Oid, Int4, Int4],
);
const ADD_PAGE: Sql = Sql(
    "insert into pg_catalog.pg_largeobject_page(loid, pageno, data) values ($1, $2, $3)",
    &[Oid, Int4, Bytea],
);
const SET_PAGE: Sql = Sql(
    "update pg_catalog.pg_largeobject_page set data = $3 where loid = $1 and pageno = $2",
    &[Oid, Int4, Bytea],
);
const REMOVE_PAGES: Sql = Sql(
    "delete from pg_catalog.pg_largeobject_page where loid = $1 and pageno > $2",
    &[Oid, Int4],
);

/// Bytes of pages that are locked, and read, before they are written.
const WRITTEN_AT_ONCE: u64 = 64 * PAGE;

/// These statements in a session.
#[derive(Default)]
pub struct Statements {
    plans: HashMap<&'static str, Arc<Nested>>,
    /// One of them runs, or is planned: nobody else changes the tables.
    pub(super) runs: bool,
}

/// An object that there is.
pub struct Object {
    pub oid: u32,
    pub owner: u32,
    /// `None`: as a new one has.
    items: Option<Vec<Item>>,
}

impl Object {
    /// Its privileges, if they are others than those of a new one.
    pub fn items(&self) -> Option<&[Item]> {
        self.items.as_deref()
    }

    /// Its privileges.
    pub fn granted<'d>(&self, dict: &'d Dict) -> Granted<'d> {
        let items = self.items.clone();
        Granted {
            dict,
            owner: self.owner,
            items: items.unwrap_or_else(|| default_items(Kind::LargeObject, self.owner)),
        }
    }
}

fn number(oid: u32) -> Datum {
    Datum::Int8(oid.into())
}

fn own_number(value: &Datum) -> Result<u32> {
    match value {
        Datum::Int8(number) => Ok(u32::try_from(*number).unwrap_or(0)),
        other => Err(Error::internal(format!("{other:?} as a number"))),
    }
}

/// An object of its owner and its privileges.
fn object(oid: u32, row: Vec<Datum>) -> Result<Object> {
    let mut values = row.into_iter();
    let owner = own_number(&values.next().unwrap_or(Datum::Null))?;
    let items = match values.next() {
        Some(Datum::Text(items)) => Some(decoded(&items)?),
        _ => None,
    };
    Ok(Object { oid, owner, items })
}

fn page_number(at: u64) -> Datum {
    // No object is longer than that.
    Datum::Int4(i32::try_from(at / PAGE).unwrap_or(i32::MAX))
}

/// Where a page begins, and its bytes.
fn page(row: Vec<Datum>) -> Result<(u64, Vec<u8>)> {
    let mut values = row.into_iter();
    match (values.next(), values.next()) {
        (Some(Datum::Int4(page)), Some(Datum::Bytea(bytes))) => {
            let page = u64::try_from(page).unwrap_or(0);
            Ok((page * PAGE, bytes))
        }
        other => Err(Error::internal(format!("{other:?} as a page"))),
    }
}

pub fn encoded(items: Option<&[Item]>) -> Result<Datum> {
    Ok(match items {
        None => Datum::Null,
        Some(items) => Datum::Text(
            serde_json::to_string(items)
                .map_err(|e| Error::internal(format!("privileges: {e}")))?,
        ),
    })
}

/// Privileges as they are kept with an object.
pub fn decoded(items: &str) -> Result<Vec<Item>> {
    let wrong = |e| Error::new("XX001", format!("privileges on a large object: {e}"));
    serde_json::from_str(items).map_err(wrong)
}

impl Core {
    /// Runs a statement on the tables within the one that runs, by the rights of the superuser
    /// whose they are.
    fn large_sql(&mut self, sql: &Sql, values: Vec<Datum>) -> Result<Vec<Vec<Datum>>> {
        self.as_owner(FIRST_SUPERUSER, |core| {
            core.framed(engine::Sees::Now, |core| core.run_large(sql, &values))
        })
    }

    /// The same of what there is now, also under REPEATABLE READ, as definitions are.
    fn newest_large_sql(&mut self, sql: &Sql, values: Vec<Datum>) -> Result<Vec<Vec<Datum>>> {
        self.as_owner(FIRST_SUPERUSER, |core| {
            core.framed(engine::Sees::Now, |core| {
                core.engine.see_newest()?;
                core.run_large(sql, &values)
            })
        })
    }

    fn run_large(&mut self, sql: &Sql, values: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        self.large.runs = true;
        let mut kept = Keep::default();
        let done = self
            .large_plan(sql)
            .and_then(|nested| self.run_nested(&nested, values, 0, &mut kept));
        self.large.runs = false;
        done.map(|_| kept.rows)
    }

    fn large_plan(&mut self, sql: &Sql) -> Result<Arc<Nested>> {
        let Sql(text, types) = *sql;
        if let Some(known) = self.large.plans.get(text).cloned()
            && self.is_nested_current(&known)?
        {
            return Ok(known);
        }
        let Command::Sql(statement) = parse::statement(text)? else {
            return Err(Error::internal("a statement that is none of rows"));
        };
        let params = |dict: &Dict| ParamTypes::of(types, dict);
        let (nested, _) = self.analyse_nested(text, &statement, &params)?;
        let nested = Arc::new(nested);
        self.large.plans.insert(text, nested.clone());
        Ok(nested)
    }

    pub(super) fn large_object(&mut self, oid: u32) -> Result<Object> {
        let rows = self.large_sql(&OBJECT, vec![number(oid)])?;
        object(oid, rows.into_iter().next().ok_or_else(|| missing(oid))?)
    }

    /// The object as it is once those that change it now have ended, locked until the transaction
    /// ends.
    pub(super) fn locked_object(&mut self, oid: u32, locked: &Sql) -> Result<Object> {
        let rows = self.newest_large_sql(locked, vec![number(oid)])?;
        object(oid, rows.into_iter().next().ok_or_else(|| missing(oid))?)
    }

    /// The objects that a role owns, and those with privileges of their own.
    pub(super) fn large_objects_with(&mut self, role: u32) -> Result<Vec<Object>> {
        let rows = self.newest_large_sql(&OBJECTS, vec![number(role)])?;
        let rows = rows.into_iter().map(|mut row| {
            let oid = own_number(&row.remove(0))?;
            object(oid, row)
        });
        rows.collect()
    }

    /// The object, if the session's role has a privilege on it.
    pub(super) fn permitted_object(&mut self, oid: u32, wanted: Privileges) -> Result<Object> {
        let object = self.large_object(oid)?;
        let (dict, role) = (self.dict(), self.roles.current);
        let held = object.granted(&dict).held(role, wanted);
        match self.is_lax()? || dict.is_superuser(role) || held == wanted {
            true => Ok(object),
            false => {
                let message = format!("permission denied for large object {oid}");
                Err(Error::new("42501", message))
            }
        }
    }

    /// Whether everybody may read, write and remove all objects.
    fn is_lax(&self) -> Result<bool> {
        Ok(self.settings.show("lo_compat_privileges")? == "on")
    }

    fn check_may_remove(&self, object: &Object) -> Result<()> {
        match self.is_lax()? {
            true => Ok(()),
            false => self.check_owner(object.owner, format!("large object {}", object.oid)),
        }
    }

    /// `lo_unlink`.
    pub(super) fn unlink_large(&mut self, oid: u32) -> Result<()> {
        // Who may not does not even wait.
        let object = self.large_object(oid)?;
        self.check_may_remove(&object)?;
        let object = self.locked_object(oid, &REMOVES)?;
        self.check_may_remove(&object)?;
        self.remove_large_object(oid)
    }

    /// Makes an object of the session's role; zero: with a number that none has.
    pub(super) fn create_large_object(&mut self, oid: u32) -> Result<u32> {
        let owner = number(self.owner()?);
        if oid != 0 {
            self.large_sql(&ADD, vec![number(oid), owner])?;
            return Ok(oid);
        }
        loop {
            let oid = self.database.engine().allocate_object_id()?.0;
            // Who makes objects may have chosen that number.
            if self.large_sql(&OBJECT, vec![number(oid)])?.is_empty() {
                self.large_sql(&ADD, vec![number(oid), owner])?;
                return Ok(oid);
            }
        }
    }

    /// Removes an object that is locked by [`REMOVES`].
    pub(super) fn remove_large_object(&mut self, oid: u32) -> Result<()> {
        self.newest_large_sql(&REMOVE_PAGES, vec![number(oid), Datum::Int4(-1)])?;
        self.newest_large_sql(&REMOVE, vec![number(oid)])?;
        self.cursors.large.close_object(oid);
        Ok(())
    }

    pub(super) fn set_large_owner(&mut self, oid: u32, owner: u32, acl: Datum) -> Result<()> {
        let values = vec![number(oid), number(owner), acl];
        self.newest_large_sql(&SET_OWNER, values).map(drop)
    }

    pub(super) fn set_large_acl(&mut self, oid: u32, acl: Datum) -> Result<()> {
        let values = vec![number(oid), acl];
        self.newest_large_sql(&SET_ACL, values).map(drop)
    }

    pub(super) fn large_size(&mut self, oid: u32) -> Result<u64> {
        let rows = self.large_sql(&LAST_PAGE, vec![number(oid)])?;
        match rows.into_iter().next() {
            Some(last) => page(last).map(|(start, bytes)| start + bytes.len() as u64),
            None => Ok(0),
        }
    }

    /// The bytes from a place on, at most so many.
    pub(super) fn read_large(&mut self, oid: u32, at: u64, most: usize) -> Result<Vec<u8>> {
        let size = self.large_size(oid)?;
        let length = size.saturating_sub(at).min(most as u64);
        if length == 0 {
            return Ok(Vec::new());
        }
        let end = at + length;
        let range = vec![number(oid), page_number(at), page_number(end - 1)];
        // What no page has is zero.
        let mut read = vec![0; usize::try_from(length).unwrap_or(0)];
        for row in self.large_sql(&PAGES, range)? {
            let (start, bytes) = page(row)?;
            let (from, to) = (start.max(at), (start + bytes.len() as u64).min(end));
            if from < to {
                let own = &bytes[(from - start) as usize..(to - start) as usize];
                read[(from - at) as usize..(to - at) as usize].copy_from_slice(own);
            }
        }
        Ok(read)
    }

    pub(super) fn write_large(&mut self, oid: u32, at: u64, bytes: &[u8]) -> Result<()> {
        let end = at + bytes.len() as u64;
        if end > MAX_SIZE {
            let length = bytes.len();
            let message = format!("invalid large object write request size: {length}");
            return Err(Error::new("22023", message));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.locked_object(oid, &WRITES)?;
        let mut from = at;
        while from < end {
            let to = end.min(from / PAGE * PAGE + WRITTEN_AT_ONCE);
            let own = &bytes[(from - at) as usize..(to - at) as usize];
            self.write_pages(oid, from, own)?;
            from = to;
        }
        Ok(())
    }

    /// Writes to a few pages, of an object that is locked by [`WRITES`].
    fn write_pages(&mut self, oid: u32, at: u64, bytes: &[u8]) -> Result<()> {
        let end = at + bytes.len() as u64;
        let mut known = self.locked_pages(oid, at, end - 1)?;
        let mut from = at;
        while from < end {
            let start = from / PAGE * PAGE;
            let to = end.min(start + PAGE);
            let own = &bytes[(from - at) as usize..(to - at) as usize];
            let before = known.remove(&start);
            let is_new = before.is_none();
            let mut whole = before.unwrap_or_default();
            let (first, last) = ((from - start) as usize, (to - start) as usize);
            whole.resize(whole.len().max(last), 0);
            whole[first..last].copy_from_slice(own);
            self.put_page(oid, start, whole, is_new)?;
            from = to;
        }
        Ok(())
    }

    /// The pages that there are between two places, by where they begin.
    fn locked_pages(&mut self, oid: u32, at: u64, last: u64) -> Result<HashMap<u64, Vec<u8>>> {
        let range = vec![number(oid), page_number(at), page_number(last)];
        let rows = self.large_sql(&LOCKED_PAGES, range)?;
        rows.into_iter().map(page).collect()
    }

    fn put_page(&mut self, oid: u32, start: u64, bytes: Vec<u8>, is_new: bool) -> Result<()> {
        let values = vec![number(oid), page_number(start), Datum::Bytea(bytes)];
        let sql = if is_new { &ADD_PAGE } else { &SET_PAGE };
        self.large_sql(sql, values).map(drop)
    }

    /// Cuts an object to a size, or makes it as long.
    pub(super) fn truncate_large(&mut self, oid: u32, size: u64) -> Result<()> {
        self.locked_object(oid, &WRITES)?;
        let start = size / PAGE * PAGE;
        let before = self.locked_pages(oid, start, start)?.remove(&start);
        let is_new = before.is_none();
        let mut last = before.unwrap_or_default();
        last.resize((size - start) as usize, 0);
        self.newest_large_sql(&REMOVE_PAGES, vec![number(oid), page_number(start)])?;
        self.put_page(oid, start, last, is_new)
    }
}
