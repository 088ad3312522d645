//! The rest of pg_catalog that has rows: namespaces, types, databases, and the old views by name.

use block::value::Datum;

use super::Source::Here;
use super::describe::{self, DATABASE, OWNER, PG_CATALOG};
use super::value::{NULL, bool, float4s, int4, int8, oid, optional, quoted_array, text, texts};
use super::{Context, Rows, VirtualTable, sequence};
use crate::bind::names::quote;
use crate::bind::numbered::Shown;
use crate::collate::Collation;
use crate::dict::acl::{Kind, Privileges};
use crate::dict::{Method, PG_AUTHID, PG_NAMESPACE};
use crate::error::Result;
use crate::types::Reg::Proc;
use crate::types::SqlType::{
    self, Bool, Float4, Int2, Int4, Int8, InternalChar, Name, Oid, OidVector, Reg, Text,
};

/// The places of `typacl`, `proacl` and `datacl` in their catalogs.
pub(super) const TYPACL: usize = 31;
pub(super) const PROACL: usize = 29;
pub(super) const DATACL: usize = 16;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_namespace",
        columns: &[
            ("oid", Oid),
            ("nspname", Name),
            ("nspowner", Oid),
            ("nspacl", SqlType::TEXTS),
        ],
        rows: Here(|cx| {
            let row = |(number, name, owner): (u32, String, u32)| {
                // Everybody may use it, which else follows from no ACL.
                let acl = match number {
                    describe::PUBLIC => {
                        let owner = quote(&cx.role_name(owner));
                        texts([format!("{owner}=UC/{owner}"), format!("=U/{owner}")])
                    }
                    _ => NULL,
                };
                vec![oid(number), text(name), oid(owner), acl]
            };
            let mut rows: Rows = cx.dict.all_schemas().into_iter().map(row).collect();
            super::acl::fill(cx, &mut rows, 3);
            Ok(rows)
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_init_privs",
        columns: &[
            ("objoid", Oid),
            ("classoid", Oid),
            ("objsubid", Int4),
            ("privtype", InternalChar),
            ("initprivs", SqlType::TEXTS),
        ],
        rows: Here(|cx| {
            // Of all that has privileges from the beginning, which a dump leaves out.
            let owner = quote(&cx.role_name(OWNER));
            let row = |schema: u32| {
                let acl = texts([format!("{owner}=UC/{owner}"), format!("=U/{owner}")]);
                vec![oid(schema), oid(PG_NAMESPACE), int4(0), text("i"), acl]
            };
            Ok(vec![row(PG_CATALOG), row(describe::INFORMATION_SCHEMA)])
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_description",
        columns: &[
            ("objoid", Oid),
            ("classoid", Oid),
            ("objsubid", Int4),
            ("description", Text),
        ],
        rows: Here(|cx| {
            let row = |(object, class, sub, comment): crate::dict::Described| {
                vec![oid(object), oid(class), int4(sub), text(comment)]
            };
            Ok(cx.dict.descriptions().into_iter().map(row).collect())
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_shdescription",
        columns: &[("objoid", Oid), ("classoid", Oid), ("description", Text)],
        rows: Here(|cx| {
            let roles = cx.dict.roles();
            let row = |r: &std::sync::Arc<crate::dict::role::Role>| {
                Some(vec![oid(r.oid), oid(PG_AUTHID), text(r.comment.clone()?)])
            };
            Ok(roles.filter_map(row).collect())
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_type",
        columns: &[
            ("oid", Oid),
            ("typname", Name),
            ("typnamespace", Oid),
            ("typowner", Oid),
            ("typlen", Int2),
            ("typbyval", Bool),
            ("typtype", InternalChar),
            ("typcategory", InternalChar),
            ("typispreferred", Bool),
            ("typisdefined", Bool),
            ("typdelim", InternalChar),
            ("typrelid", Oid),
            ("typsubscript", Reg(Proc)),
            ("typelem", Oid),
            ("typarray", Oid),
            ("typinput", Reg(Proc)),
            ("typoutput", Reg(Proc)),
            ("typreceive", Reg(Proc)),
            ("typsend", Reg(Proc)),
            ("typmodin", Reg(Proc)),
            ("typmodout", Reg(Proc)),
            ("typanalyze", Reg(Proc)),
            ("typalign", InternalChar),
            ("typstorage", InternalChar),
            ("typnotnull", Bool),
            ("typbasetype", Oid),
            ("typtypmod", Int4),
            ("typndims", Int4),
            ("typcollation", Oid),
            ("typdefaultbin", Text),
            ("typdefault", Text),
            ("typacl", SqlType::TEXTS),
        ],
        rows: Here(|cx| {
            let mut rows = super::types::rows(cx)?;
            super::acl::fill(cx, &mut rows, TYPACL);
            Ok(rows)
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_enum",
        columns: &[
            ("oid", Oid),
            ("enumtypid", Oid),
            ("enumsortorder", Float4),
            ("enumlabel", Name),
        ],
        rows: Here(super::types::labels),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_range",
        columns: &[
            ("rngtypid", Oid),
            ("rngsubtype", Oid),
            ("rngmultitypid", Oid),
            ("rngcollation", Oid),
            ("rngsubopc", Oid),
            ("rngcanonical", Reg(Proc)),
            ("rngsubdiff", Reg(Proc)),
        ],
        rows: Here(super::types::ranges),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_am",
        columns: &[
            ("oid", Oid),
            ("amname", Name),
            ("amhandler", Reg(Proc)),
            ("amtype", InternalChar),
        ],
        rows: Here(|_| {
            Ok(vec![
                vec![oid(describe::HEAP_AM), text("heap"), oid(3), text("t")],
                index_method(Method::Btree, 330),
                index_method(Method::Hash, 331),
                index_method(Method::Gin, 333),
            ])
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_database",
        columns: &[
            ("oid", Oid),
            ("datname", Name),
            ("datdba", Oid),
            ("encoding", Int4),
            ("datlocprovider", InternalChar),
            ("datistemplate", Bool),
            ("datallowconn", Bool),
            ("datconnlimit", Int4),
            ("datfrozenxid", SqlType::Xid),
            ("datminmxid", SqlType::Xid),
            ("dattablespace", Oid),
            ("datcollate", Text),
            ("datctype", Text),
            ("daticulocale", Text),
            ("daticurules", Text),
            ("datcollversion", Text),
            ("datacl", SqlType::TEXTS),
        ],
        rows: Here(|cx| {
            let mut rows = vec![vec![
                oid(DATABASE),
                text(cx.database_name.clone()),
                oid(OWNER),
                int4(6),
                text("c"),
                bool(false),
                bool(true),
                int4(-1),
                // No version is frozen here.
                oid(0),
                oid(0),
                oid(1663),
                text("C"),
                text("C"),
                NULL,
                NULL,
                NULL,
                NULL,
            ]];
            super::acl::fill(cx, &mut rows, DATACL);
            Ok(rows)
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_tablespace",
        columns: &[
            ("oid", Oid),
            ("spcname", Name),
            ("spcowner", Oid),
            ("spcacl", SqlType::TEXTS),
            ("spcoptions", SqlType::TEXTS),
        ],
        rows: Here(|_| {
            Ok(vec![vec![
                oid(1663),
                text("pg_default"),
                oid(OWNER),
                NULL,
                NULL,
            ]])
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_collation",
        columns: &[
            ("oid", Oid),
            ("collname", Name),
            ("collnamespace", Oid),
            ("collowner", Oid),
            ("collprovider", InternalChar),
            ("collisdeterministic", Bool),
            ("collencoding", Int4),
            ("collcollate", Text),
            ("collctype", Text),
            ("colliculocale", Text),
            ("collversion", Text),
        ],
        rows: Here(|_| {
            let row = |c: Collation| {
                let (provider, order) = match (c == Collation::DEFAULT, c.locale()) {
                    (true, _) => ("d", NULL),
                    (false, Some(_)) => ("i", NULL),
                    (false, None) if c.oid() == 951 => ("c", text("POSIX")),
                    (false, None) if c.name() == "C.utf8" => ("c", text("C.utf8")),
                    (false, None) => ("c", text("C")),
                };
                vec![
                    oid(c.oid()),
                    text(c.name()),
                    oid(PG_CATALOG),
                    oid(OWNER),
                    text(provider),
                    bool(true),
                    int4(c.encoding()),
                    order.clone(),
                    order,
                    c.locale().map_or(NULL, text),
                    NULL,
                ]
            };
            Ok(Collation::all().map(row).collect())
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_tables",
        columns: &[
            ("schemaname", Name),
            ("tablename", Name),
            ("tableowner", Name),
            ("tablespace", Name),
            ("hasindexes", Bool),
            ("hasrules", Bool),
            ("hastriggers", Bool),
            ("rowsecurity", Bool),
        ],
        rows: Here(|cx| {
            let row = |t: &std::sync::Arc<crate::dict::Table>| {
                vec![
                    text(cx.dict.schema_name(t.schema)),
                    text(t.name.clone()),
                    text(cx.role_name(t.owner)),
                    NULL,
                    bool(!t.indexes.is_empty()),
                    bool(false),
                    bool(false),
                    bool(t.row_security),
                ]
            };
            let tables = cx.tables().filter(|t| t.materialized.is_none());
            Ok(tables.map(row).collect())
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_matviews",
        columns: &[
            ("schemaname", Name),
            ("matviewname", Name),
            ("matviewowner", Name),
            ("tablespace", Name),
            ("hasindexes", Bool),
            ("ispopulated", Bool),
            ("definition", Text),
        ],
        rows: Here(|cx| {
            let mut rows = Rows::new();
            for t in cx.tables() {
                let (Some(view), Some(made)) = (t.as_view(), &t.materialized) else {
                    continue;
                };
                rows.push(vec![
                    text(cx.dict.schema_name(t.schema)),
                    text(t.name.clone()),
                    text(cx.role_name(t.owner)),
                    NULL,
                    bool(!t.indexes.is_empty()),
                    bool(made.populated),
                    text(super::viewdef::text(&cx.dict, &view)?),
                ]);
            }
            Ok(rows)
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_views",
        columns: &[
            ("schemaname", Name),
            ("viewname", Name),
            ("viewowner", Name),
            ("definition", Text),
        ],
        rows: Here(|cx| {
            let row = |v: &'static VirtualTable| {
                vec![
                    text(v.schema),
                    text(v.name),
                    text(cx.role_name(OWNER)),
                    NULL,
                ]
            };
            let mut rows: Rows = super::all().map(row).collect();
            for v in cx.dict.views() {
                rows.push(vec![
                    text(cx.dict.schema_name(v.schema)),
                    text(v.name.clone()),
                    text(cx.role_name(v.owner)),
                    text(super::viewdef::text(&cx.dict, v)?),
                ]);
            }
            Ok(rows)
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_indexes",
        columns: &[
            ("schemaname", Name),
            ("tablename", Name),
            ("indexname", Name),
            ("tablespace", Name),
            ("indexdef", Text),
        ],
        rows: Here(|cx| {
            let mut rows = Rows::new();
            for t in cx.tables() {
                for i in &t.indexes {
                    let (how, schema) = (Shown::AsNow(&cx.dict), cx.dict.schema_name(t.schema));
                    let def = describe::index(how, &cx.dict, Some(schema), t, i, 0, false);
                    rows.push(vec![
                        text(cx.dict.schema_name(t.schema)),
                        text(t.name.clone()),
                        text(i.name.clone()),
                        NULL,
                        text(def),
                    ]);
                }
            }
            Ok(rows)
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_sequences",
        columns: &[
            ("schemaname", Name),
            ("sequencename", Name),
            ("sequenceowner", Name),
            ("data_type", Text),
            ("start_value", Int8),
            ("min_value", Int8),
            ("max_value", Int8),
            ("increment_by", Int8),
            ("cycle", Bool),
            ("cache_size", Int8),
            ("last_value", Int8),
        ],
        rows: Here(|cx| {
            let row = |s: &std::sync::Arc<crate::dict::Sequence>| {
                Ok(vec![
                    text(cx.dict.schema_name(s.schema)),
                    text(s.name.clone()),
                    text(cx.role_name(s.role)),
                    optional(describe::type_name(s.type_oid, -1)),
                    int8(s.start),
                    int8(s.min),
                    int8(s.max),
                    int8(s.increment),
                    bool(s.cycle),
                    int8(s.cache),
                    last_value(cx, s)?,
                ])
            };
            cx.dict.sequences().map(row).collect()
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stats",
        columns: &[
            ("schemaname", Name),
            ("tablename", Name),
            ("attname", Name),
            ("inherited", Bool),
            ("null_frac", Float4),
            ("avg_width", Int4),
            ("n_distinct", Float4),
            ("most_common_vals", Text),
            ("most_common_freqs", SqlType::FLOAT4S),
            ("histogram_bounds", Text),
            ("correlation", Float4),
            ("most_common_elems", Text),
            ("most_common_elem_freqs", SqlType::FLOAT4S),
            ("elem_count_histogram", SqlType::FLOAT4S),
        ],
        rows: Here(column_stats),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_proc",
        columns: &[
            ("oid", Oid),
            ("proname", Name),
            ("pronamespace", Oid),
            ("proowner", Oid),
            ("prolang", Oid),
            ("procost", Float4),
            ("prorows", Float4),
            ("provariadic", Oid),
            ("prosupport", Reg(Proc)),
            ("prokind", InternalChar),
            ("prosecdef", Bool),
            ("proleakproof", Bool),
            ("proisstrict", Bool),
            ("proretset", Bool),
            ("provolatile", InternalChar),
            ("proparallel", InternalChar),
            ("pronargs", Int2),
            ("pronargdefaults", Int2),
            ("prorettype", Oid),
            ("proargtypes", OidVector),
            ("proallargtypes", SqlType::OIDS),
            ("proargmodes", SqlType::INTERNAL_CHARS),
            ("proargnames", SqlType::TEXTS),
            ("proargdefaults", Text),
            ("protrftypes", SqlType::OIDS),
            ("prosrc", Text),
            ("probin", Text),
            ("prosqlbody", Text),
            ("proconfig", SqlType::TEXTS),
            ("proacl", SqlType::TEXTS),
        ],
        rows: Here(|cx| {
            let mut rows = super::procedures::rows(cx)?;
            super::acl::fill(cx, &mut rows, PROACL);
            Ok(rows)
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_trigger",
        columns: &[
            ("oid", Oid),
            ("tgrelid", Oid),
            ("tgparentid", Oid),
            ("tgname", Name),
            ("tgfoid", Oid),
            ("tgtype", Int2),
            ("tgenabled", InternalChar),
            ("tgisinternal", Bool),
            ("tgconstrrelid", Oid),
            ("tgconstrindid", Oid),
            ("tgconstraint", Oid),
            ("tgdeferrable", Bool),
            ("tginitdeferred", Bool),
            ("tgnargs", Int2),
            ("tgattr", SqlType::Int2Vector),
            ("tgargs", SqlType::Bytea),
            ("tgqual", Text),
            ("tgoldtable", Name),
            ("tgnewtable", Name),
        ],
        rows: Here(|cx| Ok(super::triggers::rows(cx))),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_language",
        columns: &[
            ("oid", Oid),
            ("lanname", Name),
            ("lanowner", Oid),
            ("lanispl", Bool),
            ("lanpltrusted", Bool),
            ("lanplcallfoid", Oid),
            ("laninline", Oid),
            ("lanvalidator", Oid),
            ("lanacl", SqlType::TEXTS),
        ],
        rows: Here(|_| Ok(super::user_functions::languages())),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_extension",
        columns: &[
            ("oid", Oid),
            ("extname", Name),
            ("extowner", Oid),
            ("extnamespace", Oid),
            ("extrelocatable", Bool),
            ("extversion", Text),
            ("extconfig", SqlType::OIDS),
            ("extcondition", SqlType::TEXTS),
        ],
        rows: Here(|cx| Ok(super::extensions::rows(cx))),
    },
];

fn column_stats(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for t in cx.dict.tables() {
        let Some(stats) = cx.dict.stats(t.oid) else {
            continue;
        };
        for (at, c) in t.live_columns() {
            let Some(s) = stats.column(at) else {
                continue;
            };
            if !cx.may_read(t, at) || cx.hides_rows(t) {
                continue;
            }
            let list = |values: &[String]| match values {
                [] => NULL,
                values => quoted_array(values),
            };
            let frequencies = s.frequencies.iter().map(|f| *f as f32);
            rows.push(vec![
                text(cx.dict.schema_name(t.schema)),
                text(t.name.clone()),
                text(c.name.clone()),
                bool(false),
                Datum::Float4(s.null_fraction as f32),
                int4(s.width as i64),
                Datum::Float4(s.distinct as f32),
                list(&s.common),
                match s.common.is_empty() {
                    true => NULL,
                    false => float4s(frequencies),
                },
                list(&s.bounds),
                s.correlation.map_or(NULL, |c| Datum::Float4(c as f32)),
                NULL,
                NULL,
                NULL,
            ]);
        }
    }
    Ok(rows)
}

impl Context {
    /// Whether the role that asks may read a column, and so its values in statistics.
    fn may_read(&self, t: &crate::dict::Table, at: usize) -> bool {
        let (role, select) = (self.authority.role, Privileges::SELECT);
        let held = self
            .dict
            .privileges(role, Kind::Table, t.oid, t.owner, select);
        let column = i16::try_from(at + 1).unwrap_or(i16::MAX);
        let alone = || {
            let granted = self.dict.granted_of_column(t.oid, column, t.owner);
            !granted.held(role, select).is_empty()
        };
        !held.is_empty() || alone()
    }
}

/// A row of `pg_am`; `handler` is the number of the method's function.
fn index_method(method: Method, handler: u32) -> Vec<Datum> {
    vec![
        oid(method.oid()),
        text(method.name()),
        oid(handler),
        text("i"),
    ]
}

/// The last value of a sequence, as far as the role may know it.
fn last_value(cx: &Context, s: &crate::dict::Sequence) -> Result<Datum> {
    match sequence::may_know(cx, s) {
        true => sequence::last_value(cx, s),
        false => Ok(NULL),
    }
}
