//! Operators of extensions in stored texts: `OPERATOR("braid$16455".?)` is what the function of
//! that object id computes ([`super::numbered`]).
//!
//! **Invariant.** An operator gets its number in the syntax tree, and with it parentheses around
//! itself and around operands that are more than one word: written so, all operators bind alike.

use std::ops::ControlFlow;

use sqlparser::ast::{self, BinaryOperator, Expr, Ident, Spanned, Value};
use sqlparser::tokenizer::Span;

use super::names;
use super::numbered::{PREFIX, Shown, number_in, type_text};
use crate::dict::Function;
use crate::dict::path::PG_CATALOG;
use crate::error::{Error, Result};
use crate::parse::{self, Command};

/// An operator of a query, by its place among all that stand between two operands, and the number
/// that it gets.
pub struct Operator {
    pub at: usize,
    pub number: u32,
    /// The types of its operands, as stored texts have them.
    pub types: [String; 2],
}

/// The types of the operands of the operator that a function is behind, as stored texts have them.
pub fn types_of(function: &Function) -> Option<[String; 2]> {
    match function.arguments.as_slice() {
        [left, right] => Some([left, right].map(|a| type_text(a.ty(), -1))),
        _ => None,
    }
}

/// The schema of `OPERATOR(schema.symbol)`, from the word that the parser keeps as it was written.
pub fn schema_of(written: &str) -> String {
    let quoted = written.strip_prefix('"').and_then(|w| w.strip_suffix('"'));
    names::ident(&match quoted {
        Some(name) => Ident::with_quote('"', name.replace("\"\"", "\"")),
        None => Ident::new(written),
    })
}

/// An operator without its schema.
pub fn symbol_of(op: &BinaryOperator) -> String {
    match op {
        BinaryOperator::PGCustomBinaryOperator(path) => path.last().cloned().unwrap_or_default(),
        op => op.to_string(),
    }
}

/// The number of the function behind an operator, if the operator has one.
pub fn number_of(op: &BinaryOperator) -> Option<u32> {
    match op {
        BinaryOperator::PGCustomBinaryOperator(path) => match path.as_slice() {
            [schema, _] => number_in(&schema_of(schema)),
            _ => None,
        },
        _ => None,
    }
}

/// Where an operator stands: between the end of what is before it and the beginning of what is
/// behind it.
pub fn place_between(left: &Expr, right: &Expr) -> Span {
    Span::new(left.span().end, right.span().start)
}

/// Gives an operator between two operands the number of its function, and strings beside it the
/// types that they were found to have.
pub fn give_number(e: &mut Expr, number: u32, [before, behind]: &[String; 2]) {
    let Expr::BinaryOp { left, op, right } = e else {
        return;
    };
    let schema = format!("\"{PREFIX}{number}\"");
    *op = BinaryOperator::PGCustomBinaryOperator(vec![schema, symbol_of(op)]);
    for (operand, ty) in [(left, before), (right, behind)] {
        give_type(operand, ty);
        enclose(operand);
    }
    enclose(e);
}

/// Makes a string a value of a type.
fn give_type(e: &mut Expr, ty: &str) {
    if let Expr::Value(v) = e
        && matches!(
            v.value,
            Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_) | Value::Null
        )
        && let Ok(data_type) = parse::data_type(ty)
    {
        let value = std::mem::replace(e, Expr::Value(Value::Null.into()));
        *e = Expr::Cast {
            kind: ast::CastKind::DoubleColon,
            expr: Box::new(value),
            data_type,
            array: false,
            format: None,
        };
    }
}

fn enclose(e: &mut Expr) {
    let is_whole = matches!(
        e,
        Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::Value(_)
            | Expr::Function(_)
            | Expr::Cast { .. }
            | Expr::Nested(_)
            | Expr::Array(_)
            | Expr::Subquery(_)
    );
    if !is_whole {
        let inner = std::mem::replace(e, Expr::Value(Value::Null.into()));
        *e = Expr::Nested(Box::new(inner));
    }
}

/// Writes an operator in the place of its number. What is not there any more keeps its number.
pub fn show(op: &mut BinaryOperator, how: Shown<'_>) {
    let Some(number) = number_of(op) else {
        return;
    };
    let symbol = symbol_of(op);
    let schema = match how.dict() {
        None => None,
        Some(dict) => {
            let Some(function) = dict.function_by_oid(number) else {
                return;
            };
            let schema = function.schema;
            let is_found = schema == PG_CATALOG || dict.path().contains(&schema);
            let is_plain = matches!(how, Shown::AsNow(_)) && is_found;
            (!is_plain).then(|| names::quote(dict.schema_name(schema)))
        }
    };
    *op = match schema {
        Some(schema) => BinaryOperator::PGCustomBinaryOperator(vec![schema, symbol]),
        None => plain(symbol),
    };
}

/// The operator that a symbol alone is.
fn plain(symbol: String) -> BinaryOperator {
    match parse::expression(&format!("1 {symbol} 1")) {
        Ok(Expr::BinaryOp { op, .. }) => op,
        _ => BinaryOperator::PGCustomBinaryOperator(vec![symbol]),
    }
}

/// Gives operators of a query their numbers.
struct Giving<'o> {
    operators: &'o [Operator],
    at: usize,
}

impl ast::VisitorMut for Giving<'_> {
    type Break = std::convert::Infallible;

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<Self::Break> {
        match e {
            Expr::BinaryOp { .. } => {
                let at = self.at;
                self.at += 1;
                if let Some(found) = self.operators.iter().find(|o| o.at == at) {
                    give_number(e, found.number, &found.types);
                }
            }
            Expr::Nested(inner) if matches!(**inner, Expr::Nested(_)) => {
                let inner = std::mem::replace(&mut **inner, Expr::Value(Value::Null.into()));
                *e = inner;
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The text of a query with the numbers of its operators.
pub fn in_query(text: &str, operators: &[Operator]) -> Result<String> {
    if operators.is_empty() {
        return Ok(text.to_string());
    }
    let refused = || Error::unsupported("this query in a view");
    let Command::Sql(mut statement) = parse::statement(text)? else {
        return Err(refused());
    };
    let ControlFlow::Continue(()) =
        ast::VisitMut::visit(&mut statement, &mut Giving { operators, at: 0 });
    let written = statement.to_string();
    // What is not read as it was written would mean something else.
    match parse::statement(&written) {
        Ok(Command::Sql(read)) if read == statement => Ok(written),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_binds_stays() {
        let given = |text: &str, at: usize| {
            let types = ["text", "text"].map(str::to_string);
            let operators = [Operator {
                at,
                number: 7,
                types,
            }];
            in_query(text, &operators).unwrap_or_else(|e| e.to_string())
        };
        assert_eq!(
            given("SELECT a % b + c FROM t", 0),
            "SELECT (a OPERATOR(\"braid$7\".%) b) + c FROM t"
        );
        assert_eq!(
            given("SELECT a + b ? c FROM t", 1),
            "SELECT ((a + b) OPERATOR(\"braid$7\".?) c) FROM t"
        );
        assert_eq!(
            given("SELECT (a <-> 'b') FROM t WHERE d ?| e", 0),
            "SELECT (a OPERATOR(\"braid$7\".<->) 'b'::TEXT) FROM t WHERE d ?| e"
        );
    }

    #[test]
    fn schemas_are_read_as_names() {
        assert_eq!(schema_of("Ex"), "ex");
        assert_eq!(schema_of("\"E\"\"x\""), "E\"x");
    }
}
