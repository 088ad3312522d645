//! The steps of a statement's plan, and of the direct lane's.

use std::sync::Arc;
use std::time::Duration;

use super::expression::{
    Names, element_terms, index_terms, over_tables, part_terms, shown, sorted_by, whole_keys,
};
use super::options::Options;
use super::step::{Actual, Entry, Heading, Note, Step, Value};
use super::{Measured, no_plan, text};
use crate::dict::{Dict, Table};
use crate::error::Result;
use crate::exec::profile::{self, StepKey};
use crate::expr::Expr;
use crate::plan::inverted::ElementTerm;
use crate::plan::path::{conjoin, conjuncts};
use crate::plan::supply::Change;
use crate::plan::with::Part;
use crate::plan::{
    DeletePlan, IndexPart, InsertPlan, InsertSource, Path, SelectPlan, SortKey, Source,
    SuppliedWrite, TableAccess, UpdatePlan,
};
use crate::session::{Core, Kind};

/// The steps of a plan as they are put together.
pub(super) struct Outline<'m> {
    pub entries: Vec<Entry>,
    /// What the registers of the tree lane's plan are.
    pub names: Names,
    pub measured: Option<&'m Measured>,
    options: &'m Options,
    /// Says the names of schemas, if they are to be shown.
    schemas: Option<Arc<Dict>>,
}

impl<'m> Outline<'m> {
    pub fn new(options: &'m Options, measured: Option<&'m Measured>, core: &Core) -> Outline<'m> {
        Outline {
            entries: Vec::new(),
            names: Names::new(usize::MAX),
            measured,
            options,
            schemas: options.verbose.then(|| core.dict()),
        }
    }

    /// With conditions and keys of so many bytes each (0: none).
    pub fn with_texts(mut self, most: usize) -> Outline<'m> {
        self.names = Names::new(most);
        self
    }
}

impl Outline<'_> {
    pub fn kind(&mut self, kind: &Kind, core: &mut Core) -> Result<()> {
        match kind {
            Kind::Select(plan) => self.select(plan, 0, true),
            Kind::Insert(plan) => self.insert(plan, 0, core)?,
            Kind::Update(plan) => self.update(plan, 0),
            Kind::Delete(plan) => self.delete(plan, 0),
            Kind::Supplied(plan) => self.supplied(plan, 0, core)?,
            Kind::Tree(plan) => self.tree(plan, 0, core)?,
            Kind::With(plan) => {
                self.part(&plan.main, 0, core)?;
                for item in &plan.items {
                    let name = format!("CTE {}", item.name);
                    self.heading(0, Some(name.clone()), name, "InitPlan");
                    self.part(&item.part, 1, core)?;
                }
            }
            Kind::Empty | Kind::Utility(_) | Kind::Ddl(_) | Kind::Call(_) => return Err(no_plan()),
        }
        Ok(())
    }

    /// The query that fills a table: as it was planned, or as the table was filled.
    pub fn filling(&mut self, kind: &Kind, core: &mut Core) -> Result<()> {
        match kind {
            Kind::Insert(plan) => self.supply(&plan.source, 0, core),
            kind => self.kind(kind, core),
        }
    }

    /// A part of a statement whose WITH writes.
    fn part(&mut self, part: &Part, depth: usize, core: &mut Core) -> Result<()> {
        match part {
            Part::Query(plan) => self.tree(plan, depth, core)?,
            Part::Insert(plan) => self.insert(plan, depth, core)?,
            Part::Update(plan) => self.update(plan, depth),
            Part::Delete(plan) => self.delete(plan, depth),
            Part::Supplied(plan) => self.supplied(plan, depth, core)?,
            Part::Transition(_) => {
                self.step(depth, "Transition table", "Named Tuplestore Scan");
            }
        }
        Ok(())
    }

    fn insert(&mut self, plan: &InsertPlan, depth: usize, core: &mut Core) -> Result<()> {
        self.write("Insert", &plan.table, plan.step(), depth);
        self.supply(&plan.source, depth + 1, core)
    }

    /// What gives the rows of an INSERT.
    fn supply(&mut self, source: &InsertSource, below: usize, core: &mut Core) -> Result<()> {
        match source {
            InsertSource::Rows(rows) => {
                let step = self.step(below, "Values", "Values Scan");
                step.rows(rows.len() as f64);
            }
            InsertSource::Query(q, _) => self.select(q, below, false),
            InsertSource::Fed(q, _) => self.tree(q, below, core)?,
        }
        Ok(())
    }

    fn update(&mut self, plan: &UpdatePlan, depth: usize) {
        self.write("Update", &plan.access.table, plan.step(), depth);
        self.access(&plan.access, depth + 1);
    }

    fn delete(&mut self, plan: &DeletePlan, depth: usize) {
        self.write("Delete", &plan.access.table, plan.step(), depth);
        self.access(&plan.access, depth + 1);
    }

    fn supplied(&mut self, plan: &SuppliedWrite, depth: usize, core: &mut Core) -> Result<()> {
        let verb = match plan.change {
            Change::Update(_) => "Update",
            Change::Delete => "Delete",
            Change::Merge(_) => "Merge",
        };
        self.write(verb, &plan.table, plan.step(), depth);
        self.tree(&plan.query, depth + 1, core)
    }

    /// Adds a step. `kind` is what PostgreSQL calls such steps.
    pub fn step(
        &mut self,
        depth: usize,
        label: impl Into<String>,
        kind: &'static str,
    ) -> &mut Step {
        self.entries.push(Entry::Step(Step {
            depth,
            kind,
            label: label.into(),
            facts: Vec::new(),
            place: None,
            rows: None,
            actual: None,
        }));
        match self.entries.last_mut() {
            Some(Entry::Step(step)) => step,
            _ => unreachable!("a step was added"),
        }
    }

    /// Adds something about the last step of this depth.
    pub fn note(&mut self, depth: usize, text: String) -> &mut Note {
        self.entries.push(Entry::Note(Note {
            depth,
            text,
            facts: Vec::new(),
        }));
        match self.entries.last_mut() {
            Some(Entry::Note(note)) => note,
            _ => unreachable!("a note was added"),
        }
    }

    /// Says what the steps are for that come next, one deeper than this.
    pub fn heading(
        &mut self,
        depth: usize,
        text: Option<String>,
        name: String,
        relationship: &'static str,
    ) {
        self.entries.push(Entry::Heading(Heading {
            depth,
            text,
            name,
            relationship,
        }));
    }

    /// What the whole statement took, for its topmost step.
    fn total(&self) -> Option<Actual> {
        self.measured.map(|m| Actual {
            rows: m.rows,
            loops: 1,
            took: m.total,
        })
    }

    /// What a step took.
    pub fn took(&self, key: StepKey) -> Option<Actual> {
        let step = self.measured?.profile.step(key);
        Some(Actual {
            rows: step.rows,
            loops: step.loops,
            took: step.took,
        })
    }

    /// A table's name, with its schema if schemas are to be shown.
    fn name_of(&self, table: &Table) -> String {
        match &self.schemas {
            Some(dict) => format!("{}.{}", dict.schema_name(table.schema), table.name),
            None => table.name.clone(),
        }
    }

    /// Says of the last step which table it is about.
    fn relation(&mut self, table: &Table, alias: Option<&str>) {
        let schema = self
            .schemas
            .as_ref()
            .map(|d| d.schema_name(table.schema).to_string());
        if let Some(Entry::Step(step)) = self.entries.last_mut() {
            step.fact("Relation Name", table.name.clone());
            if let Some(schema) = schema {
                step.fact("Schema", schema);
            }
            if let Some(alias) = alias {
                step.fact("Alias", alias);
            }
        }
    }

    /// What a scan gives, if it is to be shown.
    pub fn output(&mut self, depth: usize, columns: impl Iterator<Item = String>) {
        if self.options.verbose {
            let columns: Vec<String> = columns.collect();
            self.note(depth, format!("Output: {}", columns.join(", ")))
                .fact("Output", Value::Texts(columns));
        }
    }

    fn write(&mut self, verb: &'static str, table: &Table, key: StepKey, depth: usize) {
        let took = self.total().filter(|_| depth == 0);
        let label = format!("{verb} on {}", self.name_of(table));
        let step = self.step(depth, label, "ModifyTable");
        step.actual = took;
        step.placed(key).fact("Operation", verb);
        self.relation(table, None);
    }

    /// What stands above the source of rows, whose depth is returned. `top`: its rows are those of
    /// the statement.
    fn above_source(&mut self, plan: &SelectPlan, mut depth: usize, top: bool) -> usize {
        let outermost = self.total().filter(|_| top);
        if plan.limit.is_some() || plan.offset.is_some() {
            self.step(depth, "Limit", "Limit").actual = outermost;
            depth += 1;
        }
        if !plan.locks.is_empty() {
            self.step(depth, "LockRows", "LockRows");
            depth += 1;
        }
        if !plan.order.is_empty() {
            let key = StepKey::of(&plan.order);
            let took = self.took(key);
            self.step(depth, "Sort", "Sort").placed(key).actual = took;
            // Keys over groups are of what the aggregate gives.
            if plan.aggregate.is_none() {
                let tables = plan.source.accesses();
                let text = |k: &SortKey| sorted_by(k, over_tables(&k.expr, &tables, &self.names));
                let keys = plan.order.iter().map(text).collect();
                self.keys(depth, "Sort Key", keys);
            }
            depth += 1;
        }
        if let Some(a) = &plan.aggregate {
            let took = self.took(StepKey::of(a));
            let step = self.step(depth, "Aggregate", "Aggregate");
            step.placed(StepKey::of(a)).actual = took;
            step.fact("Strategy", "Plain");
            if a.having.is_some() {
                self.removed(StepKey::of(a), depth);
            }
            depth += 1;
        }
        depth
    }

    /// `top`: its rows are those of the statement.
    fn select(&mut self, plan: &SelectPlan, depth: usize, top: bool) {
        let depth = self.above_source(plan, depth, top);
        match &plan.source {
            Source::One => {
                let took = self.total().filter(|_| top);
                self.step(depth, "Result", "Result").actual = took;
            }
            Source::Values(rows) => {
                let step = self.step(depth, "Values Scan", "Values Scan");
                step.rows(rows.len() as f64);
            }
            Source::Series { .. } => {
                let label = "Function Scan on generate_series";
                let step = self.step(depth, label, "Function Scan");
                step.fact("Function Name", "generate_series");
            }
            Source::Table(t) => self.access(t, depth),
            Source::Loop { outer, inner, left } => {
                let (kind, join) = match *left {
                    true => ("Nested Loop Left Join", "Left"),
                    false => ("Nested Loop", "Inner"),
                };
                let step = self.step(depth, kind, "Nested Loop");
                step.fact("Join Type", join);
                self.access(outer, depth + 1);
                self.access(inner, depth + 1);
            }
        }
        if let Some(filter) = &plan.filter {
            let text = over_tables(filter, &plan.source.accesses(), &self.names);
            self.condition(depth, "Filter", text);
        }
    }

    /// A condition of the last step of this depth.
    pub fn condition(&mut self, depth: usize, name: &'static str, text: String) {
        self.note(depth, format!("{name}: {text}")).fact(name, text);
    }

    /// What the last step of this depth sorts or groups by.
    pub fn keys(&mut self, depth: usize, name: &'static str, keys: Vec<String>) {
        let text = format!("{name}: {}", keys.join(", "));
        self.note(depth, text).fact(name, Value::Texts(keys));
    }

    pub fn removed(&mut self, key: StepKey, depth: usize) {
        if let Some(m) = self.measured {
            let removed = m.profile.step(key).removed;
            self.note(depth, format!("Rows Removed by Filter: {removed}"))
                .fact("Rows Removed by Filter", removed);
        }
    }

    fn access(&mut self, a: &TableAccess, depth: usize) {
        self.access_as(a, None, (SEQUENTIAL, SEQUENTIAL), depth);
        self.conditions(a, depth);
    }

    /// The step of a table's access. `alias` is what the query calls the table, which the direct
    /// lane does not know.
    /// `scan` is what a scan of the table itself is called in the text, and by PostgreSQL.
    pub fn access_as(
        &mut self,
        a: &TableAccess,
        alias: Option<&str>,
        scan: (&str, &'static str),
        depth: usize,
    ) {
        let took = self.took(StepKey::of(a));
        let mut name = self.name_of(&a.table);
        if let Some(alias) = alias.filter(|alias| *alias != a.table.name) {
            name = format!("{name} {alias}");
        }
        let (way, index) = match &a.path {
            Path::Full => {
                let step = self.step(depth, format!("{} on {name}", scan.0), scan.1);
                step.placed(StepKey::of(a)).rows(a.rows).actual = took;
                return self.relation(&a.table, alias);
            }
            Path::Inverted { .. } | Path::Common { .. } => {
                let step = self.step(depth, format!("Bitmap Heap Scan on {name}"), BITMAP);
                step.placed(StepKey::of(a)).rows(a.rows).actual = took;
                return self.relation(&a.table, alias);
            }
            Path::Keys { index, .. } => ("Forward", *index),
            Path::Index {
                index,
                backward: false,
                ..
            } => ("Forward", *index),
            Path::Index { index, .. } => ("Backward", *index),
        };
        let index = &a.table.indexes[index].name;
        let shown = if way == "Backward" { " Backward" } else { "" };
        let label = format!("Index Scan{shown} using {index} on {name}");
        let step = self.step(depth, label, "Index Scan");
        step.placed(StepKey::of(a)).rows(a.rows).actual = took;
        step.fact("Scan Direction", way);
        step.fact("Index Name", index.clone());
        self.relation(&a.table, alias);
    }

    /// By what a table's rows are found, and which of them are refused.
    pub fn conditions(&mut self, a: &TableAccess, depth: usize) {
        if let Path::Inverted { index, terms, .. } = &a.path {
            return self.inverted(a, *index, terms, depth);
        }
        if let Path::Common { parts, said } = &a.path {
            return self.common(a, parts, said, depth);
        }
        let condition = match &a.path {
            Path::Full | Path::Inverted { .. } | Path::Common { .. } => None,
            Path::Keys { index, keys, .. } => Some(whole_keys(a, *index, keys, &self.names)),
            Path::Index { .. } => {
                let terms = index_terms(a, &self.names);
                (!terms.is_empty()).then(|| format!("({})", terms.join(" AND ")))
            }
        };
        if let Some(condition) = condition {
            self.note(depth, format!("Index Cond: {condition}"))
                .fact("Index Cond", condition);
        }
        if let (Path::Index { .. }, Some(m)) = (&a.path, self.measured) {
            self.shares(&m.profile.step(StepKey::of(a)), depth);
        }
        if let Some(f) = &a.filter {
            let filter = shown(f, a, &self.names);
            self.note(depth, format!("Filter: {filter}"))
                .fact("Filter", filter);
            self.removed(StepKey::of(a), depth);
        }
    }

    /// By what an inverted index leads to rows, each of which is looked at, and the step of the
    /// index.
    fn inverted(&mut self, a: &TableAccess, index: usize, terms: &[ElementTerm], depth: usize) {
        let conditions = element_terms(a, index, terms, &self.names);
        self.note(depth, format!("Recheck Cond: {conditions}"))
            .fact("Recheck Cond", conditions.clone());
        let mut rest = conjuncts(a.filter.clone());
        rest.retain(|e| terms.iter().all(|t| t.condition != *e));
        if let Some(f) = conjoin(rest) {
            let filter = shown(&f, a, &self.names);
            self.note(depth, format!("Filter: {filter}"))
                .fact("Filter", filter);
        }
        self.removed(StepKey::of(a), depth);
        let name = a.table.indexes[index].name.clone();
        let label = format!("Bitmap Index Scan on {name}");
        let entries = (self.measured).map(|m| m.profile.step(StepKey::of(a)).index);
        let step = self.step(depth + 1, label, "Bitmap Index Scan");
        step.fact("Index Name", name);
        self.note(depth + 1, format!("Index Cond: {conditions}"))
            .fact("Index Cond", conditions);
        if let Some(walk) = entries {
            let text = self.share("Index Walk: entries", walk.entries, walk.gets, walk.time);
            self.note(depth + 1, text)
                .fact("Index Entries", walk.entries);
        }
    }

    /// By what several indexes lead to rows, each of which is looked at, and the steps of the
    /// indexes.
    fn common(&mut self, a: &TableAccess, parts: &[IndexPart], said: &[Expr], depth: usize) {
        let terms = parts.iter().map(|part| part_terms(a, part, &self.names));
        let terms: Vec<Vec<String>> = terms.collect();
        let within = |terms: &[String]| format!("({})", terms.join(" AND "));
        let conditions = within(&terms.iter().map(|t| within(t)).collect::<Vec<_>>());
        self.note(depth, format!("Recheck Cond: {conditions}"))
            .fact("Recheck Cond", conditions);
        let mut rest = conjuncts(a.filter.clone());
        rest.retain(|e| !said.contains(e));
        if let Some(f) = conjoin(rest) {
            let filter = shown(&f, a, &self.names);
            self.note(depth, format!("Filter: {filter}"))
                .fact("Filter", filter);
        }
        self.removed(StepKey::of(a), depth);
        let walk = (self.measured).map(|m| m.profile.step(StepKey::of(a)).index);
        self.step(depth + 1, "BitmapAnd".to_string(), "BitmapAnd");
        if let Some(walk) = walk {
            let text = self.share("Index Walk: entries", walk.entries, walk.gets, walk.time);
            self.note(depth + 1, text)
                .fact("Index Entries", walk.entries);
        }
        for (part, terms) in parts.iter().zip(&terms) {
            let name = a.table.indexes[part.index].name.clone();
            let label = format!("Bitmap Index Scan on {name}");
            let step = self.step(depth + 2, label, "Bitmap Index Scan");
            step.fact("Index Name", name);
            let condition = within(terms);
            self.note(depth + 2, format!("Index Cond: {condition}"))
                .fact("Index Cond", condition);
        }
    }

    /// What of an index scan was the walk through the index, and what the rows.
    fn shares(&mut self, step: &profile::Step, depth: usize) {
        let (walk, all) = (step.index, step.took);
        let (gets, time) = (
            all.gets.saturating_sub(walk.gets),
            all.time.saturating_sub(walk.time),
        );
        let text = self.share(
            "Index Range Scan: entries",
            walk.entries,
            walk.gets,
            walk.time,
        );
        self.note(depth, text).fact("Index Entries", walk.entries);
        let text = self.share("Table Access by Row Id: rows", step.rows, gets, time);
        self.note(depth, text);
    }

    fn share(&self, what: &str, number: u64, gets: u64, time: Duration) -> String {
        let mut text = format!("{what}={number}");
        if self.options.buffers {
            text += &format!(" gets={gets}");
        }
        if self.options.timing {
            text += &format!(" time={}", text::milliseconds(time));
        }
        text
    }
}

/// What a scan of a whole table is called.
pub(super) const SEQUENTIAL: &str = "Seq Scan";
/// What a scan of the rows is called that an inverted index leads to.
const BITMAP: &str = "Bitmap Heap Scan";
