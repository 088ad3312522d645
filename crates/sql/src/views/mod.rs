//! Virtual tables: the `v$` views of the instance's state, `pg_catalog`, and what little of `information_schema` there
//! is. Their rows are made when they are read, from the dictionary, the wait interface, the lock table and the
//! parameter registry; nothing is stored.
//!
//! **Invariants.**
//! - A view's rows have exactly its columns, in order, of their types.
//! - Making rows takes no lock that a session may hold while it waits; other instances are waited
//!   for by `gv$` views, and what is made of their rows, with a limit ([`everywhere`]).
//! - Each `v$` view of an instance has its `gv$` view: those are made of the list of these. Views of
//!   what a session has for itself have none.

mod absent;
pub mod acl;
mod activity;
mod backends;
mod blockers;
pub mod built_in;
mod catalog;
mod codec;
mod constraints;
mod counters;
mod dba;
pub mod definition;
pub mod describe;
mod described;
mod domains;
mod empty;
mod everywhere;
pub mod extensions;
mod files;
pub mod functions;
mod granted;
mod inspect;
mod instance;
pub mod keywords;
mod large_objects;
mod longops;
pub mod lookup;
mod mastering;
mod numbers;
pub mod objects;
mod own;
mod pg_stat;
mod policies;
mod privileges;
pub mod procedures;
mod relations;
mod remote;
mod roles;
mod rules;
mod schema;
mod segments;
mod sequence;
mod services;
mod standard;
mod statements;
mod summary;
mod timeline;
mod times;
mod triggers;
mod types;
mod updatable;
mod usage;
pub mod user_functions;
pub mod viewdef;
mod zones;

pub use describe::DATABASE;
pub use keywords::needs_quotes;
pub use numbers::view_oid;
pub use sequence::{SEQUENCE, row as sequence_row};
pub(crate) use types::storage;
pub use user_functions::is_visible as is_function_visible;

use std::collections::HashMap;
use std::sync::Arc;

use block::value::Datum;
use parking_lot::Mutex;

use crate::authority::Authority;
use crate::database::Database;
use crate::dict::{Dict, Table};
use crate::error::{Error, Result};
use crate::session::{Core, Settings};
use crate::types::SqlType;

pub type Rows = Vec<Vec<Datum>>;

/// The schema under which the tables that functions give are found. No client sees it.
pub const FUNCTIONS: &str = "functions of pg_catalog";

/// A virtual table.
pub struct VirtualTable {
    /// `pg_catalog` or `information_schema`; the `v$` views are in `pg_catalog` too, so that every search path has them.
    pub schema: &'static str,
    pub name: &'static str,
    pub columns: &'static [(&'static str, SqlType)],
    pub rows: Source,
}

/// Where a view's rows come from.
pub enum Source {
    /// This instance's state.
    Here(fn(&Context) -> Result<Rows>),
    /// That of every instance: the rows that this view has on each.
    Everywhere(&'static VirtualTable),
    /// That of every instance: each makes its own rows so.
    Cluster(fn(&Context) -> Result<Rows>),
    /// That of the session which reads.
    Session(fn(&Core) -> Rows),
    /// That of the sequence that is read: [`sequence`].
    Sequence,
    /// The catalogs: a query, which the analysis puts in the view's place.
    Query(&'static str),
}

impl VirtualTable {
    /// Makes the rows for a session. Those of all instances are waited for: to be called by a session that holds no latch.
    pub fn read_in(&self, core: &Core, cx: &Context) -> Result<Rows> {
        match self.rows {
            Source::Session(rows) => Ok(rows(core)),
            _ => self.read(cx),
        }
    }

    /// Makes the rows of a view that is not of one session.
    fn read(&self, cx: &Context) -> Result<Rows> {
        match self.rows {
            Source::Session(_) => Err(Error::internal("a session's view without the session")),
            Source::Sequence => Err(Error::internal("a sequence's row without the sequence")),
            Source::Query(_) => Err(Error::internal("rows of a query that was not analysed")),
            Source::Here(rows) => rows(cx),
            Source::Everywhere(of) => everywhere::rows(of, cx),
            Source::Cluster(rows) if cx.for_another => rows(cx),
            Source::Cluster(rows) => everywhere::cluster_rows(self, rows, cx),
        }
    }
}

impl std::fmt::Debug for VirtualTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What views and catalog functions read: the state of things when the statement began.
pub struct Context {
    pub database: Arc<Database>,
    pub dict: Arc<Dict>,
    /// By whose rights the statement runs.
    pub authority: Authority,
    pub database_name: String,
    /// This session's parameters as far as its role sees them: name, value.
    pub settings: Vec<(&'static crate::params::Param, String)>,
    /// The schema of the session's temporary relations, if its path does not name it.
    pub implicit: Option<u32>,
    /// Made for another instance: nobody else may be asked.
    for_another: bool,
    /// The relations whose rows are wanted; of all, if there is nothing.
    pub wanted: Option<lookup::Wanted>,
    /// What all instances have counted, once a function has asked.
    usage: Mutex<Option<Arc<HashMap<u32, usage::Object>>>>,
    /// What the client is to be told about the rows, such as that an instance's are missing.
    warnings: Mutex<Vec<String>>,
}

impl Context {
    pub fn new(core: &Core) -> Context {
        Context {
            database: core.database.clone(),
            dict: core.dict(),
            authority: core.authority(),
            database_name: core.database_name.clone(),
            settings: core.seen_settings().collect(),
            implicit: core.temporary_schema().filter(|s| core.passes_over(*s)),
            for_another: false,
            wanted: None,
            usage: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    /// For another instance's session: by whose rights it asks is known here, but not who it is nor
    /// what it has set.
    fn for_another(database: &Arc<Database>, authority: Authority) -> Context {
        Context {
            database: database.clone(),
            dict: database.dict(),
            authority,
            database_name: String::new(),
            settings: Settings::new(database.params())
                .all()
                .filter(|(param, _)| param.is_seen_by(authority))
                .collect(),
            for_another: true,
            implicit: None,
            wanted: None,
            usage: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    /// Says something once.
    fn warn(&self, what: String) {
        let mut warnings = self.warnings.lock();
        if !warnings.contains(&what) {
            warnings.push(what);
        }
    }

    /// What there is to be said, which is then said.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }

    /// What a session runs, for those who may see what its role does.
    fn shown_statement(&self, role: u32, statement: Option<&str>) -> Datum {
        value::optional(match self.authority.may_watch(&self.dict, role) {
            true => statement,
            false => statement.and(Some(wait::session::HIDDEN)),
        })
    }

    /// Whether row-level security keeps rows of a table from the role that asks.
    fn hides_rows(&self, table: &Table) -> bool {
        table.row_security && self.dict.policies_for(self.authority.role, table).is_some()
    }

    /// The name of a role, as `pg_get_userbyid` gives it.
    pub fn role_name(&self, oid: u32) -> String {
        match self.dict.role_by_oid(oid) {
            Some(role) => role.name.clone(),
            None => format!("unknown (OID={oid})"),
        }
    }

    /// Blocks of a segment, used or not.
    fn segment_blocks(&self, segment: u32) -> Result<u64> {
        let engine = self.database.engine();
        Ok(engine.segment_blocks(block::ObjectId(segment))?)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

/// All virtual tables.
pub fn all() -> impl Iterator<Item = &'static VirtualTable> {
    here().chain(everywhere::views())
}

/// Those of this instance alone.
fn here() -> impl Iterator<Item = &'static VirtualTable> {
    let lists: [&'static [VirtualTable]; 35] = [
        activity::VIEWS,
        summary::VIEWS,
        backends::VIEWS,
        counters::VIEWS,
        remote::VIEWS,
        instance::VIEWS,
        statements::VIEWS,
        timeline::VIEWS,
        times::VIEWS,
        longops::VIEWS,
        mastering::VIEWS,
        services::VIEWS,
        segments::VIEWS,
        catalog::VIEWS,
        extensions::VIEWS,
        built_in::VIEWS,
        roles::VIEWS,
        relations::VIEWS,
        constraints::VIEWS,
        schema::VIEWS,
        absent::VIEWS,
        large_objects::VIEWS,
        empty::VIEWS,
        own::VIEWS,
        policies::VIEWS,
        rules::VIEWS,
        granted::VIEWS,
        dba::VIEWS,
        &dba::OBJECTS,
        &dba::TABLES,
        &dba::INDEXES,
        &dba::SEQUENCES,
        &dba::COLUMNS,
        &*usage::VIEWS,
        zones::VIEWS,
    ];
    let lists = lists.into_iter().chain(standard::VIEWS);
    lists.chain(pg_stat::VIEWS).flatten()
}

/// The virtual table of that name; without a schema, one that is on every search path.
pub fn find(schema: Option<&str>, name: &str) -> Option<&'static VirtualTable> {
    let schema = schema.unwrap_or("pg_catalog");
    if schema == FUNCTIONS {
        let own = [keywords::VIEWS, files::VIEWS, instance::FUNCTIONS];
        let mut all = own.into_iter().flatten();
        return all.find(|v| v.name == name);
    }
    numbers::view_named(schema, name)
}

pub use backends::blocking_pids;
pub use everywhere::{VERSION as QUESTION, respond};

/// Shorthands for values of rows.
mod value {
    use block::array::{Array, Dimension};
    use block::value::{ColType, Datum};

    pub fn text(s: impl Into<String>) -> Datum {
        Datum::Text(s.into())
    }
    pub fn optional(s: Option<impl Into<String>>) -> Datum {
        s.map_or(Datum::Null, |s| Datum::Text(s.into()))
    }
    pub fn int8(n: impl TryInto<i64>) -> Datum {
        Datum::Int8(n.try_into().unwrap_or(i64::MAX))
    }
    pub fn int4(n: impl TryInto<i32>) -> Datum {
        Datum::Int4(n.try_into().unwrap_or(i32::MAX))
    }
    pub fn int2(n: impl TryInto<i16>) -> Datum {
        Datum::Int2(n.try_into().unwrap_or(i16::MAX))
    }
    pub fn oid(n: u32) -> Datum {
        Datum::Int8(n.into())
    }
    pub fn bool(b: bool) -> Datum {
        Datum::Bool(b)
    }
    pub const NULL: Datum = Datum::Null;

    /// A point of the system clock as a timestamp with time zone.
    pub fn time(t: std::time::SystemTime) -> Datum {
        const UNIX_TO_PG_MICROS: i64 = 946_684_800_000_000;
        let since = t.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Datum::TimestampTz(since.as_micros() as i64 - UNIX_TO_PG_MICROS)
    }

    /// Arrays of one dimension, and vectors.
    pub fn texts(items: impl IntoIterator<Item = String>) -> Datum {
        list(ColType::Text, items.into_iter().map(Datum::Text), 1)
    }
    pub fn oids(items: impl IntoIterator<Item = u32>) -> Datum {
        list(ColType::Int8, items.into_iter().map(oid), 1)
    }
    pub fn int2s(items: impl IntoIterator<Item = usize>) -> Datum {
        list(ColType::Int2, items.into_iter().map(int2), 1)
    }
    pub fn float4s(items: impl IntoIterator<Item = f32>) -> Datum {
        list(ColType::Float4, items.into_iter().map(Datum::Float4), 1)
    }
    pub fn int2vector(items: impl IntoIterator<Item = usize>) -> Datum {
        list(ColType::Int2, items.into_iter().map(int2), 0)
    }
    pub fn oidvector(items: &[u32]) -> Datum {
        list(ColType::Int8, items.iter().copied().map(oid), 0)
    }

    fn list(element: ColType, items: impl Iterator<Item = Datum>, lower: i32) -> Datum {
        let items: Vec<Datum> = items.collect();
        let length = items.len() as i32;
        let dimensions: &[Dimension] = match items.is_empty() {
            true => &[],
            false => &[Dimension { length, lower }],
        };
        Datum::Array(Array::new(element, dimensions, &items))
    }

    /// PostgreSQL's text form of an array of any texts.
    pub fn quoted_array(items: &[String]) -> Datum {
        let quoted = |item: &String| {
            let special = |c: char| "{}\",\\".contains(c) || c.is_ascii_whitespace();
            let plain =
                !item.is_empty() && !item.contains(special) && !item.eq_ignore_ascii_case("null");
            match plain {
                true => item.clone(),
                false => format!("\"{}\"", item.replace('\\', "\\\\").replace('"', "\\\"")),
            }
        };
        array(items.iter().map(quoted))
    }

    /// PostgreSQL's text form of an array of plain words.
    pub fn array<T: ToString>(items: impl IntoIterator<Item = T>) -> Datum {
        let items: Vec<String> = items.into_iter().map(|i| i.to_string()).collect();
        Datum::Text(format!("{{{}}}", items.join(",")))
    }
}
