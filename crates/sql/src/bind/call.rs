//! Choosing a function among its overloads.

use block::value::Datum;
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::coerce::{common_padding, fold};
use super::json::check_compared;
use super::listed::is_listed;
use super::named::has_named;
use super::operator_call::is_behind_operator;
use super::user_call::Value;
use super::{Binder, Typed, chosen_type, names, null_if_type, parts};
use crate::collate::Derived;
use crate::error::{Error, Result};
use crate::expr::cast::{CastContext, castable};
use crate::expr::collated::Collated;
use crate::expr::func::{PureFunc, Signature, overloads};
use crate::expr::variadic::Spread;
use crate::expr::{Expr, Func};
use crate::types::{MICROSECOND_DIGITS, Reg, SqlType};
use crate::views::functions;

/// Names that are aggregates: met where none is allowed, they are not "unknown functions".
pub const AGGREGATES: [&str; 5] = ["count", "sum", "min", "max", "avg"];

/// Whether it is one of the functions of `information_schema`.
fn standard(schema: &str, name: &str) -> bool {
    schema == "information_schema" && name.starts_with("_pg_")
}

/// A parameter of type void is what the driver for Java makes of `?` in `{? = call f()}`: no argument, as in PostgreSQL.
pub(super) fn without_out_parameters(mut args: Vec<Typed>) -> Vec<Typed> {
    args.retain(|a| a.ty != SqlType::Void || !matches!(a.expr, Expr::Param(_)));
    args
}

/// A call in FROM as an expression.
pub fn call_of(name: &ast::ObjectName, args: &[FunctionArg]) -> ast::Expr {
    let list = ast::FunctionArgumentList {
        duplicate_treatment: None,
        args: args.to_vec(),
        clauses: Vec::new(),
    };
    ast::Expr::Function(ast::Function {
        name: name.clone(),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

impl Binder<'_> {
    /// A call, or the field of a row that is written as one.
    pub(super) fn function(&self, f: &ast::Function) -> Result<Typed> {
        match self.called(f) {
            Err(e) if e.sqlstate() == "42883" => self.field_called(f)?.ok_or(e),
            found => found,
        }
    }

    /// `f(x)` for the field `f` of a row `x`, if that has one.
    fn field_called(&self, f: &ast::Function) -> Result<Option<Typed>> {
        let name = names::Qualified::new(&f.name)?;
        let (None, FunctionArguments::List(list)) = (&name.schema, &f.args) else {
            return Ok(None);
        };
        let [argument @ FunctionArg::Unnamed(_)] = list.args.as_slice() else {
            return Ok(None);
        };
        let row = self.argument(f, argument)?;
        let fields = match row.ty {
            SqlType::Composite(ty) => ty.fields().unwrap_or_default(),
            _ => return Ok(None),
        };
        match fields.iter().any(|field| field.name == name.name) {
            true => self.field_named(&row, &name.name).map(Some),
            false => Ok(None),
        }
    }

    /// `x.f` for `f(x)` of a whole row `x`, which has no column `f`: the error of that if there is
    /// no such function either.
    pub fn call_by_dot(&self, path: &[ast::Ident], missing: Error) -> Result<Typed> {
        let [table, function] = path else {
            return Err(missing);
        };
        if missing.sqlstate() != "42703" {
            return Err(missing);
        }
        let alias = names::ident(table);
        let row = match self.groups {
            Some(groups) => groups.whole_row(&alias)?,
            None => self.whole_row(&alias)?,
        };
        if row.is_none() {
            return Err(missing);
        }
        let name = ast::ObjectName(vec![ast::ObjectNamePart::Identifier(function.clone())]);
        let row = ast::Expr::Identifier(table.clone());
        let row = FunctionArg::Unnamed(FunctionArgExpr::Expr(row));
        match self.expr(&call_of(&name, &[row])) {
            Err(e) if e.sqlstate() == "42883" => Err(missing),
            found => found,
        }
    }

    fn called(&self, f: &ast::Function) -> Result<Typed> {
        if f.over.is_some()
            || f.filter.is_some()
            || !f.within_group.is_empty()
            || f.null_treatment.is_some()
        {
            return Err(Error::unsupported(format!("{f}")));
        }
        let name = names::Qualified::new(&f.name)?;
        // Arguments that have been bound to look for functions of users are not bound again.
        let bound = match self.user_call(&name, f)? {
            Value::Users(found) => return Ok(found),
            Value::Other(bound) => bound,
        };
        if name.schema.as_deref() == Some("dbms_random")
            && let Some(found) = self.dbms_random(&name, &self.arguments(f)?)?
        {
            return Ok(found);
        }
        if let Some(found) = self.variadic_range(&name, f)? {
            return Ok(found);
        }
        if let Some(found) = self.own_range_call(f)? {
            return Ok(found);
        }
        if let Some(found) = self.oracle_call(&name, f)? {
            return Ok(found);
        }
        if name
            .schema
            .as_deref()
            .is_some_and(|s| s != "pg_catalog" && s != "public" && !standard(s, &name.name))
        {
            let schema = name.schema.as_deref().unwrap_or_default();
            let no_schema = names::no_schema(schema).at_name(&f.name);
            return Err(match self.params.sight.has_schema(schema) {
                true => no_function(&name.to_string(), &self.arguments(f)?),
                false => no_schema,
            });
        }
        if AGGREGATES.contains(&name.name.as_str()) {
            return Err(Error::new(
                "42803",
                format!("aggregate functions are not allowed in {}", self.clause),
            ));
        }
        if crate::query::aggregate::is_aggregate(&name.name) {
            return Err(Error::unsupported(format!(
                "function {} in a direct plan",
                name.name
            )));
        }
        if let ("normalize", FunctionArguments::List(list)) = (name.name.as_str(), &f.args)
            && let [text, form] = list.args.as_slice()
            && let FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::Identifier(form))) = form
            && is_normal_form(form)
        {
            let form = Typed::literal(Datum::Text(form.value.clone()), SqlType::Text);
            return self.call(&name.name, vec![self.argument(f, text)?, form]);
        }
        if let ("make_interval", FunctionArguments::List(list)) = (name.name.as_str(), &f.args) {
            return self.call(&name.name, self.interval_parts(&list.args)?);
        }
        if let (Some(_), FunctionArguments::List(list)) =
            (super::json::path_function(&name.name), &f.args)
        {
            return self.call(&name.name, self.path_arguments(&list.args)?);
        }
        if let Some(found) = self.variadic_call(&name.name, f)? {
            return Ok(found);
        }
        let args = match bound {
            Some(args) => args,
            None => self.arguments(f)?,
        };
        if is_behind_operator(&name.name) {
            return match self.call(&name.name, args.clone()) {
                Err(e) if e.sqlstate() == "42883" => self.operator_call(&name.name, args)?.ok_or(e),
                called => called,
            };
        }
        if is_listed(&name.name) {
            return match self.call(&name.name, args.clone()) {
                Err(e) if e.sqlstate() == "42883" => self.listed_call(&name.name, &args)?.ok_or(e),
                called => called,
            };
        }
        self.call(&name.name, args)
    }

    pub(super) fn arguments(&self, f: &ast::Function) -> Result<Vec<Typed>> {
        match &f.args {
            FunctionArguments::None => Ok(Vec::new()),
            FunctionArguments::List(list)
                if list.duplicate_treatment.is_none() && list.clauses.is_empty() =>
            {
                if has_named(&list.args) {
                    return self.named_arguments(f, &list.args);
                }
                list.args.iter().map(|a| self.argument(f, a)).collect()
            }
            _ => Err(Error::unsupported(format!("{f}"))),
        }
    }

    fn argument(&self, f: &ast::Function, arg: &FunctionArg) -> Result<Typed> {
        match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => self.expr(e),
            FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(row)) => {
                self.star_argument(row)
            }
            _ => Err(Error::unsupported(format!("{f}"))),
        }
    }

    /// A call by name, its arguments converted to what the chosen overload takes.
    pub fn call(&self, name: &str, args: Vec<Typed>) -> Result<Typed> {
        if name.starts_with("enum_")
            && let Some(value) = self.of_enum(name, &args)?
        {
            return Ok(value);
        }
        if let Some(first) = any_from(name) {
            args.iter().skip(first).try_for_each(check_determined)?;
        }
        match name {
            "coalesce" => return self.coalesce(args),
            "nullif" if args.len() == 2 => return self.null_if(args),
            "greatest" if !args.is_empty() => return self.extreme(PureFunc::Greatest, args),
            "least" if !args.is_empty() => return self.extreme(PureFunc::Least, args),
            // Any value is quoted as its text.
            "quote_literal" | "quote_nullable" if args.len() == 1 => {
                return self.quoted(name, args);
            }
            "pg_typeof" if args.len() == 1 => {
                let number = Datum::Int8(args[0].ty.oid().into());
                return Ok(Typed::literal(number, SqlType::Reg(Reg::Type)));
            }
            "localtime" | "current_time" | "localtimestamp" | "current_timestamp" => {
                if let Some(now) = self.now_with_digits(name, &args)? {
                    return Ok(now);
                }
            }
            "format" if !args.is_empty() => return self.concat_all(PureFunc::Format, args),
            "num_nulls" | "num_nonnulls" if !args.is_empty() => {
                let func = match name {
                    "num_nulls" => PureFunc::CountNulls,
                    _ => PureFunc::CountOthers,
                };
                let args = args.into_iter().map(|a| a.expr).collect();
                return Ok(Typed::new(
                    Expr::Call(Func::Pure(func), args),
                    SqlType::Int4,
                ));
            }
            "overlaps" => return self.overlapping(args),
            "pg_collation_for" if args.len() == 1 => return self.collation_for(&args[0]),
            "concat" => return self.concat_all(PureFunc::Concat, args),
            "concat_ws" if !args.is_empty() => return self.concat_all(PureFunc::ConcatWs, args),
            _ => {}
        }
        let mut args = without_out_parameters(args);
        self.as_padded(name, &mut args)?;
        if let Some(found) = self.array_call(name, &args)? {
            return Ok(found);
        }
        if let Some(found) = self.json_call(name, &args)? {
            return Ok(found);
        }
        if let Some(found) = self.range_call(name, &args)? {
            return Ok(found);
        }
        if let Some(found) = self.stored(name, &args)? {
            return Ok(found);
        }
        if let ("age", [transaction]) = (name, &args[..])
            && transaction.ty == SqlType::Xid
        {
            return self.catalog_call("mxid_age", args);
        }
        if let ("age", [time]) = (name, &args[..]) {
            args = self.age_today(time.clone())?;
        }
        let candidates = overloads(name);
        if candidates.is_empty() && functions::find(name).is_some() {
            return self.catalog_call(name, args);
        }
        // A literal without a type is read as one, whatever functions take.
        if let (Some(ty), [arg]) = (type_called(name), &args[..])
            && (arg.ty == SqlType::Unknown || self.choose(&candidates, &args).is_none())
        {
            return self.coerce(arg.clone(), ty, -1, CastContext::Explicit);
        }
        self.call_one_of(name, &candidates, args)
    }

    /// A call of the function among several that fits best.
    pub fn call_one_of(
        &self,
        name: &str,
        candidates: &[Signature],
        args: Vec<Typed>,
    ) -> Result<Typed> {
        let chosen = self
            .choose(candidates, &args)
            .ok_or_else(|| no_function(name, &args))?;
        let (mut func, result) = (chosen.func, chosen.result);
        let wanted = chosen.args;
        if let Func::Pure(of_case @ (PureFunc::Lower | PureFunc::Upper | PureFunc::Initcap)) = func
        {
            func = Func::Pure(case_by_collation(of_case, name, &args)?);
        }
        let args = args
            .into_iter()
            .zip(wanted)
            .map(|(a, ty)| Ok(self.coerce(a, *ty, -1, CastContext::Implicit)?.expr))
            .collect::<Result<_>>()?;
        Ok(Typed::new(fold(Expr::Call(func, args))?, result))
    }

    /// The overload that takes the arguments with the fewest conversions; among equals the first.
    fn choose<'s>(&self, candidates: &'s [Signature], args: &[Typed]) -> Option<&'s Signature> {
        let cost = |s: &Signature| -> Option<usize> {
            if s.args.len() != args.len() {
                return None;
            }
            let mut cost = 0;
            for (arg, &wanted) in args.iter().zip(s.args) {
                cost += self.argument_cost(arg.ty, wanted)?;
            }
            Some(cost)
        };
        candidates
            .iter()
            .filter_map(|s| Some((cost(s)?, s)))
            .min_by_key(|(cost, _)| *cost)
            .map(|(_, s)| s)
    }

    /// `current_time` and its kin, with so many digits of the seconds or with all; `None` of other
    /// arguments, or if the function is one of [`overloads`].
    fn now_with_digits(&self, name: &str, args: &[Typed]) -> Result<Option<Typed>> {
        let digits = match args {
            [] => -1,
            [
                Typed {
                    expr: Expr::Const(Datum::Int4(digits)),
                    ..
                },
            ] => (*digits).min(MICROSECOND_DIGITS),
            _ => return Ok(None),
        };
        let (of, ty) = match name {
            "localtime" => ("localtimestamp", SqlType::Time),
            "current_time" => ("now", SqlType::TimeTz),
            _ if digits < 0 => return Ok(None),
            "localtimestamp" => (name, SqlType::Timestamp),
            _ => (name, SqlType::TimestampTz),
        };
        let now = self.call(of, Vec::new())?;
        let now = self.coerce(now, ty, digits, CastContext::Explicit)?;
        Ok(Some(now))
    }

    fn quoted(&self, name: &str, args: Vec<Typed>) -> Result<Typed> {
        let args = args.into_iter().map(|a| {
            let text = self.coerce(a, SqlType::Text, -1, CastContext::Assignment)?;
            Ok(text.expr)
        });
        let args = args.collect::<Result<Vec<_>>>()?;
        let quoted = fold(Expr::Call(Func::Pure(PureFunc::QuoteLiteral), args))?;
        let expr = match name {
            "quote_nullable" => {
                let null = Expr::Const(Datum::Text("NULL".to_string()));
                Expr::Coalesce(vec![quoted, null])
            }
            _ => quoted,
        };
        Ok(Typed::new(expr, SqlType::Text))
    }

    fn coalesce(&self, args: Vec<Typed>) -> Result<Typed> {
        let ty = chosen_type(&args.iter().map(|a| a.ty).collect::<Vec<_>>(), "COALESCE")?;
        let typmod = common_padding(&args);
        let args = args
            .into_iter()
            .map(|a| Ok(self.coerce(a, ty, -1, CastContext::Implicit)?.expr))
            .collect::<Result<_>>()?;
        let expr = Expr::Coalesce(args);
        Ok(Typed {
            typmod,
            ..Typed::new(expr, ty)
        })
    }

    fn null_if(&self, mut args: Vec<Typed>) -> Result<Typed> {
        let (Some(right), Some(left)) = (args.pop(), args.pop()) else {
            return Err(Error::internal("NULLIF without two arguments"));
        };
        let ty = null_if_type(left.ty, right.ty)?;
        let typmod = if left.ty == ty { left.typmod } else { -1 };
        let (lt, rt) = (left.ty, right.ty);
        let (left, right) = (self.unpadded(left, rt)?, self.unpadded(right, lt)?);
        let (left, right) = self.unify(left, right, "NULLIF")?;
        check_compared(left.ty, "=")?;
        let compared = Typed::new(
            Expr::NullIf(Box::new(left.expr), Box::new(right.expr)),
            left.ty,
        );
        // Compared as something else, the left side is what it was again.
        self.coerce(compared, ty, typmod, CastContext::Explicit)
    }

    fn concat_all(&self, func: PureFunc, args: Vec<Typed>) -> Result<Typed> {
        let args = args.into_iter().map(|a| self.output(a));
        let args = args.collect::<Result<_>>()?;
        Ok(Typed::new(
            Expr::Call(Func::Pure(func), args),
            SqlType::Text,
        ))
    }

    /// A value as text in the form of output, which for some types is not that of their cast.
    pub fn output(&self, value: Typed) -> Result<Expr> {
        match value.ty {
            SqlType::Bool => Ok(letter(value.expr)),
            SqlType::Inet | SqlType::Cidr => self.as_written(value),
            // With its padding.
            SqlType::Char => Ok(value.expr),
            _ => {
                let text = self.coerce(value, SqlType::Text, -1, CastContext::Assignment)?;
                Ok(text.expr)
            }
        }
    }
}

/// `lower` and its kin by the rules of a locale, if their argument has a collation of one.
fn case_by_collation(func: PureFunc, name: &str, args: &[Typed]) -> Result<PureFunc> {
    let derived = args.first().map_or_else(Derived::default, |a| a.collation);
    let collation = derived.decided(&format!("{name}() function"))?;
    let upper = match func {
        _ if collation.locale().is_none() && !collation.is_ascii() => return Ok(func),
        PureFunc::Lower => false,
        PureFunc::Upper => true,
        _ if collation.is_ascii() => return Ok(PureFunc::Collated(Collated::Initcap)),
        _ => {
            let message = format!("initcap() by collation \"{}\"", collation.name());
            return Err(Error::unsupported(message));
        }
    };
    Ok(PureFunc::Collated(Collated::Case { collation, upper }))
}

pub fn no_function(name: &str, args: &[Typed]) -> Error {
    let types: Vec<&str> = args.iter().map(|a| a.ty.name()).collect();
    let message = format!("function {name}({}) does not exist", types.join(", "));
    Error::new("42883", message).hint(
        "No function matches the given name and argument types. You might need to add explicit \
         type casts.",
    )
}

/// The first argument that may have any type, of a function of PostgreSQL's that has such ones.
fn any_from(name: &str) -> Option<usize> {
    match name {
        "pg_typeof" | "pg_column_size" => Some(0),
        _ => Spread::of(name).map(Spread::fixed),
    }
}

/// Refuses a parameter whose type nothing says where a value of any type may stand.
pub(super) fn check_determined(value: &Typed) -> Result<()> {
    match (&value.expr, value.ty) {
        (Expr::Param(n), SqlType::Unknown) => {
            let message = format!("could not determine data type of parameter ${}", n + 1);
            Err(Error::new("42P18", message))
        }
        _ => Ok(()),
    }
}

/// `t` or `f`.
fn letter(e: Expr) -> Expr {
    let text = |s: &str| Expr::Const(Datum::Text(s.to_string()));
    Expr::Case {
        branches: vec![(e.clone(), text("t")), (Expr::Not(Box::new(e)), text("f"))],
        otherwise: None,
    }
}

/// Whether a word is the name of a normal form of Unicode, which is a keyword.
fn is_normal_form(word: &ast::Ident) -> bool {
    let forms = ["nfc", "nfd", "nfkc", "nfkd"];
    word.quote_style.is_none() && forms.iter().any(|f| word.value.eq_ignore_ascii_case(f))
}

/// The type whose name a function has: such a call is a cast.
fn type_called(name: &str) -> Option<SqlType> {
    match name {
        "varchar" => Some(SqlType::Varchar),
        _ => parts::plain_type(name),
    }
}

pub(super) fn conversion_cost(from: SqlType, to: SqlType) -> Option<usize> {
    if from == to {
        return Some(0);
    }
    // A literal is a string where one can be, as in PostgreSQL.
    if from == SqlType::Unknown {
        let is_string = matches!(to, SqlType::Text | SqlType::Varchar | SqlType::Char);
        let is_string = is_string || to.is_citext();
        return Some(if is_string { 1 } else { 2 });
    }
    if castable(from, to) != Some(CastContext::Implicit) {
        return None;
    }
    // Among numbers a near promotion is better than a far one, and double is preferred to numeric.
    Some(match (from.number_rank(), to.number_rank()) {
        (Some(f), Some(t)) if to != SqlType::Numeric => usize::from(t.abs_diff(f)) + 1,
        (Some(_), Some(_)) => 8,
        _ => 1,
    })
}
