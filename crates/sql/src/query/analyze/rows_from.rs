//! ROWS FROM: the rows of several functions side by side.

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments, TableAlias};

use super::Analyzer;
use super::from::{Item, rename};
use super::scope::{Column, Names, Scope};
use super::tree::{From, Relation, RelationKind};
use super::with::Known;
use crate::bind::{Typed, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::{self, Command, forms};
use crate::types::SqlType;

impl Analyzer<'_> {
    /// The functions are the arguments of a call (`parse::forms::ROWS_FROM`).
    pub(super) fn side_by_side(
        &self,
        functions: &[FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Item> {
        let mut parts: Vec<Relation> = Vec::with_capacity(functions.len());
        let mut registers = Vec::new();
        let mut columns: Vec<Column> = Vec::new();
        for function in functions {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::Function(call))) = function
            else {
                return Err(Error::unsupported(format!("{function} in ROWS FROM")));
            };
            let (call, defined) = defined(call)?;
            let (from, names) = match &call.args {
                FunctionArguments::List(list)
                    if list.duplicate_treatment.is_none() && list.clauses.is_empty() =>
                {
                    let alias = defined.as_ref();
                    self.function(&call.name, &list.args, false, alias, scope, known)?
                }
                _ => return Err(Error::unsupported(format!("{call} in ROWS FROM"))),
            };
            let From::Relation(relation) = from else {
                return Err(Error::unsupported(format!("{call} in ROWS FROM")));
            };
            let is_function = matches!(
                relation.kind,
                RelationKind::Series(_) | RelationKind::Row(_)
            );
            if !is_function {
                return Err(Error::unsupported(format!("{call} in ROWS FROM")));
            }
            registers.extend(&relation.registers);
            columns.extend(
                names
                    .columns
                    .into_iter()
                    .map(|c| Column { whole: false, ..c }),
            );
            parts.push(relation);
        }
        let called = match (alias, columns.first()) {
            (Some(alias), _) => names::ident(&alias.name),
            (None, Some(first)) => first.table.clone(),
            (None, None) => String::new(),
        };
        let ordinality = ordinality.then(|| scope.file.register());
        if let Some(register) = ordinality {
            registers.push(register);
            columns.push(Column {
                table: called.clone(),
                name: "ordinality".to_string(),
                value: Typed::new(Expr::Column(register), SqlType::Int8),
                origin: (0, 0),
                merged: false,
                whole: false,
            });
        }
        for column in &mut columns {
            column.table.clone_from(&called);
        }
        let mut found = Names {
            columns,
            tables: vec![called.clone()],
            ..Names::default()
        };
        if let Some(alias) = alias {
            rename(&mut found, alias)?;
        }
        let relation = Relation {
            alias: called,
            registers,
            kind: RelationKind::Zip { parts, ordinality },
        };
        Ok((From::Relation(relation), found))
    }
}

/// A call, and the columns that it is declared to give, if it is.
fn defined(call: &ast::Function) -> Result<(&ast::Function, Option<TableAlias>)> {
    let name = names::parts(&call.name)?.pop().unwrap_or_default();
    let Some(columns) = forms::defined_columns(&name) else {
        return Ok((call, None));
    };
    let unexpected = || Error::internal("a column definition list that is none");
    let FunctionArguments::List(list) = &call.args else {
        return Err(unexpected());
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::Function(inner)))] =
        list.args.as_slice()
    else {
        return Err(unexpected());
    };
    let called = names::parts(&inner.name)?.pop().unwrap_or_default();
    let text = format!("SELECT 1 FROM f() AS {} ({columns})", names::quote(&called));
    let Command::Sql(statement) = parse::statement(&text)? else {
        return Err(unexpected());
    };
    let ast::Statement::Query(query) = *statement else {
        return Err(unexpected());
    };
    let ast::SetExpr::Select(select) = *query.body else {
        return Err(unexpected());
    };
    let relation = select.from.into_iter().next().map(|item| item.relation);
    match relation {
        Some(ast::TableFactor::Table { alias, .. } | ast::TableFactor::Function { alias, .. })
            if alias.is_some() =>
        {
            Ok((inner, alias))
        }
        _ => Err(unexpected()),
    }
}
