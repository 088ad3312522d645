//! MERGE: a query joins the source with the target and says of each row which action it calls for,
//! with the values that the action needs ([decision
//! 0063](../../../../docs/decisions/0063-merge-as-a-fed-write.md)).
//!
//! The query gives the row id, NULL where the source's row has no match, the number of the action
//! from 1, NULL for none, and the values. A value is computed only in rows of its action.

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    self, Ident, JoinConstraint, JoinOperator, Merge, MergeClauseKind, MergeInsertExpr,
    MergeInsertKind, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, With,
};

use super::assign::{self, Field, Given};
use super::dml::{is_default, no_default_of_part, refuse_always};
use super::insert::{Target, target_columns, target_paths};
use super::supply::{Change, FeedPlanner, ROW_ID, SuppliedWrite, TARGET_SCHEMA, is_left_to_tree};
use super::{Planner, RowRules};
use crate::api::ColumnDesc;
use crate::bind::{Binder, Scope, Typed, names};
use crate::dict::acl::Privileges;
use crate::dict::trigger::Op;
use crate::dict::{Relation, Table};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::{self, Command};
use crate::place::Place;
use crate::query::analyze::policy::Use;

/// What happens to a row that the query gives. Expressions are over the old row, or as many NULLs,
/// and what the query gives.
pub enum MergeAction {
    Nothing,
    /// Column and its new value.
    Update(Vec<(usize, Expr)>),
    Delete,
    /// Values for all columns.
    Insert(Vec<Expr>),
}

/// Which part of an action an expression is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    WhenMatched,
    WhenNotMatched,
    Update,
    Values,
    /// Of RETURNING, of another write.
    Returning,
}

impl Part {
    const ALL: [Part; 5] = [
        Part::WhenMatched,
        Part::WhenNotMatched,
        Part::Update,
        Part::Values,
        Part::Returning,
    ];

    /// The call that it stands in for the analysis; its schema is [`TARGET_SCHEMA`].
    fn call(self) -> &'static str {
        match self {
            Part::WhenMatched => "when_matched",
            Part::WhenNotMatched => "when_not_matched",
            Part::Update => "update",
            Part::Values => "values",
            Part::Returning => "returning",
        }
    }

    pub fn of(call: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.call() == call)
    }

    /// What errors call it.
    pub fn clause(self) -> &'static str {
        match self {
            Part::WhenMatched | Part::WhenNotMatched => "MERGE WHEN conditions",
            Part::Update => "UPDATE",
            Part::Values => "VALUES",
            Part::Returning => "RETURNING",
        }
    }

    /// There is no row of the target.
    pub fn sees_source_only(self) -> bool {
        matches!(self, Part::WhenNotMatched | Part::Values)
    }
}

/// The alias of the row that has the action's number.
const ACTION: &str = "braid$action";

/// The statement as it is planned: what its query is to compute.
struct Merged<'m> {
    table: &'m Table,
    /// For each value the number of its action, what it is for, and the value.
    items: Vec<(usize, Part, ast::Expr)>,
}

/// The new value of a column.
enum Value<'a> {
    Direct(Expr),
    /// What the query computes, by its place among the items.
    Item(usize),
    /// A field of a record that the query computes.
    Field(usize, Field<'a>),
    /// Parts that are given values, one after the other.
    Parts(Vec<(Vec<ast::AccessExpr>, PartValue)>),
}

/// The value of a part of a column.
enum PartValue {
    Bound(Typed),
    Item(usize),
}

/// An action whose values are not settled.
enum Action<'a> {
    Nothing,
    Update(Vec<(usize, Value<'a>)>),
    Delete,
    /// The values by their places in the list of columns.
    Insert(Target, Vec<(usize, Value<'a>)>),
}

impl Planner<'_> {
    pub fn merge(
        &self,
        m: &Merge,
        with: Option<With>,
        feed: &FeedPlanner<'_>,
    ) -> Result<SuppliedWrite> {
        check_form(m, with.as_ref())?;
        let target = TableWithJoins {
            relation: m.table.clone(),
            joins: Vec::new(),
        };
        self.refuse_view(&m.table)?;
        let written = self.written_table(&target, Op::Update)?;
        let (table, alias) = (written.shown, written.alias);
        refuse_same_name(&alias, &m.source)?;
        let mut merged = Merged {
            table: &table,
            items: Vec::new(),
        };
        let mut actions = Vec::new();
        for (at, clause) in m.clauses.iter().enumerate() {
            actions.push(self.action(&mut merged, at + 1, &clause.action)?);
        }
        let (query, given) = feed.feed(&query_of(m, with, &table, &alias, &merged.items)?)?;
        let items: Vec<&ast::Expr> = merged.items.iter().map(|(_, _, value)| value).collect();
        let settled = Settled {
            table: &table,
            given: &given,
            items: &items,
        };
        let actions = actions.into_iter().map(|action| {
            Ok(match action {
                Action::Nothing => MergeAction::Nothing,
                Action::Delete => MergeAction::Delete,
                Action::Update(set) => MergeAction::Update(settled.set(self, set)?),
                Action::Insert(target, values) => {
                    let given = settled.row(self, &target, values)?;
                    MergeAction::Insert(self.full_row(&table, given)?)
                }
            })
        });
        let change = Change::Merge(actions.collect::<Result<_>>()?);
        let rules: RowRules = self.rules(&table)?;
        Ok(SuppliedWrite {
            table,
            query,
            change,
            rules,
            returning: None,
            queried: None,
            policies: None,
            views: Vec::new(),
        })
    }

    /// A view cannot be the target, nor can a materialized one.
    fn refuse_view(&self, target: &TableFactor) -> Result<()> {
        let TableFactor::Table { name, .. } = target else {
            return Ok(());
        };
        let (name, kind) = match self.dict.relation(&names::of_user(name)?) {
            Some(Relation::View(view)) => (view.name.clone(), "views"),
            Some(Relation::Table(table)) if table.materialized.is_some() => {
                (table.name.clone(), "materialized views")
            }
            _ => return Ok(()),
        };
        let message = format!("cannot execute MERGE on relation \"{name}\"");
        let detail = format!("This operation is not supported for {kind}.");
        Err(Error::new("0A000", message).detail(detail))
    }

    fn action<'a>(
        &self,
        merged: &mut Merged<'_>,
        number: usize,
        action: &'a ast::MergeAction,
    ) -> Result<Action<'a>> {
        if parse::merge::is_nothing(action) {
            return Ok(Action::Nothing);
        }
        match action {
            ast::MergeAction::Delete { .. } => {
                let needs = &self.params.needs;
                needs.relation(merged.table.oid, Privileges::DELETE);
                Ok(Action::Delete)
            }
            ast::MergeAction::Update(update) => self.change(merged, number, &update.assignments),
            ast::MergeAction::Insert(insert) => self.insertion(merged, number, insert),
        }
    }

    fn change<'a>(
        &self,
        merged: &mut Merged<'_>,
        number: usize,
        list: &'a [ast::Assignment],
    ) -> Result<Action<'a>> {
        let assigned = self.assigned(merged.table, list)?;
        self.note_assigned(merged.table, &assigned);
        let mut records = Vec::new();
        for of in &assigned.queries {
            records.push((merged.items.len(), *of));
            let record = assign::as_record(of.0)?;
            merged.items.push((number, Part::Update, record));
        }
        let mut set = Vec::new();
        for (at, given) in assigned.columns {
            let value = match given {
                Given::Value(value) => {
                    self.merged_value(merged, number, Part::Update, at, *value)?
                }
                Given::Parts(parts) => {
                    refuse_always(&merged.table.columns[at])?;
                    let part = |part: assign::Part| {
                        if is_default(&part.value) {
                            return Err(no_default_of_part(merged.table.columns[at].ty()));
                        }
                        let of = (number, Part::Update);
                        Ok((part.path, self.part_value(merged, of, part.value)?))
                    };
                    Value::Parts(parts.into_iter().map(part).collect::<Result<_>>()?)
                }
                Given::OfRow(query, column) => {
                    refuse_always(&merged.table.columns[at])?;
                    let (record, of) = records[query];
                    Value::Field(record, Field { of, at: column })
                }
            };
            set.push((at, value));
        }
        Ok(Action::Update(set))
    }

    fn insertion(
        &self,
        merged: &mut Merged<'_>,
        number: usize,
        insert: &MergeInsertExpr,
    ) -> Result<Action<'static>> {
        let needs = &self.params.needs;
        needs.relation(merged.table.oid, Privileges::INSERT);
        if parse::merge::is_defaults(insert) {
            let target = Target {
                columns: Vec::new(),
                paths: Vec::new(),
                implicit: true,
                overriding: None,
            };
            return Ok(Action::Insert(target, Vec::new()));
        }
        let MergeInsertKind::Values(values) = &insert.kind else {
            return Err(Error::unsupported("INSERT ROW"));
        };
        let [row] = values.rows.as_slice() else {
            return Err(Error::new("42601", "syntax error at or near \",\""));
        };
        let (overriding, columns) = parse::merge::columns(insert);
        let target = Target {
            columns: target_columns(merged.table, columns)?,
            paths: target_paths(columns)?,
            implicit: columns.is_empty(),
            overriding,
        };
        target.check_count(row.content.len()).map_err(|e| {
            let extra = row.content.get(target.columns.len());
            e.placed(extra.and_then(Place::of_expr))
        })?;
        let mut given = Vec::new();
        let columns = target.columns.iter().take(row.content.len()).copied();
        needs.inserted(merged.table.oid, columns);
        for (place, (value, &at)) in row.content.iter().zip(&target.columns).enumerate() {
            let c = &merged.table.columns[at];
            let path = target.path(place);
            if is_default(value) && !path.is_empty() {
                return Err(no_default_of_part(c.ty()));
            }
            let value = match is_default(value) || target.is_overridden(c)? {
                true => Value::Direct(self.default(c)?),
                false if path.is_empty() => {
                    self.merged_value(merged, number, Part::Values, at, value.clone())?
                }
                false => {
                    let of = (number, Part::Values);
                    let part = self.part_value(merged, of, value.clone())?;
                    Value::Parts(vec![(path.to_vec(), part)])
                }
            };
            given.push((place, value));
        }
        Ok(Action::Insert(target, given))
    }

    /// The value of a column: what names nothing is computed by the write, so that literals take
    /// the column's type; the rest by the query.
    fn merged_value(
        &self,
        merged: &mut Merged<'_>,
        number: usize,
        part: Part,
        at: usize,
        value: ast::Expr,
    ) -> Result<Value<'static>> {
        let c = &merged.table.columns[at];
        if is_default(&value) {
            return Ok(Value::Direct(self.default(c)?));
        }
        if part == Part::Update {
            refuse_always(c)?;
        }
        let scope = Scope::default();
        let binder = Binder::new(&scope, self.params, part.clause());
        let direct = binder
            .expr(&value)
            .and_then(|bound| binder.assign(bound, c.ty(), c.typmod, &c.name));
        match direct {
            Ok(value) => Ok(Value::Direct(value.expr)),
            Err(e) if is_computed(&e) => {
                merged.items.push((number, part, value));
                Ok(Value::Item(merged.items.len() - 1))
            }
            Err(e) => Err(e.in_expr(&value)),
        }
    }

    /// The value of a part of a column, as [`Self::merged_value`].
    fn part_value(
        &self,
        merged: &mut Merged<'_>,
        (number, part): (usize, Part),
        value: ast::Expr,
    ) -> Result<PartValue> {
        let scope = Scope::default();
        match Binder::new(&scope, self.params, part.clause()).expr(&value) {
            Ok(bound) => Ok(PartValue::Bound(bound)),
            Err(e) if is_computed(&e) => {
                merged.items.push((number, part, value));
                Ok(PartValue::Item(merged.items.len() - 1))
            }
            Err(e) => Err(e),
        }
    }
}

/// Whether an error says that the query must compute a value.
fn is_computed(e: &Error) -> bool {
    is_left_to_tree(e) || matches!(e.sqlstate(), "42703" | "42P01")
}

/// What the query gives, once it is planned.
struct Settled<'s> {
    table: &'s Table,
    given: &'s [ColumnDesc],
    items: &'s [&'s ast::Expr],
}

impl Settled<'_> {
    /// What the query gives for an item.
    fn given(&self, item: usize) -> Typed {
        let desc = &self.given[item + 2];
        Typed {
            expr: Expr::Column(self.table.columns.len() + item + 2),
            ty: desc.ty,
            typmod: desc.typmod,
            collation: desc.collation,
        }
    }

    fn part(&self, value: PartValue) -> Typed {
        match value {
            PartValue::Bound(value) => value,
            PartValue::Item(item) => self.given(item),
        }
    }

    /// The columns of a SET list, and their values.
    fn set(
        &self,
        planner: &Planner<'_>,
        values: Vec<(usize, Value<'_>)>,
    ) -> Result<Vec<(usize, Expr)>> {
        let scope = Scope::default();
        let binder = Binder::new(&scope, planner.params, "MERGE");
        let value = |(at, value): (usize, Value<'_>)| {
            let c = &self.table.columns[at];
            let value = match value {
                Value::Direct(e) => return Ok((at, e)),
                Value::Item(item) => binder
                    .assign(self.given(item), c.ty(), c.typmod, &c.name)
                    .map_err(|e| e.in_expr(self.items[item]))?,
                Value::Field(record, field) => field.assigned(&binder, &self.given(record), c)?,
                Value::Parts(parts) => {
                    let mut column = Typed {
                        expr: Expr::Column(at),
                        ty: c.ty(),
                        typmod: c.typmod,
                        collation: Default::default(),
                    };
                    for (path, value) in parts {
                        column = binder.assign_part(column, &path, self.part(value), &c.name)?;
                    }
                    column
                }
            };
            Ok((at, value.expr))
        };
        values.into_iter().map(value).collect()
    }

    /// The columns of a new row that are given values.
    fn row(
        &self,
        planner: &Planner<'_>,
        target: &Target,
        values: Vec<(usize, Value<'_>)>,
    ) -> Result<Vec<(usize, Expr)>> {
        let scope = Scope::default();
        let binder = Binder::new(&scope, planner.params, "MERGE");
        let mut given = Vec::new();
        for (place, value) in values {
            let at = target.columns[place];
            let c = (place, &self.table.columns[at]);
            match value {
                Value::Direct(e) => given.push((at, e)),
                Value::Item(item) => target
                    .assign(&binder, &mut given, c, self.given(item))
                    .map_err(|e| e.in_expr(self.items[item]))?,
                Value::Field(..) => {
                    return Err(Error::internal("a field in the VALUES of a MERGE"));
                }
                Value::Parts(parts) => {
                    for (_, value) in parts {
                        target.assign(&binder, &mut given, c, self.part(value))?;
                    }
                }
            }
        }
        Ok(given)
    }
}

fn is_match(kind: MergeClauseKind) -> bool {
    kind == MergeClauseKind::Matched
}

fn check_form(m: &Merge, with: Option<&With>) -> Result<()> {
    if with.is_some_and(|with| with.recursive) {
        let message = "WITH RECURSIVE is not supported for MERGE statement";
        return Err(Error::new("42601", message));
    }
    if let Some(output) = &m.output {
        let (token, word) = match output {
            ast::OutputClause::Output { output_token, .. } => (output_token, "OUTPUT"),
            ast::OutputClause::Returning {
                returning_token, ..
            } => (returning_token, "RETURNING"),
        };
        let message = format!("syntax error at or near \"{word}\"");
        return Err(Error::new("42601", message).placed(Place::of_span(token.0.span)));
    }
    if m.clauses.is_empty() {
        return Err(Error::new("42601", "syntax error at end of input"));
    }
    let mut always = [false; 2];
    for clause in &m.clauses {
        let conditional = match &clause.action {
            ast::MergeAction::Update(u) => {
                u.update_predicate.is_some() || u.delete_predicate.is_some()
            }
            ast::MergeAction::Insert(i) => i.insert_predicate.is_some(),
            ast::MergeAction::Delete { .. } => false,
        };
        if conditional {
            return Err(Error::new("42601", "syntax error at or near \"WHERE\""));
        }
        let always = &mut always[usize::from(is_match(clause.clause_kind))];
        if *always {
            let message = "unreachable WHEN clause specified after unconditional WHEN clause";
            return Err(Error::new("42601", message));
        }
        *always = clause.predicate.is_none();
    }
    Ok(())
}

fn refuse_same_name(target: &str, source: &TableFactor) -> Result<()> {
    let name = match source {
        TableFactor::Table { alias: Some(a), .. } | TableFactor::Derived { alias: Some(a), .. } => {
            names::ident(&a.name)
        }
        TableFactor::Table { name, .. } => names::Qualified::new(name)?.name,
        _ => return Ok(()),
    };
    if name != target {
        return Ok(());
    }
    let message = format!("name \"{target}\" specified more than once");
    Err(Error::new("42712", message)
        .detail("The name is used both as MERGE target table and data source."))
}

/// The query that feeds the write.
fn query_of(
    m: &Merge,
    with: Option<With>,
    table: &Table,
    alias: &str,
    items: &[(usize, Part, ast::Expr)],
) -> Result<ast::Query> {
    let quoted = |name: &str| Ident::with_quote('"', name);
    let row_id = ast::Expr::CompoundIdentifier(vec![quoted(alias), quoted(ROW_ID)]);
    let number = ast::Expr::CompoundIdentifier(vec![quoted(ACTION), quoted("n")]);
    let unexpected = || Error::internal("a template of MERGE's query that is none");
    let template =
        format!("SELECT 1 FROM a JOIN b ON true CROSS JOIN LATERAL (SELECT 1) AS \"{ACTION}\"(n)");
    let Command::Sql(statement) = parse::statement(&template)? else {
        return Err(unexpected());
    };
    let ast::Statement::Query(mut query) = *statement else {
        return Err(unexpected());
    };
    query.with = with;
    let SetExpr::Select(select) = &mut *query.body else {
        return Err(unexpected());
    };
    let [from] = select.from.as_mut_slice() else {
        return Err(unexpected());
    };
    let [target, action] = from.joins.as_mut_slice() else {
        return Err(unexpected());
    };
    from.relation = m.source.clone();
    target.relation = target_factor(table, alias);
    let on = JoinConstraint::On((*m.on).clone());
    let not_matched = m.clauses.iter().any(|c| !is_match(c.clause_kind));
    target.join_operator = match not_matched {
        true => JoinOperator::LeftOuter(on),
        false => JoinOperator::Inner(on),
    };
    let TableFactor::Derived { subquery, .. } = &mut action.relation else {
        return Err(unexpected());
    };
    let SetExpr::Select(chosen) = &mut *subquery.body else {
        return Err(unexpected());
    };
    chosen.projection = vec![SelectItem::UnnamedExpr(chosen_action(m, &row_id)?)];
    let mut all = vec![row_id, number.clone()];
    for (of, part, value) in items {
        let own = equal(number.clone(), *of)?;
        all.push(case(vec![(own, call(*part, value)?)], None));
    }
    select.projection = all.into_iter().map(SelectItem::UnnamedExpr).collect();
    Ok(*query)
}

/// The target with its row ids.
fn target_factor(table: &Table, alias: &str) -> TableFactor {
    let quoted = |name: &str| Ident::with_quote('"', name);
    // Each row is found to be joined, and only then is it known what is done with it.
    let name = super::through::table_named(table.oid, Use::READ);
    TableFactor::Table {
        name: vec![quoted(TARGET_SCHEMA), quoted(&name)].into(),
        alias: Some(TableAlias {
            explicit: true,
            name: quoted(alias),
            columns: Vec::new(),
            at: None,
        }),
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// The number of the first action whose condition holds.
fn chosen_action(m: &Merge, row_id: &ast::Expr) -> Result<ast::Expr> {
    let of = |matched: bool| -> Result<ast::Expr> {
        let part = match matched {
            true => Part::WhenMatched,
            false => Part::WhenNotMatched,
        };
        let (mut conditions, mut otherwise) = (Vec::new(), None);
        for (at, clause) in m.clauses.iter().enumerate() {
            if is_match(clause.clause_kind) != matched {
                continue;
            }
            let number = parse::expression(&(at + 1).to_string())?;
            match &clause.predicate {
                Some(condition) => conditions.push((call(part, condition)?, number)),
                None => otherwise = Some(number),
            }
        }
        Ok(match (conditions.is_empty(), otherwise) {
            (true, Some(number)) => number,
            (true, None) => parse::expression("NULL::int4")?,
            (false, otherwise) => case(conditions, otherwise),
        })
    };
    let there = ast::Expr::IsNotNull(Box::new(row_id.clone()));
    Ok(case(vec![(there, of(true)?)], Some(of(false)?)))
}

fn equal(left: ast::Expr, number: usize) -> Result<ast::Expr> {
    Ok(ast::Expr::BinaryOp {
        left: Box::new(left),
        op: ast::BinaryOperator::Eq,
        right: Box::new(parse::expression(&number.to_string())?),
    })
}

fn case(conditions: Vec<(ast::Expr, ast::Expr)>, otherwise: Option<ast::Expr>) -> ast::Expr {
    let when = |(condition, result)| ast::CaseWhen { condition, result };
    ast::Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: conditions.into_iter().map(when).collect(),
        else_result: otherwise.map(Box::new),
    }
}

/// An expression of an action, for the analysis.
pub fn call(part: Part, e: &ast::Expr) -> Result<ast::Expr> {
    let template = format!("\"{TARGET_SCHEMA}\".\"{}\"(1)", part.call());
    let mut call = parse::expression(&template)?;
    if let ast::Expr::Function(f) = &mut call
        && let ast::FunctionArguments::List(list) = &mut f.args
    {
        let arg = ast::FunctionArgExpr::Expr(e.clone());
        list.args = vec![ast::FunctionArg::Unnamed(arg)];
    }
    Ok(call)
}
