//! What PostgreSQL has built in besides functions, under its numbers: operators, casts, operator
//! classes and families of B-trees, aggregates, conversions.
//!
//! The `.tsv` files have PostgreSQL 15's rows. **Invariant.** A row is shown only if Braid has what
//! it tells of: an operator that the binder gives the row's result to, a cast that
//! [`castable`](crate::expr::cast::castable) allows, an aggregate that `pg_proc` lists, a
//! conversion that `charset` makes. So a type or an operator that is added to the binder is in the
//! catalogs without another line.

pub mod aggregates;
pub mod casts;
pub mod classes;
pub mod conversions;
pub mod functions;
pub mod operators;

use super::Source::Here;
use super::VirtualTable;
use crate::types::Reg::Proc;
use crate::types::SqlType::{self, Bool, Int2, Int4, InternalChar, Name, Oid, Reg, Text};
use crate::types::composite::CompositeType;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_operator",
        columns: &[
            ("oid", Oid),
            ("oprname", Name),
            ("oprnamespace", Oid),
            ("oprowner", Oid),
            ("oprkind", InternalChar),
            ("oprcanmerge", Bool),
            ("oprcanhash", Bool),
            ("oprleft", Oid),
            ("oprright", Oid),
            ("oprresult", Oid),
            ("oprcom", Oid),
            ("oprnegate", Oid),
            ("oprcode", Reg(Proc)),
            ("oprrest", Reg(Proc)),
            ("oprjoin", Reg(Proc)),
        ],
        rows: Here(|_| Ok(operators::rows())),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_cast",
        columns: &[
            ("oid", Oid),
            ("castsource", Oid),
            ("casttarget", Oid),
            ("castfunc", Oid),
            ("castcontext", InternalChar),
            ("castmethod", InternalChar),
        ],
        rows: Here(|cx| Ok(casts::rows(&cx.dict))),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_opclass",
        columns: &[
            ("oid", Oid),
            ("opcmethod", Oid),
            ("opcname", Name),
            ("opcnamespace", Oid),
            ("opcowner", Oid),
            ("opcfamily", Oid),
            ("opcintype", Oid),
            ("opcdefault", Bool),
            ("opckeytype", Oid),
        ],
        rows: Here(|_| Ok(classes::rows())),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_opfamily",
        columns: &[
            ("oid", Oid),
            ("opfmethod", Oid),
            ("opfname", Name),
            ("opfnamespace", Oid),
            ("opfowner", Oid),
        ],
        rows: Here(|_| Ok(classes::families())),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_amop",
        columns: &[
            ("oid", Oid),
            ("amopfamily", Oid),
            ("amoplefttype", Oid),
            ("amoprighttype", Oid),
            ("amopstrategy", Int2),
            ("amoppurpose", InternalChar),
            ("amopopr", Oid),
            ("amopmethod", Oid),
            ("amopsortfamily", Oid),
        ],
        rows: Here(|_| Ok(classes::members())),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_amproc",
        columns: &[
            ("oid", Oid),
            ("amprocfamily", Oid),
            ("amproclefttype", Oid),
            ("amprocrighttype", Oid),
            ("amprocnum", Int2),
            ("amproc", Reg(Proc)),
        ],
        rows: Here(|_| Ok(classes::procedures())),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_aggregate",
        columns: &[
            ("aggfnoid", Reg(Proc)),
            ("aggkind", InternalChar),
            ("aggnumdirectargs", Int2),
            ("aggtransfn", Reg(Proc)),
            ("aggfinalfn", Reg(Proc)),
            ("aggcombinefn", Reg(Proc)),
            ("aggserialfn", Reg(Proc)),
            ("aggdeserialfn", Reg(Proc)),
            ("aggmtransfn", Reg(Proc)),
            ("aggminvtransfn", Reg(Proc)),
            ("aggmfinalfn", Reg(Proc)),
            ("aggfinalextra", Bool),
            ("aggmfinalextra", Bool),
            ("aggfinalmodify", InternalChar),
            ("aggmfinalmodify", InternalChar),
            ("aggsortop", Oid),
            ("aggtranstype", Oid),
            ("aggtransspace", Int4),
            ("aggmtranstype", Oid),
            ("aggmtransspace", Int4),
            ("agginitval", Text),
            ("aggminitval", Text),
        ],
        rows: Here(|_| Ok(aggregates::rows())),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_conversion",
        columns: &[
            ("oid", Oid),
            ("conname", Name),
            ("connamespace", Oid),
            ("conowner", Oid),
            ("conforencoding", Int4),
            ("contoencoding", Int4),
            ("conproc", Reg(Proc)),
            ("condefault", Bool),
        ],
        rows: Here(|_| Ok(conversions::rows())),
    },
];

/// The fields of a line, with `-` for what it does not have.
struct Fields<'l>(std::str::Split<'l, char>);

impl<'l> Fields<'l> {
    fn of(line: &'l str) -> Fields<'l> {
        Fields(line.split('\t'))
    }
    fn text(&mut self) -> Option<&'l str> {
        self.0.next()
    }
    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.text()?.parse().ok()
    }
    fn yes(&mut self) -> Option<bool> {
        Some(self.text()? == "t")
    }
}

/// The rows of a file of this directory. Each line is part of the program, so that one that cannot
/// be read is a broken invariant.
fn lines<T>(file: &'static str, read: impl Fn(Fields<'static>) -> Option<T>) -> Vec<T> {
    let line = |l| read(Fields::of(l)).unwrap_or_else(|| panic!("a line of the catalogs: {l}"));
    file.lines().map(line).collect()
}

/// The type "any".
pub const ANY: u32 = 2276;

/// Whether a type of a catalog's row stands for many: `anyelement` and its kin, `record`, "any".
pub fn is_polymorphic(number: u32) -> bool {
    matches!(
        number,
        ANY | 2277 | 2283 | 2776 | 3500 | 3831 | 4537 | 4538 | 5077..=5080 | 2249
    )
}

/// A type of a catalog's row: for those that stand for many, one of them.
pub fn type_of(number: u32) -> Option<SqlType> {
    const RECORD: u32 = 2249;
    match number {
        // anyelement, anynonarray, anycompatible, anycompatiblenonarray; anyenum, whose values are
        // compared as the positions of their labels.
        ANY | 2283 | 2776 | 5077 | 5079 | 3500 => Some(Int4),
        // anyarray, anycompatiblearray
        2277 | 5078 => Some(SqlType::INT4S),
        RECORD => Some(SqlType::Composite(CompositeType::any())),
        // anyrange and anymultirange: those of integers
        3831 | 5080 => SqlType::from_oid(3904),
        4537 | 4538 => SqlType::from_oid(4451),
        _ => SqlType::from_oid(number),
    }
}
