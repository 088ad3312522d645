//! The rows that a statement has changed, kept for triggers that read them as tables: what
//! REFERENCING names.
//!
//! **Invariants.**
//! - Only rows of tables with such a trigger are kept, in memory, as row events are.
//! - They are those of one statement: a statement within another one begins with none, and they go
//!   when the last event of their statement has been fired.

use std::sync::Arc;

use block::value::{Datum, DatumRef};

use crate::api::ColumnDesc;
use crate::dict::Table;
use crate::dict::trigger::{Op, Trigger};

/// Live columns of rows, in order.
pub type Rows = Vec<Vec<Datum>>;

/// The rows of a table that a statement has changed in one way, before and after.
#[derive(Clone)]
struct Changed {
    table: u32,
    op: Op,
    old: Arc<Rows>,
    new: Arc<Rows>,
}

/// What a statement has changed.
#[derive(Default)]
pub struct Transitions(Vec<Changed>);

/// How much a statement had changed at a moment.
#[derive(Default)]
pub struct Reached(Vec<(usize, usize)>);

impl Transitions {
    /// Keeps a row if a trigger will read it.
    pub fn keep(
        &mut self,
        table: &Table,
        op: Op,
        old: Option<&[DatumRef<'_>]>,
        new: Option<&[DatumRef<'_>]>,
    ) {
        if !table.has_transitions(op) {
            return;
        }
        let is_it = |c: &Changed| c.table == table.oid && c.op == op;
        let at = self.0.iter().position(is_it).unwrap_or_else(|| {
            self.0.push(Changed {
                table: table.oid,
                op,
                old: Arc::default(),
                new: Arc::default(),
            });
            self.0.len() - 1
        });
        let live = |row: &[DatumRef<'_>]| -> Vec<Datum> {
            let values = table.live_columns().map(|(at, _)| row[at].to_datum());
            values.collect()
        };
        let Changed {
            old: before,
            new: after,
            ..
        } = &mut self.0[at];
        if let Some(row) = old {
            Arc::make_mut(before).push(live(row));
        }
        if let Some(row) = new {
            Arc::make_mut(after).push(live(row));
        }
    }

    pub fn reached(&self) -> Reached {
        Reached(self.0.iter().map(|c| (c.old.len(), c.new.len())).collect())
    }

    /// Forgets what came since.
    pub fn back_to(&mut self, reached: &Reached) {
        self.0.truncate(reached.0.len());
        for (changed, (old, new)) in self.0.iter_mut().zip(&reached.0) {
            Arc::make_mut(&mut changed.old).truncate(*old);
            Arc::make_mut(&mut changed.new).truncate(*new);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tables that a trigger's function reads.
    pub fn seen_by(&self, trigger: &Trigger, table: &Table, op: Op) -> Vec<TransitionTable> {
        let changed = self.0.iter().find(|c| c.table == table.oid && c.op == op);
        let sides = [
            (&trigger.old_table, changed.map(|c| &c.old)),
            (&trigger.new_table, changed.map(|c| &c.new)),
        ];
        let seen = sides.into_iter().filter_map(|(name, rows)| {
            Some(TransitionTable {
                name: name.clone()?,
                columns: columns(table),
                rows: rows.cloned().unwrap_or_default(),
            })
        });
        seen.collect()
    }
}

/// Rows that a trigger's function reads by a name, as those of an item of WITH.
#[derive(Clone)]
pub struct TransitionTable {
    pub name: String,
    pub columns: Vec<ColumnDesc>,
    pub rows: Arc<Rows>,
}

impl TransitionTable {
    /// Whether a plan that was made for one is one for the other.
    pub fn is_like(&self, other: &(String, Vec<ColumnDesc>)) -> bool {
        self.name == other.0 && self.columns == other.1
    }
}

fn columns(table: &Table) -> Vec<ColumnDesc> {
    let columns = table.live_columns();
    let each = columns.map(|(_, c)| ColumnDesc {
        name: c.name.clone(),
        table_oid: 0,
        attnum: 0,
        ty: c.ty(),
        typmod: c.typmod,
        collation: c.collation(),
    });
    each.collect()
}
