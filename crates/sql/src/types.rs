//! SQL types as clients see them: PostgreSQL's OIDs, names, lengths and type modifiers, and how each is stored.

pub mod call_types;
pub mod composite;
pub mod domains;
pub mod enums;
pub mod facts;
pub mod own;
pub mod ranges;

use std::collections::HashMap;
use std::sync::LazyLock;

use block::value::ColType;

use crate::error::{Error, Result};
use crate::pgtype::interval;
use composite::CompositeType;
use domains::DomainType;
use enums::EnumType;
use own::{Kind, OwnType};
use ranges::{RangeOf, RangeType};

// It is part of every expression and of every column that is described.
const _: () = assert!(size_of::<SqlType>() == 16);

/// A type without its modifier. `Unknown` is the type of a quoted literal before its context gives it one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SqlType {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Varchar,
    /// `character(n)`, PostgreSQL's `bpchar`.
    Char,
    Bytea,
    Date,
    Timestamp,
    TimestampTz,
    /// Of day, without time zone; stored as an integer, microseconds since midnight.
    Time,
    Interval,
    Uuid,
    Oid,
    /// The number of an object, written as its name.
    Reg(Reg),
    /// Of a transaction.
    Xid,
    /// The place of a row: `block << 16 | slot`.
    Tid,
    /// PostgreSQL's `"char"`, one byte, of which catalogs have many.
    InternalChar,
    /// Arrays of one dimension that count from zero, which catalogs have.
    Int2Vector,
    OidVector,
    Name,
    /// The name of a cursor.
    Refcursor,
    Unknown,
    Void,
    /// A row of an element and its place, `x` and `n`, both integers.
    Expanded,
    /// Text that was checked to be json, and is kept as it was written.
    Json,
    Jsonb,
    /// Bit strings; without a length in a definition of one bit.
    Bit,
    Varbit,
    /// Addresses of hosts, and of networks.
    Inet,
    Cidr,
    /// Addresses of network cards, of six and of eight octets.
    MacAddr,
    MacAddr8,
    /// Of day, with its time zone.
    TimeTz,
    /// An integer of a hundredth.
    Money,
    /// A position in the log, as an integer in the order of positions ([`crate::pgtype::lsn`]).
    PgLsn,
    /// A path into documents, kept as the text that PostgreSQL writes.
    JsonPath,
    /// A point of a plane, and a rectangle of it ([`crate::pgtype::geometry`]).
    Point,
    Rectangle,
    Range(RangeOf),
    /// Of several ranges of a type.
    Multirange(RangeOf),
    /// Of elements of another type, in any number of dimensions.
    Array(Element),
    /// Made by a user.
    Enum(EnumType),
    /// What something is declared as; no expression is of it (see [`domains`]).
    Domain(DomainType),
    /// A row: a record, or of a type that has a name.
    Composite(CompositeType),
    /// Of an extension.
    Own(OwnType),
}

/// What an object is whose number is written as its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reg {
    Class,
    Type,
    Proc,
    Procedure,
    Namespace,
    Role,
    Oper,
    Operator,
}

/// The type of the elements of arrays: any but arrays themselves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Element(Of);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Of {
    /// Its place in [`SqlType::ALL`].
    BuiltIn(u8),
    Enum(EnumType),
    Domain(DomainType),
    Composite(CompositeType),
    Own(OwnType),
    /// Made by a user.
    Range(RangeType),
    Multirange(RangeType),
}

impl Element {
    /// `None` if there are no arrays of the type.
    pub fn of(ty: SqlType) -> Option<Element> {
        match ty {
            SqlType::Enum(e) => return Some(Element(Of::Enum(e))),
            SqlType::Composite(c) => return Some(Element(Of::Composite(c))),
            SqlType::Own(o) => return Some(Element(Of::Own(o))),
            SqlType::Range(RangeOf::Own(r)) => return Some(Element(Of::Range(r))),
            SqlType::Multirange(RangeOf::Own(r)) => return Some(Element(Of::Multirange(r))),
            _ => {}
        }
        if let SqlType::Domain(d) = ty {
            // Arrays of arrays are not stored.
            let plain = !matches!(d.def().base, SqlType::Array(_));
            return plain.then_some(Element(Of::Domain(d)));
        }
        let has_arrays = ty.array_oid() != 0 && ty != SqlType::Unknown;
        let at = SqlType::ALL.iter().position(|t| *t == ty);
        at.filter(|_| has_arrays)
            .map(|at| Element(Of::BuiltIn(at as u8)))
    }

    pub fn ty(self) -> SqlType {
        match self.0 {
            Of::BuiltIn(at) => SqlType::ALL[usize::from(at)],
            Of::Enum(e) => SqlType::Enum(e),
            Of::Domain(d) => SqlType::Domain(d),
            Of::Composite(c) => SqlType::Composite(c),
            Of::Own(o) => SqlType::Own(o),
            Of::Range(r) => SqlType::Range(RangeOf::Own(r)),
            Of::Multirange(r) => SqlType::Multirange(RangeOf::Own(r)),
        }
    }

    /// The names of its arrays, in messages and in the catalog.
    fn array_names(self) -> (&'static str, &'static str) {
        static NAMES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
            let names =
                |t: &SqlType| (format!("{}[]", t.name()), format!("_{}", t.internal_name()));
            SqlType::ALL.iter().map(names).collect()
        });
        match self.0 {
            Of::BuiltIn(at) => {
                let (name, internal) = &NAMES[usize::from(at)];
                (name, internal)
            }
            Of::Enum(e) => (&e.def().names[1], &e.def().internal_names[1]),
            Of::Domain(d) => (&d.def().names[1], &d.def().internal_names[1]),
            Of::Composite(c) => (&c.def().names[1], &c.def().internal_names[1]),
            Of::Own(o) => (&o.def().names[1], &o.def().internal_names[1]),
            Of::Range(r) => (&r.def().names[1], &r.def().internal_names[1]),
            Of::Multirange(r) => {
                let def = r.def();
                (&def.multirange_names[1], &def.multirange_internal_names[1])
            }
        }
    }
}

impl SqlType {
    /// All but arrays.
    pub const ALL: [SqlType; 61] = [
        SqlType::Bool,
        SqlType::Int2,
        SqlType::Int4,
        SqlType::Int8,
        SqlType::Float4,
        SqlType::Float8,
        SqlType::Numeric,
        SqlType::Text,
        SqlType::Varchar,
        SqlType::Char,
        SqlType::Bytea,
        SqlType::Date,
        SqlType::Timestamp,
        SqlType::TimestampTz,
        SqlType::Time,
        SqlType::Interval,
        SqlType::Uuid,
        SqlType::Oid,
        SqlType::Reg(Reg::Class),
        SqlType::Reg(Reg::Type),
        SqlType::Reg(Reg::Proc),
        SqlType::Reg(Reg::Procedure),
        SqlType::Reg(Reg::Namespace),
        SqlType::Reg(Reg::Role),
        SqlType::Reg(Reg::Oper),
        SqlType::Reg(Reg::Operator),
        SqlType::Xid,
        SqlType::Tid,
        SqlType::InternalChar,
        SqlType::Int2Vector,
        SqlType::OidVector,
        SqlType::Name,
        SqlType::Refcursor,
        SqlType::Unknown,
        SqlType::Void,
        SqlType::Json,
        SqlType::Jsonb,
        SqlType::Bit,
        SqlType::Varbit,
        SqlType::Inet,
        SqlType::Cidr,
        SqlType::MacAddr,
        SqlType::MacAddr8,
        SqlType::TimeTz,
        SqlType::Money,
        SqlType::PgLsn,
        SqlType::JsonPath,
        SqlType::Point,
        SqlType::Rectangle,
        SqlType::Range(RangeOf::Int4),
        SqlType::Range(RangeOf::Int8),
        SqlType::Range(RangeOf::Numeric),
        SqlType::Range(RangeOf::Date),
        SqlType::Range(RangeOf::Timestamp),
        SqlType::Range(RangeOf::TimestampTz),
        SqlType::Multirange(RangeOf::Int4),
        SqlType::Multirange(RangeOf::Int8),
        SqlType::Multirange(RangeOf::Numeric),
        SqlType::Multirange(RangeOf::Date),
        SqlType::Multirange(RangeOf::Timestamp),
        SqlType::Multirange(RangeOf::TimestampTz),
    ];

    /// Arrays that columns of catalogs are of.
    pub const TEXTS: SqlType = SqlType::arrays_of(SqlType::Text);
    pub const NAMES: SqlType = SqlType::arrays_of(SqlType::Name);
    pub const OIDS: SqlType = SqlType::arrays_of(SqlType::Oid);
    pub const REGTYPES: SqlType = SqlType::arrays_of(SqlType::Reg(Reg::Type));
    pub const INT2S: SqlType = SqlType::arrays_of(SqlType::Int2);
    pub const INT4S: SqlType = SqlType::arrays_of(SqlType::Int4);

    pub const FLOAT8S: SqlType = SqlType::arrays_of(SqlType::Float8);
    pub const FLOAT4S: SqlType = SqlType::arrays_of(SqlType::Float4);
    pub const INTERNAL_CHARS: SqlType = SqlType::arrays_of(SqlType::InternalChar);

    const fn arrays_of(ty: SqlType) -> SqlType {
        let mut at = 0;
        while SqlType::ALL[at].oid() != ty.oid() {
            at += 1;
        }
        SqlType::Array(Element(Of::BuiltIn(at as u8)))
    }

    pub const fn oid(self) -> u32 {
        match self {
            SqlType::Bool => 16,
            SqlType::Bytea => 17,
            SqlType::Name => 19,
            SqlType::Refcursor => 1790,
            SqlType::Int8 => 20,
            SqlType::Int2 => 21,
            SqlType::Int4 => 23,
            SqlType::Text => 25,
            SqlType::Oid => 26,
            SqlType::InternalChar => 18,
            SqlType::Int2Vector => 22,
            SqlType::Reg(Reg::Proc) => 24,
            SqlType::Xid => 28,
            SqlType::Tid => 27,
            SqlType::OidVector => 30,
            SqlType::Reg(Reg::Procedure) => 2202,
            SqlType::Reg(Reg::Class) => 2205,
            SqlType::Reg(Reg::Type) => 2206,
            SqlType::Reg(Reg::Namespace) => 4089,
            SqlType::Reg(Reg::Role) => 4096,
            SqlType::Reg(Reg::Oper) => 2203,
            SqlType::Reg(Reg::Operator) => 2204,
            SqlType::Json => 114,
            SqlType::Jsonb => 3802,
            SqlType::Float4 => 700,
            SqlType::Float8 => 701,
            SqlType::Unknown => 705,
            SqlType::Char => 1042,
            SqlType::Varchar => 1043,
            SqlType::Date => 1082,
            SqlType::Time => 1083,
            SqlType::Timestamp => 1114,
            SqlType::TimestampTz => 1184,
            SqlType::Interval => 1186,
            SqlType::Numeric => 1700,
            SqlType::Void => 2278,
            SqlType::Expanded => 2249,
            SqlType::Uuid => 2950,
            SqlType::Array(Element(Of::BuiltIn(at))) => SqlType::ALL[at as usize].array_oid(),
            SqlType::Array(Element(Of::Enum(e))) => e.0.array_oid,
            SqlType::Array(Element(Of::Domain(d))) => d.0.array_oid,
            SqlType::Enum(e) => e.0.oid,
            SqlType::Domain(d) => d.0.oid,
            SqlType::Array(Element(Of::Composite(c))) => c.0.array_oid,
            SqlType::Composite(c) => c.0.oid,
            SqlType::Array(Element(Of::Own(o))) => o.0.array_oid,
            SqlType::Own(o) => o.0.oid,
            SqlType::Array(Element(Of::Range(r))) => r.0.oids[1],
            SqlType::Array(Element(Of::Multirange(r))) => r.0.multirange_oids[1],
            other => facts::known(other).oid,
        }
    }

    /// The OID of the type's arrays; zero if it has none.
    pub const fn array_oid(self) -> u32 {
        match self {
            SqlType::Json => 199,
            SqlType::Jsonb => 3807,
            SqlType::Bool => 1000,
            SqlType::Bytea => 1001,
            SqlType::Name => 1003,
            SqlType::Refcursor => 2201,
            SqlType::Int2 => 1005,
            SqlType::Int4 => 1007,
            SqlType::Text | SqlType::Unknown => 1009,
            SqlType::Char => 1014,
            SqlType::Varchar => 1015,
            SqlType::Int8 => 1016,
            SqlType::Float4 => 1021,
            SqlType::Float8 => 1022,
            SqlType::Oid => 1028,
            SqlType::Timestamp => 1115,
            SqlType::Date => 1182,
            SqlType::Time => 1183,
            SqlType::TimestampTz => 1185,
            SqlType::Interval => 1187,
            SqlType::Numeric => 1231,
            SqlType::Uuid => 2951,
            SqlType::InternalChar => 1002,
            SqlType::Reg(Reg::Proc) => 1008,
            SqlType::Xid => 1011,
            SqlType::Tid => 1010,
            SqlType::Reg(Reg::Procedure) => 2207,
            SqlType::Reg(Reg::Class) => 2210,
            SqlType::Reg(Reg::Type) => 2211,
            SqlType::Reg(Reg::Namespace) => 4090,
            SqlType::Reg(Reg::Role) => 4097,
            SqlType::Reg(Reg::Oper) => 2208,
            SqlType::Reg(Reg::Operator) => 2209,
            SqlType::Void | SqlType::Array(_) | SqlType::Expanded => 0,
            SqlType::Enum(e) => e.0.array_oid,
            SqlType::Domain(d) => d.0.array_oid,
            SqlType::Composite(c) => c.0.array_oid,
            SqlType::Own(o) => o.0.array_oid,
            // Arrays of arrays are not stored.
            SqlType::Int2Vector | SqlType::OidVector => 0,
            other => facts::known(other).array_oid,
        }
    }

    /// The type of the database's own whose values are stored alike, of one that a user made.
    pub fn stored_as(self) -> SqlType {
        match self {
            SqlType::Enum(_) => SqlType::Int8,
            SqlType::Domain(_) => self.base().stored_as(),
            SqlType::Composite(_) | SqlType::Range(RangeOf::Own(_)) => {
                SqlType::Composite(CompositeType::any())
            }
            SqlType::Multirange(RangeOf::Own(_)) => {
                let record = SqlType::Composite(CompositeType::any());
                record.array().unwrap_or(self)
            }
            SqlType::Array(element) => element.ty().stored_as().array().unwrap_or(self),
            ty => ty,
        }
    }

    /// Whether it is one of the database's own, so that [`SqlType::stored_as`] is the same.
    #[inline]
    pub fn is_stored_as_itself(self) -> bool {
        match self {
            SqlType::Enum(_) | SqlType::Domain(_) | SqlType::Composite(_) | SqlType::Array(_) => {
                self.stored_as() == self
            }
            SqlType::Range(of) | SqlType::Multirange(of) => of.own().is_none(),
            _ => true,
        }
    }

    /// Whether it is the very same state of a type.
    pub fn is_state(self, other: SqlType) -> bool {
        match (self, other) {
            (SqlType::Enum(a), SqlType::Enum(b)) => a.is_state(b),
            (SqlType::Domain(a), SqlType::Domain(b)) => a.is_state(b),
            (SqlType::Composite(a), SqlType::Composite(b)) => a.is_state(b),
            (SqlType::Own(a), SqlType::Own(b)) => a.is_state(b),
            (SqlType::Range(a), SqlType::Range(b))
            | (SqlType::Multirange(a), SqlType::Multirange(b)) => a.is_state(b),
            (SqlType::Array(a), SqlType::Array(b)) if a == b => a.ty().is_state(b.ty()),
            _ => self == other,
        }
    }

    /// The type of the elements of the arrays with that OID.
    pub fn of_array(oid: u32) -> Option<SqlType> {
        let mut with_arrays = SqlType::ALL
            .into_iter()
            .filter(|t| Element::of(*t).is_some());
        with_arrays.find(|t| t.array_oid() == oid)
    }

    /// The type of arrays of it.
    pub fn array(self) -> Option<SqlType> {
        Element::of(self).map(SqlType::Array)
    }

    /// The type that every database has under this number.
    pub fn from_oid(oid: u32) -> Option<SqlType> {
        static KNOWN: LazyLock<HashMap<u32, SqlType>> = LazyLock::new(|| {
            let numbers = SqlType::ALL
                .into_iter()
                .flat_map(|t| [t.oid(), t.array_oid()]);
            let record = SqlType::Composite(CompositeType::any());
            let records = record.array().map_or(0, SqlType::oid);
            let numbers = numbers.chain([record.oid(), records]);
            numbers
                .filter_map(|oid| Some((oid, SqlType::looked_for(oid)?)))
                .collect()
        });
        KNOWN.get(&oid).copied()
    }

    fn looked_for(oid: u32) -> Option<SqlType> {
        let found = SqlType::ALL.into_iter().find(|t| t.oid() == oid);
        let record = || {
            let record = SqlType::Composite(CompositeType::any());
            match oid == record.oid() {
                true => Some(record),
                false => record.array().filter(|records| records.oid() == oid),
            }
        };
        let array = || SqlType::of_array(oid)?.array();
        found.or_else(array).or_else(record)
    }

    /// Bytes of the type in PostgreSQL's catalog; -1 for variable length, -2 for a C string.
    pub fn typlen(self) -> i16 {
        match self {
            SqlType::Bool | SqlType::InternalChar => 1,
            SqlType::Int2 => 2,
            SqlType::Reg(_) | SqlType::Xid | SqlType::Enum(_) => 4,
            SqlType::Tid => 6,
            SqlType::Int4 | SqlType::Oid | SqlType::Float4 | SqlType::Date | SqlType::Void => 4,
            SqlType::Int8 | SqlType::Float8 => 8,
            SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time => 8,
            SqlType::Uuid | SqlType::Interval => 16,
            SqlType::Name => 64,
            SqlType::Unknown => -2,
            SqlType::Domain(d) => d.def().base.typlen(),
            other => other.facts().map_or(-1, |f| f.len),
        }
    }

    /// The name in messages, as PostgreSQL's `format_type` spells it.
    pub fn name(self) -> &'static str {
        match self {
            SqlType::Bool => "boolean",
            SqlType::Int2 => "smallint",
            SqlType::Int4 => "integer",
            SqlType::Int8 => "bigint",
            SqlType::Float4 => "real",
            SqlType::Float8 => "double precision",
            SqlType::Numeric => "numeric",
            SqlType::Text => "text",
            SqlType::Varchar => "character varying",
            SqlType::Char => "character",
            SqlType::Bytea => "bytea",
            SqlType::Date => "date",
            SqlType::Timestamp => "timestamp without time zone",
            SqlType::TimestampTz => "timestamp with time zone",
            SqlType::Time => "time without time zone",
            SqlType::Interval => "interval",
            SqlType::Uuid => "uuid",
            SqlType::Json => "json",
            SqlType::Jsonb => "jsonb",
            SqlType::Oid => "oid",
            SqlType::Reg(Reg::Class) => "regclass",
            SqlType::Reg(Reg::Type) => "regtype",
            SqlType::Reg(Reg::Proc) => "regproc",
            SqlType::Reg(Reg::Procedure) => "regprocedure",
            SqlType::Reg(Reg::Namespace) => "regnamespace",
            SqlType::Reg(Reg::Role) => "regrole",
            SqlType::Reg(Reg::Oper) => "regoper",
            SqlType::Reg(Reg::Operator) => "regoperator",
            SqlType::Xid => "xid",
            SqlType::Tid => "tid",
            SqlType::InternalChar => "\"char\"",
            SqlType::Int2Vector => "int2vector",
            SqlType::OidVector => "oidvector",
            SqlType::Name => "name",
            SqlType::Refcursor => "refcursor",
            SqlType::Unknown => "unknown",
            SqlType::Void => "void",
            SqlType::Expanded => "record",
            SqlType::Array(element) => element.array_names().0,
            SqlType::Enum(e) => &e.def().names[0],
            SqlType::Domain(d) => &d.def().names[0],
            SqlType::Composite(c) => &c.def().names[0],
            SqlType::Own(o) => &o.def().names[0],
            other => facts::known(other).name,
        }
    }

    /// The name in the catalog, `pg_type.typname`, which is also that of columns made by casts.
    pub fn internal_name(self) -> &'static str {
        match self {
            SqlType::Bool => "bool",
            SqlType::Int2 => "int2",
            SqlType::Int4 => "int4",
            SqlType::Int8 => "int8",
            SqlType::Float4 => "float4",
            SqlType::Float8 => "float8",
            SqlType::Varchar => "varchar",
            SqlType::Char => "bpchar",
            SqlType::Timestamp => "timestamp",
            SqlType::TimestampTz => "timestamptz",
            SqlType::Time => "time",
            SqlType::InternalChar => "char",
            SqlType::Array(element) => element.array_names().1,
            SqlType::Enum(e) => &e.def().internal_names[0],
            SqlType::Domain(d) => &d.def().internal_names[0],
            SqlType::Composite(c) => &c.def().internal_names[0],
            SqlType::Own(o) => &o.def().internal_names[0],
            other => match other.facts() {
                Some(facts) => facts.internal_name,
                None => other.name(),
            },
        }
    }

    pub fn is_citext(self) -> bool {
        matches!(self, SqlType::Own(o) if o.kind() == Kind::Citext)
    }

    pub fn is_hstore(self) -> bool {
        matches!(self, SqlType::Own(o) if o.kind() == Kind::Hstore)
    }

    /// Whether parameters of the session decide on the text form.
    pub fn has_styles(self) -> bool {
        use SqlType::{Bytea, Date, Float4, Float8, Interval, Timestamp, TimestampTz};
        let ty = match self {
            SqlType::Range(of) | SqlType::Multirange(of) => of.subtype(),
            ty => ty,
        };
        matches!(
            ty,
            Date | Timestamp | TimestampTz | Interval | Float4 | Float8 | Bytea
        )
    }

    pub fn is_string(self) -> bool {
        matches!(
            self,
            SqlType::Text | SqlType::Varchar | SqlType::Char | SqlType::Name | SqlType::Unknown
        )
    }

    pub fn is_number(self) -> bool {
        self.number_rank().is_some()
    }

    /// Whether there are values an interval away from each.
    pub fn is_moved_by_intervals(self) -> bool {
        matches!(
            self,
            SqlType::Date
                | SqlType::Time
                | SqlType::Timestamp
                | SqlType::TimestampTz
                | SqlType::Interval
        )
    }

    /// Whether its values are integers, which compare with each other in any width.
    pub fn is_integer(self) -> bool {
        matches!(
            self,
            SqlType::Int2
                | SqlType::Int4
                | SqlType::Int8
                | SqlType::Oid
                | SqlType::Reg(_)
                | SqlType::Xid
        )
    }

    /// The type of the elements, also of a vector.
    pub fn element(self) -> Option<SqlType> {
        match self {
            SqlType::Array(element) => Some(element.ty()),
            SqlType::Int2Vector => Some(SqlType::Int2),
            SqlType::OidVector => Some(SqlType::Oid),
            _ => None,
        }
    }

    /// Place in PostgreSQL's order of implicit promotion among numbers.
    pub fn number_rank(self) -> Option<u8> {
        Some(match self {
            SqlType::Int2 => 1,
            SqlType::Int4 => 2,
            SqlType::Oid => 3,
            SqlType::Int8 => 4,
            SqlType::Numeric => 5,
            SqlType::Float4 => 6,
            SqlType::Float8 => 7,
            _ => return None,
        })
    }

    /// `numeric(12,2)`, `character varying(20)`: the name with its modifier.
    pub fn format(self, typmod: i32) -> String {
        match (self, typmod) {
            (SqlType::Varchar | SqlType::Char, m) if m >= 4 => {
                format!("{}({})", self.name(), m - 4)
            }
            (SqlType::Numeric, m) if m >= 4 => {
                let (precision, scale) = numeric_typmod(m);
                format!("numeric({precision},{scale})")
            }
            (SqlType::Timestamp, 0..) => format!("timestamp({typmod}) without time zone"),
            (SqlType::TimestampTz, 0..) => format!("timestamp({typmod}) with time zone"),
            (SqlType::Time, 0..) => format!("time({typmod}) without time zone"),
            (SqlType::TimeTz, 0..) => format!("time({typmod}) with time zone"),
            (SqlType::Bit | SqlType::Varbit, 0..) => format!("{}({typmod})", self.name()),
            (SqlType::Interval, 0..) => {
                let fields = interval::Modifier::unpacked(typmod).suffix();
                format!("interval{fields}")
            }
            (SqlType::Array(element), _) => format!("{}[]", element.ty().format(typmod)),
            _ => self.name().to_string(),
        }
    }
}

/// Digits after the point that the seconds of a timestamp have; its modifier says if they are fewer.
pub const MICROSECOND_DIGITS: i32 = 6;

/// Precision and scale in a numeric type modifier.
pub fn numeric_typmod(typmod: i32) -> (i32, i32) {
    let m = typmod - 4;
    (m >> 16 & 0xffff, ((m & 0x7ff) ^ 1024) - 1024)
}

/// How a column of the type is stored.
pub fn storage_type(ty: SqlType) -> Result<ColType> {
    Ok(match ty {
        SqlType::Bool => ColType::Bool,
        SqlType::Int2 => ColType::Int2,
        SqlType::Int4 => ColType::Int4,
        SqlType::Int8 | SqlType::Oid | SqlType::Time => ColType::Int8,
        SqlType::Reg(_) | SqlType::Xid | SqlType::Tid | SqlType::Enum(_) => ColType::Int8,
        SqlType::Domain(_) => storage_type(ty.base())?,
        SqlType::Interval => ColType::Interval,
        SqlType::Float4 => ColType::Float4,
        SqlType::Float8 => ColType::Float8,
        SqlType::Numeric => ColType::Numeric,
        SqlType::Text | SqlType::Name | SqlType::Refcursor | SqlType::InternalChar => ColType::Text,
        SqlType::Varchar => ColType::Varchar,
        SqlType::Char => ColType::Char,
        SqlType::Bytea => ColType::Bytea,
        SqlType::Bit | SqlType::Varbit | SqlType::Inet | SqlType::Cidr => ColType::Bytea,
        SqlType::Point | SqlType::Rectangle => ColType::Bytea,
        SqlType::MacAddr | SqlType::MacAddr8 | SqlType::TimeTz | SqlType::Money => ColType::Int8,
        SqlType::PgLsn => ColType::Int8,
        SqlType::Json | SqlType::JsonPath => ColType::Text,
        SqlType::Jsonb => ColType::Json,
        SqlType::Date => ColType::Date,
        SqlType::Timestamp => ColType::Timestamp,
        SqlType::TimestampTz => ColType::TimestampTz,
        SqlType::Uuid => ColType::Uuid,
        SqlType::Composite(_) | SqlType::Range(_) => ColType::Composite,
        SqlType::Multirange(_) => ColType::Array,
        SqlType::Own(o) => o.kind().stored(),
        SqlType::Array(_) | SqlType::Int2Vector | SqlType::OidVector => ColType::Array,
        SqlType::Unknown | SqlType::Void | SqlType::Expanded => {
            return Err(Error::new(
                "42P16",
                format!("a column cannot have pseudo-type {}", ty.name()),
            ));
        }
    })
}
