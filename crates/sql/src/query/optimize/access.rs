//! How a relation is read: by which index, with which part of the conditions.

use std::collections::HashMap;
use std::sync::Arc;

use block::value::Datum;

use super::conditions::{cheapest_first, has_subquery, might_tell, registers};
use super::{Built, Planner};
use crate::bind::ParamTypes;
use crate::dict::Table;
use crate::error::Result;
use crate::expr::composite::RowFunc;
use crate::expr::func::PureFunc;
use crate::expr::{Expr, Func};
use crate::plan::estimate::Estimate;
use crate::plan::path::{BATCHED_ROW, BATCHED_ROWS, Wish, conjoin, conjuncts};
use crate::plan::{self as direct, Path, SortKey, TableAccess};
use crate::query::analyze::THERE;
use crate::query::analyze::system::SystemColumn;
use crate::query::analyze::tree::{Relation, RelationKind, Series};
use crate::query::plan::SeriesOf;
use crate::query::plan::{
    self, Append, Compute, Filter, Listed, Node, Part, Register, Sample, SharedScan, SubqueryKind,
    TableScan, ViewScan, Zip,
};
use crate::views::VirtualTable;
use crate::views::lookup::{self, Lookup};

/// Costs, in units of a row that is looked at.
pub const LOOKUP: f64 = 4.0;
pub const INDEX_ROW: f64 = 1.5;
/// Keys of a subquery up to which a table is read by them, and a guess of how many there are.
pub const MOST_LISTED: usize = 10_000;
pub const LISTED_ROWS: f64 = 100.0;
/// Rows in a block of a table that was never analyzed: of about a hundred bytes.
const ROWS_PER_BLOCK: f64 = 64.0;
/// Rows that the guess for tables without statistics assumes in [`crate::plan::TableAccess::rows`].
const GUESSED_ROWS: f64 = 1000.0;

/// What an expression is over a row of a table, which is there: whole rows are tested for that by
/// their row id, as an outer join may have none. A subquery that tests gets what is not NULL: the
/// row id has no register before the row has passed.
fn of_a_row(e: &mut Expr, row_id: Register) {
    e.for_parts(&mut |part| of_a_row(part, row_id));
    if let Expr::Subquery { inputs, .. } = e {
        for input in inputs.iter_mut().filter(|i| **i == Expr::Column(row_id)) {
            *input = Expr::Const(THERE);
        }
        return;
    }
    let is_test = |e: &Expr| match e {
        Expr::IsNull { expr, negated } => (**expr == Expr::Column(row_id)).then_some(*negated),
        _ => None,
    };
    if let Some(there) = is_test(e) {
        *e = Expr::Const(Datum::Bool(there));
        return;
    }
    let is_there = |e: &Expr| *e == Expr::Const(Datum::Bool(true));
    match e {
        Expr::Case { branches, .. } => {
            if let [(condition, row)] = branches.as_slice()
                && is_there(condition)
            {
                *e = row.clone();
            }
        }
        Expr::Call(Func::Pure(PureFunc::Row(RowFunc::Field(at))), args) => {
            if let [Expr::Call(Func::Pure(PureFunc::Row(RowFunc::Make(_))), fields)] =
                args.as_slice()
            {
                *e = fields[*at].clone();
            }
        }
        _ => {}
    }
}

/// The conditions on a table in the order in which a row is asked. What row-level security asks
/// comes before what might tell of the row.
fn secured(mut conditions: Vec<Expr>, security: &[Expr]) -> Vec<Expr> {
    cheapest_first(&mut conditions);
    if security.is_empty() {
        return conditions;
    }
    let (mut all, rest): (Vec<Expr>, Vec<Expr>) =
        conditions.into_iter().partition(|e| !might_tell(e));
    let first = all.len();
    all.extend(security.iter().cloned());
    cheapest_first(&mut all[first..]);
    all.extend(rest);
    all
}

/// A table that is read, and what of it.
struct Read<'r> {
    relation: &'r Relation,
    /// The columns, and where each goes.
    used: Vec<(usize, Register)>,
    row_id: Option<Register>,
    system: Vec<(SystemColumn, Register)>,
    analyzed: bool,
    /// Rows that meet the conditions.
    passing: f64,
}

impl Planner<'_> {
    /// Reads a relation, checking the conditions, each of which needs no other relation's registers
    /// than those that are known by then. Says whether rows come in the wanted order.
    pub(super) fn relation(
        &mut self,
        relation: &Relation,
        conditions: Vec<Expr>,
        order: &[SortKey],
        limited: bool,
    ) -> Result<(Built, bool)> {
        match &relation.kind {
            RelationKind::Table {
                table,
                columns,
                system,
                row_id,
                sample,
                security,
            } => self.table(
                relation,
                (table, columns, system, *row_id),
                sample.as_ref(),
                secured(conditions, &security.conditions),
                order,
                limited,
            ),
            _ => {
                let built = self.other(relation, &conditions)?;
                Ok((self.filtered(built, conditions), order.is_empty()))
            }
        }
    }

    fn table(
        &mut self,
        relation: &Relation,
        (table, columns, system, row_id): (&Arc<Table>, &[Register], &[Register], Option<Register>),
        sample: Option<&Sample>,
        conditions: Vec<Expr>,
        order: &[SortKey],
        limited: bool,
    ) -> Result<(Built, bool)> {
        self.note_origins(table, columns);
        let by_register: HashMap<Register, usize> = (columns.iter().chain(system).enumerate())
            .map(|(at, r)| (*r, at))
            .collect();
        let local = |e: &Expr| {
            let mut e = e.clone();
            if let Some(row_id) = row_id {
                of_a_row(&mut e, row_id);
            }
            e.replace(&mut |e| match e {
                Expr::Column(r) => Some(match by_register.get(r) {
                    Some(at) => Expr::Column(*at),
                    None => Expr::Param(self.base + r),
                }),
                _ => None,
            });
            e
        };
        let terms: Vec<Expr> = conditions.iter().map(local).collect();
        let wanted: Vec<SortKey> = order
            .iter()
            .map(|k| SortKey {
                expr: local(&k.expr),
                ..k.clone()
            })
            .collect();
        let params = ParamTypes::default();
        let planner = direct::Planner::alone(self.dict, &params);
        let stats = self.dict.stats(table.oid).map(|s| &**s);
        let known = Estimate { table, stats };
        let wish = Wish {
            order: &wanted,
            limited,
            batched: self.batches,
        };
        let passing = (known.rows() * known.all(&terms, 0)).max(1.0);
        let used: Vec<(usize, Register)> = columns
            .iter()
            .enumerate()
            .filter(|(_, r)| self.uses.contains(r))
            .map(|(at, r)| (at, self.at(*r)))
            .collect();
        let read = Read {
            relation,
            used,
            row_id,
            system: (SystemColumn::ALL.into_iter().zip(system))
                .filter(|(_, r)| self.uses.contains(r))
                .map(|(column, r)| (column, self.at(*r)))
                .collect(),
            analyzed: stats.is_some(),
            passing,
        };
        if let Some((part, cost, rows)) = self.part(table, sample, &terms)? {
            let access = TableAccess {
                table: table.clone(),
                offset: 0,
                path: Path::Full,
                needed: 0,
                filter: conjoin(terms),
                rows: passing.min(rows),
            };
            let scan = self.scan(&read, access, None, part);
            let node = Node::Table(Arc::new(scan));
            let registers = relation.registers.clone();
            let built = Built {
                node,
                registers,
                rows: passing.min(rows),
                cost,
            };
            return Ok((built, order.is_empty()));
        }
        let apart = planner.alternatives(table, 0, &terms);
        let (access, ordered) = planner.access(table, 0, terms, wish);
        let built = self.scanned(&read, access)?;
        let Some(apart) = apart else {
            return Ok((built, ordered));
        };
        let parts = apart.into_iter().map(|access| self.scanned(&read, access));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let cost: f64 = parts.iter().map(|p| p.cost).sum();
        if cost >= built.cost {
            return Ok((built, ordered));
        }
        let append = Append {
            parts: parts.into_iter().map(|p| p.node).collect(),
        };
        let node = Node::Append(Arc::new(append));
        Ok((
            Built {
                node,
                cost,
                ..built
            },
            order.is_empty(),
        ))
    }

    /// A scan of a table by an access.
    fn scanned(&self, read: &Read<'_>, mut access: TableAccess) -> Result<Built> {
        let total = self.rows_of(&access.table)?;
        if !read.analyzed && !is_unique(&access.path) {
            access.rows = (access.rows / GUESSED_ROWS * total).max(1.0);
        }
        let listed = self.listed(&access.table, &access);
        let cost = match &access.path {
            Path::Full if listed.is_some() => total.min(LOOKUP * LISTED_ROWS),
            Path::Full if self.batches && total >= BATCHED_ROWS => total * BATCHED_ROW,
            Path::Full => total,
            Path::Index { any_of, .. } => {
                LOOKUP * any_of.len().max(1) as f64 + access.rows * INDEX_ROW
            }
            Path::Keys { keys, .. } => LOOKUP * keys.len() as f64 + access.rows * INDEX_ROW,
            Path::Inverted { terms, .. } => LOOKUP * terms.len() as f64 + access.rows * INDEX_ROW,
            Path::Common { parts, .. } => LOOKUP * parts.len() as f64 + access.rows * INDEX_ROW,
        };
        let rows = match listed {
            Some(_) => access.rows.clamp(1.0, LISTED_ROWS),
            // What the index leads to still has to pass the rest of the conditions.
            None if read.analyzed => access.rows.min(read.passing),
            None => access.rows.max(1.0),
        };
        let looked_at = match access.path {
            Path::Full => total,
            _ => access.rows,
        };
        let asked = access.filter.as_ref();
        let cost = cost + asked.map_or(0.0, |f| self.subquery_cost(f, looked_at));
        let scan = self.scan(read, access, listed, Part::Whole);
        Ok(Built {
            node: Node::Table(Arc::new(scan)),
            registers: read.relation.registers.clone(),
            rows,
            cost,
        })
    }

    fn scan(
        &self,
        read: &Read<'_>,
        mut access: TableAccess,
        mut listed: Option<Listed>,
        part: Part,
    ) -> TableScan {
        let needed = read.used.iter().map(|(at, _)| at + 1).max().unwrap_or(0);
        access.decode(needed);
        if let Some(listed) = &mut listed {
            listed.access.decode(needed);
        }
        TableScan {
            access,
            alias: read.relation.alias.clone(),
            columns: read.used.clone(),
            row_id: (read.row_id.filter(|r| self.uses.contains(r))).map(|r| self.at(r)),
            system: read.system.clone(),
            listed,
            part,
        }
    }

    /// The way to read a table by an index whose first column is to be among the rows of a
    /// subquery, where no other way was found.
    fn listed(&self, table: &Arc<Table>, access: &TableAccess) -> Option<Listed> {
        let Path::Full = access.path else { return None };
        for term in conjuncts(access.filter.clone()) {
            let Expr::Subquery { number, inputs } = term else {
                continue;
            };
            let [Expr::Column(column)] = inputs.as_slice() else {
                continue;
            };
            let hashed = self.subqueries.get(number).is_some_and(|s| {
                matches!(
                    &s.kind,
                    SubqueryKind::Compared { all: false, hashed: Some(h), .. }
                        if h.inputs.len() == 1
                )
            });
            let index = table.indexes.iter().position(|i| {
                i.is_valid_order()
                    && i.predicate.is_none()
                    && i.keys.first().is_some_and(|k| k.column == *column)
            });
            if let (true, Some(index)) = (hashed, index) {
                let def = &table.indexes[index];
                let path = Path::Keys {
                    index,
                    keys: Vec::new(),
                    unique: def.is_unique_now() && def.keys.len() == 1,
                };
                return Some(Listed {
                    subquery: number,
                    access: TableAccess {
                        path,
                        ..access.clone()
                    },
                    most: MOST_LISTED,
                });
            }
        }
        None
    }

    /// Rows of a table, by statistics, or by the size of its file.
    pub(super) fn rows_of(&self, table: &Arc<Table>) -> Result<f64> {
        Ok(match self.dict.stats(table.oid) {
            Some(s) => s.rows.max(1.0),
            None => {
                let engine = self.core.database.engine();
                let blocks = engine.segment_blocks(block::ObjectId(table.segment))?;
                (blocks as f64 * ROWS_PER_BLOCK).max(1.0)
            }
        })
    }

    /// What it costs more that a part of a plan gives its rows one by one, as it does below a
    /// nested loop.
    pub(super) fn lost_batches(&self, node: &Node) -> Result<f64> {
        Ok(match node {
            Node::Table(scan) if self.batches && matches!(scan.access.path, Path::Full) => {
                let total = self.rows_of(&scan.access.table)?;
                match total >= BATCHED_ROWS {
                    true => total * (1.0 - BATCHED_ROW),
                    false => 0.0,
                }
            }
            Node::Filter(filter) => self.lost_batches(&filter.input)?,
            Node::Compute(compute) => self.lost_batches(&compute.input)?,
            Node::Hash(join) => self.lost_batches(&join.probe)?,
            _ => 0.0,
        })
    }

    /// Reads what is no table.
    fn other(&mut self, relation: &Relation, conditions: &[Expr]) -> Result<Built> {
        const VIEW_ROWS: f64 = 100.0;
        // A row of a catalog is made from definitions, which costs more than reading one.
        const MADE_ROW: f64 = 4.0;
        const FOUND_ROWS: f64 = 8.0;
        let alias = relation.alias.clone();
        let places = |columns: &[Register]| -> Vec<(usize, Register)> {
            columns
                .iter()
                .enumerate()
                .filter(|(_, r)| self.uses.contains(r))
                .map(|(at, r)| (at, self.at(*r)))
                .collect()
        };
        let (node, rows, cost) = match &relation.kind {
            RelationKind::Table { .. } => {
                return Err(crate::error::Error::internal(
                    "a table read as another relation",
                ));
            }
            RelationKind::View {
                view,
                of,
                columns,
                tableoid,
                xmin,
            } => {
                let wanted = |register: &Register| {
                    let is_used = self.uses.contains(register);
                    is_used.then(|| self.at(*register))
                };
                let (tableoid, xmin) = (wanted(tableoid), wanted(xmin));
                let lookup = self.lookup(view, columns, conditions);
                let (rows, cost) = match (&lookup, lookup::has_keys(view)) {
                    (Some(_), _) => (FOUND_ROWS, LOOKUP + FOUND_ROWS),
                    (None, true) => {
                        let rows = VIEW_ROWS.max(self.dict.definitions() as f64);
                        (rows, rows * MADE_ROW)
                    }
                    (None, false) => (VIEW_ROWS, VIEW_ROWS),
                };
                let scan = ViewScan {
                    view,
                    of: of.clone(),
                    lookup,
                    tableoid,
                    xmin,
                    alias,
                    columns: places(columns),
                };
                (Node::View(Arc::new(scan)), rows, cost)
            }
            RelationKind::Shared {
                number,
                name,
                columns,
                last_round,
                of_statement,
            } => {
                let scan = SharedScan {
                    number: *number,
                    name: name.clone(),
                    alias,
                    columns: places(columns),
                    last_round: *last_round,
                    of_statement: *of_statement,
                };
                (Node::Shared(Arc::new(scan)), VIEW_ROWS, VIEW_ROWS)
            }
            RelationKind::Series(s) => {
                let rows = series_rows(s);
                (Node::Series(Arc::new(self.series(s))), rows, rows)
            }
            RelationKind::Zip { parts, ordinality } => {
                let (mut rows, mut cost) = (1f64, 0.0);
                let mut zipped = Vec::with_capacity(parts.len());
                for part in parts {
                    let built = self.other(part, &[])?;
                    rows = rows.max(built.rows);
                    cost += built.cost;
                    let registers = part.registers.iter().map(|r| self.at(*r)).collect();
                    zipped.push((built.node, registers));
                }
                let zip = Zip {
                    parts: zipped,
                    ordinality: ordinality.map(|r| self.at(r)),
                };
                (Node::Zip(Arc::new(zip)), rows, cost)
            }
            RelationKind::Row(row) => {
                let columns = row
                    .iter()
                    .map(|(r, e)| (self.at(*r), self.lower(e.clone())))
                    .collect();
                let compute = Compute {
                    input: Node::One,
                    columns,
                    series: Vec::new(),
                };
                (Node::Compute(Arc::new(compute)), 1.0, 1.0)
            }
            RelationKind::Level {
                level, computed, ..
            } => {
                let (built, _) = self.level_ref(level)?;
                let columns: Vec<(Register, Expr)> = computed
                    .iter()
                    .filter(|(r, e)| self.uses.contains(r) || e.is_volatile())
                    .map(|(r, e)| (self.at(*r), self.lower(e.clone())))
                    .collect();
                let node = match columns.is_empty() {
                    true => built.node,
                    false => Node::Compute(Arc::new(Compute {
                        input: built.node,
                        columns,
                        series: Vec::new(),
                    })),
                };
                (node, built.rows, built.cost)
            }
        };
        Ok(Built {
            node,
            registers: relation.registers.clone(),
            rows,
            cost,
        })
    }

    /// By what the rows of a catalog are looked up.
    fn lookup(
        &self,
        view: &'static VirtualTable,
        columns: &[Register],
        conditions: &[Expr],
    ) -> Option<Lookup> {
        let place = |e: &Expr| match e {
            Expr::Column(r) => columns.iter().position(|c| c == r),
            _ => None,
        };
        let is_known = |e: &Expr| {
            let read = registers(e);
            !e.is_volatile() && !has_subquery(e) && !columns.iter().any(|c| read.contains(c))
        };
        let mut found = lookup::find(view, conditions, &place, &is_known)?;
        found.value = self.lower(found.value);
        Some(found)
    }

    pub(super) fn series(&self, s: &Series) -> plan::Series {
        plan::Series {
            of: s.of,
            args: s.args.iter().map(|e| self.lower(e.clone())).collect(),
            ty: s.ty,
            into: self.at(s.into),
            more: s.more.iter().map(|r| self.at(*r)).collect(),
            columns: s.columns.clone(),
            ordinality: s.ordinality.map(|r| self.at(r)),
        }
    }

    /// What the subqueries of a condition cost for so many rows: those that are not looked up by
    /// hash and depend on the row.
    fn subquery_cost(&self, condition: &Expr, rows: f64) -> f64 {
        let mut cost = 0.0;
        condition.visit(&mut |e| {
            let Expr::Subquery { number, inputs } = e else {
                return;
            };
            let Some(subquery) = self.subqueries.get(*number) else {
                return;
            };
            let hashed = matches!(
                &subquery.kind,
                SubqueryKind::Compared {
                    hashed: Some(_),
                    ..
                }
            );
            let once = inputs.is_empty() && subquery.stable;
            if !hashed && !once {
                let each = subquery.cost * rows;
                let by_key = |k: &plan::Keyed| 2.0 * k.cost + rows * super::keyed::PROBE;
                cost += subquery
                    .keyed
                    .as_ref()
                    .map_or(each, |k| each.min(by_key(k)));
            }
        });
        cost
    }

    /// With a filter above, if there is anything to check.
    pub(super) fn filtered(&self, built: Built, mut conditions: Vec<Expr>) -> Built {
        const PASSES: f64 = 0.3;
        if conditions.is_empty() {
            return built;
        }
        cheapest_first(&mut conditions);
        let share = PASSES.powi(conditions.len().min(4) as i32);
        let Some(condition) = conjoin(self.lower_all(conditions)) else {
            return built;
        };
        let cost = built.cost + built.rows + self.subquery_cost(&condition, built.rows);
        let filter = Filter {
            input: built.node,
            condition,
        };
        Built {
            node: Node::Filter(Arc::new(filter)),
            rows: (built.rows * share).max(1.0),
            cost,
            ..built
        }
    }
}

fn is_unique(path: &Path) -> bool {
    matches!(
        path,
        Path::Index { unique: true, .. } | Path::Keys { unique: true, .. }
    )
}

fn series_rows(s: &Series) -> f64 {
    const GUESS: f64 = 1000.0;
    let number = |e: &Expr| match e {
        Expr::Const(d) => crate::expr::cast::integer(d.borrow()),
        _ => None,
    };
    match (s.of, s.args.as_slice()) {
        (SeriesOf::Numbers, [start, stop]) => match (number(start), number(stop)) {
            (Some(a), Some(b)) => (b.saturating_sub(a) as f64 + 1.0).max(1.0),
            _ => GUESS,
        },
        (SeriesOf::User(user), _) => f64::from(user.rows).max(1.0),
        (SeriesOf::List, items) => (items.len() as f64).max(1.0),
        _ => GUESS,
    }
}
