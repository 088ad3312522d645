//! The expressions of a plan, roughly as they were written.
//!
//! A register stands for the text of what is computed into it. Each such text is cut
//! ([`NAME_BYTES`]): one within the other, they would grow with the depth of the statement's
//! subqueries as a power does.

use std::collections::HashMap;

use block::value::Datum;

use crate::dict::inverted::Strategy;
use crate::expr::Expr;
use crate::pgtype::{IoSettings, text_out};
use crate::plan::inverted::ElementTerm;
use crate::plan::{IndexPart, Path, SortKey, TableAccess};
use crate::query::aggregate::{Aggregate, AggregateCall};
use crate::query::window::{WindowCall, WindowFunction};
use crate::types::SqlType;

/// Bytes of the text that a register stands for.
const NAME_BYTES: usize = 200;

/// The conditions that an index is entered by.
pub(super) fn index_terms(a: &TableAccess, names: &Names) -> Vec<String> {
    let Path::Index {
        index,
        equal,
        any_of,
        low,
        high,
        ..
    } = &a.path
    else {
        return Vec::new();
    };
    let part = IndexPart {
        index: *index,
        equal: equal.clone(),
        any_of: any_of.clone(),
        low: low.clone(),
        high: high.clone(),
    };
    part_terms(a, &part, names)
}

/// The conditions that a part of an index is entered by.
pub(super) fn part_terms(a: &TableAccess, part: &IndexPart, names: &Names) -> Vec<String> {
    let IndexPart {
        index,
        equal,
        any_of,
        low,
        high,
    } = part;
    let def = &a.table.indexes[*index];
    let column = |i: usize| def.key_text(&a.table, i);
    let mut terms: Vec<String> = equal
        .iter()
        .enumerate()
        .map(|(i, e)| format!("{} = {}", column(i), shown(e, a, names)))
        .collect();
    if !any_of.is_empty() {
        let list: Vec<String> = any_of.iter().map(|e| shown(e, a, names)).collect();
        terms.push(format!("{} IN ({})", column(equal.len()), list.join(", ")));
    }
    for (bound, operators) in [(low, [">", ">="]), (high, ["<", "<="])] {
        if let Some(b) = bound {
            let operator = operators[usize::from(b.inclusive)];
            let value = shown(&b.value, a, names);
            terms.push(format!("{} {operator} {value}", column(equal.len())));
        }
    }
    terms
}

/// The conditions that an inverted index answers, as PostgreSQL writes them.
pub(super) fn element_terms(
    a: &TableAccess,
    index: usize,
    terms: &[ElementTerm],
    names: &Names,
) -> String {
    let def = &a.table.indexes[index];
    let one = |t: &ElementTerm| {
        let ty = match t.strategy {
            Strategy::Exists => SqlType::Text,
            Strategy::ExistsAny | Strategy::ExistsAll => SqlType::TEXTS,
            _ => def.type_of(&a.table, t.key),
        };
        let value = |e: &Expr| match e {
            Expr::Const(d) if !ty.is_number() && !d.is_null() => {
                format!("{}::{}", quoted(&text_of(ty, d)), ty.name())
            }
            e => shown(e, a, names),
        };
        let key = def.key_text(&a.table, t.key);
        match t.values.as_slice() {
            [one] => format!("({key} {} {})", t.strategy.symbol(), value(one)),
            several => {
                let list: Vec<String> = several.iter().map(value).collect();
                format!("({key} IN ({}))", list.join(", "))
            }
        }
    };
    let all: Vec<String> = terms.iter().map(one).collect();
    match all.as_slice() {
        [one] => one.clone(),
        _ => format!("({})", all.join(" AND ")),
    }
}

/// A constant in the form that each session reads the same way.
fn text_of(ty: SqlType, value: &Datum) -> String {
    let mut text = Vec::new();
    text_out(ty, value.borrow(), &IoSettings::default(), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// An expression over a table's columns, roughly as it was written.
pub(super) fn shown(e: &Expr, a: &TableAccess, names: &Names) -> String {
    let column = |i: usize| match i.checked_sub(a.offset) {
        Some(own) => match a.table.columns.get(own) {
            Some(column) => column.name.clone(),
            None => format!("outer.{own}"),
        },
        None => format!("outer.{}", i + 1),
    };
    names.words(&column).of(e)
}

/// An expression over registers alone.
pub(super) fn over_registers(e: &Expr, names: &Names) -> String {
    names.words(&nth_column).of(e)
}

/// The name of a register that an expression is computed into.
pub(super) fn named_after(e: &Expr, names: &Names) -> String {
    names.words_of_name().of(e)
}

/// The name of a register that a call of an aggregate is computed into.
pub(super) fn named_after_call(call: &AggregateCall, names: &Names) -> String {
    let (words, mut out) = (names.words_of_name(), String::new());
    let name = call.function.name();
    match (call.function, call.args.as_slice()) {
        (Aggregate::CountRows, _) => out.push_str("count(*)"),
        (Aggregate::OrderedSet(_), [_, direct @ ..]) => {
            words.call(&mut out, name, direct);
            out.push_str(" WITHIN GROUP (");
            words.order(&mut out, &call.order);
            out.push(')');
        }
        (_, args) => {
            let distinct = if call.distinct { "DISTINCT " } else { "" };
            out.push_str(&format!("{name}({distinct}"));
            words.list(&mut out, args, ", ");
            if !call.order.is_empty() {
                out.push(' ');
                words.order(&mut out, &call.order);
            }
            out.push(')');
        }
    }
    words.filter(&mut out, call.filter.as_ref());
    cut(out, words.most)
}

/// The name of a register that a call of a window function is computed into.
pub(super) fn named_after_window(call: &WindowCall, names: &Names) -> String {
    let (words, mut out) = (names.words_of_name(), String::new());
    match call.function {
        WindowFunction::Aggregate(Aggregate::CountRows) => out.push_str("count(*)"),
        function => words.call(&mut out, function.name(), &call.args),
    }
    words.filter(&mut out, call.filter.as_ref());
    out.push_str(" OVER (?)");
    cut(out, words.most)
}

fn nth_column(i: usize) -> String {
    format!("column {}", i + 1)
}

/// An expression over the columns of several tables side by side.
pub(super) fn over_tables(e: &Expr, tables: &[&TableAccess], names: &Names) -> String {
    let column = |i: usize| {
        let of = tables.iter().rev().find(|a| a.offset <= i);
        let name = of.and_then(|a| Some((a, a.table.columns.get(i - a.offset)?)));
        match (name, tables.len()) {
            (Some((_, column)), 1) => column.name.clone(),
            (Some((a, column)), _) => format!("{}.{}", a.table.name, column.name),
            (None, _) => nth_column(i),
        }
    };
    names.words(&column).of(e)
}

/// A key of an order, in the words of ORDER BY.
pub(super) fn sorted_by(key: &SortKey, text: String) -> String {
    let collation = key.by.map(|c| format!(" COLLATE \"{}\"", c.name()));
    let order = match (key.descending, key.nulls_first) {
        (false, false) => "",
        (false, true) => " NULLS FIRST",
        (true, true) => " DESC",
        (true, false) => " DESC NULLS LAST",
    };
    format!("{text}{}{order}", collation.unwrap_or_default())
}

/// What registers are called, and how long the texts may be in which they are.
pub(super) struct Names {
    names: HashMap<usize, String>,
    /// Registers before this are parameters of the statement.
    parameters: usize,
    /// Bytes after which a text is cut.
    most: usize,
}

impl Names {
    pub fn new(most: usize) -> Names {
        Names {
            names: HashMap::new(),
            parameters: usize::MAX,
            most,
        }
    }

    /// Begins with another file of registers, of a plan with so many parameters. The inputs of a
    /// subquery look like parameters, as they do in PostgreSQL.
    pub fn begin(&mut self, parameters: usize, inputs: &[usize]) {
        self.names.clear();
        self.parameters = parameters;
        for input in inputs {
            self.insert(*input, format!("${}", input + 1));
        }
    }

    /// Whether any text is wanted.
    pub fn are_wanted(&self) -> bool {
        self.most > 0
    }

    pub fn insert(&mut self, register: usize, name: String) {
        self.names.insert(register, name);
    }

    fn words<'w>(&'w self, column: &'w dyn Fn(usize) -> String) -> Words<'w> {
        Words {
            column,
            names: self,
            most: self.most,
        }
    }

    /// For the name of a register.
    fn words_of_name(&self) -> Words<'_> {
        Words {
            most: NAME_BYTES,
            ..self.words(&nth_column)
        }
    }
}

/// What the parts of an expression are called.
struct Words<'w> {
    column: &'w dyn Fn(usize) -> String,
    names: &'w Names,
    /// Bytes after which a text need not go on.
    most: usize,
}

impl Words<'_> {
    fn of(&self, e: &Expr) -> String {
        let mut out = String::new();
        self.write(&mut out, e);
        cut(out, self.most)
    }

    fn list(&self, out: &mut String, list: &[Expr], between: &str) {
        for (at, e) in list.iter().enumerate() {
            if out.len() > self.most {
                return;
            }
            if at > 0 {
                out.push_str(between);
            }
            self.write(out, e);
        }
    }

    fn call(&self, out: &mut String, name: &str, args: &[Expr]) {
        out.push_str(&format!("{name}("));
        self.list(out, args, ", ");
        out.push(')');
    }

    fn order(&self, out: &mut String, keys: &[SortKey]) {
        let key = |key: &SortKey| sorted_by(key, self.of(&key.expr));
        let keys: Vec<String> = keys.iter().map(key).collect();
        out.push_str(&format!("ORDER BY {}", keys.join(", ")));
    }

    fn filter(&self, out: &mut String, condition: Option<&Expr>) {
        if let Some(condition) = condition {
            out.push_str(" FILTER (WHERE ");
            self.write(out, condition);
            out.push(')');
        }
    }

    /// What stands beside an operator that binds tighter than AND and NOT.
    fn operand(&self, out: &mut String, e: &Expr) {
        match e {
            Expr::And(_) | Expr::Not(_) => {
                out.push('(');
                self.write(out, e);
                out.push(')');
            }
            _ => self.write(out, e),
        }
    }

    fn infix(&self, out: &mut String, left: &Expr, operator: &str, right: &Expr) {
        out.push('(');
        self.operand(out, left);
        out.push_str(&format!(" {operator} "));
        self.operand(out, right);
        out.push(')');
    }

    /// Writes an expression to its end, or beyond the most that is wanted.
    fn write(&self, out: &mut String, e: &Expr) {
        if out.len() > self.most {
            return;
        }
        let not = |negated: bool| if negated { "NOT " } else { "" };
        match e {
            Expr::Const(value) => out.push_str(&constant(value)),
            Expr::Param(i) => match self.names.names.get(i) {
                Some(name) => out.push_str(name),
                None if *i < self.names.parameters => out.push_str(&format!("${}", i + 1)),
                None => out.push_str("..."),
            },
            Expr::Subquery { number, .. } => out.push_str(&format!("(SubPlan {number})")),
            Expr::Column(i) => out.push_str(&(self.column)(*i)),
            Expr::Compare(op, l, r) => self.infix(out, l, op.symbol(), r),
            Expr::And(list) => self.list(out, list, " AND "),
            Expr::Or(list) => {
                out.push('(');
                self.list(out, list, " OR ");
                out.push(')');
            }
            Expr::Not(e) => {
                out.push_str("NOT ");
                self.operand(out, e);
            }
            Expr::Coalesce(list) => self.call(out, "COALESCE", list),
            Expr::NullIf(a, b) => {
                out.push_str("NULLIF(");
                self.write(out, a);
                out.push_str(", ");
                self.write(out, b);
                out.push(')');
            }
            Expr::IsNull { expr, negated } => {
                out.push('(');
                self.operand(out, expr);
                out.push_str(&format!(" IS {}NULL)", not(*negated)));
            }
            Expr::Distinct {
                left,
                right,
                negated,
            } => {
                let operator = format!("IS {}DISTINCT FROM", not(*negated));
                self.infix(out, left, &operator, right);
            }
            Expr::Arith(op, _, l, r) => self.infix(out, l, op.symbol(), r),
            Expr::Negate(e) => {
                out.push_str("(- ");
                self.operand(out, e);
                out.push(')');
            }
            Expr::Concat(l, r) => self.infix(out, l, "||", r),
            Expr::InList {
                expr,
                list,
                negated,
                ..
            } => {
                out.push('(');
                self.operand(out, expr);
                out.push_str(&format!(" {}IN (", not(*negated)));
                self.list(out, list, ", ");
                out.push_str("))");
            }
            Expr::Like {
                expr,
                pattern,
                escape,
                fold_case,
                negated,
            } => {
                let like = if *fold_case { "ILIKE" } else { "LIKE" };
                out.push('(');
                self.operand(out, expr);
                out.push_str(&format!(" {}{like} ", not(*negated)));
                self.operand(out, pattern);
                if *escape != Some('\\') {
                    let escape = escape.map(String::from).unwrap_or_default();
                    out.push_str(&format!(" ESCAPE {}", quoted(&escape)));
                }
                out.push(')');
            }
            Expr::Quantified(q) => {
                out.push('(');
                self.operand(out, &q.left);
                let each = if q.all { "ALL" } else { "ANY" };
                out.push_str(&format!(" {} {each} (", q.symbol));
                self.write(out, &q.array);
                out.push_str("))");
            }
            Expr::Cast(c, e) => {
                out.push('(');
                self.write(out, e);
                out.push_str(&format!(")::{}", c.to.format(c.typmod)));
            }
            Expr::IsBool { .. } | Expr::Case { .. } | Expr::Call(..) | Expr::Domain(..) => {
                out.push_str("...");
            }
        }
    }
}

/// A constant as SQL has it. The expression does not say of what type an array or a document is.
fn constant(value: &Datum) -> String {
    let text = |ty: SqlType| text_of(ty, value);
    let typed = |ty: SqlType, name: &str| format!("{}::{name}", quoted(&text(ty)));
    match value {
        Datum::Text(text) | Datum::Folded(text) => quoted(text),
        Datum::Null => "NULL".to_string(),
        Datum::Int2(i) => i.to_string(),
        Datum::Int4(i) => i.to_string(),
        Datum::Int8(i) => i.to_string(),
        Datum::Bool(b) => b.to_string(),
        Datum::Numeric(_) => text(SqlType::Numeric),
        Datum::Float4(_) => typed(SqlType::Float4, "real"),
        Datum::Float8(_) => typed(SqlType::Float8, "double precision"),
        Datum::Date(_) => typed(SqlType::Date, "date"),
        Datum::Timestamp(_) => typed(SqlType::Timestamp, "timestamp"),
        Datum::TimestampTz(_) => typed(SqlType::TimestampTz, "timestamptz"),
        Datum::Interval(_) => typed(SqlType::Interval, "interval"),
        Datum::Uuid(_) => typed(SqlType::Uuid, "uuid"),
        Datum::Bytea(_) | Datum::Array(_) | Datum::Json(_) | Datum::Composite(_) => {
            "...".to_string()
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A text that is too long, cut between characters.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push_str("...");
    }
    text
}

/// The keys by which an index is entered several times.
pub(super) fn whole_keys(
    a: &TableAccess,
    index: usize,
    keys: &[Vec<Expr>],
    names: &Names,
) -> String {
    let index = &a.table.indexes[index];
    let width = keys.first().map_or(0, Vec::len);
    let columns: Vec<String> = (0..width).map(|at| index.key_text(&a.table, at)).collect();
    let keys: Vec<String> = keys
        .iter()
        .map(|key| {
            let values: Vec<String> = key.iter().map(|e| shown(e, a, names)).collect();
            format!("({})", values.join(", "))
        })
        .collect();
    format!("({}) IN ({})", columns.join(", "), keys.join(", "))
}
