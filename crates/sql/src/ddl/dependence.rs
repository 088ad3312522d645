//! DROP of what others depend on: RESTRICT names them, CASCADE drops them first.
//!
//! **Invariant.** Everything that goes is locked before anything is changed, and what depends on it
//! is looked for again after each lock that had to be waited for.

use std::sync::Arc;

use super::Core;
use crate::dict::depend::Address;
use crate::dict::{Dict, ForeignKey, Object, Table, UserType, View};
use crate::error::{Error, Result};
use crate::parse::utility::TableLock;

/// So many dependents are told of one by one, as in PostgreSQL.
const MAX_TOLD: usize = 100;

/// A dependent that a DROP has found.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Found {
    what: Address,
    /// What it depends on, by which it was found.
    on: Address,
    auto: bool,
}

/// Dependents of dependents, each after what depends on it.
fn collect(dict: &Dict, roots: &[Address]) -> Vec<Found> {
    fn visit(
        dict: &Dict,
        on: Address,
        roots: &[Address],
        found: &mut Vec<Found>,
        seen: &mut Vec<Address>,
    ) {
        for dependent in dict.dependents(on) {
            let what = dependent.what;
            if roots.contains(&what) {
                continue;
            }
            if seen.contains(&what) {
                // Reached in both ways it goes without a word.
                if let Some(known) = found.iter_mut().find(|f| f.what == what) {
                    known.auto |= dependent.auto;
                }
                continue;
            }
            seen.push(what);
            visit(dict, what, roots, found, seen);
            found.push(Found {
                what,
                on,
                auto: dependent.auto,
            });
        }
    }
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for root in roots {
        visit(dict, *root, roots, &mut found, &mut seen);
    }
    // A default goes with the table or the column that has it.
    let gone = |f: &Found, all: &[Found]| match f.what {
        Address::Trigger(table, _) | Address::Policy(table, _) => {
            let whole = [Address::Table(table), Address::View(table)];
            let goes = |a: &Address| whole.contains(a);
            roots.iter().any(goes) || all.iter().any(|f| goes(&f.what))
        }
        // A check and an index go with the columns that they name, too.
        Address::Check(table, _) | Address::Index(table, _) => {
            let goes = |a: &Address| match *a {
                Address::Table(oid) => oid == table,
                Address::Column(oid, at) => oid == table && names_column(dict, f.what, at),
                _ => false,
            };
            roots.iter().any(goes) || all.iter().any(|f| goes(&f.what))
        }
        Address::Default(table, at) => {
            let goes =
                |a: &Address| [Address::Table(table), Address::Column(table, at)].contains(a);
            roots.iter().any(goes) || all.iter().any(|f| goes(&f.what))
        }
        // An attribute goes with its type, as a domain's check does.
        Address::Attribute(ty, _) | Address::DomainCheck(ty, _) => {
            let goes = |a: &Address| *a == Address::Type(ty);
            roots.iter().any(goes) || all.iter().any(|f| goes(&f.what))
        }
        // As does a foreign key.
        Address::ForeignKey(table, key) => {
            let goes = |a: &Address| match *a {
                Address::Table(oid) => oid == table,
                Address::Column(oid, at) => {
                    let key = dict.table_by_oid(table).and_then(|t| t.foreign_key(key));
                    let own = |k: &ForeignKey| k.parent == table || k.columns.contains(&at);
                    oid == table && key.is_some_and(own)
                }
                _ => false,
            };
            roots.iter().any(goes) || all.iter().any(|f| goes(&f.what))
        }
        _ => false,
    };
    let all = found.clone();
    found.retain(|f| !gone(f, &all));
    // A column that goes with its table is not told of.
    for f in &mut found {
        if let Address::Column(table, _) = f.what {
            let goes = |a: &Address| *a == Address::Table(table);
            f.auto |= roots.iter().any(goes) || all.iter().any(|f| goes(&f.what));
        }
    }
    found
}

/// Whether a check or an index names a column of its table.
fn names_column(dict: &Dict, what: Address, at: usize) -> bool {
    let (Address::Check(oid, _) | Address::Index(oid, _)) = what else {
        return false;
    };
    let Some(table) = dict.table_by_oid(oid) else {
        return false;
    };
    match what {
        Address::Check(_, place) => table.checks.get(place).is_some_and(|c| {
            // A definition whose text cannot be read was refused when it was made.
            let named = super::alter::mentioned(table, &c.text).unwrap_or_default();
            named.contains(&at)
        }),
        Address::Index(_, index) => {
            let found = table.indexes.iter().find(|i| i.oid == index);
            found.is_some_and(|i| i.uses(at))
        }
        _ => false,
    }
}

/// Drops what depends on the roots, which are locked, or says what it is. The roots stay.
pub fn drop_dependents(core: &mut Core, roots: &[Address], cascade: bool) -> Result<()> {
    let mut found = collect(&core.dict(), roots);
    loop {
        if !cascade && found.iter().any(|f| !f.auto) {
            // Nothing is waited for in order to refuse.
            return Err(restricted(&core.dict(), roots, &found));
        }
        for f in &found {
            if let Some(oid) = lock_of(f.what) {
                core.lock_table(oid, TableLock::AccessExclusive, false)?;
            }
        }
        let now = collect(&core.dict(), roots);
        if now == found {
            break;
        }
        found = now;
    }
    tell(core, &found);
    // Checks are known by their places: they go first, and of a table the last one.
    let mut checks: Vec<(u32, usize)> = Vec::new();
    for f in &found {
        if let Address::Check(table, at) = f.what {
            checks.push((table, at));
        }
    }
    checks.sort_unstable_by(|a, b| b.cmp(a));
    for (table, at) in checks {
        drop_one(core, Address::Check(table, at))?;
    }
    let others = found
        .iter()
        .filter(|f| !matches!(f.what, Address::Check(..)));
    others
        .map(|f| f.what)
        .try_for_each(|what| drop_one(core, what))
}

fn lock_of(what: Address) -> Option<u32> {
    match what {
        Address::Table(oid)
        | Address::View(oid)
        | Address::Sequence(oid)
        | Address::Type(oid)
        | Address::Extension(oid)
        | Address::Attribute(oid, _)
        | Address::DomainCheck(oid, _)
        | Address::Column(oid, _)
        | Address::Default(oid, _)
        | Address::Index(oid, _)
        | Address::Check(oid, _)
        | Address::Trigger(oid, _)
        | Address::Policy(oid, _)
        | Address::Function(oid)
        | Address::Cast(oid)
        | Address::ForeignKey(oid, _) => Some(oid),
        Address::Schema(_) => None,
    }
}

fn restricted(dict: &Dict, roots: &[Address], found: &[Found]) -> Error {
    let line = |f: &Found| {
        let on = match (f.what, f.on) {
            // A function depends on the type of the table's rows.
            (Address::Function(_), Address::Table(oid)) => match dict.table_by_oid(oid) {
                Some(t) => format!("type {}", dict.shown(t.schema, &t.name)),
                None => dict.describe(f.on),
            },
            (Address::Index(table, index), Address::Extension(oid)) => {
                let class = dict.describe_class(table, index, oid);
                class.unwrap_or_else(|| dict.describe(f.on))
            }
            _ => dict.describe(f.on),
        };
        format!("{} depends on {on}", dict.describe(f.what))
    };
    let message = match roots {
        [root] => format!(
            "cannot drop {} because other objects depend on it",
            dict.describe_root(*root)
        ),
        _ => "cannot drop desired object(s) because other objects depend on them".to_string(),
    };
    Error::new("2BP01", message)
        .detail(lines(found, line).join("\n"))
        .hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// A line for each that is told of: what depends on others after these.
fn lines(found: &[Found], line: impl Fn(&Found) -> String) -> Vec<String> {
    let told: Vec<&Found> = found.iter().rev().filter(|f| !f.auto).collect();
    let mut lines: Vec<String> = told.iter().take(MAX_TOLD).map(|f| line(f)).collect();
    let more = told.len().saturating_sub(MAX_TOLD);
    if more > 0 {
        let objects = if more == 1 { "object" } else { "objects" };
        lines.push(format!(
            "and {more} other {objects} (see server log for list)"
        ));
    }
    lines
}

/// The NOTICE of a CASCADE.
fn tell(core: &mut Core, found: &[Found]) {
    let dict = core.dict();
    let told = found.iter().filter(|f| !f.auto).count();
    let lines = lines(found, |f| {
        format!("drop cascades to {}", dict.describe(f.what))
    });
    match (told, lines.first()) {
        (0, _) | (_, None) => {}
        (1, Some(line)) => core.notice("NOTICE", "00000", line),
        _ => core.notice_with_detail(
            format!("drop cascades to {told} other objects"),
            lines.join("\n"),
        ),
    }
}

pub fn drop_one(core: &mut Core, what: Address) -> Result<()> {
    let dict = core.dict();
    match what {
        Address::Table(oid) => match dict.table_by_oid(oid) {
            Some(table) => super::table::drop_one(core, &table.clone()),
            None => Ok(()),
        },
        Address::View(oid)
        | Address::Function(oid)
        | Address::Extension(oid)
        | Address::Cast(oid) => core.undefine(oid.into()),
        Address::Sequence(oid) => super::sequence::drop_one(core, oid),
        Address::Default(oid, at) => {
            if let Some(view) = dict.view_by_oid(oid) {
                let mut next = View::clone(view);
                next.columns[at].default = None;
                return core.define(Object::View(Arc::new(next)));
            }
            let Some(table) = dict.table_by_oid(oid) else {
                return Ok(());
            };
            let mut next = Table::clone(table);
            next.columns[at].default = None;
            next.columns[at].generated = false;
            next.columns[at].sequence = None;
            core.define(Object::Table(Arc::new(next.finish()?)))
        }
        Address::ForeignKey(oid, key) => {
            let Some(table) = dict.table_by_oid(oid) else {
                return Ok(());
            };
            let mut next = Table::clone(table);
            next.foreign_keys.retain(|k| k.oid != key);
            core.define(Object::Table(Arc::new(next.finish()?)))
        }
        Address::Trigger(oid, trigger) => {
            let Some(table) = dict.with_triggers(oid) else {
                return Ok(());
            };
            let mut next = Table::clone(&table);
            let gone = next.triggers.iter().position(|t| t.oid == trigger);
            let gone = gone.map(|at| next.triggers.remove(at));
            super::trigger::define(core, next)?;
            gone.iter()
                .try_for_each(|t| super::trigger_body::undefine(core, t))
        }
        Address::Policy(oid, policy) => {
            let Some(table) = dict.table_by_oid(oid) else {
                return Ok(());
            };
            let mut next = Table::clone(table);
            next.policies.retain(|p| p.oid != policy);
            core.define(Object::Table(Arc::new(next.finish()?)))
        }
        Address::Check(oid, at) => {
            let Some(table) = dict.table_by_oid(oid) else {
                return Ok(());
            };
            let mut next = Table::clone(table);
            next.checks.remove(at);
            core.define(Object::Table(Arc::new(next.finish()?)))
        }
        Address::DomainCheck(oid, check) => {
            let Some(domain) = dict.user_type_by_oid(oid) else {
                return Ok(());
            };
            let mut next = UserType::clone(domain);
            if let Some(domain) = &mut next.domain {
                domain.checks.retain(|c| c.oid != check);
            }
            core.define(Object::Type(Arc::new(next)))
        }
        Address::Type(oid) => core.undefine(oid.into()),
        Address::Column(oid, at) => super::alter::drop_dependent_column(core, oid, at),
        Address::Attribute(..) => Err(Error::unsupported(
            "DROP .. CASCADE of the type of an attribute of a composite type",
        )),
        Address::Index(oid, index) => {
            let Some(table) = dict.table_by_oid(oid).cloned() else {
                return Ok(());
            };
            match table.indexes.iter().position(|i| i.oid == index) {
                Some(at) => super::index::remove(core, &table, at),
                None => Ok(()),
            }
        }
        Address::Schema(oid) => super::schema::drop_one(core, oid),
    }
}
