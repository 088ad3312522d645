//! CALL: a procedure with what it is given.

use std::sync::Arc;

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use crate::api::ColumnDesc;
use crate::bind::{Binder, ParamTypes, Scope, names};
use crate::dict::Function;
use crate::dict::function::Mode;
use crate::error::Result;
use crate::expr::Expr;
use crate::types::call_types::CallTypes;

pub struct CallPlan {
    pub function: Arc<Function>,
    /// Of the parameters that go in.
    pub args: Vec<Expr>,
    /// The types that the call has settled, if the procedure leaves some open.
    pub types: Option<CallTypes>,
    /// What the caller names for the parameters that go out, as it is written; a body assigns to
    /// it. `None`: a default stands for it.
    pub outputs: Vec<Option<ast::Expr>>,
}

/// Plans CALL; says what its row has, if parameters go out.
pub fn plan(f: &ast::Function, params: &ParamTypes) -> Result<(CallPlan, Option<Vec<ColumnDesc>>)> {
    let scope = Scope::default();
    let binder = Binder::new(&scope, params, "CALL arguments");
    let name = names::Qualified::new(&f.name)?;
    let called = binder.procedure_called(&name, f)?;
    let function = called.function;
    let columns: Vec<ColumnDesc> = function
        .outputs()
        .map(|p| ColumnDesc {
            name: p.name.clone(),
            table_oid: 0,
            attnum: 0,
            ty: p.ty().base(),
            typmod: -1,
            collation: Default::default(),
        })
        .collect();
    let plan = CallPlan {
        outputs: outputs(&function, f),
        args: called.args,
        types: called.types,
        function,
    };
    Ok((plan, (!columns.is_empty()).then_some(columns)))
}

fn outputs(function: &Function, f: &ast::Function) -> Vec<Option<ast::Expr>> {
    let given: &[FunctionArg] = match &f.args {
        FunctionArguments::List(list) => &list.args,
        _ => &[],
    };
    let placed = |at: usize| match given.get(at) {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(e))) => Some(e.clone()),
        _ => None,
    };
    let named = |name: &str| {
        given.iter().find_map(|arg| match arg {
            FunctionArg::Named {
                name: given,
                arg: FunctionArgExpr::Expr(e),
                ..
            } if names::ident(given) == name => Some(e.clone()),
            _ => None,
        })
    };
    let all = function.parameters.iter().enumerate();
    let out = all.filter(|(_, p)| matches!(p.mode, Mode::Out | Mode::InOut));
    out.map(|(at, p)| placed(at).or_else(|| named(&p.name)))
        .collect()
}
