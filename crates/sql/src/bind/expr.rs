//! Expressions from syntax, one method per kind of node.

use block::value::Datum;
use sqlparser::ast::{self, BinaryOperator, UnaryOperator, Value};

use super::array::{element_of, no_operator};
use super::catalog::custom_operator;
use super::coerce::{common_padding, fold, promote};
use super::days::day_compared;
use super::json::{check_comparable, check_compared};
use super::predicate::refuse_rows;
use super::simplify::simplified;
use super::{
    Binder, ScopeColumn, Typed, collation, common_type, json, names, parts, row_constructor,
};
use crate::collate::{self, Derived};
use crate::error::{Error, Result};
use crate::expr::array::ArrayFunc;
use crate::expr::cast::CastContext;
use crate::expr::{ArithOp, CmpOp, Expr, Func, func::PureFunc};
use crate::types::SqlType;
use crate::types::own::Kind;

/// How deep expressions may be nested: the evaluator recurses, and a session's stack is finite.
const MAX_DEPTH: usize = 500;

thread_local! {
    static DEPTH: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

struct Depth;

impl Depth {
    fn enter() -> Result<Depth> {
        DEPTH.with(|d| {
            if d.get() >= MAX_DEPTH {
                return Err(Error::new("54001", "stack depth limit exceeded"));
            }
            d.set(d.get() + 1);
            Ok(Depth)
        })
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.with(|d| d.set(d.get() - 1));
    }
}

impl Binder<'_> {
    pub fn expr(&self, e: &ast::Expr) -> Result<Typed> {
        let _depth = Depth::enter()?;
        let bind = || {
            let mut bound = self.node(e).map_err(|error| error.in_expr(e))?;
            bound.expr = simplified(bound.expr);
            Ok(bound)
        };
        let own = |bound: &mut Typed, parts| collation::of_bound(e, bound, parts);
        collate::collected(bind, own).map_err(|error| error.in_expr(e))
    }

    fn node(&self, e: &ast::Expr) -> Result<Typed> {
        if let Some(groups) = self.groups
            && let Some(column) = groups.lookup(e)?
        {
            return Ok(column);
        }
        match e {
            ast::Expr::Identifier(i) => self.identifier(i),
            ast::Expr::CompoundIdentifier(path) => self.column_path(path),
            ast::Expr::Nested(inner) => self.expr(inner),
            ast::Expr::Value(v) => self.value(&v.value),
            ast::Expr::TypedString(t) => {
                let (ty, typmod) = match t.data_type {
                    // As long as it is written.
                    ast::DataType::Bit(None) => (SqlType::Bit, -1),
                    _ => parts::data_type(&t.data_type, &self.params.names)?,
                };
                self.coerce(
                    parts::literal(&t.value.value)?,
                    ty,
                    typmod,
                    CastContext::Explicit,
                )
            }
            ast::Expr::Cast {
                kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
                expr,
                data_type,
                ..
            } => self.cast(expr, data_type),
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            ast::Expr::UnaryOp { op, expr } => self.unary(op, expr),
            ast::Expr::IsNull(e) => self.is_null(e, false),
            ast::Expr::IsNotNull(e) => self.is_null(e, true),
            ast::Expr::IsTrue(e) => self.is_bool(e, Some(true), false),
            ast::Expr::IsNotTrue(e) => self.is_bool(e, Some(true), true),
            ast::Expr::IsFalse(e) => self.is_bool(e, Some(false), false),
            ast::Expr::IsNotFalse(e) => self.is_bool(e, Some(false), true),
            ast::Expr::IsUnknown(e) => self.is_bool(e, None, false),
            ast::Expr::IsNotUnknown(e) => self.is_bool(e, None, true),
            ast::Expr::IsDistinctFrom(l, r) => self.distinct(l, r, false),
            ast::Expr::IsNotDistinctFrom(l, r) => self.distinct(l, r, true),
            ast::Expr::InList {
                expr,
                list,
                negated,
            } => self.in_list(expr, list, *negated),
            ast::Expr::AnyOp {
                left,
                compare_op,
                right,
                ..
            } => self.in_array(left, compare_op, right, false),
            ast::Expr::AllOp {
                left,
                compare_op,
                right,
            } => self.in_array(left, compare_op, right, true),
            ast::Expr::Between {
                expr,
                negated,
                low,
                high,
            } => self.between(expr, *negated, low, high),
            ast::Expr::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char,
            } => self.like(
                expr,
                pattern,
                escape_char.as_ref().map(|v| &v.value),
                false,
                *negated,
            ),
            ast::Expr::ILike {
                negated,
                any: false,
                expr,
                pattern,
                escape_char,
            } => self.like(
                expr,
                pattern,
                escape_char.as_ref().map(|v| &v.value),
                true,
                *negated,
            ),
            ast::Expr::SimilarTo {
                negated,
                expr,
                pattern,
                escape_char,
            } => self.similar_to(expr, pattern, escape_char.as_ref(), *negated),
            ast::Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => self.case(operand.as_deref(), conditions, else_result.as_deref()),
            ast::Expr::IsNormalized {
                expr,
                form,
                negated,
            } => self.is_normalized(expr, form.as_ref(), *negated),
            ast::Expr::Array(list) => self.array(&list.elem, None),
            ast::Expr::Tuple(_) => self.row(e),
            ast::Expr::QualifiedWildcard(row, _) => self.star_argument(row),
            ast::Expr::Function(f) if row_constructor(f).is_some() => self.row(e),
            ast::Expr::Function(f) => self.function(f),
            ast::Expr::CompoundFieldAccess { root, access_chain } => {
                self.element(root, access_chain)
            }
            ast::Expr::Collate { expr, collation } => self.collate(expr, collation),
            ast::Expr::Substring {
                expr,
                substring_from,
                substring_for,
                ..
            } => self.substring(expr, substring_from.as_deref(), substring_for.as_deref()),
            ast::Expr::Trim {
                trim_where,
                trim_what,
                expr,
                trim_characters,
            } => self.trim(
                trim_where.as_ref(),
                trim_what.as_deref(),
                expr,
                trim_characters.as_deref(),
            ),
            ast::Expr::Overlay {
                expr,
                overlay_what,
                overlay_from,
                overlay_for,
            } => {
                let args = [expr, overlay_what, overlay_from];
                let args = args.into_iter().chain(overlay_for);
                let args = args.map(|e| self.expr(e)).collect::<Result<_>>()?;
                self.call("overlay", args)
            }
            ast::Expr::Interval(i) => self.interval_literal(i),
            ast::Expr::Position { expr, r#in } => {
                self.call("position", vec![self.expr(r#in)?, self.expr(expr)?])
            }
            ast::Expr::Extract { field, expr, .. } => {
                let field = Datum::Text(field.to_string().to_lowercase());
                let field = Typed::literal(field, SqlType::Text);
                self.call("extract", vec![field, self.expr(expr)?])
            }
            ast::Expr::AtTimeZone {
                timestamp,
                time_zone,
            } => self.call(
                "timezone",
                vec![self.expr(time_zone)?, self.expr(timestamp)?],
            ),
            ast::Expr::Ceil {
                expr,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => self.call("ceil", vec![self.expr(expr)?]),
            ast::Expr::Floor {
                expr,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => self.call("floor", vec![self.expr(expr)?]),
            other => Err(Error::unsupported(format!("expression {other}"))),
        }
    }

    /// The condition of a WHERE, whatever the clause is that the binder is for.
    pub fn where_condition(&self, e: &ast::Expr) -> Result<Expr> {
        self.boolean(self.expr(e)?, "WHERE")
            .map_err(|error| error.in_expr(e))
    }

    pub fn condition(&self, e: &ast::Expr) -> Result<Expr> {
        self.boolean(self.expr(e)?, self.clause)
            .map_err(|error| error.in_expr(e))
    }

    fn value(&self, v: &Value) -> Result<Typed> {
        let Value::Placeholder(text) = v else {
            return parts::literal(v);
        };
        if self.params.sight.has_variables() {
            let found = self.params.variable(std::slice::from_ref(text))?;
            let missing = || Error::new("42P02", format!("there is no parameter {text}"));
            return found.ok_or_else(missing);
        }
        let i = parts::placeholder(text)?;
        let ty = self.params.get(i)?.unwrap_or(SqlType::Unknown);
        Ok(Typed::new(Expr::Param(i), ty))
    }

    /// A column of the input, which only a group's key may stand for once there are groups.
    fn ungrouped(&self, c: &ScopeColumn) -> Result<()> {
        if self.groups.is_none() {
            return Ok(());
        }
        let message = format!(
            "column \"{}.{}\" must appear in the GROUP BY clause or be used in an aggregate function",
            c.table, c.name
        );
        Err(Error::new("42803", message))
    }

    fn identifier(&self, i: &ast::Ident) -> Result<Typed> {
        let path = [names::ident(i)];
        let found = self.params.or_variable(&path, self.column_named(i));
        found.or_else(|e| self.pseudo_column(std::slice::from_ref(i), e))
    }

    fn column_named(&self, i: &ast::Ident) -> Result<Typed> {
        let name = names::ident(i);
        match self.scope.resolve(None, &name) {
            Ok(c) => {
                self.ungrouped(c)?;
                self.params.needs.read(c.table_oid, c.attnum);
                Ok(Typed {
                    expr: Expr::Column(c.slot),
                    ty: c.ty,
                    typmod: c.typmod,
                    collation: c.collation,
                })
            }
            // The SQL standard's functions without parentheses.
            Err(e) if e.sqlstate() == "42703" && i.quote_style.is_none() => match name.as_str() {
                "current_user" | "session_user" | "user" | "current_role" | "current_catalog"
                | "current_schema" | "current_date" | "current_timestamp" | "localtimestamp"
                | "localtime" | "current_time" => self.call(&name, Vec::new()),
                _ => self.whole_row(&name)?.ok_or(e),
            },
            Err(e) if matches!(e.sqlstate(), "42703" | "0A000") => self.whole_row(&name)?.ok_or(e),
            Err(e) => Err(e),
        }
    }

    fn column_path(&self, path: &[ast::Ident]) -> Result<Typed> {
        let names: Vec<String> = path.iter().map(names::ident).collect();
        let found = self.params.or_variable(&names, self.column_of(&names));
        let found = found.or_else(|e| self.pseudo_column(path, e));
        found.or_else(|e| self.call_by_dot(path, e))
    }

    /// Whether the table in sight that has a column may stand behind a schema's name: it is of the
    /// schema, or not defined yet.
    fn is_schema_of(&self, schema: &str, table: &str, column: &str) -> bool {
        let Some(dict) = self.params.sight.dict() else {
            return true;
        };
        let oid = self
            .scope
            .resolve(Some(table), column)
            .map_or(0, |c| c.table_oid);
        names::is_in_schema(dict, schema, table, oid)
    }

    fn column_of(&self, names: &[String]) -> Result<Typed> {
        let (table, name) = match names {
            [table, name] => (table, name),
            [schema, table, name] if self.is_schema_of(schema, table, name) => (table, name),
            [_, table, _] if self.scope.has_table(table) => {
                return Err(names::in_no_schema(table));
            }
            _ => return Err(Error::unsupported(format!("name {}", names.join(".")))),
        };
        let c = self.scope.resolve(Some(table), name)?;
        self.ungrouped(c)?;
        self.params.needs.read(c.table_oid, c.attnum);
        Ok(Typed {
            expr: Expr::Column(c.slot),
            ty: c.ty,
            typmod: c.typmod,
            collation: c.collation,
        })
    }

    fn cast(&self, e: &ast::Expr, data_type: &ast::DataType) -> Result<Typed> {
        let (ty, typmod) = parts::data_type(data_type, &self.params.names)?;
        let value = match (e, ty.base()) {
            (ast::Expr::Array(list), SqlType::Array(element)) => {
                self.array(&list.elem, Some(element))?
            }
            (ast::Expr::Array(list), SqlType::Int2Vector | SqlType::OidVector) => {
                return self.vector(&list.elem, ty);
            }
            _ => self.expr(e)?,
        };
        self.coerce(value, ty, typmod, CastContext::Explicit)
    }

    fn binary(&self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Result<Typed> {
        match op {
            BinaryOperator::And | BinaryOperator::Or => return self.logic(left, op, right),
            BinaryOperator::PGCustomBinaryOperator(path) => {
                if let Some(found) = self.qualified_operator((left, op, right), path)? {
                    return Ok(found);
                }
                return self.binary(left, &custom_operator(path)?, right);
            }
            BinaryOperator::Overlaps => return self.overlaps(left, right),
            BinaryOperator::PGRegexMatch => return self.regex(left, right, false, false),
            BinaryOperator::PGRegexIMatch => return self.regex(left, right, true, false),
            BinaryOperator::PGRegexNotMatch => return self.regex(left, right, false, true),
            BinaryOperator::PGRegexNotIMatch => return self.regex(left, right, true, true),
            BinaryOperator::PGLikeMatch => return self.like(left, right, None, false, false),
            BinaryOperator::PGNotLikeMatch => return self.like(left, right, None, false, true),
            BinaryOperator::PGILikeMatch => return self.like(left, right, None, true, false),
            BinaryOperator::PGNotILikeMatch => return self.like(left, right, None, true, true),
            _ => {}
        }
        if comparison(op).is_some() {
            refuse_rows(left, right)?;
        }
        let (l, r) = (self.expr(left)?, self.expr(right)?);
        let (l, r) = self.with_days(op, (left, l), (right, r))?;
        if comparison(op).is_none()
            && let Some(found) = self.extension_operator((left, op, right), (&l, &r))?
        {
            return Ok(found);
        }
        self.applied(op, l, r)
    }

    /// An operator whose operands are values.
    fn applied(&self, op: &BinaryOperator, l: Typed, r: Typed) -> Result<Typed> {
        if let Some(cmp) = comparison(op) {
            return self.compare(cmp, l, r);
        }
        let symbol = op.to_string();
        if let Some(found) = self.range_operator(&symbol, &l, &r)? {
            return Ok(found);
        }
        if let Some(found) = self.tabled(&symbol, &l, &r)? {
            return Ok(found);
        }
        if json::is_operator(op)
            && let Some(found) = self.json_operator(op, &l, &r)?
        {
            return Ok(found);
        }
        match op {
            BinaryOperator::StringConcat
                if element_of(l.ty).is_some() || element_of(r.ty).is_some() =>
            {
                self.joined_arrays(l, r)
            }
            BinaryOperator::StringConcat => self.concat(l, r),
            BinaryOperator::AtArrow => self.array_operator(ArrayFunc::Contains, "@>", l, r),
            BinaryOperator::ArrowAt => self.array_operator(ArrayFunc::ContainedBy, "<@", l, r),
            BinaryOperator::PGOverlap => self.array_operator(ArrayFunc::Overlaps, "&&", l, r),
            BinaryOperator::PGStartsWith => {
                let (left, right) = (l.ty, r.ty);
                let begins = self.call("starts_with", vec![l, r]);
                begins.map_err(|e| match e.sqlstate() {
                    "42883" => no_operator(left, "^@", right),
                    _ => e,
                })
            }
            op => match arithmetic(op) {
                Some(arith) => self.arith(arith, l, r),
                None => Err(Error::unsupported(format!("operator {op}"))),
            },
        }
    }

    /// Flattens chains of the same operator, which would otherwise recurse once per term.
    fn logic(&self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Result<Typed> {
        let mut terms = vec![right];
        let mut rest = left;
        while let ast::Expr::BinaryOp {
            left,
            op: inner,
            right,
        } = rest
        {
            if inner != op {
                break;
            }
            terms.push(right);
            rest = left;
        }
        terms.push(rest);
        let name = if *op == BinaryOperator::And {
            "AND"
        } else {
            "OR"
        };
        let mut bound = Vec::with_capacity(terms.len());
        for term in terms.into_iter().rev() {
            let operand = self.boolean(self.expr(term)?, name);
            bound.push(operand.map_err(|error| error.in_expr(term))?);
        }
        Ok(Typed::new(
            if *op == BinaryOperator::And {
                Expr::And(bound)
            } else {
                Expr::Or(bound)
            },
            SqlType::Bool,
        ))
    }

    pub fn compare(&self, op: CmpOp, left: Typed, right: Typed) -> Result<Typed> {
        let no_operator = |l: &Typed, r: &Typed| {
            Error::new("42883", format!("operator does not exist: {} {} {}", l.ty.name(), op.symbol(), r.ty.name()))
                .hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
        };
        let shown = no_operator(&left, &right);
        let (left, right) = (as_number(left), as_number(right));
        // Integers are compared whatever their widths, so that a column stays usable as an index key.
        let (left, right) = if left.ty.is_integer() && right.ty.is_integer() {
            (left, right)
        } else {
            let (lt, rt) = (left.ty, right.ty);
            let (left, right) = (self.unpadded(left, rt)?, self.unpadded(right, lt)?);
            self.unify(left, right, "")
                .map_err(|e| if e.sqlstate() == "42804" { shown } else { e })?
        };
        check_compared(left.ty, op.symbol())?;
        let derived = left.collation.and(right.collation)?;
        if left.ty.is_string() || right.ty.is_string() {
            derived.decided("string comparison")?;
        }
        let equality = matches!(op, CmpOp::Eq | CmpOp::Ne);
        let by = match equality {
            true => None,
            false => collation::of_order(left.ty, derived)?,
        };
        let compared = match by {
            None => day_compared(op, left.expr, right.expr),
            Some(by) => {
                let key = |e| Ok::<_, Error>(Box::new(fold(collation::key_of(e, by))?));
                Expr::Compare(op, key(left.expr)?, key(right.expr)?)
            }
        };
        Ok(Typed::new(fold(compared)?, SqlType::Bool))
    }

    /// One side of a comparison whose other side is of a type: blank-padded strings compare without their padding, as text; a literal or a
    /// varying string beside one is one too.
    pub(super) fn unpadded(&self, t: Typed, other: SqlType) -> Result<Typed> {
        match (t.ty, other) {
            (SqlType::Unknown | SqlType::Varchar, SqlType::Char) => {
                let padded = self.coerce(t, SqlType::Char, -1, CastContext::Implicit)?;
                self.coerce(padded, SqlType::Text, -1, CastContext::Implicit)
            }
            (SqlType::Char, _) => self.coerce(t, SqlType::Text, -1, CastContext::Implicit),
            _ => Ok(t),
        }
    }

    /// A key of groups: strings that are padded to several lengths are equal without their padding.
    pub fn without_padding(&self, t: Typed) -> Result<Typed> {
        if t.ty != SqlType::Char || t.typmod >= 0 {
            return Ok(t);
        }
        let plain = self.coerce(t, SqlType::Text, -1, CastContext::Implicit)?;
        self.coerce(plain, SqlType::Char, -1, CastContext::Implicit)
    }

    pub fn arith(&self, op: ArithOp, left: Typed, right: Typed) -> Result<Typed> {
        use SqlType::*;
        let shown = Error::new("42883", format!("operator does not exist: {} {} {}", left.ty.name(), op.symbol(), right.ty.name()))
            .hint("No operator matches the given name and argument types. You might need to add explicit type casts.");
        if let Some(result) = self.temporal(op, &left, &right)? {
            return Ok(result);
        }
        let ty = match (left.ty, right.ty) {
            (Unknown, Unknown) => {
                return Err(Error::new("42725", format!("operator is not unique: unknown {} unknown", op.symbol()))
                    .hint("Could not choose a best candidate operator. You might need to add explicit type casts."));
            }
            (Date, Unknown) | (Unknown, Date) if op == ArithOp::Sub => {
                let date = |t| self.coerce(t, Date, -1, CastContext::Implicit);
                return self.date_arith(op, date(left)?, date(right)?, shown);
            }
            (Date, Int2 | Int4) | (Date, Date) => return self.date_arith(op, left, right, shown),
            (Int2 | Int4, Date) if op == ArithOp::Add => {
                return self.date_arith(op, right, left, shown);
            }
            (Unknown, t) | (t, Unknown) if t.is_number() => t,
            (l, r) if l.is_number() && r.is_number() => promote(l, r),
            _ => return Err(shown),
        };
        let ty = match op {
            ArithOp::Pow if ty != Numeric => Float8,
            ArithOp::Mod if matches!(ty, Float4 | Float8) => return Err(shown),
            ArithOp::BitAnd
            | ArithOp::BitOr
            | ArithOp::BitXor
            | ArithOp::ShiftLeft
            | ArithOp::ShiftRight
                if !ty.is_integer() =>
            {
                return Err(shown);
            }
            ArithOp::ShiftLeft | ArithOp::ShiftRight => left.ty,
            _ => ty,
        };
        // Integer operands need no widening: the operation is done in 64 bits and checked against the result's type.
        let fit = |t: Typed| {
            if ty.is_integer() && t.ty.is_integer() {
                Ok(t)
            } else {
                self.coerce(t, ty, -1, CastContext::Implicit)
            }
        };
        let (left, right) = (fit(left)?, fit(right)?);
        Ok(Typed::new(
            fold(Expr::Arith(
                op,
                ty,
                Box::new(left.expr),
                Box::new(right.expr),
            ))?,
            ty,
        ))
    }

    fn date_arith(&self, op: ArithOp, date: Typed, other: Typed, shown: Error) -> Result<Typed> {
        let result = match (op, other.ty) {
            (ArithOp::Sub, SqlType::Date) => SqlType::Int4,
            (ArithOp::Add | ArithOp::Sub, SqlType::Int2 | SqlType::Int4) => SqlType::Date,
            _ => return Err(shown),
        };
        Ok(Typed::new(
            fold(Expr::Arith(
                op,
                SqlType::Date,
                Box::new(date.expr),
                Box::new(other.expr),
            ))?,
            result,
        ))
    }

    pub fn concat(&self, left: Typed, right: Typed) -> Result<Typed> {
        if left.ty == SqlType::Bytea && right.ty == SqlType::Bytea {
            return Ok(Typed::new(
                Expr::Concat(Box::new(left.expr), Box::new(right.expr)),
                SqlType::Bytea,
            ));
        }
        let is_text = |ty: SqlType| {
            ty.is_string() || matches!(ty, SqlType::Own(own) if own.kind() == Kind::Citext)
        };
        if !is_text(left.ty) && !is_text(right.ty) {
            return Err(Error::new(
                "42883",
                format!(
                    "operator does not exist: {} || {}",
                    left.ty.name(),
                    right.ty.name()
                ),
            )
            .hint("No operator matches the given name and argument types. You might need to add explicit type casts."));
        }
        let left = self.coerce(left, SqlType::Text, -1, CastContext::Assignment)?;
        let right = self.coerce(right, SqlType::Text, -1, CastContext::Assignment)?;
        Ok(Typed::new(
            fold(Expr::Concat(Box::new(left.expr), Box::new(right.expr)))?,
            SqlType::Text,
        ))
    }

    fn unary(&self, op: &UnaryOperator, e: &ast::Expr) -> Result<Typed> {
        match op {
            UnaryOperator::Not => {
                let operand = self.boolean(self.expr(e)?, "NOT");
                let operand = operand.map_err(|error| error.in_expr(e))?;
                Ok(Typed::new(Expr::Not(Box::new(operand)), SqlType::Bool))
            }
            UnaryOperator::Plus => self.expr(e),
            UnaryOperator::Minus => {
                // The lowest integers have no positive counterpart: the sign belongs to the literal.
                if let Some(number) = negative_literal(e) {
                    return parts::literal(&Value::Number(number, false));
                }
                // `-2 ^ 2` is 4: the sign binds closer than the power, which the parser has the
                // other way round.
                if let ast::Expr::BinaryOp {
                    left,
                    op: BinaryOperator::PGExp,
                    right,
                } = e
                {
                    let negative = self.unary(&UnaryOperator::Minus, left)?;
                    return self.arith(ArithOp::Pow, negative, self.expr(right)?);
                }
                self.negate(self.expr(e)?)
            }
            UnaryOperator::BitwiseNot => self.complement(self.expr(e)?),
            UnaryOperator::PGAbs => self.call("abs", vec![self.expr(e)?]),
            UnaryOperator::PGCubeRoot => self.call("cbrt", vec![self.expr(e)?]),
            UnaryOperator::PGSquareRoot => self.call("sqrt", vec![self.expr(e)?]),
            other => Err(Error::unsupported(format!("operator {other}"))),
        }
    }

    /// `~`: all bits the other way round.
    fn complement(&self, operand: Typed) -> Result<Typed> {
        if operand.ty == SqlType::Unknown {
            return Err(Error::new("42725", "operator is not unique: ~ unknown")
                .hint("Could not choose a best candidate operator. You might need to add explicit type casts."));
        }
        if let Some(found) = self.tabled_prefix("~", &operand)? {
            return Ok(found);
        }
        match operand.ty {
            SqlType::Int2 | SqlType::Int4 | SqlType::Int8 => {
                let ones = Expr::Const(Datum::Int2(-1));
                let inverted = Expr::Arith(
                    ArithOp::BitXor,
                    operand.ty,
                    Box::new(operand.expr),
                    Box::new(ones),
                );
                Ok(Typed::new(fold(inverted)?, operand.ty))
            }
            other => Err(Error::new("42883", format!("operator does not exist: ~ {}", other.name()))
                .hint("No operator matches the given name and argument type. You might need to add an explicit type cast.")),
        }
    }

    pub fn negate(&self, operand: Typed) -> Result<Typed> {
        let operand = if operand.ty == SqlType::Unknown {
            self.coerce(operand, SqlType::Float8, -1, CastContext::Implicit)?
        } else {
            operand
        };
        if !operand.ty.is_number() && operand.ty != SqlType::Interval {
            return Err(Error::new(
                "42883",
                format!("operator does not exist: - {}", operand.ty.name()),
            )
            .hint("No operator matches the given name and argument type. You might need to add an explicit type cast."));
        }
        Ok(Typed::new(
            fold(Expr::Negate(Box::new(operand.expr)))?,
            operand.ty,
        ))
    }

    fn substring(
        &self,
        e: &ast::Expr,
        from: Option<&ast::Expr>,
        length: Option<&ast::Expr>,
    ) -> Result<Typed> {
        let start = match from {
            Some(f) => self.expr(f)?,
            None => Typed::literal(Datum::Int4(1), SqlType::Int4),
        };
        let mut args = vec![self.expr(e)?, start];
        if let Some(l) = length {
            args.push(self.expr(l)?);
        }
        self.call("substring", args)
    }

    fn trim(
        &self,
        side: Option<&ast::TrimWhereField>,
        what: Option<&ast::Expr>,
        e: &ast::Expr,
        characters: Option<&[ast::Expr]>,
    ) -> Result<Typed> {
        let name = match side {
            Some(ast::TrimWhereField::Leading) => "ltrim",
            Some(ast::TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        };
        let mut args = vec![self.expr(e)?];
        let set = what.or_else(|| characters.and_then(|c| c.first()));
        if let Some(set) = set {
            args.push(self.expr(set)?);
        }
        self.call(name, args)
    }

    /// GREATEST and LEAST, which take any number of arguments of one type.
    pub(super) fn extreme(&self, func: PureFunc, args: Vec<Typed>) -> Result<Typed> {
        let what = match func {
            PureFunc::Least => "LEAST",
            _ => "GREATEST",
        };
        let ty = common_type(&args.iter().map(|a| a.ty).collect::<Vec<_>>(), what)?;
        check_comparable(ty, "comparison")?;
        let typmod = common_padding(&args);
        let collation = args
            .iter()
            .filter(|a| a.has_collation())
            .try_fold(Derived::default(), |all, a| all.and(a.collation))?;
        let args = args
            .into_iter()
            .map(|a| Ok(self.coerce(a, ty, -1, CastContext::Implicit)?.expr))
            .collect::<Result<Vec<_>>>()?;
        let expr = match collation::of_order(ty, collation)? {
            None => Expr::Call(Func::Pure(func), args),
            // The keys are compared, and the text of one is the result.
            Some(by) => {
                let keys = args.into_iter().map(|a| collation::key_of(a, by)).collect();
                let best = Expr::Call(Func::Pure(func), keys);
                collation::text_of(best, by)
            }
        };
        Ok(Typed {
            expr,
            ty,
            typmod,
            collation,
        })
    }
}

/// The digits of `-e`, if `e` is a number, with any signs before it: these belong to the literal,
/// which has the type of what they say together.
fn negative_literal(e: &ast::Expr) -> Option<String> {
    let (mut rest, mut negative) = (e, true);
    loop {
        rest = match rest {
            ast::Expr::Nested(inner) => inner,
            ast::Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } => {
                negative = !negative;
                expr
            }
            ast::Expr::Value(v) => {
                let Value::Number(text, _) = &v.value else {
                    return None;
                };
                let sign = if negative { "-" } else { "" };
                return Some(format!("{sign}{text}"));
            }
            _ => return None,
        };
    }
}

/// What stands for an object is its number to an operator.
pub(super) fn as_number(t: Typed) -> Typed {
    match t.ty {
        SqlType::Reg(_) => Typed::new(t.expr, SqlType::Oid),
        _ => t,
    }
}

pub fn comparison(op: &BinaryOperator) -> Option<CmpOp> {
    Some(match op {
        BinaryOperator::Eq => CmpOp::Eq,
        BinaryOperator::NotEq => CmpOp::Ne,
        BinaryOperator::Lt => CmpOp::Lt,
        BinaryOperator::LtEq => CmpOp::Le,
        BinaryOperator::Gt => CmpOp::Gt,
        BinaryOperator::GtEq => CmpOp::Ge,
        _ => return None,
    })
}

pub fn arithmetic(op: &BinaryOperator) -> Option<ArithOp> {
    Some(match op {
        BinaryOperator::Plus => ArithOp::Add,
        BinaryOperator::Minus => ArithOp::Sub,
        BinaryOperator::Multiply => ArithOp::Mul,
        BinaryOperator::Divide => ArithOp::Div,
        BinaryOperator::Modulo => ArithOp::Mod,
        BinaryOperator::PGExp | BinaryOperator::BitwiseXor => ArithOp::Pow,
        BinaryOperator::BitwiseAnd => ArithOp::BitAnd,
        BinaryOperator::BitwiseOr => ArithOp::BitOr,
        BinaryOperator::PGBitwiseXor => ArithOp::BitXor,
        BinaryOperator::PGBitwiseShiftLeft => ArithOp::ShiftLeft,
        BinaryOperator::PGBitwiseShiftRight => ArithOp::ShiftRight,
        _ => return None,
    })
}
