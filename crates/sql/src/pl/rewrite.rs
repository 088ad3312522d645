//! What variables stand for that the analysis does not know as expressions: `record.*` in a list of
//! VALUES, the cursor of WHERE CURRENT OF, and `UPDATING('column')` in Oracle's triggers.

use std::ops::ControlFlow;

use sqlparser::ast::{self, Expr, Ident, SetExpr, VisitMut, VisitorMut};

use super::seen::{Found, Level, find};
use super::trigger::UPDATED;
use super::value::Slot;
use crate::bind::names;
use crate::error::{Error, Result};
use crate::parse::current_of::CURRENT_OF;
use crate::types::SqlType;

/// Writes the fields of records out where a list of VALUES has them all, and has WHERE CURRENT OF
/// ask a cursor's variable for the name. What is no record, or has no fields yet, is left to the
/// analysis.
pub fn in_statement(
    statement: &mut ast::Statement,
    levels: &[Level<'_>],
    slots: &[Slot],
) -> Result<()> {
    match statement.visit(&mut Rewrite { levels, slots }) {
        ControlFlow::Break(e) => Err(e),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Rewrite<'s, 'b> {
    levels: &'s [Level<'b>],
    slots: &'s [Slot],
}

impl VisitorMut for Rewrite<'_, '_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<Error> {
        if let SetExpr::Values(values) = &mut *query.body {
            for row in &mut values.rows {
                if row
                    .content
                    .iter()
                    .any(|e| matches!(e, Expr::QualifiedWildcard(..)))
                {
                    let items = std::mem::take(&mut row.content);
                    row.content = items.into_iter().flat_map(|e| self.spread(e)).collect();
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Function(call) = e
            && let [ast::ObjectNamePart::Identifier(name)] = call.name.0.as_slice()
            && name.value == CURRENT_OF
            && let ast::FunctionArguments::List(list) = &mut call.args
            && let Some(ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(cursor))) =
                list.args.first_mut()
        {
            self.name_cursor(cursor);
        }
        match self.asked_column(e) {
            Ok(Some(asked)) => *e = asked,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Rewrite<'_, '_> {
    /// A cursor's name, as a text, becomes its variable if it is that of one.
    fn name_cursor(&self, cursor: &mut Expr) {
        let Expr::Value(value) = &*cursor else { return };
        let ast::Value::SingleQuotedString(name) = &value.value else {
            return;
        };
        let is_record = |slot: usize| matches!(self.slots[slot], Slot::Record(_));
        let path = [name.clone()];
        let Some(Found::Slot(slot)) = find(self.levels, &is_record, &path) else {
            return;
        };
        if matches!(&self.slots[slot], Slot::Scalar(s) if s.ty == SqlType::Refcursor) {
            let variable = Expr::Identifier(Ident::with_quote('"', name));
            *cursor = Expr::Cast {
                kind: ast::CastKind::DoubleColon,
                expr: Box::new(variable),
                data_type: ast::DataType::Text,
                array: false,
                format: None,
            };
        }
    }

    /// `UPDATING(column)` as a look at the columns that the UPDATE gives values to.
    fn asked_column(&self, e: &Expr) -> Result<Option<Expr>> {
        let Expr::Function(call) = e else {
            return Ok(None);
        };
        let [ast::ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else {
            return Ok(None);
        };
        let ast::FunctionArguments::List(list) = &call.args else {
            return Ok(None);
        };
        let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(column))] = list.args.as_slice()
        else {
            return Ok(None);
        };
        let is_record = |slot: usize| matches!(self.slots[slot], Slot::Record(_));
        let is_one = names::ident(name) == "updating"
            && find(self.levels, &is_record, &[UPDATED.to_string()]).is_some();
        if !is_one {
            return Ok(None);
        }
        let text = format!(
            "pg_catalog.array_position(\"{UPDATED}\", pg_catalog.upper({column})) IS NOT NULL"
        );
        let looked = crate::parse::expression(&text).map_err(|e| e.in_statement(&text))?;
        Ok(Some(Expr::Nested(Box::new(looked))))
    }

    fn spread(&self, e: Expr) -> Vec<Expr> {
        let Expr::QualifiedWildcard(name, _) = &e else {
            return vec![e];
        };
        let mut path = Vec::new();
        for part in &name.0 {
            match part {
                ast::ObjectNamePart::Identifier(name) => path.push(name.clone()),
                ast::ObjectNamePart::Function(_) => return vec![e],
            }
        }
        let folded: Vec<String> = path.iter().map(names::ident).collect();
        let is_record = |slot: usize| matches!(self.slots[slot], Slot::Record(_));
        let Some(Found::Slot(slot)) = find(self.levels, &is_record, &folded) else {
            return vec![e];
        };
        let Slot::Record(record) = &self.slots[slot] else {
            return vec![e];
        };
        let Some(shape) = &record.shape else {
            return vec![e];
        };
        let field = |name: &str| {
            let field = Ident::with_quote('"', name);
            Expr::CompoundIdentifier(path.iter().cloned().chain([field]).collect())
        };
        shape.fields.iter().map(|f| field(&f.name)).collect()
    }
}
