//! From syntax to a tree whose names and types are settled: one binder for all queries.
//!
//! An expression is bound by [`crate::bind::Binder`]; what depends on the query around it (columns
//! of any level, subqueries, aggregates, windows, rows of values) is answered by
//! [`expression::Clause`], which the binder asks first.

mod answers;
mod expression;
mod from;
pub(crate) mod functions;
mod group;
mod home;
mod hypothetical;
mod joins;
mod json;
mod keys;
mod marks;
mod merge;
pub mod over;
pub mod policy;
mod records;
mod recursion;
mod row_locks;
mod rownum;
mod rows;
mod rows_from;
mod sample;
pub mod scope;
mod select;
mod sequence;
mod set;
mod subquery;
pub mod system;
mod system_view;
pub mod tree;
mod user_rows;
pub mod view;
mod window;
mod with;
mod zipped;

pub use joins::THERE;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use sqlparser::ast;

use super::plan::Plan;
use crate::bind::ParamTypes;
use crate::dict::{Dict, Table, View};
use crate::error::Result;
use crate::parse::utility::TableLock;
use crate::session::Core;
use scope::{File, Scope};

pub use over::{Beside, OverRow, plan_over};
pub use with::{WithItem, items_in_order, not_at_top, plan_item, writes};

/// Who takes a query's rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A client, or the queries that name it as an item of the statement's WITH.
    Client,
    /// Another step, which gives literals without a type their types.
    Step,
}

/// Plans a query. What it cannot express answers 0A000. `items` are those of the statement's WITH
/// that it may name.
pub fn plan(
    core: &Core,
    q: &ast::Query,
    params: &ParamTypes,
    reader: Reader,
    items: &[WithItem],
) -> Result<Plan> {
    plan_beside(core, q, params, reader, items).map(|(plan, _)| plan)
}

/// As [`plan`]; of a query that feeds a write also the names of the columns that it gives for the
/// star of [`crate::plan::supply::BESIDE`].
pub fn plan_beside(
    core: &Core,
    q: &ast::Query,
    params: &ParamTypes,
    reader: Reader,
    items: &[WithItem],
) -> Result<(Plan, Vec<Beside>)> {
    let dict = core.dict();
    let analyzer = Analyzer::new(&dict, params);
    let file = File::new(None);
    let outermost = Scope::new(None, &file);
    let mut level = analyzer.query(q, &outermost, &with::Known::of_statement(items))?;
    if reader != Reader::Step {
        analyzer.settle(&mut level)?;
    }
    let beside = analyzer.beside.take();
    Ok((super::optimize::plan(core, analyzer, &file, level)?, beside))
}

/// What the analysis of one statement works with, and gathers.
pub struct Analyzer<'a> {
    pub dict: &'a Dict,
    pub params: &'a ParamTypes,
    pub subqueries: RefCell<Vec<Option<tree::Subquery>>>,
    pub shared: RefCell<Vec<Option<tree::Shared>>>,
    pub tables: RefCell<Vec<(Arc<Table>, TableLock)>>,
    pub views: RefCell<Vec<Arc<View>>>,
    /// For CREATE VIEW: what the query names.
    notes: RefCell<Option<view::Notes>>,
    /// How many views are around what is being analysed.
    nested: Cell<usize>,
    /// What a write's query has from FROM, if that was asked for.
    beside: RefCell<Vec<Beside>>,
    /// Calls of aggregates whose arguments are being bound, to see which level they are of.
    calls: RefCell<Vec<home::Call>>,
}

impl<'a> Analyzer<'a> {
    fn new(dict: &'a Dict, params: &'a ParamTypes) -> Analyzer<'a> {
        Analyzer {
            dict,
            params,
            subqueries: RefCell::default(),
            shared: RefCell::default(),
            tables: RefCell::default(),
            views: RefCell::default(),
            notes: RefCell::default(),
            nested: Cell::default(),
            beside: RefCell::default(),
            calls: RefCell::default(),
        }
    }
}

impl Analyzer<'_> {
    /// Notes that a table is read, or that its rows are locked.
    fn note_table(&self, table: &Arc<Table>, lock: TableLock) {
        let mut tables = self.tables.borrow_mut();
        match tables.iter_mut().find(|(t, _)| t.oid == table.oid) {
            Some((_, held)) if lock != TableLock::AccessShare => *held = lock,
            Some(_) => {}
            None => tables.push((table.clone(), lock)),
        }
    }

    /// Whether what is being analysed is a view's own text.
    fn is_in_view(&self) -> bool {
        self.nested.get() > 0
    }

    /// A literal of the result that nothing gave a type is text.
    fn settle(&self, level: &mut tree::Level) -> Result<()> {
        let empty = crate::bind::Scope::default();
        let binder = crate::bind::Binder::new(&empty, self.params, "SELECT");
        for output in &mut level.outputs {
            output.value = binder.settle(output.value.clone())?;
        }
        Ok(())
    }
}

/// A file for what `scope` is around.
fn inner_file(scope: &Scope<'_>) -> Rc<File> {
    File::new(Some(&scope.file))
}
