//! Definitions of single objects, as stored (JSON, so that fields can be added) and as used.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use block::{Dba, ObjectId, Scn};
use engine::{ComputedKey, IndexColumn, IndexDef, IndexRules, IndexStage, InvertedKeys, TableDef};
use serde::{Deserialize, Serialize};

use super::acl::{Acl, DefaultPrivileges};
use super::cast::Cast;
use super::comments::Comment;
use super::computed::{IndexExpression, IndexKeys};
use super::extension::Extension;
use super::function::Function;
use super::inverted::Inverted;
use super::method::Method;
use super::path::{self, Schema};
use super::policy::Policy;
use super::role::{self, Door, FIRST_SUPERUSER, Role};
use super::trigger::Trigger;
use super::types::UserType;
use super::view::{Materialized, View};
use super::{ForeignKey, Stats};
use crate::bind::numbered::Shown;
use crate::collate::{Collation, Derived};
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;
use crate::types::{SqlType, storage_type};

#[derive(Clone)]
pub enum Object {
    Table(Arc<Table>),
    Sequence(Arc<Sequence>),
    Stats(Arc<Stats>),
    Role(Arc<Role>),
    Door(Arc<Door>),
    Schema(Arc<Schema>),
    View(Arc<View>),
    Function(Arc<Function>),
    Type(Arc<UserType>),
    Cast(Arc<Cast>),
    Acl(Arc<Acl>),
    DefaultPrivileges(Arc<DefaultPrivileges>),
    Extension(Arc<Extension>),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Stored {
    Table(Table),
    Sequence(Sequence),
    Stats(Stats),
    Role(Role),
    Door(Door),
    Schema(Schema),
    View(View),
    Function(Function),
    Type(UserType),
    Cast(Cast),
    Acl(Acl),
    DefaultPrivileges(DefaultPrivileges),
    Extension(Extension),
}

/// The owner of what was made before there were roles.
fn first_superuser() -> u32 {
    FIRST_SUPERUSER
}

/// A table, with everything that names and rules about its rows need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    pub oid: u32,
    /// Object id of its schema, which is its indexes' too.
    #[serde(default = "path::public")]
    pub schema: u32,
    pub name: String,
    pub columns: Vec<Column>,
    #[serde(default)]
    pub checks: Vec<Check>,
    #[serde(default)]
    pub indexes: Vec<Index>,
    #[serde(default)]
    pub foreign_keys: Vec<ForeignKey>,
    /// In the order of their names.
    #[serde(default)]
    pub triggers: Vec<Trigger>,
    /// ENABLE ROW LEVEL SECURITY: rows are kept to the policies.
    #[serde(default)]
    pub row_security: bool,
    /// Of the table's owner, too.
    #[serde(default)]
    pub force_row_security: bool,
    /// In the order of their names.
    #[serde(default)]
    pub policies: Vec<Policy>,
    /// UNLOGGED. It is kept to be shown: rows are written to redo as those of any other table.
    #[serde(default)]
    pub unlogged: bool,
    /// Object id of the heap's segment; another than `oid` after TRUNCATE.
    pub segment: u32,
    /// Block address of the heap's segment header.
    pub header: u64,
    /// WITH (fillfactor = ..) and other storage parameters, kept to be shown.
    #[serde(default)]
    pub options: Vec<(String, String)>,
    #[serde(default)]
    pub comments: Vec<Comment>,
    /// Of a temporary table.
    #[serde(default)]
    pub on_commit: OnCommit,
    /// Object id of the role that owns it, and its indexes.
    #[serde(default = "first_superuser")]
    pub owner: u32,
    /// The numbers of the type of its rows, and of that type's arrays; zeros of a table that is
    /// older than such types.
    #[serde(default)]
    pub row_type: [u32; 2],
    /// Set of a materialized view.
    #[serde(default)]
    pub materialized: Option<Box<Materialized>>,
    /// Set of a view that a write or a trigger sees as a table ([`View::as_table`]).
    #[serde(skip)]
    pub view: Option<Arc<View>>,
    /// The engine's view, derived from the rest by [`Table::finish`].
    #[serde(skip)]
    pub def: Option<Arc<TableDef>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    pub type_oid: u32,
    pub typmod: i32,
    /// The type, once it is known what the number means: see [`super::types`].
    #[serde(skip)]
    pub known: Option<SqlType>,
    #[serde(default)]
    pub not_null: bool,
    /// SQL text of the default.
    #[serde(default)]
    pub default: Option<String>,
    #[serde(default)]
    pub identity: Option<Identity>,
    /// Object id of the sequence that serial or identity draws from.
    #[serde(default)]
    pub sequence: Option<u32>,
    /// It is computed from the others; its default is the expression.
    #[serde(default)]
    pub generated: bool,
    /// Dropped columns keep their place in rows.
    #[serde(default)]
    pub dropped: bool,
    /// What rows older than the column have in it, in text form as it is without any setting; `None`: NULL.
    #[serde(default)]
    pub missing: Option<String>,
    /// Object id of its collation, if that is not the default one.
    #[serde(default)]
    pub collation: Option<u32>,
    #[serde(default)]
    pub storing: Storing,
}

/// What ALTER COLUMN says of how a column is stored, and looked at by ANALYZE.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Storing {
    /// SET STATISTICS; `None`: as `default_statistics_target` says.
    #[serde(default)]
    pub statistics: Option<u16>,
    /// SET STORAGE, as its letter, if it is another than the type's. It is kept to be shown.
    #[serde(default)]
    pub storage: Option<char>,
    /// `n_distinct` and its kin.
    #[serde(default)]
    pub options: Vec<(String, String)>,
}

impl Storing {
    /// How many values ANALYZE is to find.
    pub fn distinct(&self) -> Option<f64> {
        let mut options = self.options.iter();
        let (_, value) = options.find(|(name, _)| name == "n_distinct")?;
        value.parse().ok().filter(|n| *n != 0.0)
    }
}

/// What becomes of a temporary table at each commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum OnCommit {
    #[default]
    Preserve,
    DeleteRows,
    Drop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Identity {
    Always,
    ByDefault,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    /// SQL text of the condition.
    pub text: String,
    /// It was added as NOT VALID, and the rows of then have not been looked at.
    #[serde(default)]
    pub unvalidated: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Index {
    pub oid: u32,
    pub name: String,
    /// USING.
    #[serde(default)]
    pub method: Method,
    pub keys: Vec<IndexKey>,
    pub unique: bool,
    #[serde(default)]
    pub primary: bool,
    /// Object id of the constraint it serves; zero if it is an index only.
    #[serde(default)]
    pub constraint: u32,
    /// Of a key constraint: it may be checked at the end of a statement, or of the transaction.
    #[serde(default)]
    pub deferrable: bool,
    #[serde(default)]
    pub initially_deferred: bool,
    /// Of a unique index: NULL equals NULL.
    #[serde(default)]
    pub nulls_not_distinct: bool,
    /// What the columns of the key are that are no columns of the table, in their order.
    #[serde(default)]
    pub expressions: Vec<IndexExpression>,
    /// Of a partial index: SQL text of the condition that its rows meet.
    #[serde(default)]
    pub predicate: Option<String>,
    /// The condition with the texts of functions, as of [`IndexExpression::inlined`].
    #[serde(default)]
    pub inlined: Option<String>,
    /// Columns that INCLUDE names. Every row is read from the table, so they are not in the entries.
    #[serde(default)]
    pub included: Vec<usize>,
    /// Operator classes of the key's columns, if one is not the default, which is empty.
    #[serde(default)]
    pub classes: Vec<String>,
    /// WITH (fillfactor = ..) and other storage parameters, kept to be shown.
    #[serde(default)]
    pub options: Vec<(String, String)>,
    /// Expressions and condition, bound by [`Table::finish`].
    #[serde(skip)]
    pub bound: Option<Arc<IndexKeys>>,
    /// The keys of a row, of an index that is in no order; bound likewise.
    #[serde(skip)]
    pub inverted: Option<Arc<Inverted>>,
    pub segment: u32,
    pub header: u64,
    /// Snapshots below this SCN must not use it.
    pub created: u64,
    /// How far it is made, or dropped, while others write to its table.
    #[serde(default)]
    pub stage: Stage,
}

/// How far an index is that is made, or dropped, while others write to its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Stage {
    #[default]
    Valid,
    /// Written to, and not read.
    Invalid,
    /// Neither read nor written to: being dropped, or refused by the rows.
    Leaving,
}

impl Stage {
    fn engine(self) -> IndexStage {
        match self {
            Stage::Valid => IndexStage::Whole,
            Stage::Invalid => IndexStage::Partial,
            Stage::Leaving => IndexStage::Leaving,
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct IndexKey {
    /// Position in the table, or [`IndexKey::EXPRESSION`].
    pub column: usize,
    pub descending: bool,
    pub nulls_first: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sequence {
    pub oid: u32,
    /// Object id of its schema.
    #[serde(default = "path::public")]
    pub schema: u32,
    pub name: String,
    /// Block address of the sequence's block.
    pub header: u64,
    pub type_oid: u32,
    pub start: i64,
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    pub cache: i64,
    pub cycle: bool,
    /// Object id of its segment, if that is another than `oid`: after ALTER SEQUENCE.
    #[serde(default)]
    pub segment: u32,
    /// ORDER: values are given out in the order of their requests, also across instances.
    #[serde(default)]
    pub order: bool,
    /// UNLOGGED or LOGGED, kept to be shown; `None`: as the table is that it goes with.
    #[serde(default)]
    pub unlogged: Option<bool>,
    /// Table and column (from 0) it is dropped with.
    #[serde(default)]
    pub owner: Option<(u32, usize)>,
    #[serde(default)]
    pub comment: Option<String>,
    /// Object id of the role that owns it.
    #[serde(default = "first_superuser")]
    pub role: u32,
}

impl IndexKey {
    /// In the place of a column: the next of the index's expressions.
    pub const EXPRESSION: usize = usize::MAX;

    pub fn is_expression(&self) -> bool {
        self.column == IndexKey::EXPRESSION
    }
}

impl Column {
    /// Gives the column another type, and that type's storage.
    pub fn retype(&mut self, ty: SqlType, typmod: i32) {
        (self.type_oid, self.known, self.typmod) = (ty.oid(), Some(ty), typmod);
        self.storing.storage = None;
    }

    /// The collation of its values.
    pub fn collation(&self) -> Derived {
        let own = self.collation.and_then(Collation::of_oid);
        own.map_or_else(Derived::default, Derived::implicit)
    }

    /// The type of its values.
    pub fn ty(&self) -> SqlType {
        self.declared().base()
    }

    /// What it was declared as: a domain, or else the type of its values.
    pub fn declared(&self) -> SqlType {
        (self.known.or_else(|| SqlType::from_oid(self.type_oid))).unwrap_or(SqlType::Text)
    }

    /// SQL text of its default, which may be its domain's.
    pub fn default_text(&self) -> Option<&str> {
        match self.declared() {
            SqlType::Domain(d) => self.default.as_deref().or(d.def().default.as_deref()),
            _ => self.default.as_deref(),
        }
    }
}

impl Table {
    /// Position of a column that is not dropped.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns
            .iter()
            .position(|c| !c.dropped && c.name == name)
    }

    pub fn live_columns(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, c)| !c.dropped)
    }

    /// The foreign key of an object id.
    pub fn foreign_key(&self, oid: u32) -> Option<&ForeignKey> {
        self.foreign_keys.iter().find(|k| k.oid == oid)
    }

    pub fn primary_key(&self) -> Option<&Index> {
        self.indexes.iter().find(|i| i.primary)
    }

    /// The engine's view. Every table that left [`Table::finish`] has one.
    pub fn engine(&self) -> &Arc<TableDef> {
        self.def
            .as_ref()
            .expect("a table without its engine definition was put into the dictionary")
    }

    /// Derives the engine's view.
    pub fn finish(mut self) -> Result<Table> {
        self.prune_comments();
        let columns = self
            .columns
            .iter()
            .map(|c| storage_type(c.ty()))
            .collect::<Result<Vec<_>>>()?;
        let mut indexes = std::mem::take(&mut self.indexes);
        for index in &mut indexes {
            index.bind(&self)?;
        }
        self.indexes = indexes;
        let indexes = self.indexes.iter().map(Index::engine).collect();
        let missing = |c: &Column| match &c.missing {
            Some(text) => crate::pgtype::text_in(c.ty(), text, &IoSettings::default()),
            None => Ok(Datum::Null),
        };
        let missing = match self.columns.iter().any(|c| c.missing.is_some()) {
            true => self.columns.iter().map(missing).collect::<Result<_>>()?,
            false => Vec::new(),
        };
        self.def = Some(Arc::new(TableDef {
            missing,
            object: ObjectId(self.segment),
            header: Dba(self.header),
            columns,
            indexes,
        }));
        Ok(self)
    }
}

impl Index {
    /// Derives what is not stored: its expressions over the columns of the table.
    pub fn bind(&mut self, table: &Table) -> Result<()> {
        self.bound = IndexKeys::bind(table, self)?.map(Arc::new);
        self.inverted = None;
        if let Some(values) = self.bound.as_ref().filter(|_| !self.method.is_ordered()) {
            let classes = values.keys.iter().enumerate();
            let classes = classes.map(|(at, k)| self.method.key_class(k.ty, self.class(at)));
            self.inverted = Some(Arc::new(Inverted {
                values: values.clone(),
                classes: classes.collect::<Result<_>>()?,
            }));
        }
        Ok(())
    }

    /// Whether it may be read: it has an entry of every row.
    pub fn is_valid(&self) -> bool {
        self.stage == Stage::Valid
    }

    /// Whether it may be read in the order of its keys.
    pub fn is_valid_order(&self) -> bool {
        self.is_valid() && self.method.is_ordered()
    }

    /// Whether a key has one row at most at every moment, so that one row is all that a look-up
    /// can find.
    pub fn is_unique_now(&self) -> bool {
        self.unique && !self.deferrable
    }

    /// The type of a column of the key.
    pub fn type_of(&self, table: &Table, at: usize) -> SqlType {
        match &self.bound {
            Some(bound) => bound.keys[at].ty,
            None => table.columns[self.keys[at].column].ty(),
        }
    }

    /// What errors and plans call a column of the key: a column of the table, or an expression as
    /// it is written out.
    pub fn key_text(&self, table: &Table, at: usize) -> String {
        match self.expression(at) {
            Some(e) => crate::views::definition::key(Shown::Bare, table, &e.text, true),
            None => table.columns[self.keys[at].column].name.clone(),
        }
    }

    /// The expression that a column of the key is, if it is one.
    pub fn expression(&self, at: usize) -> Option<&IndexExpression> {
        if !self.keys.get(at)?.is_expression() {
            return None;
        }
        let before = self.keys[..at].iter().filter(|k| k.is_expression());
        self.expressions.get(before.count())
    }

    /// Whether it names a column of its table.
    pub fn uses(&self, column: usize) -> bool {
        let in_key = match &self.bound {
            Some(bound) => bound.uses(column),
            None => self.keys.iter().any(|k| k.column == column),
        };
        in_key || self.included.contains(&column)
    }

    /// The operator class of a column of the key; empty if it is the default.
    pub fn class(&self, at: usize) -> &str {
        self.classes.get(at).map_or("", String::as_str)
    }

    /// The texts of all expressions that the index is made with.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let expressions = self.expressions.iter_mut();
        let expressions = expressions.flat_map(|e| [&mut e.text].into_iter().chain(&mut e.inlined));
        let condition = self.predicate.iter_mut().chain(&mut self.inlined);
        expressions.chain(condition)
    }

    /// The key of a row, if the index has the row.
    pub fn key_of(&self, row: &[DatumRef<'_>]) -> Result<Option<Vec<Datum>>> {
        match &self.bound {
            Some(bound) => bound.of(row),
            None => {
                let values = self.keys.iter().map(|k| row[k.column].to_datum());
                Ok(Some(values.collect()))
            }
        }
    }

    pub fn engine(&self) -> IndexDef {
        let column = |k: &IndexKey| IndexColumn {
            column: k.column,
            descending: k.descending,
            nulls_first: k.nulls_first,
        };
        IndexDef {
            object: ObjectId(self.segment),
            header: Dba(self.header),
            columns: self.keys.iter().map(column).collect(),
            unique: self.unique,
            name: self.name.clone(),
            created: Scn(self.created),
            rules: IndexRules {
                stage: self.stage.engine(),
                deferrable: self.deferrable,
                nulls_not_distinct: self.nulls_not_distinct,
                computed: self
                    .bound
                    .clone()
                    .filter(|_| self.inverted.is_none())
                    .map(|bound| bound as Arc<dyn ComputedKey>),
                inverted: (self.inverted.clone()).map(|keys| keys as Arc<dyn InvertedKeys>),
            },
        }
    }
}

impl Sequence {
    pub fn engine(&self) -> engine::SequenceDef {
        let segment = if self.segment == 0 {
            self.oid
        } else {
            self.segment
        };
        engine::SequenceDef {
            object: ObjectId(segment),
            header: Dba(self.header),
        }
    }
}

/// Numbers of kinds, as rows of the dictionary's table have them.
pub mod kind {
    pub const TABLE: i16 = 1;
    pub const SEQUENCE: i16 = 2;
    pub const STATS: i16 = 3;
    pub const ROLE: i16 = 4;
    pub const DOOR: i16 = 5;
    pub const SCHEMA: i16 = 6;
    pub const VIEW: i16 = 7;
    pub const FUNCTION: i16 = 8;
    pub const TYPE: i16 = 9;
    pub const CAST: i16 = 11;
    pub const ACL: i16 = 20;
    pub const DEFAULT_PRIVILEGES: i16 = 21;
    pub const EXTENSION: i16 = 30;
    /// No definition, but which were changed: see [`crate::dict::log`].
    pub const CHANGES: i16 = 100;
}

impl Object {
    pub fn kind(&self) -> i16 {
        match self {
            Object::Table(_) => kind::TABLE,
            Object::Sequence(_) => kind::SEQUENCE,
            Object::Stats(_) => kind::STATS,
            Object::Role(_) => kind::ROLE,
            Object::Door(_) => kind::DOOR,
            Object::Schema(_) => kind::SCHEMA,
            Object::View(_) => kind::VIEW,
            Object::Function(_) => kind::FUNCTION,
            Object::Type(_) => kind::TYPE,
            Object::Cast(_) => kind::CAST,
            Object::Acl(_) => kind::ACL,
            Object::DefaultPrivileges(_) => kind::DEFAULT_PRIVILEGES,
            Object::Extension(_) => kind::EXTENSION,
        }
    }

    pub fn key(&self) -> i64 {
        match self {
            Object::Table(t) => t.oid.into(),
            Object::Sequence(s) => s.oid.into(),
            Object::Stats(s) => super::stats_key(s.table),
            Object::Role(r) => r.oid.into(),
            Object::Door(_) => role::DOOR.into(),
            Object::Schema(s) => s.oid.into(),
            Object::View(v) => v.oid.into(),
            Object::Function(f) => f.oid.into(),
            Object::Type(t) => t.oid.into(),
            Object::Cast(c) => c.oid.into(),
            Object::Acl(a) => a.oid.into(),
            Object::DefaultPrivileges(d) => d.oid.into(),
            Object::Extension(e) => e.oid.into(),
        }
    }

    /// The role that owns it, of what has an owner.
    pub fn owner(&self) -> Option<u32> {
        match self {
            Object::Table(t) => Some(t.owner),
            Object::Sequence(s) => Some(s.role),
            Object::Schema(s) => Some(s.owner),
            Object::View(v) => Some(v.owner),
            Object::Function(f) => Some(f.owner),
            Object::Type(t) => Some(t.owner),
            Object::Extension(e) => Some(e.owner),
            Object::Stats(_) | Object::Role(_) | Object::Door(_) => None,
            Object::Cast(_) | Object::Acl(_) | Object::DefaultPrivileges(_) => None,
        }
    }

    /// The segments that it has.
    pub fn segments(&self) -> Vec<ObjectId> {
        let all = match self {
            Object::Table(t) => std::iter::once(t.segment)
                .chain(t.indexes.iter().map(|i| i.segment))
                .collect(),
            Object::Sequence(s) => vec![s.engine().object.0],
            Object::Stats(_) | Object::Role(_) | Object::Door(_) | Object::Schema(_) => Vec::new(),
            Object::Function(_) | Object::Type(_) | Object::View(_) => Vec::new(),
            Object::Cast(_)
            | Object::Extension(_)
            | Object::Acl(_)
            | Object::DefaultPrivileges(_) => Vec::new(),
        };
        all.into_iter().map(ObjectId).collect()
    }

    /// Whether it is the very same object.
    pub fn is(&self, other: &Object) -> bool {
        match (self, other) {
            (Object::Table(a), Object::Table(b)) => Arc::ptr_eq(a, b),
            (Object::Sequence(a), Object::Sequence(b)) => Arc::ptr_eq(a, b),
            (Object::Stats(a), Object::Stats(b)) => Arc::ptr_eq(a, b),
            (Object::Role(a), Object::Role(b)) => Arc::ptr_eq(a, b),
            (Object::Door(a), Object::Door(b)) => Arc::ptr_eq(a, b),
            (Object::Schema(a), Object::Schema(b)) => Arc::ptr_eq(a, b),
            (Object::View(a), Object::View(b)) => Arc::ptr_eq(a, b),
            (Object::Function(a), Object::Function(b)) => Arc::ptr_eq(a, b),
            (Object::Type(a), Object::Type(b)) => Arc::ptr_eq(a, b),
            (Object::Cast(a), Object::Cast(b)) => Arc::ptr_eq(a, b),
            (Object::Acl(a), Object::Acl(b)) => Arc::ptr_eq(a, b),
            (Object::DefaultPrivileges(a), Object::DefaultPrivileges(b)) => Arc::ptr_eq(a, b),
            (Object::Extension(a), Object::Extension(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The relation names the object takes.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Object::Table(t) => std::iter::once(t.name.as_str())
                .chain(t.indexes.iter().map(|i| i.name.as_str()))
                .collect(),
            Object::Sequence(s) => vec![&s.name],
            Object::View(v) => vec![&v.name],
            Object::Stats(_) | Object::Role(_) | Object::Door(_) => Vec::new(),
            Object::Schema(_) | Object::Function(_) | Object::Type(_) => Vec::new(),
            Object::Cast(_)
            | Object::Extension(_)
            | Object::Acl(_)
            | Object::DefaultPrivileges(_) => Vec::new(),
        }
    }

    /// The schema of these names; zero if it has none.
    pub fn schema(&self) -> u32 {
        match self {
            Object::Table(t) => t.schema,
            Object::Sequence(s) => s.schema,
            Object::View(v) => v.schema,
            Object::Type(t) => t.schema,
            Object::Stats(_) | Object::Role(_) | Object::Door(_) => 0,
            Object::Schema(_) | Object::Function(_) => 0,
            Object::Cast(_)
            | Object::Extension(_)
            | Object::Acl(_)
            | Object::DefaultPrivileges(_) => 0,
        }
    }

    pub fn encode(&self) -> Result<Vec<u8>> {
        let stored = match self {
            Object::Table(t) => Stored::Table(Table::clone(t)),
            Object::Sequence(s) => Stored::Sequence(Sequence::clone(s)),
            Object::Stats(s) => Stored::Stats(Stats::clone(s)),
            Object::Role(r) => Stored::Role(Role::clone(r)),
            Object::Door(d) => Stored::Door(Door::clone(d)),
            Object::Schema(s) => Stored::Schema(Schema::clone(s)),
            Object::View(v) => Stored::View(View::clone(v)),
            Object::Function(f) => Stored::Function(Function::clone(f)),
            Object::Type(t) => Stored::Type(UserType::clone(t)),
            Object::Cast(c) => Stored::Cast(Cast::clone(c)),
            Object::Acl(a) => Stored::Acl(Acl::clone(a)),
            Object::DefaultPrivileges(d) => Stored::DefaultPrivileges(DefaultPrivileges::clone(d)),
            Object::Extension(e) => Stored::Extension(Extension::clone(e)),
        };
        let bytes = serde_json::to_vec(&stored)
            .map_err(|e| Error::internal(format!("encoding a definition: {e}")))?;
        // What cannot be read again would keep the instance from starting.
        debug_assert!(
            Stored::read(&bytes).is_ok(),
            "a definition is not read as written"
        );
        Ok(bytes)
    }
}

impl Stored {
    pub(super) fn read(bytes: &[u8]) -> Result<Stored> {
        serde_json::from_slice(bytes).map_err(|e| {
            Error::new(
                "XX001",
                format!("damaged definition in the dictionary: {e}"),
            )
        })
    }

    /// Whether what the types of columns are depends on it.
    pub(super) fn is_of_types(&self) -> bool {
        matches!(self, Stored::Schema(_) | Stored::Type(_))
    }

    /// `types`: what numbers of users' types mean.
    pub(super) fn known(self, types: &dyn Fn(u32) -> Option<SqlType>) -> Result<Object> {
        Ok(match self {
            Stored::Table(mut t) => {
                for c in &mut t.columns {
                    c.known = types(c.type_oid);
                }
                Object::Table(Arc::new(t.finish()?))
            }
            Stored::Sequence(s) => Object::Sequence(Arc::new(s)),
            Stored::Stats(s) => Object::Stats(Arc::new(s)),
            Stored::Role(r) => Object::Role(Arc::new(r)),
            Stored::Door(d) => Object::Door(Arc::new(d)),
            Stored::Schema(s) => Object::Schema(Arc::new(s)),
            Stored::View(mut v) => {
                for c in &mut v.columns {
                    c.known = types(c.type_oid);
                }
                Object::View(Arc::new(v))
            }
            Stored::Type(t) => Object::Type(Arc::new(t)),
            Stored::Cast(c) => Object::Cast(Arc::new(c)),
            Stored::Acl(a) => Object::Acl(Arc::new(a)),
            Stored::DefaultPrivileges(d) => Object::DefaultPrivileges(Arc::new(d)),
            Stored::Extension(e) => Object::Extension(Arc::new(e)),
            Stored::Function(f) => {
                let known = f.retyped(types);
                Object::Function(Arc::new(known.unwrap_or(f)))
            }
        })
    }
}
