//! `pg_type`: the types of values, their arrays, and those that only catalogs mention.

use block::value::Datum;

use super::describe::{self, OWNER, PG_CATALOG};
use super::value::{NULL, bool, int2, int4, oid, optional, text};
use super::{Context, Rows, procedures};
use crate::ddl::index_class;
use crate::dict::Method;
use crate::error::Result;
use crate::types::SqlType;
use crate::types::composite::CompositeType;
use crate::types::ranges::RangeOf;

/// The subscript handlers of arrays, and of `name`.
const ARRAY_SUBSCRIPTS: u32 = 6179;
const RAW_SUBSCRIPTS: u32 = 6180;

/// What pg_type says of one type.
struct Type<'a> {
    oid: u32,
    /// What a user made: its schema and its owner.
    made: Option<(u32, u32)>,
    name: &'a str,
    len: i16,
    category: &'a str,
    is_multirange: bool,
    preferred: bool,
    subscripts: u32,
    element: u32,
    array: u32,
    functions: [u32; 4],
    align: &'a str,
    storage: &'a str,
    collation: u32,
    /// Of a composite type.
    relation: u32,
    domain: Option<DomainOf>,
}

/// What a domain has besides.
struct DomainOf {
    not_null: bool,
    base: u32,
    typmod: i32,
    default: Option<String>,
}

impl Type<'_> {
    fn row(self) -> Vec<Datum> {
        let by_value = matches!(self.len, 1 | 2 | 4 | 8) && self.oid != SqlType::MacAddr8.oid();
        let kind = match self.category {
            "P" => "p",
            _ if self.domain.is_some() => "d",
            "E" => "e",
            "R" if self.is_multirange => "m",
            "R" => "r",
            "C" => "c",
            _ => "b",
        };
        let (schema, owner) = self.made.unwrap_or((PG_CATALOG, OWNER));
        let [input, output, receive, send] = self.functions;
        let domain = self.domain.as_ref();
        let default = domain.and_then(|d| d.default.as_deref());
        vec![
            oid(self.oid),
            text(self.name),
            oid(schema),
            oid(owner),
            int2(self.len),
            bool(by_value),
            text(kind),
            text(self.category),
            bool(self.preferred),
            bool(true),
            text(","),
            oid(self.relation),
            oid(self.subscripts),
            oid(self.element),
            oid(self.array),
            oid(input),
            oid(output),
            oid(receive),
            oid(send),
            oid(0),
            oid(0),
            oid(0),
            text(self.align),
            text(self.storage),
            bool(domain.is_some_and(|d| d.not_null)),
            oid(domain.map_or(0, |d| d.base)),
            int4(domain.map_or(-1, |d| d.typmod)),
            int4(0),
            oid(self.collation),
            optional(default),
            optional(default),
            NULL,
        ]
    }

    fn of(ty: SqlType) -> Type<'static> {
        let (subscripts, element) = match ty {
            SqlType::Name => (RAW_SUBSCRIPTS, SqlType::InternalChar.oid()),
            ty => match ty.element() {
                Some(element) => (ARRAY_SUBSCRIPTS, element.oid()),
                None => (0, 0),
            },
        };
        let preferred = matches!(
            ty,
            SqlType::Bool
                | SqlType::Text
                | SqlType::Oid
                | SqlType::Float8
                | SqlType::TimestampTz
                | SqlType::Interval
                | SqlType::Varbit
                | SqlType::Inet
        );
        Type {
            oid: ty.oid(),
            made: None,
            name: ty.internal_name(),
            len: ty.typlen(),
            category: category(ty),
            is_multirange: matches!(ty, SqlType::Multirange(_)),
            preferred,
            subscripts,
            element,
            array: ty.array().map_or(0, SqlType::oid),
            functions: procedures::of_type(ty),
            align: align(ty),
            storage: storage(ty),
            collation: describe::collation(ty.base()),
            relation: 0,
            domain: None,
        }
    }
}

fn category(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Bool => "B",
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time => "D",
        SqlType::Interval => "T",
        SqlType::Bytea
        | SqlType::Uuid
        | SqlType::Xid
        | SqlType::Tid
        | SqlType::Json
        | SqlType::Jsonb => "U",
        SqlType::InternalChar => "Z",
        SqlType::Unknown => "X",
        SqlType::Void | SqlType::Expanded => "P",
        SqlType::Reg(_) => "N",
        SqlType::Enum(_) => "E",
        SqlType::Own(_) if ty.is_citext() => "S",
        SqlType::Own(_) => "U",
        SqlType::Domain(d) => category(d.def().base),
        SqlType::Composite(c) if c.is_record() => "P",
        SqlType::Composite(_) => "C",
        t if let Some(facts) = t.facts() => facts.category,
        t if t.element().is_some() => "A",
        t if t.is_number() => "N",
        _ => "S",
    }
}

/// How PostgreSQL aligns values: to 1, 2, 4 or 8 bytes.
pub fn align(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Domain(_) => align(ty.base()),
        SqlType::Range(of) | SqlType::Multirange(of) => match align(of.subtype()) {
            "d" => "d",
            _ => "i",
        },
        ty if let Some(facts) = ty.facts() => facts.align,
        SqlType::Array(element) if align(element.ty()) == "d" => "d",
        SqlType::Bool | SqlType::InternalChar | SqlType::Name | SqlType::Uuid => "c",
        SqlType::Unknown => "c",
        SqlType::Int2 => "s",
        SqlType::Int8 | SqlType::Float8 | SqlType::Time | SqlType::Interval => "d",
        SqlType::Composite(_) => "d",
        SqlType::Timestamp | SqlType::TimestampTz => "d",
        _ => "i",
    }
}

/// `p`lain, `m`ain or e`x`tended.
pub fn storage(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Numeric => "m",
        SqlType::Domain(_) => storage(ty.base()),
        ty if let Some(facts) = ty.facts() => facts.storage,
        SqlType::Int2Vector | SqlType::OidVector | SqlType::Unknown => "p",
        ty if ty.typlen() > 0 => "p",
        _ => "x",
    }
}

pub fn rows(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    let record = SqlType::Composite(CompositeType::any());
    for ty in SqlType::ALL.into_iter().chain([record]) {
        let both = [Some(ty), ty.array()].into_iter().flatten();
        let wanted = both.filter(|ty| cx.wants(ty.oid()));
        rows.extend(wanted.map(|ty| Type::of(ty).row()));
    }
    for t in cx.dict.user_types() {
        let made = Some((t.schema, t.owner));
        for oid in [t.oid, t.array_oid]
            .into_iter()
            .filter(|oid| cx.wants(*oid))
        {
            let ty = cx.dict.type_of(oid);
            let domain = t.domain.as_ref().filter(|_| oid == t.oid);
            let domain = domain.map(|d| DomainOf {
                not_null: d.not_null,
                base: d.base,
                typmod: d.typmod,
                default: super::domains::default(&cx.dict, d),
            });
            rows.extend(ty.map(|ty| {
                let composite = t.composite.as_ref().filter(|_| oid == t.oid);
                Type {
                    relation: composite.map_or(0, |c| c.relation),
                    made,
                    domain,
                    ..Type::of(ty)
                }
                .row()
            }));
        }
    }
    for t in cx.dict.tables() {
        let numbers = t.row_type.into_iter();
        for oid in numbers.filter(|oid| *oid != 0 && cx.wants(*oid)) {
            let ty = cx.dict.type_of(oid);
            rows.extend(ty.map(|ty| {
                Type {
                    relation: if oid == t.row_type[0] { t.oid } else { 0 },
                    made: Some((t.schema, t.owner)),
                    ..Type::of(ty)
                }
                .row()
            }));
        }
    }
    for (number, name, _) in describe::OTHER_TYPES {
        if !cx.wants(*number) {
            continue;
        }
        let of_element = describe::OTHER_TYPES
            .iter()
            .find(|(_, other, _)| name.strip_prefix('_') == Some(other));
        let array = describe::OTHER_TYPES
            .iter()
            .find(|(_, other, _)| other.strip_prefix('_') == Some(name));
        let (category, functions) = match (of_element, *name) {
            (Some(_), _) => ("A", procedures::of_type(SqlType::TEXTS)),
            (None, "pg_node_tree") => ("Z", [0; 4]),
            (None, "aclitem" | "xid8") => ("U", [0; 4]),
            (None, _) => ("P", [0; 4]),
        };
        let other = Type {
            oid: *number,
            made: None,
            name,
            len: -1,
            category,
            is_multirange: false,
            preferred: false,
            subscripts: if of_element.is_some() {
                ARRAY_SUBSCRIPTS
            } else {
                0
            },
            element: of_element.map_or(0, |(number, ..)| *number),
            array: array.map_or(0, |(number, ..)| *number),
            functions,
            align: "i",
            storage: "x",
            collation: 0,
            domain: None,
            relation: 0,
        };
        rows.push(other.row());
    }
    Ok(rows)
}

/// `pg_enum`.
pub fn labels(cx: &Context) -> Result<Rows> {
    let of_type = |t: &std::sync::Arc<crate::dict::UserType>| {
        let row = |l: &crate::dict::Label| {
            let sort = Datum::Float4(l.sort);
            vec![oid(l.oid), oid(t.oid), sort, text(&l.name)]
        };
        t.labels.iter().map(row).collect::<Rows>()
    };
    Ok(cx.dict.user_types().flat_map(of_type).collect())
}

/// `pg_range`.
pub fn ranges(cx: &Context) -> Result<Rows> {
    let row = |of: RangeOf| {
        let [range, _] = of.oids();
        let [set, _] = of.multirange_oids();
        let (canonical, difference) = match of {
            RangeOf::Int4 => (3914, 3922),
            RangeOf::Int8 => (3928, 3923),
            RangeOf::Numeric => (0, 3924),
            RangeOf::Date => (3915, 3925),
            RangeOf::Timestamp => (0, 3929),
            RangeOf::TimestampTz => (0, 3930),
            RangeOf::Own(_) => (0, 0),
        };
        let class = index_class::object_id(Method::Btree, of.subtype(), "");
        let numbers = [
            range,
            of.subtype().oid(),
            set,
            0,
            class,
            canonical,
            difference,
        ];
        numbers.into_iter().map(oid).collect()
    };
    let mut rows: Rows = RangeOf::ALL.into_iter().map(row).collect();
    for (t, range) in cx
        .dict
        .user_types()
        .filter_map(|t| Some((t, t.range.as_ref()?)))
    {
        let subtype = cx.dict.type_of(range.subtype);
        let class = |ty| index_class::object_id(Method::Btree, ty, &range.class);
        let numbers = [
            t.oid,
            range.subtype,
            range.multirange,
            range.collation,
            subtype.map_or(0, class),
            0,
            range.difference,
        ];
        rows.push(numbers.into_iter().map(oid).collect());
    }
    Ok(rows)
}
