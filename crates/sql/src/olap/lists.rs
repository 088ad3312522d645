//! Long lists after IN, made small before anything copies the query: each literal is a node of the syntax tree, of some hundred bytes, and planning copies
//! that several times. The list becomes one string, and is read out of it when its function is planned ([`super::members`]).

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr as DfExpr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::{Expr, Query, UnaryOperator, Value, VisitMut, VisitorMut};

use super::build::{self, LONG_LIST};
use crate::bind::parts;
use crate::error::Error;
use crate::types::SqlType;

/// The function that stands for such a list: of what is looked for, the kind of the values, and the values.
pub const NAME: &str = "pg_long_list";

/// Between values. No string has it in it.
const SEPARATOR: char = '\0';

/// Makes such lists of a query small.
pub fn compact(query: &mut Query) {
    let _ = VisitMut::visit(query, &mut Compact);
}

struct Compact;

impl VisitorMut for Compact {
    type Break = ();

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        let Expr::InList {
            expr,
            list,
            negated,
        } = e
        else {
            return ControlFlow::Continue(());
        };
        // A parameter takes its type from the list.
        let open = matches!(&**expr, Expr::Value(v) if matches!(v.value, Value::Placeholder(_)));
        if !open && let Some((kind, values)) = packed(list) {
            let own = std::mem::replace(&mut **expr, build::null());
            let args = vec![own, build::string(kind.name()), build::string(values)];
            let found = build::call(NAME, args);
            *e = match *negated {
                true => build::not(found),
                false => found,
            };
        }
        ControlFlow::Continue(())
    }
}

/// What all values of a list are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Integers,
    /// Integers and decimals, which are numerics together.
    Numerics,
    /// Literals without a type.
    Strings,
    /// Literals cast to this type.
    Cast(SqlType),
}

impl Kind {
    fn of(e: &Expr) -> Option<Kind> {
        match e {
            Expr::Cast { data_type, .. } => {
                let (ty, typmod) = parts::data_type(data_type).ok()?;
                // Blanks and digits are added to these.
                let plain = typmod == -1 && !matches!(ty, SqlType::Char | SqlType::Numeric);
                plain.then_some(Kind::Cast(ty))
            }
            e if string(e).is_some() => Some(Kind::Strings),
            _ => Some(Kind::Integers),
        }
    }

    fn name(self) -> String {
        match self {
            Kind::Integers => "integers".to_string(),
            Kind::Numerics => "numerics".to_string(),
            Kind::Strings => "strings".to_string(),
            Kind::Cast(ty) => format!("{}", ty.oid()),
        }
    }

    fn named(name: &str) -> Option<Kind> {
        match name {
            "integers" => Some(Kind::Integers),
            "numerics" => Some(Kind::Numerics),
            "strings" => Some(Kind::Strings),
            oid => SqlType::from_oid(oid.parse().ok()?).map(Kind::Cast),
        }
    }
}

/// The values of a long list of literals of one kind.
fn packed(list: &[Expr]) -> Option<(Kind, String)> {
    if list.len() < LONG_LIST {
        return None;
    }
    let mut kind = Kind::of(&list[0])?;
    if kind == Kind::Integers
        && !list
            .iter()
            .all(|e| number(e).is_some_and(|n| n.is_integer()))
    {
        kind = Kind::Numerics;
    }
    let mut all = String::new();
    for (i, e) in list.iter().enumerate() {
        if i > 0 {
            all.push(SEPARATOR);
        }
        match (kind, e) {
            (Kind::Strings, e) => all += string(e)?,
            (Kind::Integers | Kind::Numerics, e) => number(e)?.write(&mut all),
            (Kind::Cast(_), Expr::Cast { expr, .. }) if Kind::of(e)? == kind => {
                match string(expr) {
                    Some(text) => all += text,
                    None => number(expr).filter(Number::is_integer)?.write(&mut all),
                }
            }
            _ => return None,
        }
    }
    Some((kind, all))
}

fn string(e: &Expr) -> Option<&str> {
    match e {
        Expr::Value(v) => match &v.value {
            Value::SingleQuotedString(s) if !s.contains(SEPARATOR) => Some(s),
            _ => None,
        },
        _ => None,
    }
}

/// A number as it is written.
struct Number<'e> {
    sign: &'static str,
    digits: &'e str,
}

impl Number<'_> {
    /// One that is no bigint is no integer.
    fn is_integer(&self) -> bool {
        self.digits.bytes().all(|b| b.is_ascii_digit()) && self.digits.parse::<i64>().is_ok()
    }

    fn write(&self, out: &mut String) {
        *out += self.sign;
        *out += self.digits;
    }
}

fn number(e: &Expr) -> Option<Number<'_>> {
    let (sign, number) = match e {
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => ("-", &**expr),
        e => ("", e),
    };
    let Expr::Value(v) = number else { return None };
    match &v.value {
        Value::Number(digits, _) => Some(Number { sign, digits }),
        _ => None,
    }
}

/// The list that a call of the function holds: what is looked for, the kind, the values.
pub fn unpacked(args: &[DfExpr]) -> Option<(&DfExpr, Kind, impl Iterator<Item = &str>)> {
    let [own, kind, values] = args else {
        return None;
    };
    let (
        DfExpr::Literal(ScalarValue::Utf8(Some(kind)), _),
        DfExpr::Literal(ScalarValue::Utf8(Some(values)), _),
    ) = (kind, values)
    else {
        return None;
    };
    Some((own, Kind::named(kind)?, values.split(SEPARATOR)))
}

/// The function, which is another one once its types are known.
pub static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::from(LongList(Signature::any(
        3,
        Volatility::Immutable,
    ))))
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct LongList(Signature);

impl ScalarUDFImpl for LongList {
    fn name(&self) -> &str {
        NAME
    }
    fn signature(&self) -> &Signature {
        &self.0
    }
    fn return_type(&self, _: &[ArrowType]) -> DfResult<ArrowType> {
        Ok(ArrowType::Boolean)
    }
    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        Err(Error::internal("a long list that was not planned").into())
    }
}
