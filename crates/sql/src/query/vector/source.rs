//! What rows come from, as far as batches have a form for it: a table that is read as a whole, then
//! conditions, computed columns and hash joins in the order of the plan.
//!
//! Columns are numbered: those of the table first, then what each join keeps of its build side.
//! Registers that are computed are replaced by what they are computed of.

use std::collections::HashMap;
use std::sync::Arc;

use crate::expr::Expr;
use crate::plan::Path;
use crate::query::plan::{HashJoin, JoinKind, Node, Part, Register, TableScan};
use crate::types::SqlType;

/// What a plan's rows come from, and what the registers are over its columns.
pub struct Source<'p> {
    pub scan: &'p TableScan,
    /// Registers that are computed, with what they are computed of.
    computed: Vec<(Register, Expr)>,
    /// Registers that joins set, in the order of their columns.
    joined: Vec<Register>,
    /// In the order of the plan.
    pub steps: Vec<Step<'p>>,
}

pub enum Step<'p> {
    Check(Expr),
    Join(&'p Arc<HashJoin>),
}

impl Source<'_> {
    /// An expression over the registers as one over the columns.
    pub fn over_columns(&self, e: &Expr) -> Expr {
        let mut e = e.clone();
        e.replace(&mut |e| match e {
            Expr::Param(register) => self.column(*register),
            _ => None,
        });
        e
    }

    fn column(&self, register: Register) -> Option<Expr> {
        let own = self.scan.access.table.columns.len();
        let read = |(_, r): &&(usize, Register)| *r == register;
        if let Some((column, _)) = self.scan.columns.iter().find(read) {
            return Some(Expr::Column(*column));
        }
        if let Some(at) = self.joined.iter().position(|r| *r == register) {
            return Some(Expr::Column(own + at));
        }
        let computed = self.computed.iter().find(|(r, _)| *r == register);
        computed.map(|(_, e)| e.clone())
    }
}

/// The source of a node's rows, if they are of a form that batches have.
pub fn source(node: &Node) -> Option<Source<'_>> {
    match node {
        Node::Table(scan) => {
            let whole = matches!(scan.access.path, Path::Full);
            let plain = scan.row_id.is_none() && scan.system.is_empty();
            let whole = whole && matches!(scan.part, Part::Whole);
            (whole && scan.listed.is_none() && plain).then(|| Source {
                scan,
                computed: Vec::new(),
                joined: Vec::new(),
                steps: Vec::new(),
            })
        }
        Node::Filter(filter) => {
            let mut source = source(&filter.input)?;
            let condition = source.over_columns(&filter.condition);
            source.steps.push(Step::Check(condition));
            Some(source)
        }
        Node::Compute(compute) if compute.series.is_empty() => {
            let mut source = source(&compute.input)?;
            for (register, e) in &compute.columns {
                let e = source.over_columns(e);
                source.computed.push((*register, e));
            }
            Some(source)
        }
        Node::Hash(join) => {
            let mut source = source(&join.probe)?;
            match join.kind {
                JoinKind::Inner => {}
                JoinKind::Left | JoinKind::Right if join.on.is_none() => {}
                _ => return None,
            }
            source.joined.extend(&join.build_registers);
            source.steps.push(Step::Join(join));
            if let Some(on) = &join.on {
                let condition = source.over_columns(on);
                source.steps.push(Step::Check(condition));
            }
            Some(source)
        }
        _ => None,
    }
}

/// The types of the registers that hold columns of tables below a node.
pub fn types_of(node: &Node, types: &mut HashMap<Register, (SqlType, i32)>) {
    match node {
        Node::Table(scan) => {
            for (column, register) in &scan.columns {
                if let Some(column) = scan.access.table.columns.get(*column) {
                    types.insert(*register, (column.ty(), column.typmod));
                }
            }
        }
        Node::Filter(p) => types_of(&p.input, types),
        Node::Compute(p) => types_of(&p.input, types),
        Node::Keep(p) => types_of(&p.input, types),
        Node::Sort(p) => types_of(&p.input, types),
        Node::Distinct(p) => types_of(&p.input, types),
        Node::Limit(p) => types_of(&p.input, types),
        Node::Append(p) => p.parts.iter().for_each(|part| types_of(part, types)),
        Node::Loop(p) => {
            types_of(&p.outer, types);
            types_of(&p.inner, types);
        }
        Node::Hash(p) => {
            types_of(&p.probe, types);
            types_of(&p.build, types);
        }
        Node::Group(p) => {
            types_of(&p.input, types);
            for (e, register) in p.keys.iter().chain(&p.decided) {
                if let Expr::Param(of) = e
                    && let Some(ty) = types.get(of).copied()
                {
                    types.insert(*register, ty);
                }
            }
        }
        Node::With(p) => types_of(&p.input, types),
        Node::One
        | Node::Nothing
        | Node::Values(_)
        | Node::Series(_)
        | Node::Zip(_)
        | Node::View(_)
        | Node::Shared(_)
        | Node::Window(_)
        | Node::SetOperation(_)
        | Node::Lock(_) => {}
    }
}
