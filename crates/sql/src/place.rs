//! Where in a statement's text an error is, as PostgreSQL says it: at the start of a name, a call
//! or a literal, or at an operator.
//!
//! The analysis knows lines and columns of the syntax tree; whoever has the text makes a position
//! of them ([`crate::error::Error::located`]). What was not in the text has no place.

use std::ops::ControlFlow;

use sqlparser::ast::{self, Spanned, Visit, Visitor};
use sqlparser::tokenizer::{Location, Span, Token};

use crate::bind::names;
use crate::parse;
use crate::query::aggregate::is_aggregate;

#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    At(Location),
    /// At the operator that follows an operand which ends here, parentheses apart.
    OperatorAfter(Location),
    /// At the operator before an operand that starts here.
    OperatorBefore(Location),
    /// At the parenthesis before a query that starts here.
    ParenthesisBefore(Location),
    /// At the first string that has this value.
    Literal(String),
    /// At a column of a table outside of aggregates; of which query is known further out.
    Column {
        table: String,
        name: String,
    },
}

impl Place {
    pub fn of_span(span: Span) -> Option<Place> {
        (span.start.line > 0).then_some(Place::At(span.start))
    }

    pub fn of_name(name: &ast::ObjectName) -> Option<Place> {
        Place::of_span(name.span())
    }

    pub fn of_expr(e: &ast::Expr) -> Option<Place> {
        match e {
            ast::Expr::Subquery(query) => Place::of_subquery(query),
            e => Place::of_span(e.span()),
        }
    }

    /// At the operator behind an operand.
    pub fn of_operator_after(operand: &ast::Expr) -> Option<Place> {
        let end = operand.span().end;
        (end.line > 0).then_some(Place::OperatorAfter(end))
    }

    /// Of a query that stands in parentheses.
    pub fn of_subquery(query: &ast::Query) -> Option<Place> {
        let start = query.span().start;
        (start.line > 0).then_some(Place::ParenthesisBefore(start))
    }

    /// Of an error about a whole expression, whose operands are as they should be.
    pub fn of_node(e: &ast::Expr) -> Option<Place> {
        let after = Place::of_operator_after;
        match e {
            ast::Expr::BinaryOp { left, .. } => after(left),
            ast::Expr::IsDistinctFrom(left, _) | ast::Expr::IsNotDistinctFrom(left, _) => {
                after(left)
            }
            ast::Expr::InList { expr, .. }
            | ast::Expr::Between { expr, .. }
            | ast::Expr::Like { expr, .. }
            | ast::Expr::ILike { expr, .. }
            | ast::Expr::AnyOp { left: expr, .. }
            | ast::Expr::AllOp { left: expr, .. }
            | ast::Expr::Cast {
                kind: ast::CastKind::DoubleColon,
                expr,
                ..
            } => after(expr),
            ast::Expr::UnaryOp { expr, .. } => {
                let start = expr.span().start;
                (start.line > 0).then_some(Place::OperatorBefore(start))
            }
            e => Place::of_expr(e),
        }
    }

    /// The place of the first string of an expression that has a value.
    pub fn of_literal_in(e: &ast::Expr, value: &str) -> Option<Place> {
        let found = ast::visit_expressions(e, |e| match string(e) {
            Some((text, span)) if text == value => ControlFlow::Break(span),
            _ => ControlFlow::Continue(()),
        });
        match found {
            ControlFlow::Break(span) => Place::of_span(span),
            ControlFlow::Continue(()) => None,
        }
    }

    /// The character of a text, from 1.
    pub fn position(&self, sql: &str) -> Option<u32> {
        let byte = match self {
            Place::At(location) => parse::byte_of(sql, *location),
            Place::OperatorAfter(end) => {
                let from = parse::byte_of(sql, *end);
                sql.len() - after_blanks(&sql[from..]).len()
            }
            Place::OperatorBefore(start) => {
                let before = &sql[..parse::byte_of(sql, *start)];
                let operator = before.trim_end_matches(|c: char| c.is_whitespace() || c == '(');
                operator.char_indices().next_back()?.0
            }
            Place::ParenthesisBefore(start) => {
                let at = parse::byte_of(sql, *start);
                let before = sql[..at].trim_end();
                match before.ends_with('(') {
                    true => before.len() - 1,
                    false => at,
                }
            }
            Place::Literal(value) => parse::byte_of(sql, literal(sql, value)?),
            Place::Column { .. } => return None,
        };
        Some(sql[..byte].chars().count() as u32 + 1)
    }
}

impl Place {
    /// Where a query names a column outside of aggregates, and outside of what it groups by.
    pub fn of_column_in(
        select: &ast::Select,
        order: Option<&ast::OrderBy>,
        table: &str,
        name: &str,
    ) -> Option<Place> {
        let keys = match &select.group_by {
            ast::GroupByExpr::Expressions(keys, _) => keys.as_slice(),
            ast::GroupByExpr::All(_) => &[],
        };
        let mut uses = Uses {
            table,
            name,
            keys,
            passed_over: 0,
        };
        let found = select.projection.visit(&mut uses);
        let found = found.break_value();
        let found = found.or_else(|| select.having.visit(&mut uses).break_value());
        let found = found.or_else(|| order.and_then(|o| o.visit(&mut uses).break_value()));
        found.and_then(Place::of_span)
    }
}

/// Looks for a use of a column that only a group's key could stand for.
struct Uses<'a> {
    table: &'a str,
    name: &'a str,
    keys: &'a [ast::Expr],
    /// How many aggregates and keys are around.
    passed_over: usize,
}

impl Uses<'_> {
    fn passes_over(&self, e: &ast::Expr) -> bool {
        let aggregate = match e {
            ast::Expr::Function(f) if f.over.is_none() => match f.name.0.last() {
                Some(ast::ObjectNamePart::Identifier(i)) => is_aggregate(&names::ident(i)),
                _ => false,
            },
            _ => false,
        };
        aggregate || self.keys.contains(e)
    }
}

impl Visitor for Uses<'_> {
    type Break = Span;

    fn pre_visit_expr(&mut self, e: &ast::Expr) -> ControlFlow<Span> {
        if self.passes_over(e) {
            self.passed_over += 1;
        }
        if self.passed_over > 0 {
            return ControlFlow::Continue(());
        }
        let found = match e {
            ast::Expr::Identifier(i) => names::ident(i) == self.name,
            ast::Expr::CompoundIdentifier(path) => match path.as_slice() {
                [.., table, name] => {
                    names::ident(name) == self.name && names::ident(table) == self.table
                }
                _ => false,
            },
            _ => false,
        };
        match found {
            true => ControlFlow::Break(e.span()),
            false => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, e: &ast::Expr) -> ControlFlow<Span> {
        if self.passes_over(e) {
            self.passed_over -= 1;
        }
        ControlFlow::Continue(())
    }
}

fn string(e: &ast::Expr) -> Option<(&str, Span)> {
    let v = match e {
        ast::Expr::Value(v) => v,
        ast::Expr::TypedString(t) => &t.value,
        _ => return None,
    };
    match &v.value {
        ast::Value::SingleQuotedString(s) | ast::Value::EscapedStringLiteral(s) => {
            Some((s, v.span))
        }
        _ => None,
    }
}

/// A text without the blanks, comments and closing parentheses that it begins with.
fn after_blanks(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ')');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, after)| after);
        } else {
            return rest;
        }
    }
}

fn literal(sql: &str, value: &str) -> Option<Location> {
    let tokens = parse::tokens_of(sql).ok()?;
    let found = tokens.into_iter().find(|t| match &t.token {
        Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => s == value,
        Token::SingleQuotedByteStringLiteral(s) | Token::HexStringLiteral(s) => s == value,
        _ => false,
    });
    found.map(|t| t.span.start)
}
