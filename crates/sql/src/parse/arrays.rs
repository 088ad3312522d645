//! Arrays where a statement compares with one. There are no arrays among the values here, but `x = ANY (array)` says no more than `x IN (list)`, and
//! clients send lists that way. What is written out becomes a list when it is parsed; a parameter's, when its value is known.

use std::ops::ControlFlow;

use sqlparser::ast::{
    self, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, UnaryOperator, Value,
};

use crate::error::{Error, Result};
use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;

/// What stands in the parentheses of ANY or ALL, as far as it is an array that can be written as a list.
enum Array {
    Items(Vec<Expr>),
    Null,
    /// `$n`, perhaps cast to an array of a type.
    Parameter(usize, Option<DataType>),
}

/// A comparison with a list as one with its elements; `None` if it is no such comparison, or one with a parameter.
pub fn as_list(e: &Expr) -> Result<Option<Expr>> {
    let Some((left, op, right, all)) = parts(e) else {
        return Ok(None);
    };
    Ok(match array(right)? {
        Some(Array::Items(items)) => compare(left, op, items, all),
        // With a type, it is an array like any other.
        Some(Array::Null) if is_null(right) => Some(unknown()),
        Some(Array::Null | Array::Parameter(..)) | None => None,
    })
}

/// The parameters (from 1) that are arrays of such comparisons. None of them can be anything else as well.
pub fn parameters(statement: &ast::Statement) -> Result<Vec<usize>> {
    let (mut arrays, mut uses) = (Vec::new(), Vec::new());
    let visited = ast::visit_expressions(statement, |e| {
        uses.extend(placeholder(e));
        if let Some((left, op, right, _)) = parts(e) {
            match array(right) {
                Ok(Some(Array::Parameter(n, _))) if is_list(left, op) => arrays.push(n),
                Ok(_) => {}
                Err(e) => return ControlFlow::Break(e),
            }
        }
        ControlFlow::Continue(())
    });
    if let ControlFlow::Break(e) = visited {
        return Err(e);
    }
    let times = |list: &[usize], n: usize| list.iter().filter(|m| **m == n).count();
    if let Some(n) = arrays
        .iter()
        .find(|n| times(&arrays, **n) != times(&uses, **n))
    {
        return Err(Error::unsupported(format!(
            "the array ${n} outside ANY and ALL"
        )));
    }
    arrays.sort_unstable();
    arrays.dedup();
    Ok(arrays)
}

/// Puts elements in the place of such parameters; `None`: the array is NULL.
pub fn replace(
    statement: &mut ast::Statement,
    elements: &dyn Fn(usize) -> Result<Option<Vec<Expr>>>,
) -> Result<()> {
    let visited = ast::visit_expressions_mut(statement, |e| {
        let Some((left, op, right, all)) = parts(e) else {
            return ControlFlow::Continue(());
        };
        let replaced = match array(right) {
            Ok(Some(Array::Parameter(n, cast_to))) if is_list(left, op) => {
                elements(n).map(|items| match items {
                    None => Some(unknown()),
                    Some(items) => {
                        let items = items.into_iter().map(|i| match &cast_to {
                            Some(ty) => cast(i, ty.clone()),
                            None => i,
                        });
                        compare(left, op, items.collect(), all)
                    }
                })
            }
            other => other.map(|_| None),
        };
        match replaced {
            Ok(Some(list)) => *e = list,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    });
    match visited {
        ControlFlow::Break(e) => Err(e),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn parts(e: &Expr) -> Option<(&Expr, &BinaryOperator, &Expr, bool)> {
    match e {
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } => Some((left, compare_op, right, false)),
        Expr::AllOp {
            left,
            compare_op,
            right,
        } => Some((left, compare_op, right, true)),
        _ => None,
    }
}

/// Whether it is a NULL without a type.
fn is_null(e: &Expr) -> bool {
    matches!(e, Expr::Value(v) if v.value == Value::Null)
}

fn placeholder(e: &Expr) -> Option<usize> {
    let Expr::Value(v) = e else { return None };
    let Value::Placeholder(p) = &v.value else {
        return None;
    };
    p.strip_prefix('$')?.parse().ok().filter(|n| *n > 0)
}

/// The type of the elements of an array type.
pub fn element(ty: &DataType) -> Option<&DataType> {
    match ty {
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => Some(element),
        _ => None,
    }
}

/// The elements of an array that is written out.
pub fn items(e: &Expr) -> Result<Option<Vec<Expr>>> {
    Ok(match array(e)? {
        Some(Array::Items(items)) => Some(items),
        _ => None,
    })
}

fn array(e: &Expr) -> Result<Option<Array>> {
    Ok(match e {
        Expr::Nested(inner) => array(inner)?,
        Expr::Array(a) if !a.elem.iter().any(|i| matches!(i, Expr::Array(_))) => {
            Some(Array::Items(a.elem.clone()))
        }
        Expr::Value(v) => match &v.value {
            Value::SingleQuotedString(text) => {
                let items = read(text)?.into_iter().map(string);
                Some(Array::Items(items.collect()))
            }
            Value::Null => Some(Array::Null),
            _ => placeholder(e).map(|n| Array::Parameter(n, None)),
        },
        Expr::Cast {
            kind: CastKind::Cast | CastKind::DoubleColon,
            expr,
            data_type,
            ..
        } => match element(data_type) {
            None => None,
            Some(ty) => match array(expr)? {
                Some(Array::Items(items)) => {
                    let items = items.into_iter().map(|i| cast(i, ty.clone()));
                    Some(Array::Items(items.collect()))
                }
                Some(Array::Parameter(n, None)) => Some(Array::Parameter(n, Some(ty.clone()))),
                Some(Array::Null) => Some(Array::Null),
                _ => None,
            },
        },
        _ => None,
    })
}

/// Whether it can be written often without becoming large.
pub fn is_small(e: &Expr) -> bool {
    match e {
        Expr::Nested(inner) => is_small(inner),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => true,
        _ => false,
    }
}

/// Whether a comparison with an array can be one with a list.
fn is_list(left: &Expr, op: &BinaryOperator) -> bool {
    matches!(op, BinaryOperator::Eq | BinaryOperator::NotEq) && !matches!(left, Expr::Tuple(_))
        || is_small(left) && crate::bind::comparison(op).is_some()
}

fn compare(left: &Expr, op: &BinaryOperator, items: Vec<Expr>, all: bool) -> Option<Expr> {
    if !is_list(left, op) {
        return None;
    }
    if items.is_empty() {
        return Some(Expr::Value(Value::Boolean(all).into()));
    }
    match (op, all) {
        (BinaryOperator::Eq, false) | (BinaryOperator::NotEq, true) => Some(Expr::InList {
            expr: Box::new(Expr::Nested(Box::new(left.clone()))),
            list: items,
            negated: all,
        }),
        _ if is_small(left) => {
            let terms = items
                .into_iter()
                .map(|i| binary(left.clone(), op.clone(), i));
            let join = if all {
                BinaryOperator::And
            } else {
                BinaryOperator::Or
            };
            Some(joined(terms.collect(), &join))
        }
        _ => None,
    }
}

/// Terms under one operator, halved again and again, so that many nest no deeper than few.
pub fn joined(mut terms: Vec<Expr>, op: &BinaryOperator) -> Expr {
    if terms.len() > 1 {
        let right = terms.split_off(terms.len() / 2);
        let (left, right) = (joined(terms, op), joined(right, op));
        return Expr::Nested(Box::new(binary(left, op.clone(), right)));
    }
    terms.pop().unwrap_or_else(unknown)
}

pub fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

fn cast(e: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(e),
        data_type,
        array: false,
        format: None,
    }
}

fn unknown() -> Expr {
    cast(Expr::Value(Value::Null.into()), DataType::Boolean)
}

fn string(text: Option<String>) -> Expr {
    let value = text.map_or(Value::Null, Value::SingleQuotedString);
    Expr::Value(value.into())
}

/// `$n`.
pub fn parameter(n: usize) -> Expr {
    Expr::Value(Value::Placeholder(format!("${n}")).into())
}

/// The elements of an array in text form as literals of its element type.
pub fn elements(text: &str, ty: SqlType) -> Result<Vec<Expr>> {
    let literal = |item: Option<String>| match (item, ty) {
        // Like any number in a statement: with the type that its size gives it, which compares with every other.
        (Some(item), _) if ty.is_integer() => match item.strip_prefix('-') {
            Some(digits) => Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: Box::new(number(digits)),
            },
            None => number(&item),
        },
        (item, SqlType::Text | SqlType::Varchar | SqlType::Char | SqlType::Name) => string(item),
        (item, ty) => match super::expression(&format!("cast(null as {})", ty.name())) {
            Ok(Expr::Cast { data_type, .. }) => cast(string(item), data_type),
            _ => string(item),
        },
    };
    let items = read(text)?;
    if ty.is_integer() {
        // What is no number must not become a part of the statement.
        for item in items.iter().flatten() {
            pgtype::text_in(SqlType::Int8, item, &IoSettings::default())?;
        }
    }
    let trimmed = items.into_iter().map(|i| match ty.is_integer() {
        true => i.map(|i| i.trim().to_string()),
        false => i,
    });
    Ok(trimmed.map(literal).collect())
}

fn number(digits: &str) -> Expr {
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    Expr::Value(Value::Number(digits.to_string(), false).into())
}

/// The elements of an array of one dimension in PostgreSQL's text form.
pub fn read(text: &str) -> Result<Vec<Option<String>>> {
    let malformed = || Error::new("22P02", format!("malformed array literal: \"{text}\""));
    let inner = text
        .trim()
        .strip_prefix('{')
        .and_then(|t| t.strip_suffix('}'));
    let inner = inner.ok_or_else(malformed)?;
    let mut items = Vec::new();
    if inner.trim().is_empty() {
        return Ok(items);
    }
    let mut chars = inner.chars().peekable();
    loop {
        let (mut item, mut quoted) = (String::new(), false);
        while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        if chars.next_if_eq(&'"').is_some() {
            quoted = true;
            loop {
                match chars.next().ok_or_else(malformed)? {
                    '"' => break,
                    '\\' => item.push(chars.next().ok_or_else(malformed)?),
                    c => item.push(c),
                }
            }
            while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        } else {
            while let Some(c) = chars.next_if(|c| *c != ',') {
                match c {
                    '{' => return Err(Error::unsupported("arrays of several dimensions")),
                    '"' | '}' => return Err(malformed()),
                    '\\' => item.push(chars.next().ok_or_else(malformed)?),
                    c => item.push(c),
                }
            }
            item.truncate(item.trim_end().len());
            if item.is_empty() {
                return Err(malformed());
            }
        }
        let null = !quoted && item.eq_ignore_ascii_case("null");
        items.push((!null).then_some(item));
        match chars.next() {
            None => return Ok(items),
            Some(',') => {}
            Some(_) => return Err(malformed()),
        }
    }
}

/// An array in PostgreSQL's binary form, in text form.
pub fn text_of_binary(ty: SqlType, bytes: &[u8], io: &IoSettings) -> Result<String> {
    let mut rest = bytes;
    let dimensions = word(&mut rest)?;
    let (_has_nulls, element) = (word(&mut rest)?, word(&mut rest)?);
    if dimensions == 0 {
        return Ok("{}".to_string());
    }
    if dimensions != 1 {
        return Err(Error::unsupported("arrays of several dimensions"));
    }
    let element = SqlType::from_oid(element).unwrap_or(ty);
    let (count, _lower_bound) = (word(&mut rest)?, word(&mut rest)?);
    let mut out = Vec::from(b"{");
    for i in 0..count {
        if i > 0 {
            out.push(b',');
        }
        let length = word(&mut rest)?;
        if length == u32::MAX {
            out.extend_from_slice(b"NULL");
            continue;
        }
        let value = pgtype::binary_in(element, take(&mut rest, length as usize)?, io.encoding)?;
        let mut text = Vec::new();
        pgtype::text_out(element, value.borrow(), io, &mut text);
        out.push(b'"');
        for b in text {
            if matches!(b, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(b);
        }
        out.push(b'"');
    }
    out.push(b'}');
    String::from_utf8(out).map_err(|_| malformed())
}

fn malformed() -> Error {
    Error::new("22P03", "incorrect binary data format of an array")
}

fn take<'b>(rest: &mut &'b [u8], n: usize) -> Result<&'b [u8]> {
    let (head, tail) = rest.split_at_checked(n).ok_or_else(malformed)?;
    *rest = tail;
    Ok(head)
}

fn word(rest: &mut &[u8]) -> Result<u32> {
    let bytes = take(rest, 4)?;
    Ok(bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read() {
        let of = |items: &[&str]| -> Vec<Option<String>> {
            items
                .iter()
                .map(|i| (*i != "NULL").then(|| i.to_string()))
                .collect()
        };
        assert_eq!(read(" { } ").unwrap(), of(&[]));
        assert_eq!(read("{1, 2 ,3}").unwrap(), of(&["1", "2", "3"]));
        assert_eq!(
            read(r#"{a b,null,NULL,"a,\"b\\}"}"#).unwrap(),
            of(&["a b", "NULL", "NULL", r#"a,"b\}"#])
        );
        assert_eq!(read(r#"{"NULL"}"#).unwrap(), [Some("NULL".to_string())]);
        assert_eq!(read(r#"{""}"#).unwrap(), of(&[""]));
        for bad in [
            "", "1,2", "{1,}", "{,1}", "{\"a}", "{\"a\"b}", "{a}b}", "{\\}",
        ] {
            assert_eq!(read(bad).unwrap_err().sqlstate(), "22P02", "{bad}");
        }
        assert_eq!(read("{{1},{2}}").unwrap_err().sqlstate(), "0A000");
    }

    #[test]
    fn binary_arrays_are_read() {
        let ints: Vec<u8> = [1_i32, 1, 23, 3, 1, 4, 7, 4, -8, -1]
            .iter()
            .flat_map(|n| n.to_be_bytes())
            .collect();
        let io = IoSettings::default();
        assert_eq!(
            text_of_binary(SqlType::Int4, &ints, &io).unwrap(),
            r#"{"7","-8",NULL}"#
        );
        for cut in 0..ints.len() {
            assert!(
                text_of_binary(SqlType::Int4, &ints[..cut], &io).is_err(),
                "{cut}"
            );
        }
        let empty = [0_u8; 12];
        assert_eq!(text_of_binary(SqlType::Int4, &empty, &io).unwrap(), "{}");
    }
}
