//! Operators as they are met in a query: arithmetic becomes the direct lane's, and the two sides of a comparison become
//! of types between which DataFusion compares as PostgreSQL does.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{
    BinaryExpr, FieldMetadata, InList, InSubquery, ScalarFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::arrow;
use super::bound::{self, Op};
use super::builder::Builder;
use super::{choices, functions, lists, members, size};
use crate::bind::{arithmetic, common_type, comparison};
use crate::error::{Error, Result};
use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;

#[derive(Debug)]
pub struct Operators {
    pub io: IoSettings,
}

/// An operand and what is known of its type.
struct Operand {
    field: FieldRef,
    /// `None` if it is of a type that only DataFusion has.
    ty: Option<SqlType>,
}

impl Operand {
    fn new(e: &Expr, schema: &DFSchema) -> Option<Operand> {
        let field = e.to_field(schema).ok()?.1;
        let ty = if literal(e).is_some() || field.data_type().is_null() {
            Some(SqlType::Unknown)
        } else {
            arrow::describe(&field).ok().map(|d| d.ty)
        };
        Some(Operand { field, ty })
    }
}

/// The text of a string literal without a type.
pub fn literal(e: &Expr) -> Option<&str> {
    match e {
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => {
            let tagged = metadata.as_ref().is_some_and(|m| !m.is_empty());
            (!tagged).then_some(text)
        }
        _ => None,
    }
}

/// A parameter without a type takes that of the other operand, with what Arrow does not know of it.
fn infer_parameter(e: &mut Expr, other: &Expr, schema: &DFSchema) {
    if let Expr::Placeholder(p) = e
        && p.field.is_none()
        && !matches!(other, Expr::Placeholder(_))
        && literal(other).is_none()
        && let Ok((_, field)) = other.to_field(schema)
    {
        p.field = Some(field);
    }
}

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DfResult<PlannerResult<RawBinaryExpr>> {
        infer_parameter(&mut raw.left, &raw.right, schema);
        infer_parameter(&mut raw.right, &raw.left, schema);
        // The types of these are known, and finding them out means to look at all below.
        if matches!(raw.op, BinaryOperator::And | BinaryOperator::Or) {
            return Ok(PlannerResult::Original(raw));
        }
        let (Some(left), Some(right)) = (
            Operand::new(&raw.left, schema),
            Operand::new(&raw.right, schema),
        ) else {
            return Ok(PlannerResult::Original(raw));
        };
        if comparison(&raw.op).is_some() {
            return Ok(PlannerResult::Original(self.compare(raw, &left, &right)?));
        }
        self.zoned_interval(&left, &right)?;
        at_midnight(&mut raw.left, &left, &right);
        at_midnight(&mut raw.right, &right, &left);
        let op = match raw.op {
            BinaryOperator::StringConcat => Op::Concat,
            ref op => match arithmetic(op) {
                Some(arith) => Op::Arith(arith),
                None => return Ok(PlannerResult::Original(raw)),
            },
        };
        let foreign = left.ty.is_none() || right.ty.is_none();
        if foreign || kernel_fits(&op, &left, &right) {
            return Ok(PlannerResult::Original(raw));
        }
        let call = bound::function(op, &self.io).call(vec![raw.left, raw.right]);
        // Says now what does not fit, in PostgreSQL's words.
        if let Err(e) = call.to_field(schema) {
            let time = |t| matches!(t, Some(SqlType::Timestamp | SqlType::TimestampTz));
            return Err(match time(left.ty) && time(right.ty) {
                true => Error::unsupported("type interval as a result").into(),
                false => e,
            });
        }
        Ok(PlannerResult::Planned(call))
    }
}

/// Makes what is looked for in a subquery or a list comparable with what that gives, as the two sides of an operator are.
pub fn comparable_members(plan: LogicalPlan, io: &IoSettings) -> DfResult<LogicalPlan> {
    let operators = Operators { io: *io };
    let done = plan.transform_up_with_subqueries(|node| {
        let mut schema = DFSchema::empty();
        node.inputs().iter().for_each(|i| schema.merge(i.schema()));
        let names = NamePreserver::new(&node);
        node.map_expressions(|e| {
            let name = names.save(&e);
            let done = e.transform_up(|e| match e {
                Expr::InSubquery(member) => operators.member(member, &schema),
                Expr::BinaryExpr(e)
                    if matches!(e.op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom) =>
                {
                    operators.distinct(e, &schema)
                }
                Expr::ScalarFunction(f) if choices::is_one(f.name()) => {
                    operators.choice(f, &schema).map(Transformed::yes)
                }
                Expr::InList(list) => operators.listed(list, &schema),
                Expr::ScalarFunction(f) if f.name() == lists::NAME => {
                    operators.long_list(&f.args, &schema).map(Transformed::yes)
                }
                Expr::ScalarFunction(f) if !bound::is_ours(&f.func) && !keeps_type(f.name()) => {
                    Ok(operators.unpadded_arguments(f, &schema))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(done.update_data(|e| name.restore(e)))
        })
    })?;
    Ok(done.data)
}

/// Whether a function gives its argument back as it is.
fn keeps_type(function: &str) -> bool {
    matches!(
        function,
        "coalesce" | functions::MIN_ARGUMENT | functions::MAX_ARGUMENT
    )
}

/// A number as a statement has it: of the type that its size gives it.
fn integer(digits: &str) -> Result<Expr> {
    let value = match digits.parse::<i32>() {
        Ok(v) => ScalarValue::Int32(Some(v)),
        Err(_) => {
            let v = digits.parse::<i64>();
            ScalarValue::Int64(Some(v.map_err(|_| {
                Error::internal("a long list of integers has something else in it")
            })?))
        }
    };
    Ok(Expr::Literal(value, None))
}

/// A date that meets an interval is the timestamp at which it begins.
fn at_midnight(e: &mut Expr, own: &Operand, other: &Operand) {
    if own.ty == Some(SqlType::Date) && matches!(other.field.data_type(), DataType::Interval(_)) {
        let date = std::mem::replace(e, Expr::Literal(ScalarValue::Null, None));
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        *e = datafusion::logical_expr::cast(date, timestamp);
    }
}

/// DataFusion compares what PostgreSQL does not, by conversions of its own. Only catalogs, whose types are wider here,
/// may do that.
fn comparable(op: &BinaryOperator, left: SqlType, right: SqlType) -> Result<()> {
    let of_catalog = |t: SqlType| matches!(t, SqlType::Oid | SqlType::Name);
    if of_catalog(left) || of_catalog(right) || common_type(&[left, right], "").is_ok() {
        return Ok(());
    }
    let message = format!(
        "operator does not exist: {} {op} {}",
        left.name(),
        right.name()
    );
    Err(Error::new("42883", message)
        .hint("No operator matches the given name and argument types. You might need to add explicit type casts."))
}

fn kernel_fits(op: &Op, left: &Operand, right: &Operand) -> bool {
    let numeric = |o: &Operand| o.ty == Some(SqlType::Numeric);
    let integer = |o: &Operand| o.ty.is_some_and(SqlType::is_integer);
    let (l, r) = (numeric(left), numeric(right));
    match op {
        Op::Arith(a) if l && (r || integer(right)) || r && integer(left) => {
            bound::decimal_kernel_fits(*a, &left.field, &right.field)
        }
        _ => false,
    }
}

impl Operators {
    /// DataFusion's calendar is UTC's; a day or month in another zone may have another length.
    fn zoned_interval(&self, left: &Operand, right: &Operand) -> Result<()> {
        let interval = |f: &Field| matches!(f.data_type(), DataType::Interval(_));
        let zoned = |o: &Operand| o.ty == Some(SqlType::TimestampTz);
        let meet = interval(&left.field) && zoned(right) || zoned(left) && interval(&right.field);
        if meet && self.io.time_zone != pgtype::zone::TimeZone::UTC {
            return Err(Error::unsupported(
                "timestamp with time zone and interval in a time zone other than UTC",
            ));
        }
        Ok(())
    }

    /// Blank-padded strings on either side of IN.
    fn member(&self, mut member: InSubquery, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let given = member.subquery.subquery.schema();
        let (table, field) = given.qualified_field(0);
        let types = (
            Operand::new(&member.expr, schema).and_then(|o| o.ty),
            arrow::describe(field).ok().map(|d| d.ty),
        );
        let (Some(left), Some(right)) = types else {
            return Ok(Transformed::no(Expr::InSubquery(member)));
        };
        if left != SqlType::Char && right != SqlType::Char {
            return Ok(Transformed::no(Expr::InSubquery(member)));
        }
        let column = Expr::Column(Column::new(table.cloned(), field.name()));
        let column = self.side(column, right, left)?.alias("member");
        let inner = LogicalPlanBuilder::from(member.subquery.subquery.as_ref().clone());
        member.subquery.subquery = Arc::new(inner.project([column])?.build()?);
        member.expr = Box::new(self.side(*member.expr, left, right)?);
        Ok(Transformed::yes(Expr::InSubquery(member)))
    }

    /// The two sides of IS [NOT] DISTINCT FROM, which is a comparison like others.
    fn distinct(&self, mut e: BinaryExpr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let ty = |e: &Expr| Operand::new(e, schema).and_then(|o| o.ty);
        let (Some(left), Some(right)) = (ty(&e.left), ty(&e.right)) else {
            return Ok(Transformed::no(Expr::BinaryExpr(e)));
        };
        comparable(&BinaryOperator::Eq, left, right)?;
        e.left = Box::new(self.side(*e.left, left, right)?);
        e.right = Box::new(self.side(*e.right, right, left)?);
        Ok(Transformed::yes(Expr::BinaryExpr(e)))
    }

    /// A list that was left one: of literals of one kind.
    fn listed(&self, mut list: InList, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let ty = |e: &Expr| Operand::new(e, schema).and_then(|o| o.ty);
        let (Some(left), Some(item)) = (ty(&list.expr), list.list.first().and_then(ty)) else {
            return Ok(Transformed::no(Expr::InList(list)));
        };
        comparable(&BinaryOperator::Eq, left, item)?;
        list.expr = Box::new(self.side(*list.expr, left, item)?);
        list.list = list
            .list
            .into_iter()
            .map(|e| self.side(self.as_literal(e)?, item, left))
            .collect::<Result<_>>()?;
        let members = members::of_list(&list, schema)?;
        Ok(Transformed::yes(members.unwrap_or(Expr::InList(list))))
    }

    /// A list that was packed into one string.
    fn long_list(&self, args: &[Expr], schema: &DFSchema) -> DfResult<Expr> {
        let unknown = || Error::new("42883", format!("function {} does not exist", lists::NAME));
        let (own, kind, values) = lists::unpacked(args).ok_or_else(unknown)?;
        let left = Operand::new(own, schema).and_then(|o| o.ty);
        let item = match kind {
            lists::Kind::Integers => SqlType::Int4,
            lists::Kind::Numerics => SqlType::Numeric,
            lists::Kind::Strings => SqlType::Unknown,
            lists::Kind::Cast(ty) => ty,
        };
        let other = left.unwrap_or(item);
        comparable(&BinaryOperator::Eq, other, item)?;
        let mut all = Vec::new();
        for value in values {
            let literal = match kind {
                lists::Kind::Integers => integer(value)?,
                lists::Kind::Strings => Expr::Literal(ScalarValue::Utf8(Some(value.into())), None),
                // Beside a float it is one of that size, unlike beside an operator.
                lists::Kind::Numerics if matches!(other, SqlType::Float4 | SqlType::Float8) => {
                    all.push(self.parsed(value, other)?);
                    continue;
                }
                lists::Kind::Numerics => self.parsed(value, SqlType::Numeric)?,
                lists::Kind::Cast(ty) => self.parsed(value, ty)?,
            };
            all.push(self.side(literal, item, other)?);
        }
        let own = match (other, kind) {
            (SqlType::Float4, lists::Kind::Numerics) => own.clone(),
            _ => self.side(own.clone(), other, item)?,
        };
        let list = InList::new(Box::new(own), all, false);
        match members::of_list(&list, schema)? {
            Some(members) => Ok(members),
            None => {
                size::check_list(list.list.len())?;
                Ok(Expr::InList(list))
            }
        }
    }

    /// A function of DataFusion's takes blank-padded strings without their padding, as PostgreSQL's functions of text do.
    fn unpadded_arguments(&self, mut f: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
        let mut changed = false;
        for arg in &mut f.args {
            if Operand::new(arg, schema).and_then(|o| o.ty) == Some(SqlType::Char) {
                let padded = std::mem::replace(arg, Expr::Literal(ScalarValue::Null, None));
                *arg = bound::function(Op::Cast(SqlType::Text, -1), &self.io).call(vec![padded]);
                changed = true;
            }
        }
        Transformed::new_transformed(Expr::ScalarFunction(f), changed)
    }

    /// An integer or a string that is written as a cast of a literal as the literal that it is: of thousands, each would be computed by itself.
    fn as_literal(&self, e: Expr) -> Result<Expr> {
        match &e {
            Expr::Cast(cast) => {
                if let Expr::Literal(ScalarValue::Int64(Some(value)), _) = &*cast.expr
                    && *cast.field.data_type() == DataType::Int32
                    && let Ok(value) = i32::try_from(*value)
                {
                    return Ok(Expr::Literal(ScalarValue::Int32(Some(value)), None));
                }
            }
            Expr::ScalarFunction(f) => {
                if let Some(ty) = bound::plain_cast(f.name())
                    && let [text] = f.args.as_slice()
                    && let Some(text) = literal(text)
                {
                    return self.parsed(text, ty);
                }
            }
            _ => {}
        }
        Ok(e)
    }

    fn compare(
        &self,
        raw: RawBinaryExpr,
        left: &Operand,
        right: &Operand,
    ) -> Result<RawBinaryExpr> {
        let RawBinaryExpr {
            op,
            left: l,
            right: r,
        } = raw;
        let (l, r) = match (left.ty, right.ty) {
            (Some(lt), Some(rt)) => {
                comparable(&op, lt, rt)?;
                (self.side(l, lt, rt)?, self.side(r, rt, lt)?)
            }
            _ => (l, r),
        };
        Ok(RawBinaryExpr {
            op,
            left: l,
            right: r,
        })
    }

    /// One side of a comparison, made comparable with a side of the other type.
    pub(super) fn side(&self, e: Expr, ty: SqlType, other: SqlType) -> Result<Expr> {
        use SqlType::{
            Char, Date, Float4, Float8, Numeric, Timestamp, TimestampTz, Unknown, Varchar,
        };
        match (ty, other) {
            (Unknown, Char) => {
                let trimmed = literal(&e).map(|t| t.trim_end_matches(' ').to_string());
                Ok(trimmed.map_or(e, |t| Expr::Literal(ScalarValue::Utf8(Some(t)), None)))
            }
            (Unknown, t) if !t.is_string() && t != SqlType::Void => match literal(&e) {
                Some(text) => self.parsed(text, t),
                None => Ok(e),
            },
            // Blank-padded strings compare without their padding, and varying ones beside them.
            (Varchar, Char) => {
                let padded = bound::function(Op::Cast(Char, -1), &self.io).call(vec![e]);
                Ok(bound::function(Op::Cast(SqlType::Text, -1), &self.io).call(vec![padded]))
            }
            // Of a subquery's value it is not known any more, when the plan is made, that it is padded.
            (Char, _) if matches!(e, Expr::ScalarSubquery(_)) => {
                Ok(bound::function(Op::Call("rtrim".to_string()), &self.io).call(vec![e]))
            }
            (Char, _) => Ok(bound::function(Op::Cast(SqlType::Text, -1), &self.io).call(vec![e])),
            // Floats meet other numbers as doubles; DataFusion would make decimals of them.
            (Numeric, Float4 | Float8) | (Float4, _) if ty != other && other.is_number() => {
                Ok(bound::function(Op::Cast(Float8, -1), &self.io).call(vec![e]))
            }
            (Date, Timestamp | TimestampTz) | (Timestamp, TimestampTz) => {
                Ok(bound::function(Op::Compared(other), &self.io).call(vec![e]))
            }
            _ => Ok(e),
        }
    }

    pub(super) fn parsed(&self, text: &str, ty: SqlType) -> Result<Expr> {
        let value = pgtype::text_in(ty, text, &self.io)?;
        let mut builder = Builder::new(&arrow::arrow_type(ty, -1)?, 1)?;
        builder.push(value.borrow())?;
        let scalar = ScalarValue::try_from_array(&builder.finish(), 0)
            .map_err(super::error::from_datafusion)?;
        let field = arrow::field("", ty, -1, (0, 0))?;
        Ok(Expr::Literal(
            scalar,
            Some(FieldMetadata::from(field.metadata().clone())),
        ))
    }
}
