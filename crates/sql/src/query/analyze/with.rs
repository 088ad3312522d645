//! WITH: queries that are computed once and read as often as they are named, or part of the one
//! query that names them.

use std::ops::ControlFlow;

use block::value::Datum;
use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    self, CteAsMaterialized, SetExpr, SetOperator, SetQuantifier, TableAlias, Visit, Visitor,
};

use super::from::rename;
use super::joins::whole_row;
use super::marks::{self, Marked};
use super::recursion;
use super::scope::{Column, Names, Scope};
use super::tree::{From, Level, Output, Recursive, Relation, RelationKind, Shared};
use super::{Analyzer, Reader, inner_file};
use crate::api::ColumnDesc;
use crate::bind::ParamTypes;
use crate::bind::Typed;
use crate::bind::names;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::parse::search::Marks;
use crate::parse::{self, Command};
use crate::place::Place;
use crate::query::optimize::uses::each_expr;
use crate::query::plan::{Plan, Register};
use crate::session::Core;

/// WITH queries in sight.
#[derive(Default)]
pub struct Known<'k> {
    outer: Option<&'k Known<'k>>,
    queries: Vec<WithQuery>,
}

/// A WITH query that can be named.
#[derive(Clone)]
pub struct WithQuery {
    pub name: String,
    how: How,
}

#[derive(Clone)]
enum How {
    /// Analysed again where it is named, as if it stood there. It names nothing from around.
    Inlined {
        query: Box<ast::Query>,
        columns: TableAlias,
        /// How many of the queries of its level it sees.
        sees: usize,
    },
    Shared {
        number: usize,
        outputs: Vec<Output>,
        /// Named within its own recursive part.
        last_round: bool,
        /// How many of the columns, the last ones, no star has there.
        added: usize,
        /// As of [`crate::query::plan::SharedScan`].
        of_statement: bool,
    },
    /// A write without RETURNING.
    Rowless,
}

impl<'k> Known<'k> {
    /// Those that every query of a statement sees.
    pub fn of_statement(items: &[WithItem]) -> Known<'k> {
        let query = |(number, item): (usize, &WithItem)| WithQuery {
            name: item.name.clone(),
            how: match &item.columns {
                None => How::Rowless,
                Some(columns) => How::Shared {
                    number,
                    outputs: columns.clone(),
                    last_round: false,
                    added: 0,
                    of_statement: true,
                },
            },
        };
        Known {
            outer: None,
            queries: items.iter().enumerate().map(query).collect(),
        }
    }

    pub fn inside(outer: &'k Known<'k>) -> Known<'k> {
        Known {
            outer: Some(outer),
            queries: Vec::new(),
        }
    }

    pub fn find(&self, name: &str) -> Option<Found<'_>> {
        let here = self.queries.iter().rposition(|q| q.name == name);
        match here {
            Some(at) => Some(Found { known: self, at }),
            None => self.outer.and_then(|outer| outer.find(name)),
        }
    }
}

/// A WITH query and where it was defined.
#[derive(Clone, Copy)]
pub struct Found<'k> {
    known: &'k Known<'k>,
    at: usize,
}

/// Number, inputs and columns of a WITH query, and whether it has to be computed once.
type Made = (usize, Vec<(Register, Register)>, Vec<Output>, bool);

/// Numbers of WITH queries, and what each takes from the registers around its level.
type Sharing = Vec<(usize, Vec<(Register, Register)>)>;

impl Analyzer<'_> {
    pub fn with_clause(
        &self,
        q: &ast::Query,
        known: &mut Known<'_>,
        scope: &Scope<'_>,
    ) -> Result<Sharing> {
        let mut sharing = Vec::new();
        let Some(with) = &q.with else {
            return Ok(sharing);
        };
        for cte in recursion::in_order(with)? {
            let name = names::ident(&cte.alias.name);
            if known.queries.iter().any(|q| q.name == name) {
                return Err(twice(cte));
            }
            if writes(cte) {
                return Err(not_at_top(cte));
            }
            let recursive = with.recursive && recursion::names_it(&cte.query, &name)?;
            let subqueries = self.subqueries.borrow().len();
            let (number, inputs, outputs, volatile) = match recursive {
                true => self.recursive(cte, &name, known, scope)?,
                false => self.once(cte, &name, known, scope)?,
            };
            let kept = matches!(cte.materialized, Some(CteAsMaterialized::Materialized));
            let never = matches!(cte.materialized, Some(CteAsMaterialized::NotMaterialized));
            let inlined = !recursive && inputs.is_empty() && !volatile && !kept && {
                never || mentions(q, &name) <= 1
            };
            let how = match inlined {
                true => {
                    // It is analysed again where it is named.
                    self.shared.borrow_mut()[number] = None;
                    for made in self.subqueries.borrow_mut().iter_mut().skip(subqueries) {
                        *made = None;
                    }
                    How::Inlined {
                        query: cte.query.clone(),
                        columns: cte.alias.clone(),
                        sees: known.queries.len(),
                    }
                }
                false => {
                    sharing.push((number, inputs));
                    How::Shared {
                        number,
                        outputs,
                        last_round: false,
                        added: 0,
                        of_statement: false,
                    }
                }
            };
            known.queries.push(WithQuery { name, how });
        }
        Ok(sharing)
    }

    /// A WITH query as an item of FROM.
    pub fn shared_or_inlined(
        &self,
        found: Found<'_>,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        nullable: bool,
    ) -> Result<(From, Names)> {
        let query = &found.known.queries[found.at];
        let (from, mut names) = match &query.how {
            How::Inlined {
                query: q,
                columns,
                sees,
            } => {
                let known = Known {
                    outer: found.known.outer,
                    queries: found.known.queries[..*sees].to_vec(),
                };
                let alone = Scope::new(None, &scope.file);
                // It names no column of the levels around, so its own are none of the calls' whose
                // arguments are being bound there.
                let around = self.calls.take();
                let level = self.query(q, &alone, &known);
                self.calls.replace(around);
                let mut level = level?;
                self.settle(&mut level)?;
                let (mut from, names) =
                    self.level_in_from(level, (Some(columns), false), scope, true)?;
                from.note_with();
                (from, names)
            }
            How::Shared {
                number,
                outputs,
                last_round,
                added,
                of_statement,
            } => {
                let registers = scope.file.registers(outputs.len());
                let columns = outputs.iter().zip(&registers).map(|(o, r)| Column {
                    table: query.name.clone(),
                    name: o.name.clone(),
                    value: Typed {
                        expr: Expr::Column(*r),
                        ..o.value.clone()
                    },
                    origin: (0, 0),
                    merged: false,
                    whole: false,
                });
                let mut columns: Vec<Column> = columns.collect();
                let system = columns.split_off(columns.len() - added);
                let mut names = Names {
                    columns,
                    system,
                    tables: vec![query.name.clone()],
                    ..Names::default()
                };
                names.rows.extend(whole_row(&names, nullable));
                let relation = Relation {
                    alias: query.name.clone(),
                    registers: registers.clone(),
                    kind: RelationKind::Shared {
                        number: *number,
                        name: query.name.clone(),
                        columns: registers,
                        last_round: *last_round,
                        of_statement: *of_statement,
                    },
                };
                (From::Relation(relation), names)
            }
            How::Rowless => {
                let message = format!(
                    "WITH query \"{}\" does not have a RETURNING clause",
                    query.name
                );
                return Err(Error::new("0A000", message));
            }
        };
        let own = TableAlias {
            explicit: false,
            name: ast::Ident::with_quote('"', &query.name),
            columns: Vec::new(),
            at: None,
        };
        rename(&mut names, alias.unwrap_or(&own))?;
        Ok((from, names))
    }

    /// A query that is computed once: its number, inputs and columns, and whether it is volatile.
    fn once(
        &self,
        cte: &ast::Cte,
        name: &str,
        known: &Known<'_>,
        scope: &Scope<'_>,
    ) -> Result<Made> {
        marks::refuse(cte)?;
        let subqueries = self.subqueries.borrow().len();
        let file = inner_file(scope);
        let inside = Scope::new(Some(scope), &file);
        let mut level = self.query(&cte.query, &inside, known)?;
        self.settle(&mut level)?;
        let volatile = !level.locks.is_empty() || self.is_volatile(&level, subqueries);
        let outputs = renamed(&level.outputs, &cte.alias, name)?;
        let columns = level.outputs.iter().map(|o| o.value.expr.clone()).collect();
        let inputs = inputs_of(&file)?;
        let mut all = self.shared.borrow_mut();
        all.push(Some(Shared {
            name: name.to_string(),
            level,
            columns,
            recursive: None,
            width: file.width(),
        }));
        Ok((all.len() - 1, inputs, outputs, volatile))
    }

    /// Whether a level, or one of the subqueries made for it, may give something else each time.
    fn is_volatile(&self, level: &Level, first_subquery: usize) -> bool {
        let mut volatile = false;
        let subqueries = self.subqueries.borrow();
        let made = subqueries.iter().skip(first_subquery).flatten();
        for level in made.map(|s| &s.level).chain([level]) {
            each_expr(level, &mut |e| volatile |= e.is_volatile());
        }
        volatile
    }

    fn recursive(
        &self,
        cte: &ast::Cte,
        name: &str,
        known: &Known<'_>,
        scope: &Scope<'_>,
    ) -> Result<Made> {
        let q = &cte.query;
        recursion::check(q, name)?;
        let SetExpr::SetOperation {
            left,
            op: SetOperator::Union,
            set_quantifier,
            right,
        } = &*q.body
        else {
            return Err(Error::internal("a recursive query that is no UNION"));
        };
        let distinct = match set_quantifier {
            SetQuantifier::All => false,
            SetQuantifier::None | SetQuantifier::Distinct => true,
            other => return Err(Error::unsupported(format!("UNION {other}"))),
        };
        let file = inner_file(scope);
        let inside = Scope::new(Some(scope), &file);
        let mut with = Known::inside(known);
        let shared = self.with_clause(q, &mut with, &inside)?;
        let marks = Marks::of(cte)?;
        let marked = match &marks {
            None => None,
            Some(marks) => {
                marks::check_sides(left, right)?;
                self.check_marks_depth(&cte.query)?;
                let level = self.probed(|| self.operand(left, &inside, &with))?;
                let columns = renamed(&level.outputs, &cte.alias, name)?;
                Some(Marked::new(marks, &columns, self.params)?)
            }
        };
        let mut first = match &marked {
            None => self.operand(left, &inside, &with)?,
            Some(marked) => {
                let rewritten = marked.first(left)?;
                self.unnoted(|| self.operand(&rewritten, &inside, &with))?
            }
        };
        self.settle(&mut first)?;
        let outputs = renamed(&first.outputs, &cte.alias, name)?;
        let added = marked.as_ref().map_or(0, Marked::added);
        let number = {
            let mut all = self.shared.borrow_mut();
            all.push(None);
            all.len() - 1
        };
        let mut within = Known::inside(&with);
        within.queries.push(WithQuery {
            name: name.to_string(),
            how: How::Shared {
                number,
                outputs: outputs.clone(),
                last_round: true,
                added,
                of_statement: false,
            },
        });
        let mut again = match &marked {
            None => self.operand(right, &inside, &within)?,
            Some(_) => self.probed(|| self.operand(right, &inside, &within))?,
        };
        if again.outputs.len() != first.outputs.len() - added {
            return Err(Error::new(
                "42601",
                "each UNION query must have the same number of columns",
            ));
        }
        if let Some(marked) = &marked {
            self.same_types(&first, &again, name)?;
            let rewritten = marked.again(name, right, &again.outputs, &outputs)?;
            again = self.unnoted(|| self.operand(&rewritten, &inside, &within))?;
        }
        let columns = self.same_types(&first, &again, name)?;
        first.shared.extend(shared);
        let inputs = inputs_of(&file)?;
        self.shared.borrow_mut()[number] = Some(Shared {
            name: name.to_string(),
            columns: first.outputs.iter().map(|o| o.value.expr.clone()).collect(),
            level: first,
            recursive: Some(Recursive {
                level: again,
                columns,
                distinct,
            }),
            width: file.width(),
        });
        Ok((number, inputs, outputs, true))
    }

    /// The columns of the recursive part, of the types of the other.
    fn same_types(&self, first: &Level, again: &Level, name: &str) -> Result<Vec<Expr>> {
        let empty = crate::bind::Scope::default();
        let binder = crate::bind::Binder::new(&empty, self.params, "UNION");
        let pairs = first.outputs.iter().zip(&again.outputs).enumerate();
        pairs
            .map(|(at, (l, r))| {
                let overall = crate::bind::chosen_type(&[l.value.ty, r.value.ty], "UNION")?;
                let alike = r.value.ty == overall && r.value.typmod == l.value.typmod;
                let typmod = if alike { l.value.typmod } else { -1 };
                if overall != l.value.ty || typmod != l.value.typmod {
                    return Err(Error::new(
                        "42804",
                        format!(
                            "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                            at + 1,
                            l.value.ty.format(l.value.typmod),
                            overall.format(typmod)
                        ),
                    )
                    .hint("Cast the output of the non-recursive term to the correct type."));
                }
                let value = binder.coerce(r.value.clone(), overall, -1, CastContext::Implicit)?;
                Ok(value.expr)
            })
            .collect()
    }
}

/// What a file takes from registers around it. Its inputs must be plain ones.
fn inputs_of(file: &super::scope::File) -> Result<Vec<(Register, Register)>> {
    file.inputs()
        .into_iter()
        .map(|(e, register)| match e {
            Expr::Column(outer) => Ok((outer, register)),
            _ => Err(Error::unsupported(
                "a WITH query of an outer query's merged column",
            )),
        })
        .collect()
}

/// The columns as the WITH query names them.
fn renamed(outputs: &[Output], alias: &TableAlias, name: &str) -> Result<Vec<Output>> {
    let mut outputs = outputs.to_vec();
    if alias.columns.len() > outputs.len() {
        return Err(Error::new(
            "42P10",
            format!(
                "WITH query \"{name}\" has {} columns available but {} columns specified",
                outputs.len(),
                alias.columns.len()
            ),
        ));
    }
    for (output, given) in outputs.iter_mut().zip(&alias.columns) {
        output.name = names::ident(&given.name);
    }
    Ok(outputs)
}

/// Whether an item of WITH writes.
pub fn writes(cte: &ast::Cte) -> bool {
    matches!(
        &*cte.query.body,
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
    )
}

/// The refusal of a write in a WITH that is not the statement's own.
pub fn not_at_top(cte: &ast::Cte) -> Error {
    let message = "WITH clause containing a data-modifying statement must be at the top level";
    Error::new("0A000", message).placed(Place::of_span(cte.alias.name.span))
}

/// An item of a statement's WITH, as the other parts of the statement see it.
pub struct WithItem {
    pub name: String,
    /// `None`: a write without RETURNING.
    columns: Option<Vec<Output>>,
}

impl WithItem {
    /// An item with these columns, by the names that WITH gives them.
    pub fn new(cte: &ast::Cte, columns: Option<&[ColumnDesc]>) -> Result<WithItem> {
        let name = names::ident(&cte.alias.name);
        let outputs: Option<Vec<Output>> = columns.map(|c| c.iter().map(output).collect());
        let columns = match outputs {
            Some(outputs) => Some(renamed(&outputs, &cte.alias, &name)?),
            None => None,
        };
        Ok(WithItem { name, columns })
    }

    /// An item with these columns, by this name.
    pub fn of_columns(name: &str, columns: &[ColumnDesc]) -> WithItem {
        WithItem {
            name: name.to_string(),
            columns: Some(columns.iter().map(output).collect()),
        }
    }

    pub fn column_names(&self) -> Option<Vec<String>> {
        let columns = self.columns.as_ref()?;
        Some(columns.iter().map(|c| c.name.clone()).collect())
    }
}

fn output(c: &ColumnDesc) -> Output {
    Output {
        name: c.name.clone(),
        value: Typed {
            expr: Expr::Const(Datum::Null),
            ty: c.ty,
            typmod: c.typmod,
            collation: c.collation,
        },
        origin: (0, 0),
    }
}

/// The items of a statement's WITH, in the order in which they may name each other.
pub fn items_in_order(with: &ast::With) -> Result<Vec<&ast::Cte>> {
    let items = recursion::in_order(with)?;
    for (at, cte) in items.iter().enumerate() {
        let name = names::ident(&cte.alias.name);
        if items[..at]
            .iter()
            .any(|other| names::ident(&other.alias.name) == name)
        {
            return Err(twice(cte));
        }
        if writes(cte) {
            marks::refuse(cte)?;
        }
        if writes(cte) && with.recursive && recursion::names_it(&cte.query, &name)? {
            let message =
                format!("recursive query \"{name}\" must not contain data-modifying statements");
            let place = Place::of_span(cte.alias.name.span);
            return Err(Error::new("42P19", message).placed(place));
        }
    }
    Ok(items)
}

/// Plans an item of a statement's WITH that is a query.
pub fn plan_item(
    core: &Core,
    cte: &ast::Cte,
    recursive: bool,
    params: &ParamTypes,
    items: &[WithItem],
) -> Result<Plan> {
    let name = names::ident(&cte.alias.name);
    if !(recursive && recursion::names_it(&cte.query, &name)?) {
        marks::refuse(cte)?;
        return super::plan(core, &cte.query, params, Reader::Client, items);
    }
    let mut query = every_row_of(&name)?;
    query.with = Some(ast::With {
        with_token: AttachedToken::empty(),
        recursive,
        cte_tables: vec![cte.clone()],
    });
    super::plan(core, &query, params, Reader::Client, items)
}

/// `SELECT * FROM name`.
fn every_row_of(name: &str) -> Result<ast::Query> {
    let text = format!("SELECT * FROM {}", names::quote(name));
    if let Command::Sql(statement) = parse::statement(&text)?
        && let ast::Statement::Query(query) = *statement
    {
        return Ok(*query);
    }
    Err(Error::internal("a SELECT that is no query"))
}

fn twice(cte: &ast::Cte) -> Error {
    let name = names::ident(&cte.alias.name);
    let message = format!("WITH query name \"{name}\" specified more than once");
    Error::new("42712", message).placed(Place::of_span(cte.alias.name.span))
}

/// How often a query names a relation.
fn mentions(node: &impl Visit, name: &str) -> usize {
    struct Count<'n>(&'n str, usize);
    impl Visitor for Count<'_> {
        type Break = ();
        fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<()> {
            if let Ok(q) = names::Qualified::new(relation)
                && q.schema.is_none()
                && q.name == self.0
            {
                self.1 += 1;
            }
            ControlFlow::Continue(())
        }
    }
    let mut count = Count(name, 0);
    let _ = node.visit(&mut count);
    count.1
}
