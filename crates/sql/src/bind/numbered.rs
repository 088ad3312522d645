//! Names of users' functions and types in texts that are stored: `"braid$16455"."f"` is what has
//! that object id, a function or a type, and was called `f` when the text was stored.
//!
//! **Invariants.**
//! - What a stored text names stays what it was when the text was made, whatever the `search_path`
//!   of the session that uses it, and whatever new name or schema the object gets.
//! - The name is kept too: columns of queries are called by the functions and types that they come
//!   of, and stay so.
//! - Nobody is shown a number: [`as_now`] writes the name of now, with its schema where the path
//!   does not lead to it.

use std::ops::ControlFlow;

use sqlparser::ast::{
    self, ArrayElemTypeDef, DataType, Expr, Ident, ObjectName, ObjectNamePart, SelectItem,
    TableAlias, TableFactor,
};
use sqlparser::tokenizer::Span;

use super::names::Qualified;
use super::numbered_operator::{self, Operator};
use super::{Binder, ParamTypes, Scope, parts};
use crate::dict::{Dict, Function};
use crate::error::{Error, Result};
use crate::parse;
use crate::types::SqlType;

/// What the schema of such a name begins with. No user can have a schema of that name.
pub const PREFIX: &str = "braid$";

/// The number that stands in the place of a schema.
pub fn number_in(schema: &str) -> Option<u32> {
    schema.strip_prefix(PREFIX)?.parse().ok()
}

/// The numbers that a text has, and those that only stand in its strings.
fn searched(text: &str) -> impl Iterator<Item = u32> + '_ {
    let each = text.split("\"braid$").skip(1);
    each.filter_map(|rest| rest.split_once("\".")?.0.parse().ok())
}

/// Collects the numbers that stand in the place of names.
#[derive(Default)]
struct Collected(Vec<u32>);

impl Collected {
    fn name(&mut self, name: &ObjectName) {
        let number = Qualified::new(name).ok().and_then(|name| name.number());
        self.0.extend(number);
    }
}

impl Names for Collected {
    fn call(&mut self, call: &mut ast::Function) {
        self.name(&call.name);
    }

    fn in_from(&mut self, name: &mut ObjectName, _: &mut Option<TableAlias>) {
        self.name(name);
    }

    fn ty(&mut self, name: &mut ObjectName) -> Option<DataType> {
        self.name(name);
        None
    }

    fn operator(&mut self, e: &mut Expr) {
        if let Expr::BinaryOp { op, .. } = e {
            self.0.extend(numbered_operator::number_of(op));
        }
    }
}

/// The numbers in the text of an expression, each once.
pub fn in_expression(text: &str) -> Vec<u32> {
    collected(text, parse::expression)
}

/// The numbers in the text of a query, each once.
pub fn in_query(text: &str) -> Vec<u32> {
    collected(text, |text| match parse::statement(text)? {
        parse::Command::Sql(statement) => Ok(*statement),
        _ => Err(Error::internal("the text of a query that is none")),
    })
}

fn collected<T: ast::VisitMut>(text: &str, read: impl Fn(&str) -> Result<T>) -> Vec<u32> {
    // Most texts have no number at all, and are not looked at closer.
    let mut numbers: Vec<u32> = searched(text).collect();
    if !numbers.is_empty() {
        // A stored text was read when it was stored; one that cannot be read now keeps what it may
        // name.
        if let Ok(mut tree) = read(text) {
            let mut found = Collected::default();
            visit(&mut tree, &mut found);
            numbers = found.0;
        }
        numbers.sort_unstable();
        numbers.dedup();
    }
    numbers
}

/// What a name was found to mean.
#[derive(Clone, Debug)]
pub struct Noted {
    pub place: Span,
    pub written: Qualified,
    pub number: u32,
}

/// A name in a query, and the number that it gets.
pub struct Numbered {
    pub place: Span,
    pub name: String,
    pub number: u32,
}

impl Numbered {
    /// As it stands in the stored text.
    pub fn text(&self) -> String {
        with_number(self.number, &self.name).to_string()
    }
}

/// Where a name stands.
pub fn place_of(name: &ObjectName) -> Span {
    let span = |part: Option<&ObjectNamePart>| match part {
        Some(ObjectNamePart::Identifier(i)) => i.span,
        Some(ObjectNamePart::Function(_)) | None => Span::empty(),
    };
    Span::new(span(name.0.first()).start, span(name.0.last()).end)
}

fn with_number(number: u32, name: &str) -> ObjectName {
    let quoted = |name: String| Ident::with_quote('"', name);
    vec![
        quoted(format!("{PREFIX}{number}")),
        quoted(name.to_string()),
    ]
    .into()
}

/// What is done with the names of functions and types in a syntax tree.
trait Names {
    /// A call in an expression.
    fn call(&mut self, call: &mut ast::Function);
    /// A function in FROM.
    fn in_from(&mut self, name: &mut ObjectName, alias: &mut Option<TableAlias>);
    /// A type that is not built in; its name becomes that of another type.
    fn ty(&mut self, name: &mut ObjectName) -> Option<DataType>;
    /// An operator between two operands, after what is in these.
    fn operator(&mut self, e: &mut Expr);
    /// An item of a list of SELECT, before what is in it.
    fn item(&mut self, _: &mut SelectItem) {}
}

struct Visit<'n, N>(&'n mut N);

impl<N: Names> Visit<'_, N> {
    fn data_type(&mut self, ty: &mut DataType) {
        match ty {
            DataType::Custom(name, modifiers) if modifiers.is_empty() => {
                if let Some(other) = self.0.ty(name) {
                    *ty = other;
                }
            }
            DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => self.data_type(element),
            _ => {}
        }
    }
}

impl<N: Names> ast::VisitorMut for Visit<'_, N> {
    type Break = std::convert::Infallible;

    fn pre_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<Self::Break> {
        match e {
            Expr::Function(call) => self.0.call(call),
            Expr::Cast { data_type, .. } => self.data_type(data_type),
            Expr::TypedString(typed) => self.data_type(&mut typed.data_type),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::BinaryOp { .. } = e {
            self.0.operator(e);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<Self::Break> {
        select
            .projection
            .iter_mut()
            .for_each(|item| self.0.item(item));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::Table {
            name,
            args: Some(_),
            alias,
            ..
        }
        | TableFactor::Function { name, alias, .. } = factor
        {
            self.0.in_from(name, alias);
            let columns = alias.iter_mut().flat_map(|a| &mut a.columns);
            for ty in columns.filter_map(|c| c.data_type.as_mut()) {
                self.data_type(ty);
            }
        }
        ControlFlow::Continue(())
    }
}

fn visit(tree: &mut impl ast::VisitMut, names: &mut impl Names) {
    let ControlFlow::Continue(()) = ast::VisitMut::visit(tree, &mut Visit(names));
}

/// Gives the names of a query the numbers that were noted for them.
struct OfQuery<'n> {
    dict: &'n Dict,
    noted: &'n [Noted],
    used: Vec<bool>,
    found: Vec<Numbered>,
    operators: Vec<Operator>,
    /// How many operators have been met.
    met: usize,
}

impl OfQuery<'_> {
    /// The number that was noted for what stands at a place.
    fn number(&mut self, written: &Qualified, place: Span) -> Option<u32> {
        let same = self.noted.iter().zip(&mut self.used);
        let same = same.filter(|(n, _)| n.written == *written && n.place == place);
        let mut number = None;
        // Without a place it cannot be written there.
        let same = same.filter(|_| place != Span::empty());
        for (noted, used) in same {
            // Of two meanings neither can be given.
            *used = number.is_none_or(|number| number == noted.number);
            number = Some(noted.number);
        }
        number
    }

    fn name(&mut self, name: &ObjectName) {
        let Ok(written) = Qualified::new(name) else {
            return;
        };
        let place = place_of(name);
        let number = self.number(&written, place);
        self.found.extend(number.map(|number| Numbered {
            place,
            name: written.name,
            number,
        }));
    }
}

impl Names for OfQuery<'_> {
    fn call(&mut self, call: &mut ast::Function) {
        self.name(&call.name);
    }

    fn in_from(&mut self, name: &mut ObjectName, _: &mut Option<TableAlias>) {
        self.name(name);
    }

    fn ty(&mut self, name: &mut ObjectName) -> Option<DataType> {
        self.name(name);
        None
    }

    fn operator(&mut self, e: &mut Expr) {
        if let Expr::BinaryOp { left, op, right } = e {
            let written = Qualified::bare(&numbered_operator::symbol_of(op));
            let number = self.number(&written, numbered_operator::place_between(left, right));
            let at = self.met;
            self.operators.extend(number.and_then(|number| {
                let types = numbered_operator::types_of(self.dict.function_by_oid(number)?)?;
                Some(Operator { at, number, types })
            }));
        }
        self.met += 1;
    }
}

/// What gets a number in a query.
#[derive(Default)]
pub struct OfText {
    pub names: Vec<Numbered>,
    pub operators: Vec<Operator>,
    /// Something was noted that does not stand in the query.
    pub elsewhere: bool,
}

/// What of a query's text gets the numbers that were noted for it.
pub fn of_query(dict: &Dict, q: &ast::Query, noted: &[Noted]) -> OfText {
    if noted.is_empty() {
        return OfText::default();
    }
    let mut names = OfQuery {
        dict,
        noted,
        used: vec![false; noted.len()],
        found: Vec::new(),
        operators: Vec::new(),
        met: 0,
    };
    visit(&mut q.clone(), &mut names);
    OfText {
        names: names.found,
        operators: names.operators,
        elsewhere: names.used.contains(&false),
    }
}

/// Gives names of an expression the numbers of what they mean.
struct OfExpression<'b> {
    binder: Binder<'b>,
    numbers: Vec<u32>,
}

impl Names for OfExpression<'_> {
    fn call(&mut self, call: &mut ast::Function) {
        // What is no call of a user's function by itself, such as an aggregate, has an error here;
        // the expression as a whole was looked over where it was written.
        if let Ok(Some(function)) = self.binder.function_meant(call)
            && let Ok(written) = Qualified::new(&call.name)
            && written.number().is_none()
        {
            call.name = with_number(function.oid, &written.name);
            self.numbers.push(function.oid);
        } else if let Ok(written) = Qualified::new(&call.name)
            && written.number().is_none()
            && let Some(ty) = self.binder.own_range(&written)
        {
            call.name = with_number(ty.oid(), &written.name);
            self.numbers.push(ty.oid());
        }
    }

    fn in_from(&mut self, _: &mut ObjectName, _: &mut Option<TableAlias>) {}

    fn ty(&mut self, name: &mut ObjectName) -> Option<DataType> {
        let types = &self.binder.params.names;
        let ty = DataType::Custom(name.clone(), Vec::new());
        if let Ok((found, _)) = parts::data_type(&ty, types)
            && SqlType::from_oid(found.oid()).is_none()
            && types
                .dict()
                .is_some_and(|d| d.type_of(found.oid()).is_some())
            && let Ok(written) = Qualified::new(name)
            && written.number().is_none()
        {
            *name = with_number(found.oid(), &written.name);
            self.numbers.push(found.oid());
        }
        None
    }

    fn operator(&mut self, e: &mut Expr) {
        // As with calls, errors are those of the expression as a whole.
        if let Expr::BinaryOp { left, op, right } = &*e
            && numbered_operator::number_of(op).is_none()
            && let Ok(Some(function)) = self.binder.operator_meant(left, op, right)
            && let Some(types) = numbered_operator::types_of(&function)
        {
            numbered_operator::give_number(e, function.oid, &types);
            self.numbers.push(function.oid);
        }
    }
}

/// The text of an expression without queries, with the numbers of what it names of users by its
/// names, and these numbers; `None`: it names nothing so.
pub fn of_expression(dict: &Dict, scope: &Scope, text: &str) -> Result<Option<(String, Vec<u32>)>> {
    let mut e = parse::expression(text)?;
    let params = ParamTypes::none(dict).keeping_calls();
    let mut names = OfExpression {
        binder: Binder::new(scope, &params, "DEFAULT"),
        numbers: Vec::new(),
    };
    visit(&mut e, &mut names);
    let numbers = names.numbers;
    Ok((!numbers.is_empty()).then(|| (e.to_string(), numbers)))
}

/// How the names of numbers are written.
#[derive(Clone, Copy)]
pub enum Shown<'d> {
    /// As they are now, with their schemas where the path does not lead to them.
    AsNow(&'d Dict),
    /// As they are now, with their schemas.
    Full(&'d Dict),
    /// As they were written, without schemas.
    Bare,
    /// With their numbers, for what is read as a definition again.
    AsStored,
}

impl Shown<'_> {
    fn name(self, schema: u32, name: &str, is_visible: impl FnOnce() -> bool) -> Vec<Ident> {
        let plain = crate::views::viewdef::plain;
        let with_schema = |dict: &Dict| vec![plain(dict.schema_name(schema)), plain(name)];
        match self {
            Shown::AsNow(dict) if !is_visible() => with_schema(dict),
            Shown::Full(dict) => with_schema(dict),
            Shown::AsNow(_) | Shown::Bare | Shown::AsStored => vec![plain(name)],
        }
    }

    /// Where users' types are looked up, if anywhere.
    pub fn dict(&self) -> Option<&Dict> {
        match self {
            Shown::AsNow(dict) | Shown::Full(dict) => Some(dict),
            Shown::Bare | Shown::AsStored => None,
        }
    }

    /// The name of a function. What is not there any more keeps its number.
    fn function(self, name: &mut ObjectName) -> Option<()> {
        let written = Qualified::new(name).ok()?;
        let number = written.number()?;
        let shown = match self.dict() {
            None => self.name(0, &written.name, || true),
            Some(dict) => {
                let f: &Function = dict.function_by_oid(number)?;
                let is_visible = || crate::views::is_function_visible(dict, f);
                self.name(f.schema, &f.name, is_visible)
            }
        };
        *name = shown.into();
        Some(())
    }

    fn named_type(self, name: &ObjectName) -> Option<DataType> {
        let written = Qualified::new(name).ok()?;
        let number = written.number()?;
        let Some(dict) = self.dict() else {
            let shown = self.name(0, &written.name, || true);
            return Some(DataType::Custom(shown.into(), Vec::new()));
        };
        let (shown, is_array) = match dict.table_of_row_type(number) {
            Some(t) => {
                let is_visible = || dict.is_visible(t.schema, &t.name);
                (
                    self.name(t.schema, &t.name, is_visible),
                    number != t.row_type[0],
                )
            }
            None => {
                let t = dict.user_type_by_oid(number)?;
                let is_visible = || dict.is_type_visible(t);
                (self.name(t.schema, &t.name, is_visible), number != t.oid)
            }
        };
        let element = DataType::Custom(shown.into(), Vec::new());
        Some(match is_array {
            true => DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(element), None)),
            false => element,
        })
    }
}

impl Names for Shown<'_> {
    fn call(&mut self, call: &mut ast::Function) {
        if self.function(&mut call.name).is_none()
            && let Some(DataType::Custom(name, _)) = self.named_type(&call.name)
        {
            // A range type's constructor.
            call.name = name;
        }
    }

    fn in_from(&mut self, name: &mut ObjectName, alias: &mut Option<TableAlias>) {
        let written = Qualified::new(name);
        let changed = self.function(name).is_some();
        // Columns are named by the function as it was called.
        if let (true, Ok(was), Ok(now)) = (changed, written, Qualified::new(name))
            && was.name != now.name
            && alias.is_none()
        {
            *alias = Some(TableAlias {
                explicit: false,
                name: crate::views::viewdef::plain(&was.name),
                columns: Vec::new(),
                at: None,
            });
        }
    }

    fn ty(&mut self, name: &mut ObjectName) -> Option<DataType> {
        self.named_type(name)
    }

    fn operator(&mut self, e: &mut Expr) {
        if let Expr::BinaryOp { op, .. } = e {
            numbered_operator::show(op, *self);
        }
    }

    fn item(&mut self, item: &mut SelectItem) {
        let SelectItem::UnnamedExpr(e) = item else {
            return;
        };
        let was = crate::plan::column_name(e);
        show(e, *self);
        if crate::plan::column_name(e) != was {
            *item = SelectItem::ExprWithAlias {
                expr: e.clone(),
                alias: crate::views::viewdef::plain(&was),
            };
        }
    }
}

/// Writes names in the place of numbers.
pub fn show(tree: &mut impl ast::VisitMut, how: Shown<'_>) {
    if !matches!(how, Shown::AsStored) {
        let mut how = how;
        visit(tree, &mut how);
    }
}

/// The text of an expression with names in the place of numbers.
pub fn shown(text: &str, how: Shown<'_>) -> Result<String> {
    if matches!(how, Shown::AsStored) || searched(text).next().is_none() {
        return Ok(text.to_string());
    }
    let mut e = parse::expression(text)?;
    show(&mut e, how);
    Ok(e.to_string())
}

/// The text of an expression as catalogs show it.
pub fn shown_now(dict: &Dict, text: &str) -> String {
    // A stored text was read when it was stored.
    shown(text, Shown::AsNow(dict)).unwrap_or_else(|_| text.to_string())
}

/// The name of a type as a definition that is read again has it: by its number, if a user made it.
pub fn type_text(ty: SqlType, typmod: i32) -> String {
    match SqlType::from_oid(ty.oid()) {
        Some(_) => ty.format(typmod),
        None => with_number(ty.oid(), ty.internal_name()).to_string(),
    }
}

/// The names of a query's text in the place of their numbers.
pub fn as_now(dict: &Dict, tree: &mut impl ast::VisitMut) {
    show(tree, Shown::AsNow(dict));
}
