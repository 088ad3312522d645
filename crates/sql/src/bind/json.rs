//! Operators and functions of `json` and `jsonb`.

use block::value::Datum;
use sqlparser::ast::{AccessExpr, BinaryOperator, FunctionArg, FunctionArgExpr, Subscript};

use super::array::no_operator;
use super::coerce::fold;
use super::{Binder, Typed, names};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::PureFunc;
use crate::expr::json::JsonFunc;
use crate::expr::json::path::{self, Question};
use crate::expr::{Expr, Func};
use crate::pgtype;
use crate::query::record_function::{RecordFunction, of_record};
use crate::types::composite::CompositeType;
use crate::types::{Element, SqlType};

fn call(func: JsonFunc, args: Vec<Expr>, ty: SqlType) -> Result<Typed> {
    let call = Expr::Call(Func::Pure(PureFunc::Json(func)), args);
    Ok(Typed::new(fold(call)?, ty))
}

pub fn is_json(ty: SqlType) -> bool {
    matches!(ty, SqlType::Json | SqlType::Jsonb)
}

fn texts() -> SqlType {
    Element::of(SqlType::Text).map_or(SqlType::Text, SqlType::Array)
}

fn of_form(binary: bool) -> SqlType {
    if binary {
        SqlType::Jsonb
    } else {
        SqlType::Json
    }
}

/// The name without its type, and whether that is jsonb.
fn form(name: &str) -> Option<(&str, bool)> {
    let json = name.strip_prefix("json_").map(|rest| (rest, false));
    json.or_else(|| name.strip_prefix("jsonb_").map(|rest| (rest, true)))
}

/// What a function of a name asks of a path, and the type of its answer. Those with `_tz` ask the
/// same, with a time zone.
pub fn path_function(name: &str) -> Option<(Question, SqlType)> {
    let name = name.strip_suffix("_tz").unwrap_or(name);
    Some(match name {
        "jsonb_path_exists" => (Question::Exists, SqlType::Bool),
        "jsonb_path_match" => (Question::Match, SqlType::Bool),
        "jsonb_path_query_array" => (Question::All, SqlType::Jsonb),
        "jsonb_path_query_first" => (Question::First, SqlType::Jsonb),
        _ => return None,
    })
}

/// Whether an operator may be one of json.
pub fn is_operator(op: &BinaryOperator) -> bool {
    use BinaryOperator::*;
    matches!(
        op,
        Arrow
            | LongArrow
            | HashArrow
            | HashLongArrow
            | AtArrow
            | ArrowAt
            | Question
            | QuestionAnd
            | QuestionPipe
            | HashMinus
            | StringConcat
            | Minus
            | AtQuestion
            | AtAt
    )
}

impl Binder<'_> {
    /// An operator of json; `None` if neither side is of that type.
    pub(super) fn json_operator(
        &self,
        op: &BinaryOperator,
        left: &Typed,
        right: &Typed,
    ) -> Result<Option<Typed>> {
        use BinaryOperator::*;
        use SqlType::{Bool, Int2, Int4, Jsonb, Text, Unknown};
        let json = if is_json(left.ty) { left.ty } else { right.ty };
        if !is_json(json) {
            return match op {
                AtArrow | ArrowAt | StringConcat | Minus => Ok(None),
                _ => Err(no_operator(left.ty, &op.to_string(), right.ty)),
            };
        }
        let is_text = right.ty == Unknown || right.ty.is_string();
        let both = (json == Jsonb || matches!(op, Arrow | LongArrow | HashArrow | HashLongArrow))
            && (is_json(left.ty)
                || matches!((op, left.ty), (AtArrow | ArrowAt | StringConcat, Unknown)));
        let is_array = matches!(right.ty, SqlType::Array(e) if e.ty().is_string());
        let (func, wanted, result) = match op {
            // Of a text, what the other side is as text.
            StringConcat
                if left.ty.is_string() && left.ty != Unknown
                    || right.ty.is_string() && right.ty != Unknown =>
            {
                return Ok(None);
            }
            StringConcat
                if json == SqlType::Json && (left.ty == Unknown || right.ty == Unknown) =>
            {
                return Ok(None);
            }
            _ if !both => return Err(no_operator(left.ty, &op.to_string(), right.ty)),
            Arrow | LongArrow => {
                let text = *op == LongArrow;
                let result = if text { Text } else { json };
                match right.ty {
                    Int2 | Int4 => (JsonFunc::Get { text }, Int4, result),
                    _ if is_text => (JsonFunc::Get { text }, Text, result),
                    _ => return Err(no_operator(left.ty, &op.to_string(), right.ty)),
                }
            }
            AtQuestion | AtAt
                if left.ty == Jsonb && matches!(right.ty, SqlType::JsonPath | Unknown) =>
            {
                let question = if *op == AtAt {
                    path::Question::Match
                } else {
                    path::Question::Exists
                };
                return self.silently(question, left, right).map(Some);
            }
            HashArrow | HashLongArrow if is_array || right.ty == Unknown => {
                let text = *op == HashLongArrow;
                (
                    JsonFunc::Path { text },
                    texts(),
                    if text { Text } else { json },
                )
            }
            AtArrow if matches!(right.ty, Jsonb | Unknown) => (JsonFunc::Contains, Jsonb, Bool),
            ArrowAt if matches!(right.ty, Jsonb | Unknown) => (JsonFunc::ContainedBy, Jsonb, Bool),
            Question if is_text => (JsonFunc::Exists, Text, Bool),
            QuestionAnd if is_array || right.ty == Unknown => (JsonFunc::ExistsAll, texts(), Bool),
            QuestionPipe if is_array || right.ty == Unknown => (JsonFunc::ExistsAny, texts(), Bool),
            HashMinus if is_array || right.ty == Unknown => (JsonFunc::DeletePath, texts(), Jsonb),
            StringConcat if matches!(right.ty, Jsonb | Unknown) => (JsonFunc::Concat, Jsonb, Jsonb),
            Minus if matches!(right.ty, Int2 | Int4) => (JsonFunc::Delete, Int4, Jsonb),
            Minus if is_text => (JsonFunc::Delete, Text, Jsonb),
            Minus if is_array => (JsonFunc::Delete, texts(), Jsonb),
            _ => return Err(no_operator(left.ty, &op.to_string(), right.ty)),
        };
        let to = |value: &Typed, ty| {
            Ok::<_, Error>(
                self.coerce(value.clone(), ty, -1, CastContext::Implicit)?
                    .expr,
            )
        };
        let args = vec![to(left, json)?, to(right, wanted)?];
        call(func, args, result).map(Some)
    }

    /// A question of a path, whose errors are no answer.
    fn silently(&self, question: Question, document: &Typed, path: &Typed) -> Result<Typed> {
        let path = self.coerce(path.clone(), SqlType::JsonPath, -1, CastContext::Implicit)?;
        let vars = Expr::Const(pgtype::json::jsonb_in("{}")?);
        let silent = Expr::Const(Datum::Bool(true));
        let args = vec![document.expr.clone(), path.expr, vars, silent];
        let follow = JsonFunc::Follow {
            question,
            zoned: false,
        };
        call(follow, args, SqlType::Bool)
    }

    /// A function of a name that follows a path; `None`: there is none of that name.
    fn path_call(&self, name: &str, args: &[Typed]) -> Result<Option<Typed>> {
        let Some((question, result)) = path_function(name) else {
            return Ok(None);
        };
        let wanted = [
            SqlType::Jsonb,
            SqlType::JsonPath,
            SqlType::Jsonb,
            SqlType::Bool,
        ];
        let fits = |(arg, wanted): (&Typed, SqlType)| {
            super::call::conversion_cost(arg.ty, wanted).is_some()
        };
        if !(2..=4).contains(&args.len()) || !args.iter().zip(wanted).all(fits) {
            return Err(super::call::no_function(name, args));
        }
        let args = args.iter().zip(wanted).map(|(arg, wanted)| {
            let arg = self.coerce(arg.clone(), wanted, -1, CastContext::Implicit)?;
            Ok::<_, Error>(arg.expr)
        });
        let args = args.collect::<Result<_>>()?;
        let zoned = name.ends_with("_tz");
        call(JsonFunc::Follow { question, zoned }, args, result).map(Some)
    }

    /// The arguments of a function that follows a path, which may be named and left out.
    pub fn path_arguments(&self, args: &[FunctionArg]) -> Result<Vec<Typed>> {
        const NAMES: [&str; 4] = ["target", "path", "vars", "silent"];
        let mut values: Vec<Option<Typed>> = Vec::new();
        for arg in args {
            let (at, value) = match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => (values.len(), e),
                FunctionArg::Named {
                    name,
                    arg: FunctionArgExpr::Expr(e),
                    ..
                } => {
                    let name = names::ident(name);
                    let at = NAMES.iter().position(|n| *n == name);
                    let missing = || {
                        let message = format!("there is no argument \"{name}\" of a path function");
                        Error::new("42883", message)
                    };
                    (at.ok_or_else(missing)?, e)
                }
                other => return Err(Error::unsupported(format!("argument {other}"))),
            };
            if values.len() <= at {
                values.resize(at + 1, None);
            }
            values[at] = Some(self.expr(value)?);
        }
        let no_vars = || pgtype::json::jsonb_in("{}").map(|v| Typed::literal(v, SqlType::Jsonb));
        let values = values
            .into_iter()
            .enumerate()
            .map(|(at, value)| match value {
                Some(value) => Ok(value),
                None if at == 2 => no_vars(),
                None => Err(Error::new("42883", "a path function without its path")),
            });
        values.collect()
    }

    /// `j['a'][0]`, for reading.
    pub(super) fn json_subscripted(&self, json: Typed, path: &[AccessExpr]) -> Result<Typed> {
        let (steps, _) = self.json_steps(path)?;
        let args = std::iter::once(json.expr).chain(steps).collect();
        call(JsonFunc::Extract { text: false }, args, SqlType::Jsonb)
    }

    /// The steps of a path as texts, and whether the first was an integer.
    pub(super) fn json_steps(&self, path: &[AccessExpr]) -> Result<(Vec<Expr>, bool)> {
        let (mut steps, mut is_array) = (Vec::new(), false);
        for step in path {
            let AccessExpr::Subscript(Subscript::Index { index }) = step else {
                return Err(Error::new(
                    "42804",
                    "jsonb subscript does not support slices",
                ));
            };
            let index = self.expr(index)?;
            let ty = index.ty;
            let is_integer = matches!(ty, SqlType::Int2 | SqlType::Int4);
            if !is_integer && ty != SqlType::Unknown && !ty.is_string() {
                let message = format!("subscript type {} is not supported", ty.name());
                return Err(Error::new("42804", message)
                    .hint("jsonb subscript must be coercible to either integer or text."));
            }
            is_array |= steps.is_empty() && is_integer;
            let text = self.coerce(index, SqlType::Text, -1, CastContext::Explicit)?;
            steps.push(text.expr);
        }
        Ok((steps, is_array))
    }

    /// What a function makes of a document over a base, which may be NULL: a row of a type, or an
    /// array of them. `declared` is the domain over the type, or the type.
    pub fn populated(
        &self,
        function: RecordFunction,
        (row, declared): (CompositeType, SqlType),
        base: Option<Typed>,
        document: Typed,
    ) -> Result<Typed> {
        let json = of_form(function.binary);
        if document.ty != json && document.ty != SqlType::Unknown {
            return Err(super::call::no_function(function.name(), &[document]));
        }
        let document = self.coerce(document, json, -1, CastContext::Implicit)?;
        let base = base.map_or(Expr::Const(Datum::Null), |base| base.expr);
        let of_rows = |ty: SqlType| match function.set {
            true => ty.array(),
            false => Some(ty),
        };
        let known = of_rows(SqlType::Composite(row)).zip(of_rows(declared));
        let (ty, declared) = known.ok_or_else(|| Error::internal("rows without arrays"))?;
        let func = JsonFunc::Populate { row, function };
        let made = call(func, vec![base, document.expr], ty)?;
        self.checked(made, declared)
    }

    /// The type of the rows that a base asks for, and the domain over it. `None`: any.
    pub fn row_wanted(
        &self,
        function: RecordFunction,
        base: &Typed,
    ) -> Result<Option<(CompositeType, SqlType)>> {
        let SqlType::Composite(row) = base.ty else {
            let message = format!("first argument of {} must be a row type", function.name());
            return Err(Error::new("42804", message));
        };
        let declared = match &base.expr {
            Expr::Domain(check, _) => check.declared,
            _ => base.ty,
        };
        Ok(row.fields().map(|_| (row, declared)))
    }

    /// A call of a function that makes rows of documents, where no columns are defined.
    pub fn populate_call(&self, function: RecordFunction, args: &[Typed]) -> Result<Typed> {
        let undetermined = || {
            let message = format!(
                "could not determine row type for result of {}",
                function.name()
            );
            Error::new("0A000", message).hint(
                "Provide a non-null record argument, or call the function in the FROM clause \
                 using a column definition list.",
            )
        };
        // That of json has a third argument, which means nothing.
        let most = usize::from(!function.binary);
        match (function.populate, args) {
            (true, [base, document, rest @ ..]) if rest.len() <= most => {
                let wanted = self.row_wanted(function, base)?;
                let wanted = wanted.ok_or_else(undetermined)?;
                self.populated(function, wanted, Some(base.clone()), document.clone())
            }
            (false, [_]) => Err(undetermined()),
            _ => Err(super::call::no_function(function.name(), args)),
        }
    }

    /// A value as json or jsonb.
    pub fn made_json(&self, value: Typed, binary: bool, nulls: bool) -> Result<Typed> {
        let value = self.settle(value)?;
        let func = JsonFunc::Make {
            of: value.ty,
            binary,
            nulls,
        };
        call(func, vec![value.expr], of_form(binary))
    }

    /// A key of an object as text.
    pub fn json_key(&self, key: Typed) -> Result<Expr> {
        let key = self.settle(key)?;
        if is_json(key.ty) || matches!(key.ty, SqlType::Array(_) | SqlType::Composite(_)) {
            let message = "key value must be scalar, not array, composite, or json";
            return Err(Error::new("22023", message));
        }
        Ok(self
            .coerce(key, SqlType::Text, -1, CastContext::Explicit)?
            .expr)
    }

    /// A function of json; `None` if there is none of that name.
    pub(super) fn json_call(&self, name: &str, args: &[Typed]) -> Result<Option<Typed>> {
        use SqlType::{Bool, Int4, Json, Jsonb, Text};
        if let Some(function) = of_record(name) {
            if function.set {
                return Err(Error::unsupported(format!("{name} in a direct plan")));
            }
            return self.populate_call(function, args).map(Some);
        }
        if let Some(found) = self.path_call(name, args)? {
            return Ok(Some(found));
        }
        let json = |binary| of_form(binary);
        let (func, wanted, result) = match (name, args) {
            ("to_json", [value]) => return self.made_json(value.clone(), false, false).map(Some),
            ("to_jsonb", [value]) => return self.made_json(value.clone(), true, false).map(Some),
            ("row_to_json", [value] | [value, _]) => {
                if !matches!(value.ty, SqlType::Composite(_)) {
                    return Ok(None);
                }
                (JsonFunc::OfArray(value.ty), vec![value.ty, Bool], Json)
            }
            ("array_to_json", [value] | [value, _]) => {
                if !matches!(value.ty, SqlType::Array(_)) {
                    return Ok(None);
                }
                (JsonFunc::OfArray(value.ty), vec![value.ty, Bool], Json)
            }
            _ => match (form(name), args.len()) {
                (Some(("build_array", binary)), _) => {
                    let parts = args
                        .iter()
                        .map(|a| Ok(self.made_json(a.clone(), binary, true)?.expr));
                    let parts = parts.collect::<Result<Vec<_>>>()?;
                    return call(JsonFunc::BuildArray { binary }, parts, json(binary)).map(Some);
                }
                (Some(("build_object", binary)), _) => {
                    return self.built_object(args, binary).map(Some);
                }
                (Some(("typeof", binary)), 1) => (JsonFunc::Typeof, vec![json(binary)], Text),
                (Some(("array_length", binary)), 1) => {
                    (JsonFunc::ArrayLength, vec![json(binary)], Int4)
                }
                (Some(("strip_nulls", binary)), 1) => {
                    (JsonFunc::StripNulls, vec![json(binary)], json(binary))
                }
                (Some(("object", binary)), 1 | 2) => {
                    (JsonFunc::OfTexts { binary }, vec![texts(); 2], json(binary))
                }
                (Some((extract @ ("extract_path" | "extract_path_text"), binary)), 1..) => {
                    let text = extract == "extract_path_text";
                    let mut wanted = vec![Text; args.len()];
                    wanted[0] = json(binary);
                    (
                        JsonFunc::Extract { text },
                        wanted,
                        if text { Text } else { json(binary) },
                    )
                }
                (Some((operator, binary)), 2)
                    if let Some((func, second, result)) =
                        operator_called(operator, binary, args) =>
                {
                    (func, vec![json(binary), second], result)
                }
                (Some(("pretty", true)), 1) => (JsonFunc::Pretty, vec![Jsonb], Text),
                (Some(("set", true)), 3 | 4) => {
                    (JsonFunc::Set, vec![Jsonb, texts(), Jsonb, Bool], Jsonb)
                }
                (Some(("insert", true)), 3 | 4) => {
                    (JsonFunc::Insert, vec![Jsonb, texts(), Jsonb, Bool], Jsonb)
                }
                (Some(("set_lax", true)), 3..=5) => (
                    JsonFunc::SetLax,
                    vec![Jsonb, texts(), Jsonb, Bool, Text],
                    Jsonb,
                ),
                _ => return Ok(None),
            },
        };
        let fits = args.iter().zip(&wanted).all(|(arg, ty)| {
            arg.ty == SqlType::Unknown
                || crate::expr::cast::castable(arg.ty, *ty) == Some(CastContext::Implicit)
        });
        if !fits {
            return Ok(None);
        }
        let args = args.iter().zip(wanted);
        let args =
            args.map(|(a, ty)| Ok(self.coerce(a.clone(), ty, -1, CastContext::Implicit)?.expr));
        call(func, args.collect::<Result<Vec<_>>>()?, result).map(Some)
    }

    fn built_object(&self, args: &[Typed], binary: bool) -> Result<Typed> {
        if !args.len().is_multiple_of(2) {
            let name = if binary {
                "jsonb_build_object()"
            } else {
                "json_build_object()"
            };
            let message = "argument list must have even number of elements";
            return Err(Error::new("22023", message).hint(format!(
                "The arguments of {name} must consist of alternating keys and values."
            )));
        }
        let mut parts = Vec::with_capacity(args.len());
        for (at, arg) in args.iter().enumerate() {
            parts.push(match at % 2 {
                0 => self.json_key(arg.clone())?,
                _ => self.made_json(arg.clone(), binary, true)?.expr,
            });
        }
        call(JsonFunc::BuildObject { binary }, parts, of_form(binary))
    }
}

/// That values of a type have no equality or no order, as json has not.
pub fn check_comparable(ty: SqlType, what: &str) -> Result<()> {
    let element = match ty {
        SqlType::Array(element) => element.ty(),
        ty => ty,
    };
    if let SqlType::Composite(row) = element {
        let mut fields = row.fields().unwrap_or_default().iter();
        return fields.try_for_each(|f| check_comparable(f.ty, what));
    }
    match element {
        SqlType::Json | SqlType::JsonPath | SqlType::Point | SqlType::Rectangle | SqlType::Void => {
            Err(Error::new(
                "42883",
                format!(
                    "could not identify {} {what} {} for type {}",
                    if what.starts_with(['a', 'e', 'i', 'o', 'u']) {
                        "an"
                    } else {
                        "a"
                    },
                    if what == "comparison" {
                        "function"
                    } else {
                        "operator"
                    },
                    ty.name()
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// The same of two values that an operator compares, within IN or ANY, too. PostgreSQL compares the
/// areas of boxes, which is not built.
pub fn check_compared(ty: SqlType, symbol: &str) -> Result<()> {
    match ty {
        SqlType::Json | SqlType::JsonPath | SqlType::Point | SqlType::Void => {
            Err(super::array::no_operator(ty, symbol, ty))
        }
        SqlType::Rectangle => Err(Error::unsupported("comparisons of boxes")),
        SqlType::Composite(_) | SqlType::Array(_) => {
            let what = match symbol {
                "=" | "<>" => "equality",
                _ => "ordering",
            };
            check_comparable(ty, what)
        }
        _ => Ok(()),
    }
}

/// The function behind an operator by its name in the catalogs: what it does, its second argument
/// and its result.
fn operator_called(
    name: &str,
    binary: bool,
    args: &[Typed],
) -> Option<(JsonFunc, SqlType, SqlType)> {
    use SqlType::{Bool, Int2, Int4, Jsonb, Text};
    let json = of_form(binary);
    Some(match (name, binary) {
        ("object_field", _) => (JsonFunc::Get { text: false }, Text, json),
        ("object_field_text", _) => (JsonFunc::Get { text: true }, Text, Text),
        ("array_element", _) => (JsonFunc::Get { text: false }, Int4, json),
        ("array_element_text", _) => (JsonFunc::Get { text: true }, Int4, Text),
        ("contains", true) => (JsonFunc::Contains, Jsonb, Bool),
        ("contained", true) => (JsonFunc::ContainedBy, Jsonb, Bool),
        ("exists", true) => (JsonFunc::Exists, Text, Bool),
        ("exists_any", true) => (JsonFunc::ExistsAny, texts(), Bool),
        ("exists_all", true) => (JsonFunc::ExistsAll, texts(), Bool),
        ("concat", true) => (JsonFunc::Concat, Jsonb, Jsonb),
        ("delete_path", true) => (JsonFunc::DeletePath, texts(), Jsonb),
        ("delete", true) => {
            let what = match args[1].ty {
                Int2 | Int4 => Int4,
                // Several keys are arguments, not an array.
                SqlType::Array(_) => return None,
                _ => Text,
            };
            (JsonFunc::Delete, what, Jsonb)
        }
        _ => return None,
    })
}
