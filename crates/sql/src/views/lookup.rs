//! Catalogs that are asked for the rows of one relation make no others, and views of sessions those
//! of one session, on all instances.
//!
//! A condition of a statement says which rows those are: `attrelid = 16384`, `relname = 't'`. The
//! scan of a catalog evaluates the condition's other side when it is opened, and the catalog goes
//! through the relations that [`Context::tables`] and its kin then give.
//!
//! **Invariant.** A look-up may give more rows than are asked for, never fewer: the statement
//! checks its conditions all the same.

use std::sync::Arc;

use block::value::Datum;

use super::{Context, VirtualTable, view_oid};
use crate::dict::{Sequence, Table, View};
use crate::expr::func::{Func, PureFunc};
use crate::expr::{CmpOp, Expr};

/// What a column of a catalog says of the relation that its row is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Object id of the relation, or of an index or trigger of it.
    Number,
    Name,
    /// Number of the session.
    Session,
}

/// The relations whose rows are wanted.
#[derive(Clone, PartialEq, Debug)]
pub enum Wanted {
    Number(u32),
    Name(String),
    Session(u32),
    /// No row has a key that equals NULL.
    None,
}

/// A look-up of a plan: the key, and what it equals.
#[derive(Clone, Debug)]
pub struct Lookup {
    key: Key,
    pub value: Expr,
}

/// The columns that rows are found by, the best first.
fn keys_of(view: &VirtualTable) -> &'static [(&'static str, Key)] {
    match (view.schema, view.name) {
        ("pg_catalog", "pg_class") => &[("oid", Key::Number), ("relname", Key::Name)],
        ("pg_catalog", "pg_attribute") => &[("attrelid", Key::Number)],
        ("pg_catalog", "pg_proc") => &[("oid", Key::Number), ("proname", Key::Name)],
        ("pg_catalog", "pg_attrdef") => &[("adrelid", Key::Number)],
        ("pg_catalog", "pg_index") => &[("indexrelid", Key::Number), ("indrelid", Key::Number)],
        ("pg_catalog", "pg_constraint") => &[("conrelid", Key::Number)],
        ("pg_catalog", "pg_trigger") => &[("oid", Key::Number), ("tgrelid", Key::Number)],
        ("pg_catalog", "pg_type") => &[("oid", Key::Number)],
        ("pg_catalog", "pg_sequence") => &[("seqrelid", Key::Number)],
        ("pg_catalog", "pg_stat_all_tables" | "pg_stat_user_tables")
        | ("pg_catalog", "pg_statio_all_tables" | "pg_statio_user_tables") => {
            &[("relid", Key::Number), ("relname", Key::Name)]
        }
        ("pg_catalog", "pg_stat_all_indexes" | "pg_stat_user_indexes")
        | ("pg_catalog", "pg_statio_all_indexes" | "pg_statio_user_indexes") => &[
            ("indexrelid", Key::Number),
            ("relid", Key::Number),
            ("relname", Key::Name),
        ],
        ("pg_catalog", "pg_tables" | "pg_indexes") => &[("tablename", Key::Name)],
        ("information_schema", "tables" | "columns") => &[("table_name", Key::Name)],
        ("pg_catalog", name) if BY_SESSION.contains(&name.trim_start_matches('g')) => {
            &[("sid", Key::Session)]
        }
        _ => &[],
    }
}

/// Views of an instance that have many rows for each session.
const BY_SESSION: &[&str] = &[
    "v$sesstat",
    "v$session_event",
    "v$session_gc_latency",
    "v$sess_time_model",
];

/// Whether there may be a look-up of rows.
pub fn has_keys(view: &VirtualTable) -> bool {
    !keys_of(view).is_empty()
}

/// The look-up that one of these conditions allows. `place`: the column of the view that an
/// expression is; `is_known`: whether a value is known before the view is read.
pub fn find(
    view: &VirtualTable,
    conditions: &[Expr],
    place: &dyn Fn(&Expr) -> Option<usize>,
    is_known: &dyn Fn(&Expr) -> bool,
) -> Option<Lookup> {
    keys_of(view).iter().find_map(|(name, key)| {
        let column = view.columns.iter().position(|(column, _)| column == name)?;
        let is_key = |e: &Expr| place(e) == Some(column);
        let mut values = conditions.iter().filter_map(|c| equal_to(c, &is_key));
        let value = values.find(is_known)?;
        Some(Lookup { key: *key, value })
    })
}

/// What a condition says that the key equals.
fn equal_to(condition: &Expr, is_key: &dyn Fn(&Expr) -> bool) -> Option<Expr> {
    match condition {
        Expr::Compare(CmpOp::Eq, a, b) if is_key(a) => Some((**b).clone()),
        Expr::Compare(CmpOp::Eq, a, b) if is_key(b) => Some((**a).clone()),
        // As psql asks for a name.
        Expr::Call(Func::Pure(PureFunc::Regex), args) => match args.as_slice() {
            [text, Expr::Const(Datum::Text(pattern))] => {
                let text = match text {
                    Expr::Cast(_, inner) => inner,
                    text => text,
                };
                let name = is_key(text).then(|| whole_name(pattern)).flatten()?;
                Some(Expr::Const(Datum::Text(name.to_string())))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The only text that a pattern `^(text)$` matches.
fn whole_name(pattern: &str) -> Option<&str> {
    let name = pattern.strip_prefix("^(")?.strip_suffix(")$")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(plain).then_some(name)
}

impl Lookup {
    /// The relations that a value of the key means; `None` if that is not known.
    pub fn wanted(&self, value: &Datum) -> Option<Wanted> {
        match (self.key, value) {
            (_, Datum::Null) => Some(Wanted::None),
            (Key::Number, Datum::Int8(n)) => {
                Some(u32::try_from(*n).map_or(Wanted::None, Wanted::Number))
            }
            (Key::Name, Datum::Text(name)) => Some(Wanted::Name(name.clone())),
            (Key::Session, Datum::Int4(n)) => Some(session(i64::from(*n))),
            (Key::Session, Datum::Int8(n)) => Some(session(*n)),
            _ => None,
        }
    }
}

fn session(number: i64) -> Wanted {
    u32::try_from(number).map_or(Wanted::None, Wanted::Session)
}

impl Context {
    /// Whether the rows of an object of this number are wanted.
    pub(super) fn wants(&self, oid: u32) -> bool {
        match &self.wanted {
            Some(Wanted::Number(wanted)) => *wanted == oid,
            Some(Wanted::None) => false,
            None | Some(Wanted::Name(_) | Wanted::Session(_)) => true,
        }
    }

    /// The sessions whose rows are wanted.
    pub(super) fn sessions(&self) -> Vec<Arc<wait::session::Session>> {
        match &self.wanted {
            Some(Wanted::Session(sid)) => wait::session::find(*sid).into_iter().collect(),
            Some(Wanted::None) => Vec::new(),
            None | Some(Wanted::Number(_) | Wanted::Name(_)) => wait::views::sessions(),
        }
    }

    /// The tables whose rows are wanted, with those of their indexes, constraints and triggers.
    pub(super) fn tables(&self) -> Box<dyn Iterator<Item = &Arc<Table>> + '_> {
        match &self.wanted {
            None => Box::new(self.dict.tables()),
            Some(Wanted::Number(oid)) => {
                let table = self.dict.table_by_oid(*oid);
                Box::new(table.or_else(|| self.dict.table_of_part(*oid)).into_iter())
            }
            Some(Wanted::Name(name)) => Box::new(self.dict.tables_with_name(name)),
            Some(Wanted::None | Wanted::Session(_)) => Box::new(std::iter::empty()),
        }
    }

    pub(super) fn views(&self) -> Box<dyn Iterator<Item = &Arc<View>> + '_> {
        match &self.wanted {
            None => Box::new(self.dict.views()),
            Some(Wanted::Number(oid)) => Box::new(self.dict.view_by_oid(*oid).into_iter()),
            Some(Wanted::Name(name)) => Box::new(self.dict.views_with_name(name)),
            Some(Wanted::None | Wanted::Session(_)) => Box::new(std::iter::empty()),
        }
    }

    pub(super) fn sequences(&self) -> Box<dyn Iterator<Item = &Arc<Sequence>> + '_> {
        match &self.wanted {
            None => Box::new(self.dict.sequences()),
            Some(Wanted::Number(oid)) => Box::new(self.dict.sequence_by_oid(*oid).into_iter()),
            Some(Wanted::Name(name)) => Box::new(self.dict.sequences_with_name(name)),
            Some(Wanted::None | Wanted::Session(_)) => Box::new(std::iter::empty()),
        }
    }

    /// The virtual tables whose rows are wanted.
    pub(super) fn virtual_tables(&self) -> impl Iterator<Item = &'static VirtualTable> {
        super::all().filter(|v| match &self.wanted {
            None => true,
            Some(Wanted::Number(oid)) => view_oid(v.schema, v.name) == Some(*oid),
            Some(Wanted::Name(name)) => v.name == *name,
            Some(Wanted::None | Wanted::Session(_)) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::whole_name;

    #[test]
    fn a_pattern_of_one_name_is_a_name() {
        assert_eq!(whole_name("^(t_1)$"), Some("t_1"));
        for other in ["^(t.1)$", "^(a|b)$", "^(t)", "t", "^(t*)$", "^(a\\$)$"] {
            assert_eq!(whole_name(other), None, "{other}");
        }
    }
}
