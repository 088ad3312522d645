//! How large a query becomes when every name of a WITH query is replaced by that query, as DataFusion does it: twenty of them, each naming the one
//! before twice, are a million tables. And how many expressions it has: DataFusion's planner takes time with the square of their number, and memory for each.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, TableFactor, Visit, Visitor};

use crate::bind::names;
use crate::error::{Error, Result};

/// Queries and tables after that.
const MAX_RELATIONS: u64 = 3_000;

/// Expressions other than values and columns, and values of lists that stay lists of expressions: some seconds of planning.
const MAX_EXPRESSIONS: usize = 20_000;

/// Of a statement whose planning would not end in reasonable time.
pub fn too_complex(why: impl std::fmt::Display) -> Error {
    Error::new("54001", format!("statement too complex: {why}"))
}

/// Refuses a query that becomes too large.
pub fn check(query: &Query) -> Result<()> {
    match query.visit(&mut Sizes::default()) {
        ControlFlow::Break(e) => Err(e),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The queries around the place that is visited, from the outermost in.
#[derive(Default)]
struct Sizes {
    frames: Vec<Frame>,
    expressions: usize,
}

struct Frame {
    /// Its WITH queries: where each stands in the tree, and its name.
    with: Vec<(*const Query, String)>,
    /// Sizes of those that have been visited.
    sizes: Vec<(String, u64)>,
    size: u64,
}

impl Sizes {
    fn add(&mut self, size: u64) -> ControlFlow<Error> {
        let Some(frame) = self.frames.last_mut() else {
            return ControlFlow::Continue(());
        };
        frame.size = frame.size.saturating_add(size);
        if frame.size > MAX_RELATIONS {
            let why = format!(
                "with its WITH queries in place it has more than {MAX_RELATIONS} queries and tables"
            );
            return ControlFlow::Break(too_complex(why));
        }
        ControlFlow::Continue(())
    }

    /// The size of what a table's name stands for.
    fn of(&self, table: &TableFactor) -> u64 {
        let TableFactor::Table { name, .. } = table else {
            return 1;
        };
        let Ok(names::Qualified { schema: None, name }) = names::Qualified::new(name) else {
            return 1;
        };
        let known = self.frames.iter().rev().flat_map(|f| f.sizes.iter().rev());
        known
            .into_iter()
            .find(|(n, _)| *n == name)
            .map_or(1, |(_, size)| *size)
    }
}

impl Visitor for Sizes {
    type Break = Error;

    fn pre_visit_query(&mut self, q: &Query) -> ControlFlow<Error> {
        let with = q.with.iter().flat_map(|w| &w.cte_tables);
        let with = with.map(|c| (&raw const *c.query, names::ident(&c.alias.name)));
        self.frames.push(Frame {
            with: with.collect(),
            sizes: Vec::new(),
            size: 1,
        });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, q: &Query) -> ControlFlow<Error> {
        let Some(done) = self.frames.pop() else {
            return ControlFlow::Continue(());
        };
        let named = self.frames.last_mut().and_then(|around| {
            let (_, name) = around.with.iter().find(|(at, _)| std::ptr::eq(*at, q))?;
            around.sizes.push((name.clone(), done.size));
            Some(())
        });
        match named {
            Some(()) => ControlFlow::Continue(()),
            None => self.add(done.size),
        }
    }

    fn pre_visit_table_factor(&mut self, t: &TableFactor) -> ControlFlow<Error> {
        self.add(self.of(t))
    }

    fn pre_visit_expr(&mut self, e: &Expr) -> ControlFlow<Error> {
        self.expressions += match e {
            Expr::Value(_)
            | Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::Nested(_)
            | Expr::Cast { .. }
            | Expr::UnaryOp { .. } => 0,
            Expr::InList { list, .. } => 1 + list.len(),
            _ => 1,
        };
        if self.expressions > MAX_EXPRESSIONS {
            let why = format!("it has more than {MAX_EXPRESSIONS} expressions");
            return ControlFlow::Break(too_complex(why));
        }
        ControlFlow::Continue(())
    }
}

/// Refuses a list of so many values that stays one of expressions.
pub fn check_list(values: usize) -> Result<()> {
    match values > MAX_EXPRESSIONS {
        true => Err(too_complex(format!(
            "a list has more than {MAX_EXPRESSIONS} values of this type"
        ))),
        false => Ok(()),
    }
}

/// The number of expressions in one, itself included, or something above `most`.
pub fn expressions(e: &Expr, most: usize) -> usize {
    struct Count(usize, usize);
    impl Visitor for Count {
        type Break = ();
        fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
            self.0 += 1;
            match self.0 > self.1 {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    let mut count = Count(0, most);
    let _ = e.visit(&mut count);
    count.0
}
