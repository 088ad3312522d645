//! Expressions after binding: typed, with every conversion explicit, evaluated row by row.
//!
//! The one implementation of expression semantics: SELECT lists, WHERE clauses, defaults, checks and COPY conversions
//! all run through [`Expr::eval`].
//!
//! **Invariants.**
//! - Operand types are settled by the binder; the evaluator trusts them, and answers XX000 if they do not fit.
//! - Integer comparisons take any two integer widths; every other comparison has operands of one type.
//! - A NULL operand gives NULL except where a node says otherwise.

mod arith;
pub mod array;
pub mod array_set;
mod bytes;
pub mod calendar;
pub mod cast;
pub mod collated;
pub mod composite;
mod degrees;
pub mod domain;
mod encoding;
mod eval;
#[cfg(test)]
mod extremes;
mod format;
mod from_char;
pub mod func;
pub mod json;
mod libm;
pub mod like;
pub mod linked;
mod made;
pub mod matches;
pub(crate) mod md5;
pub mod moments;
pub mod number;
pub mod oracle;
mod overlaps;
pub mod quantified;
pub mod ranges;
pub mod regex;
pub mod routines;
pub mod sha;
mod similar;
mod sizes;
pub mod spans;
pub mod stored;
mod text;
mod to_char;
mod to_char_number;
mod to_number;
mod transcendental;
mod trigonometry;
pub mod variadic;
mod words;

pub use arith::ArithOp;
pub use cast::{Cast, Conversion};
pub use eval::{Env, compare, missing_parameter};
pub use func::{Calls, Func};

use block::value::{Datum, DatumRef};

use crate::types::SqlType;

/// A value during evaluation: borrowed from the row, a parameter or a constant, or computed.
#[derive(Clone, Debug)]
pub enum Val<'a> {
    Ref(DatumRef<'a>),
    Own(Datum),
}

impl Val<'_> {
    pub const NULL: Val<'static> = Val::Ref(DatumRef::Null);

    pub fn get(&self) -> DatumRef<'_> {
        match self {
            Val::Ref(r) => *r,
            Val::Own(d) => d.borrow(),
        }
    }
    pub fn is_null(&self) -> bool {
        matches!(self.get(), DatumRef::Null)
    }
    pub fn into_datum(self) -> Datum {
        match self {
            Val::Ref(r) => r.to_datum(),
            Val::Own(d) => d,
        }
    }
    pub fn bool(b: bool) -> Val<'static> {
        Val::Ref(DatumRef::Bool(b))
    }
    pub fn int4(i: i32) -> Val<'static> {
        Val::Ref(DatumRef::Int4(i))
    }
    pub fn int8(i: i64) -> Val<'static> {
        Val::Ref(DatumRef::Int8(i))
    }
    pub fn text(s: String) -> Val<'static> {
        Val::Own(Datum::Text(s))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmpOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl CmpOp {
    /// The operator with its operands exchanged.
    pub fn flip(self) -> CmpOp {
        match self {
            CmpOp::Lt => CmpOp::Gt,
            CmpOp::Le => CmpOp::Ge,
            CmpOp::Gt => CmpOp::Lt,
            CmpOp::Ge => CmpOp::Le,
            same => same,
        }
    }
    pub fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            CmpOp::Eq => order.is_eq(),
            CmpOp::Ne => order.is_ne(),
            CmpOp::Lt => order.is_lt(),
            CmpOp::Le => order.is_le(),
            CmpOp::Gt => order.is_gt(),
            CmpOp::Ge => order.is_ge(),
        }
    }
    pub fn symbol(self) -> &'static str {
        match self {
            CmpOp::Eq => "=",
            CmpOp::Ne => "<>",
            CmpOp::Lt => "<",
            CmpOp::Le => "<=",
            CmpOp::Gt => ">",
            CmpOp::Ge => ">=",
        }
    }
}

/// A bound expression. Columns are numbered by their place in the row that the plan evaluates it over.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Const(Datum),
    Column(usize),
    /// From 0.
    Param(usize),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    IsNull {
        expr: Box<Expr>,
        negated: bool,
    },
    /// IS [NOT] TRUE / FALSE / UNKNOWN.
    IsBool {
        expr: Box<Expr>,
        value: Option<bool>,
        negated: bool,
    },
    Compare(CmpOp, Box<Expr>, Box<Expr>),
    /// IS [NOT] DISTINCT FROM.
    Distinct {
        left: Box<Expr>,
        right: Box<Expr>,
        negated: bool,
    },
    /// Both operands have the type the operation is named for.
    Arith(ArithOp, SqlType, Box<Expr>, Box<Expr>),
    Negate(Box<Expr>),
    Concat(Box<Expr>, Box<Expr>),
    Like {
        expr: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<char>,
        fold_case: bool,
        negated: bool,
    },
    InList {
        expr: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
        /// The list is of constants in ascending order, none of them NULL.
        sorted: bool,
    },
    Case {
        branches: Vec<(Expr, Expr)>,
        otherwise: Option<Box<Expr>>,
    },
    Coalesce(Vec<Expr>),
    NullIf(Box<Expr>, Box<Expr>),
    Cast(Cast, Box<Expr>),
    Call(Func, Vec<Expr>),
    /// A value that a domain's rules are asked of.
    Domain(Box<domain::DomainCheck>, Box<Expr>),
    Quantified(Box<quantified::Quantified>),
    /// The value of a subquery, by its number in the statement; `inputs` is what it takes from the
    /// row around it.
    Subquery {
        number: usize,
        inputs: Vec<Expr>,
    },
}

/// Constants from which on a list is searched by halves.
const SORTED_LIST: usize = 16;

/// Puts a list of constants in order, each once; false, with nothing changed, if it is none, or one of them NULL.
fn sort_constants(list: &mut Vec<Expr>) -> bool {
    let first = match list.first() {
        Some(Expr::Const(first)) => first.clone(),
        _ => return false,
    };
    let comparable = |e: &Expr| matches!(e, Expr::Const(d) if !d.is_null() && compare(d.borrow(), first.borrow()).is_ok());
    if !list.iter().all(comparable) {
        return false;
    }
    let order = |a: &Expr, b: &Expr| match (a, b) {
        // All are comparable with the first, so they are of one kind.
        (Expr::Const(a), Expr::Const(b)) => {
            compare(a.borrow(), b.borrow()).unwrap_or(std::cmp::Ordering::Equal)
        }
        _ => std::cmp::Ordering::Equal,
    };
    list.sort_by(order);
    list.dedup_by(|a, b| order(a, b).is_eq());
    true
}

/// Whether a conversion is that of a text that says the same date or time in each session.
fn is_dated(cast: &Cast, e: &Expr) -> bool {
    let Expr::Const(Datum::Text(text)) = e else {
        return false;
    };
    match cast.to {
        SqlType::Date => is_iso_date(text),
        SqlType::Timestamp => {
            let (date, time) = text.split_once(' ').unwrap_or((text, "00:00"));
            is_iso_date(date) && is_iso_time(time)
        }
        // A minus sign before all of it may be that of each field.
        SqlType::Interval => !text.trim_start().starts_with('-'),
        _ => false,
    }
}

/// Whether a text has the form `2000-12-31`, which each style of dates reads the same way.
fn is_iso_date(text: &str) -> bool {
    let form = |(at, b): (usize, &u8)| match at {
        4 | 7 => *b == b'-',
        _ => b.is_ascii_digit(),
    };
    text.len() == 10 && text.as_bytes().iter().enumerate().all(form)
}

/// Whether a text has the form `23:59`, `23:59:59` or `23:59:59.999`.
fn is_iso_time(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let form = |(at, b): (usize, &u8)| match at {
        2 | 5 => *b == b':',
        _ => b.is_ascii_digit(),
    };
    (whole.len() == 8 || whole.len() == 5 && whole.len() == text.len())
        && whole.as_bytes().iter().enumerate().all(form)
        && fraction.bytes().all(|b| b.is_ascii_digit())
}

impl Expr {
    /// A blank-padded string as the text that it is compared as.
    pub fn unpadded(e: Expr) -> Expr {
        let cast = Cast {
            from: crate::SqlType::Char,
            to: crate::SqlType::Text,
            typmod: -1,
            how: Conversion::Implied,
        };
        Expr::Cast(cast, Box::new(e))
    }

    /// IN a list. A long one of constants is put in order, so that it is not gone through for each row.
    pub fn in_list(expr: Expr, mut list: Vec<Expr>, negated: bool) -> Expr {
        let sorted = list.len() >= SORTED_LIST && sort_constants(&mut list);
        Expr::InList {
            expr: Box::new(expr),
            list,
            negated,
            sorted,
        }
    }

    /// Calls `f` for this node and every node below it.
    pub fn visit<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        f(self);
        match self {
            Expr::Const(_) | Expr::Column(_) | Expr::Param(_) => {}
            Expr::Not(e) | Expr::Negate(e) | Expr::Cast(_, e) | Expr::Domain(_, e) => e.visit(f),
            Expr::IsNull { expr, .. } | Expr::IsBool { expr, .. } => expr.visit(f),
            Expr::And(list)
            | Expr::Or(list)
            | Expr::Coalesce(list)
            | Expr::Call(_, list)
            | Expr::Subquery { inputs: list, .. } => {
                list.iter().for_each(|e| e.visit(f));
            }
            Expr::Compare(_, l, r)
            | Expr::Arith(_, _, l, r)
            | Expr::Concat(l, r)
            | Expr::NullIf(l, r) => {
                l.visit(f);
                r.visit(f);
            }
            Expr::Distinct { left, right, .. } => {
                left.visit(f);
                right.visit(f);
            }
            Expr::Like { expr, pattern, .. } => {
                expr.visit(f);
                pattern.visit(f);
            }
            Expr::Quantified(q) => {
                q.left.visit(f);
                q.array.visit(f);
            }
            Expr::InList { expr, list, .. } => {
                expr.visit(f);
                list.iter().for_each(|e| e.visit(f));
            }
            Expr::Case {
                branches,
                otherwise,
            } => {
                for (c, r) in branches {
                    c.visit(f);
                    r.visit(f);
                }
                if let Some(e) = otherwise {
                    e.visit(f);
                }
            }
        }
    }

    /// Calls `f` for each of the expressions that this one is made of.
    pub fn for_parts(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        match self {
            Expr::Const(_) | Expr::Column(_) | Expr::Param(_) => {}
            Expr::Not(e) | Expr::Negate(e) | Expr::Cast(_, e) | Expr::Domain(_, e) => f(e),
            Expr::IsNull { expr, .. } | Expr::IsBool { expr, .. } => f(expr),
            Expr::And(list)
            | Expr::Or(list)
            | Expr::Coalesce(list)
            | Expr::Call(_, list)
            | Expr::Subquery { inputs: list, .. } => list.iter_mut().for_each(f),
            Expr::Compare(_, l, r)
            | Expr::Arith(_, _, l, r)
            | Expr::Concat(l, r)
            | Expr::NullIf(l, r) => {
                f(l);
                f(r);
            }
            Expr::Distinct { left, right, .. } => {
                f(left);
                f(right);
            }
            Expr::Like { expr, pattern, .. } => {
                f(expr);
                f(pattern);
            }
            Expr::Quantified(q) => {
                f(&mut q.left);
                f(&mut q.array);
            }
            Expr::InList { expr, list, .. } => {
                f(expr);
                list.iter_mut().for_each(f);
            }
            Expr::Case {
                branches,
                otherwise,
            } => {
                for (condition, result) in branches {
                    f(condition);
                    f(result);
                }
                if let Some(e) = otherwise {
                    f(e);
                }
            }
        }
    }

    /// Puts what `f` gives in the place of each expression that it gives one for, outermost first.
    pub fn replace(&mut self, f: &mut dyn FnMut(&Expr) -> Option<Expr>) {
        match f(self) {
            Some(other) => *self = other,
            None => self.for_parts(&mut |e| e.replace(f)),
        }
    }

    /// Whether the value depends on nothing but constants, so that it may be computed at planning.
    pub fn is_constant(&self) -> bool {
        let mut constant = true;
        self.visit(&mut |e| {
            constant &= match e {
                Expr::Column(_) | Expr::Param(_) | Expr::Subquery { .. } => false,
                // The error of a value belongs to the execution.
                Expr::Domain(..) => false,
                Expr::Quantified(q) => q.is_immutable(),
                // What is made of it may depend on the session's time zone.
                Expr::Const(Datum::TimestampTz(_)) => false,
                Expr::Call(func, _) => func.is_immutable(),
                Expr::Cast(cast, e) => cast.is_immutable() || is_dated(cast, e),
                _ => true,
            }
        });
        constant
    }

    /// Whether the value may differ between two evaluations in one statement (`random()`, `nextval()`): such an
    /// expression is no index key and is not moved.
    pub fn is_volatile(&self) -> bool {
        let mut volatile = false;
        self.visit(&mut |e| match e {
            Expr::Call(func, _) => volatile |= func.is_volatile(),
            Expr::Domain(domain, _) => volatile |= domain.is_volatile(),
            Expr::Quantified(q) => volatile |= q.test.is_volatile(),
            _ => {}
        });
        volatile
    }

    /// The highest column used, plus one: how much of a row must be decoded.
    pub fn columns_needed(&self) -> usize {
        let mut needed = 0;
        self.visit(&mut |e| {
            if let Expr::Column(i) = e {
                needed = needed.max(i + 1);
            }
        });
        needed
    }
}
