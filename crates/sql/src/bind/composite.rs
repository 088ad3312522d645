//! Rows as values: constructors, fields, conversions to other types of rows, tests for NULL.

use block::value::Datum;
use sqlparser::ast::{self, AccessExpr, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::coerce::fold;
use super::{Binder, Typed, names};
use crate::collate::Derived;
use crate::error::{Error, Result};
use crate::expr::cast::{CastContext, castable};
use crate::expr::composite::RowFunc;
use crate::expr::func::PureFunc;
use crate::expr::{Cast, Conversion, Expr, Func};
use crate::parse::stars;
use crate::types::SqlType;
use crate::types::composite::{CompositeType, Field};

pub fn call(func: RowFunc, args: Vec<Expr>, ty: SqlType) -> Result<Typed> {
    let call = Expr::Call(Func::Pure(PureFunc::Row(func)), args);
    Ok(Typed::new(fold(call)?, ty))
}

/// The arguments of `row(..)`; `None`: it is none.
pub fn row_constructor(f: &ast::Function) -> Option<&[FunctionArg]> {
    let is_row =
        matches!(names::Qualified::new(&f.name), Ok(q) if q.name == "row" && q.schema.is_none());
    match &f.args {
        FunctionArguments::List(list) if is_row => Some(&list.args),
        FunctionArguments::None if is_row => Some(&[]),
        _ => None,
    }
}

/// Whether a row is written out: it compares, and is tested for NULL, value by value.
pub fn is_written_row(e: &ast::Expr) -> bool {
    match e {
        ast::Expr::Tuple(_) => true,
        ast::Expr::Nested(inner) => is_written_row(inner),
        ast::Expr::Function(f) => row_constructor(f).is_some(),
        _ => false,
    }
}

/// A record of values, whose fields are called so.
pub fn record(fields: Vec<(String, Typed)>) -> Result<Typed> {
    let mut known = Vec::with_capacity(fields.len());
    let mut args = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        if value.ty == SqlType::Expanded {
            let message = format!("a field of type {}", value.ty.name());
            return Err(Error::unsupported(message));
        }
        // Records of fields that differ in their modifiers only are of one type, as in PostgreSQL.
        known.push(Field::new(name, value.ty, -1));
        args.push(value.expr);
    }
    let row = CompositeType::of_fields(known);
    Ok(row_of(row, args))
}

/// A row of a type, of the values of its fields.
pub fn row_of(ty: CompositeType, args: Vec<Expr>) -> Typed {
    let made = Expr::Call(Func::Pure(PureFunc::Row(RowFunc::Make(ty))), args);
    Typed::new(made, SqlType::Composite(ty))
}

/// The name of a field of a row.
pub fn field_name(row: &Typed, at: usize) -> String {
    match row.ty {
        SqlType::Composite(ty) => ty.field_name(at),
        _ => String::new(),
    }
}

/// The values of the fields of a row, if an expression makes one of them.
fn constructed(e: &Expr) -> Option<Vec<Expr>> {
    match e {
        Expr::Call(Func::Pure(PureFunc::Row(RowFunc::Make(_))), args) => Some(args.clone()),
        Expr::Const(Datum::Composite(row)) => {
            let values = row.borrow().values().map(|v| Expr::Const(v.to_datum()));
            Some(values.collect())
        }
        _ => None,
    }
}

impl Binder<'_> {
    /// The values of a row that is written out.
    pub fn row_values(&self, e: &ast::Expr) -> Result<Option<Vec<Typed>>> {
        let values = match e {
            ast::Expr::Nested(inner) => return self.row_values(inner),
            ast::Expr::Tuple(list) => list.iter().map(|e| self.expr(e)).collect::<Result<_>>()?,
            ast::Expr::Function(f) => match row_constructor(f) {
                Some(args) => self.row_arguments(args)?,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(values))
    }

    /// A row that is written out.
    pub(super) fn row(&self, e: &ast::Expr) -> Result<Typed> {
        let values = self.row_values(e)?;
        self.row_value(values.ok_or_else(|| Error::internal("a row that is none"))?)
    }

    /// The values that the arguments of `row(..)` stand for: `t.*` for several.
    pub fn row_arguments(&self, args: &[FunctionArg]) -> Result<Vec<Typed>> {
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => match stars::row_of(e) {
                    Some(row) => values.extend(self.fields_of(&self.expr(&row)?)?),
                    None => values.push(self.expr(e)?),
                },
                FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => {
                    let row = self.star_argument(name)?;
                    let is_column = matches!(row.expr, Expr::Column(_));
                    match row.ty {
                        SqlType::Composite(_) => values.extend(self.fields_of(&row)?),
                        // What a function in FROM gives that gives no rows.
                        _ if is_column => values.push(row),
                        ty => return Err(not_a_row(ty, "*")),
                    }
                }
                other => return Err(Error::unsupported(format!("{other} in a row"))),
            }
        }
        Ok(values)
    }

    /// `t.*` as an argument of a function: the whole row.
    pub fn star_argument(&self, name: &ast::ObjectName) -> Result<Typed> {
        let table = names::Qualified::new(name)?.name;
        let row = match self.groups {
            Some(groups) => groups.whole_row(&table)?,
            None => self.whole_row(&table)?,
        };
        if let (None, Some(variable)) = (&row, self.params.variable(std::slice::from_ref(&table))?)
        {
            return Ok(variable);
        }
        if row.is_none() && self.scope.has_table(&table) {
            return Err(Error::unsupported(format!("the whole row {table}")));
        }
        row.ok_or_else(|| {
            let message = format!("missing FROM-clause entry for table \"{table}\"");
            Error::new("42P01", message)
        })
    }

    /// The whole row of the only table in sight, outside of the tree lane; with others it may be
    /// missing, which the tree lane knows.
    pub(super) fn whole_row(&self, table: &str) -> Result<Option<Typed>> {
        let columns = &self.scope.columns;
        if columns.is_empty() || columns.iter().any(|c| c.table != table) || self.groups.is_some() {
            return Ok(None);
        }
        for c in columns {
            self.params.needs.read(c.table_oid, c.attnum);
        }
        let fields = columns.iter();
        let fields: Vec<_> = fields.map(|c| (c.name.clone(), c.ty, c.typmod)).collect();
        let slots = columns.iter().map(|c| Expr::Column(c.slot));
        let dict = self.params.names.dict();
        if let Some(ty) = dict.and_then(|d| d.row_type_of(columns[0].table_oid, &fields)) {
            return Ok(Some(row_of(ty, slots.collect())));
        }
        let values = fields.into_iter().zip(slots);
        let values = values.map(|((name, ty, typmod), expr)| {
            let value = Typed {
                typmod,
                ..Typed::new(expr, ty)
            };
            (name, value)
        });
        record(values.collect()).map(Some)
    }

    /// A row that is written out, as a value.
    pub(super) fn row_value(&self, values: Vec<Typed>) -> Result<Typed> {
        let mut fields = Vec::with_capacity(values.len());
        for (value, at) in values.into_iter().zip(1..) {
            let value = match value.expr {
                Expr::Param(_) => self.settle(value)?,
                _ => value,
            };
            fields.push((format!("f{at}"), value));
        }
        let row = record(fields)?;
        let expr = fold(row.expr)?;
        Ok(Typed { expr, ..row })
    }

    /// All fields of a row.
    pub fn fields_of(&self, row: &Typed) -> Result<Vec<Typed>> {
        let SqlType::Composite(ty) = row.ty else {
            return Err(not_a_row(row.ty, "*"));
        };
        let fields = ty
            .fields()
            .ok_or_else(|| Error::new("42804", "record type has not been registered"))?;
        let all = 0..fields.len();
        all.map(|at| field_at(row, ty, at)).collect()
    }

    /// A field by its name.
    pub fn field_named(&self, row: &Typed, name: &str) -> Result<Typed> {
        let SqlType::Composite(ty) = row.ty else {
            return Err(not_a_row(row.ty, name));
        };
        let fields = ty.fields().unwrap_or_default();
        let at = fields.iter().position(|f| f.name == name);
        let at = at.ok_or_else(|| {
            let message = match ty.is_record() {
                true => format!("could not identify column \"{name}\" in record data type"),
                false => {
                    let row = ty.def().names[0].as_str();
                    format!("column \"{name}\" not found in data type {row}")
                }
            };
            Error::new("42703", message)
        })?;
        field_at(row, ty, at)
    }

    /// Fields and elements, one of the other.
    pub(super) fn part(&self, value: Typed, path: &[AccessExpr]) -> Result<Typed> {
        let is_dot = |step: &AccessExpr| matches!(step, AccessExpr::Dot(_));
        match path {
            [] => Ok(value),
            [AccessExpr::Dot(ast::Expr::Identifier(field)), rest @ ..] => {
                let field = names::ident(field);
                if field == stars::ALL {
                    let message = "row expansion via \"*\" is not supported here";
                    return Err(Error::new("0A000", message));
                }
                let field = self.field_named(&value, &field)?;
                self.part(field, rest)
            }
            [AccessExpr::Dot(other), ..] => Err(Error::unsupported(format!("the field {other}"))),
            path => {
                let end = path.iter().position(is_dot).unwrap_or(path.len());
                let element = self.subscripted(value, &path[..end])?;
                self.part(element, &path[end..])
            }
        }
    }

    /// IS [NOT] NULL of a row that is a value.
    pub(super) fn row_is_null(&self, row: Typed, negated: bool) -> Result<Typed> {
        call(RowFunc::IsNull { negated }, vec![row.expr], SqlType::Bool)
    }

    /// A row as one of another type, if that is what is wanted.
    pub(super) fn convert_row(
        &self,
        value: &Typed,
        to: SqlType,
        context: CastContext,
    ) -> Result<Option<Typed>> {
        let (SqlType::Composite(from), SqlType::Composite(into)) = (value.ty, to) else {
            return Ok(None);
        };
        if from == into || !from.is_record() {
            return Ok(None);
        }
        // A variable of a body has the fields that it has by then.
        if let (Expr::Param(_), Some(_)) = (&value.expr, into.fields()) {
            let cast = Cast {
                from: value.ty,
                to,
                typmod: -1,
                how: Conversion::Implied,
            };
            let expr = Expr::Cast(cast, Box::new(value.expr.clone()));
            return Ok(Some(Typed::new(expr, to)));
        }
        let (Some(fields), Some(args)) = (into.fields(), constructed(&value.expr)) else {
            return Ok(None);
        };
        let known = from.fields().unwrap_or_default();
        let refuse = |detail: String| {
            let message = format!("cannot cast type record to {}", to.name());
            Error::new("42846", message).detail(detail)
        };
        if args.len() < fields.len() {
            return Err(refuse("Input has too few columns.".to_string()));
        }
        if args.len() > fields.len() {
            return Err(refuse("Input has too many columns.".to_string()));
        }
        let mut made = Vec::with_capacity(args.len());
        for (at, (field, (arg, given))) in fields.iter().zip(args.iter().zip(known)).enumerate() {
            let arg = Typed {
                expr: arg.clone(),
                ty: given.ty,
                typmod: given.typmod,
                collation: Derived::default(),
            };
            let nested = matches!(
                (arg.ty, field.ty),
                (SqlType::Composite(_), SqlType::Composite(_))
            );
            if !nested && castable(arg.ty, field.ty).is_none_or(|weakest| weakest > context) {
                let (from, to) = (given.ty.name(), field.ty.name());
                let detail = format!("Cannot cast type {from} to {to} in column {}.", at + 1);
                return Err(refuse(detail));
            }
            made.push(self.coerce(arg, field.ty, field.typmod, context)?.expr);
        }
        call(RowFunc::Make(into), made, to).map(Some)
    }
}

/// A field at its place. Of a constructor it is what the constructor has there.
fn field_at(row: &Typed, ty: CompositeType, at: usize) -> Result<Typed> {
    let field = ty.fields().and_then(|fields| fields.get(at));
    let field = field.ok_or_else(|| Error::internal("a field that a row has not"))?;
    let expr = match constructed(&row.expr) {
        Some(mut args) if at < args.len() => args.swap_remove(at),
        _ => call(RowFunc::Field(at), vec![row.expr.clone()], field.ty)?.expr,
    };
    Ok(Typed {
        expr,
        ty: field.ty,
        typmod: field.typmod,
        collation: Derived::default(),
    })
}

fn not_a_row(ty: SqlType, name: &str) -> Error {
    let message = format!(
        "column notation .{name} applied to type {}, which is not a composite type",
        ty.name()
    );
    Error::new("42809", message)
}
