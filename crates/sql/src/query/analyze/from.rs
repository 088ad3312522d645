//! FROM: relations, joins, and the names they bring.

use std::collections::HashSet;
use std::sync::Arc;

use sqlparser::ast::{self, JoinConstraint, JoinOperator, TableAlias, TableFactor, TableWithJoins};

use super::Analyzer;
use super::expression::Clause;
use super::joins::{
    THERE, check_full, common, kind_of, name_join, one_of, registers_of, row_id_of, whole_row,
};
use super::merge;
use super::policy::{Registers, Use};
use super::scope::{Column, Names, Scope};
use super::system::SystemColumn;
use super::tree::{From, JoinKind, Relation, RelationKind};
use super::view::Noted;
use super::with::Known;
use crate::bind::{Typed, chosen_type, names};
use crate::dict::acl::Privileges;
use crate::dict::view::SOURCES;
use crate::dict::{self, Source, Table};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::{CmpOp, Expr};
use crate::parse::forms;
use crate::parse::utility::TableLock;
use crate::place::Place;
use crate::plan::supply;
use crate::plan::through::{self, Target};
use crate::types::SqlType;
use crate::views;

/// An item of FROM, and its names.
pub type Item = (From, Names);

impl Analyzer<'_> {
    /// The FROM clause of a level; its names go to `scope`.
    pub fn relations(
        &self,
        list: &[TableWithJoins],
        scope: &mut Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Vec<From>> {
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            let (item, names) = match merge::own_target(scope) {
                None => self.joined(item, scope, known, false)?,
                // LATERAL does not reach what a write changes.
                Some(target) => {
                    let mut seen = scope.without(&target);
                    seen.refused = scope.named(&target);
                    self.joined(item, &seen, known, false)?
                }
            };
            scope.add(names)?;
            items.push(item);
        }
        Ok(items)
    }

    /// A relation with the joins behind it. `nullable`: it is on the side of an outer join that may
    /// be missing.
    fn joined(
        &self,
        t: &TableWithJoins,
        scope: &Scope<'_>,
        known: &Known<'_>,
        nullable: bool,
    ) -> Result<Item> {
        let missing_left = t.joins.iter().any(|j| {
            matches!(
                j.join_operator,
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_)
            )
        });
        let mut left = self.factor(&t.relation, scope, known, nullable || missing_left)?;
        for join in &t.joins {
            if join.global {
                return Err(Error::unsupported("GLOBAL JOIN"));
            }
            let (kind, flipped, constraint) = kind_of(&join.join_operator)?;
            crate::plan::check_constraint(&join.join_operator, constraint)?;
            // What is behind may name what is before, if it is LATERAL, but not where that may be
            // missing.
            let mut beside = scope.beside();
            beside.columns = scope.columns.clone();
            beside.tables = scope.tables.clone();
            beside.bare = scope.bare.clone();
            beside.rows = scope.rows.clone();
            beside.system = scope.system.clone();
            let (from, names) = left;
            let mut seen = Names {
                columns: names.columns.clone(),
                tables: names.tables.clone(),
                bare: names.bare.clone(),
                keys: Vec::new(),
                rows: names.rows.clone(),
                system: names.system.clone(),
            };
            if !flipped && kind != JoinKind::Full {
                beside.columns.append(&mut seen.columns);
                beside.tables.append(&mut seen.tables);
                beside.bare.append(&mut seen.bare);
                beside.rows.append(&mut seen.rows);
                beside.system.append(&mut seen.system);
            } else {
                beside.refused = seen;
            }
            let nullable = nullable || kind != JoinKind::Inner || missing_left;
            let right = self.factor(&join.relation, &beside, known, nullable)?;
            left = self.join(
                (kind, flipped),
                constraint,
                (from, names),
                right,
                scope,
                known,
            )?;
        }
        Ok(left)
    }

    fn join(
        &self,
        (kind, flipped): (JoinKind, bool),
        constraint: &JoinConstraint,
        (left, left_names): Item,
        (right, right_names): Item,
        scope: &Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Item> {
        let columns = match constraint {
            JoinConstraint::Using(list) => list
                .iter()
                .map(|name| Ok(names::Qualified::new(name)?.name))
                .collect::<Result<Vec<_>>>()?,
            JoinConstraint::Natural => common(&left_names, &right_names),
            JoinConstraint::On(_) | JoinConstraint::None => Vec::new(),
        };
        let alias = columns.last().and_then(|last| forms::join_name(last));
        let alias = alias.map(str::to_string);
        let columns = &columns[..columns.len() - usize::from(alias.is_some())];
        let sides = [registers_of(&left_names), registers_of(&right_names)];
        let mut both = Names::default();
        let mut on = Vec::new();
        for name in columns {
            let both_sides = left_names.columns.iter().chain(&right_names.columns);
            for c in both_sides.filter(|c| !c.merged && c.name == *name) {
                self.note_used(c.origin);
            }
            let (l, r) = (
                one_of(&left_names, name, "left")?,
                one_of(&right_names, name, "right")?,
            );
            let clause = Clause::new(self, scope, known, "JOIN/USING");
            let binder = clause.binder();
            let equal = binder.compare(CmpOp::Eq, l.clone(), r.clone())?;
            on.push(equal.expr);
            both.columns.push(Column {
                table: String::new(),
                name: name.clone(),
                value: self.merged(kind, flipped, l, r, &clause)?,
                origin: (0, 0),
                merged: false,
                whole: false,
            });
        }
        for side in [left_names, right_names] {
            both.tables.extend(side.tables);
            both.bare.extend(side.bare);
            both.keys.extend(side.keys);
            both.rows.extend(side.rows);
            both.system.extend(side.system);
            both.columns.extend(side.columns.into_iter().map(|mut c| {
                c.merged |= columns.contains(&c.name) && !c.merged;
                c
            }));
        }
        if let Some(alias) = alias {
            name_join(&alias, columns.len(), &mut both)?;
        }
        if let JoinConstraint::On(e) = constraint {
            let mut inside = scope.beside();
            inside.columns = both.columns.clone();
            inside.tables = both.tables.clone();
            inside.bare = both.bare.clone();
            inside.rows = both.rows.clone();
            inside.system = both.system.clone();
            let clause = Clause::new(self, &inside, known, "JOIN conditions");
            on.extend(crate::plan::path::conjuncts(Some(
                clause.binder().condition(e)?,
            )));
        }
        if kind == JoinKind::Full {
            check_full(&on, &sides)?;
        }
        let (left, right) = match flipped {
            true => (right, left),
            false => (left, right),
        };
        let join = From::Join {
            kind,
            left: Box::new(left),
            right: Box::new(right),
            on,
        };
        Ok((join, both))
    }

    /// What two columns of USING are together.
    fn merged(
        &self,
        kind: JoinKind,
        flipped: bool,
        left: Typed,
        right: Typed,
        clause: &Clause<'_>,
    ) -> Result<Typed> {
        let ty = chosen_type(&[left.ty, right.ty], "JOIN/USING")?;
        let typmod = match left.typmod == right.typmod && left.ty == right.ty {
            true => left.typmod,
            false => -1,
        };
        let collation = left.collation.and(right.collation)?;
        if ty.is_string() {
            collation.agreed()?;
        }
        let binder = clause.binder();
        let side = |t: Typed| binder.coerce(t, ty, -1, CastContext::Implicit);
        let expr = match (kind, flipped) {
            (JoinKind::Full, _) => Expr::Coalesce(vec![side(left)?.expr, side(right)?.expr]),
            (_, true) => side(right)?.expr,
            (_, false) => side(left)?.expr,
        };
        Ok(Typed {
            expr,
            ty,
            typmod,
            collation,
        })
    }

    fn factor(
        &self,
        factor: &TableFactor,
        scope: &Scope<'_>,
        known: &Known<'_>,
        nullable: bool,
    ) -> Result<Item> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                with_hints,
                version: None,
                with_ordinality: false,
                partitions,
                json_path: None,
                sample,
                index_hints,
            } if with_hints.is_empty() && partitions.is_empty() && index_hints.is_empty() => {
                let item = self.table(name, alias.as_ref(), scope, known, nullable)?;
                match sample {
                    None => Ok(item),
                    Some(sample) => self.sampled(sample, item, scope, known),
                }
            }
            TableFactor::Table {
                name,
                alias,
                args: Some(args),
                with_hints,
                version: None,
                with_ordinality,
                partitions,
                json_path: None,
                sample: None,
                index_hints,
            } if with_hints.is_empty()
                && partitions.is_empty()
                && index_hints.is_empty()
                && args.settings.is_none() =>
            {
                let alias = alias.as_ref();
                let item =
                    self.function(name, &args.args, *with_ordinality, alias, scope, known)?;
                Ok(with_row(item, nullable))
            }
            TableFactor::Function {
                name,
                args,
                with_ordinality,
                alias,
                ..
            } => {
                let alias = alias.as_ref();
                let item = self.function(name, args, *with_ordinality, alias, scope, known)?;
                Ok(with_row(item, nullable))
            }
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality,
            } => {
                let arg = |e: &ast::Expr| {
                    ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e.clone()))
                };
                let args: Vec<_> = array_exprs.iter().map(arg).collect();
                let name = ast::ObjectName::from(vec![ast::Ident::new("unnest")]);
                let alias = alias.as_ref();
                self.function(&name, &args, *with_ordinality, alias, scope, known)
            }
            TableFactor::Derived {
                lateral,
                subquery,
                alias,
                sample: None,
            } => self.derived(*lateral, subquery, alias.as_ref(), scope, known, nullable),
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } => {
                let (from, mut names) = self.joined(table_with_joins, scope, known, nullable)?;
                if let Some(alias) = alias {
                    names.columns.retain(|c| !c.merged);
                    names.rows.clear();
                    names.system.clear();
                    rename(&mut names, alias)?;
                }
                Ok((from, names))
            }
            other => Err(Error::unsupported(format!("{other} in FROM"))),
        }
    }

    fn table(
        &self,
        name: &ast::ObjectName,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        known: &Known<'_>,
        nullable: bool,
    ) -> Result<Item> {
        let q = names::Qualified::new(name)?;
        if q.schema.is_none()
            && let Some(found) = known.find(&q.name)
        {
            return self.shared_or_inlined(found, alias, scope, nullable);
        }
        // As the target of a write, a table has its row ids as one more column.
        if q.schema.as_deref() == Some(supply::TARGET_SCHEMA) {
            if let Some(target) = Target::read(&q.name) {
                return self.written(&target, alias, scope, nullable);
            }
            let (number, used) = through::use_in(&q.name);
            let table = number.parse().ok();
            let table = table.and_then(|oid| self.dict.table_by_oid(oid));
            let table = table.ok_or_else(|| Error::internal("the target of a write is gone"))?;
            return self.stored_table(table, Some(used), None, alias, scope);
        }
        if q.schema.as_deref() == Some(SOURCES) {
            let source = self.source(&q.name)?;
            let columns = Some(source.columns.as_slice());
            return match self.dict.view_by_oid(source.oid) {
                Some(view) => self.stored_view(view, None, columns, alias, scope, nullable),
                None => {
                    let table = self.dict.table_by_oid(source.oid);
                    let table = table.ok_or_else(|| {
                        Error::internal(format!("relation {} of a view is gone", source.oid))
                    })?;
                    self.stored_table(table, None, columns, alias, scope)
                }
            };
        }
        match self.dict.relation(&q) {
            Some(dict::Relation::Table(table)) => {
                let columns = table.live_columns();
                let columns = columns.map(|(at, c)| (at as i16 + 1, c.name.clone()));
                let noted = Noted::Stored(table.oid, columns.collect());
                self.note_relation(name, alias, noted)?;
                let (from, mut found) = self.stored_table(&table, None, None, alias, scope)?;
                self.may_stand_beside(&mut found, table.oid, alias);
                return Ok((from, found));
            }
            Some(dict::Relation::View(view)) => {
                let columns = view.columns.iter().enumerate();
                let columns = columns.map(|(at, c)| (at as i16 + 1, c.name.clone()));
                let noted = Noted::Stored(view.oid, columns.collect());
                self.note_relation(name, alias, noted)?;
                let item = self.stored_view(&view, None, None, alias, scope, nullable);
                let (from, mut found) = item?;
                self.may_stand_beside(&mut found, view.oid, alias);
                return Ok((from, found));
            }
            Some(dict::Relation::Sequence(sequence)) => {
                let (from, mut found) = self.sequence(&sequence, name, alias, scope)?;
                found.rows.extend(whole_row(&found, nullable));
                return Ok((from, found));
            }
            _ => {}
        }
        match views::find(q.schema.as_deref(), &q.name) {
            Some(view) => {
                let noted = Noted::System(view.schema, view.name);
                self.note_relation(name, alias, noted)?;
                if let views::Source::Query(text) = view.rows {
                    return self.system_view(view, text, alias, scope, nullable);
                }
                let (from, mut found) = self.view(view, &q.name, alias, scope)?;
                found.rows.extend(whole_row(&found, nullable));
                Ok((from, found))
            }
            None => Err(names::no_relation(&q).at_name(name)),
        }
    }

    /// Notes that a relation has no alias, so that another of its name may stand beside it. Not in
    /// a view, whose text names relations by their aliases.
    fn may_stand_beside(&self, found: &mut Names, oid: u32, alias: Option<&TableAlias>) {
        if alias.is_none() && self.notes.borrow().is_none() {
            found.bare = found.tables.iter().map(|t| (t.clone(), oid)).collect();
        }
    }

    /// A relation on the way from the view that a write names to the relation that is written.
    fn written(
        &self,
        target: &Target<'_>,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        nullable: bool,
    ) -> Result<Item> {
        let source = match target.asked.parse() {
            Ok(oid) => Source {
                oid,
                columns: Vec::new(),
                used: Vec::new(),
            },
            Err(_) => self.source(target.asked)?,
        };
        let columns = Some(source.columns.as_slice()).filter(|c| !c.is_empty());
        if let Some(view) = self.dict.view_by_oid(source.oid) {
            return self.stored_view(view, Some(target), columns, alias, scope, nullable);
        }
        let table = self.dict.table_by_oid(source.oid);
        let table = table.ok_or_else(|| Error::internal("the target of a write is gone"))?;
        self.stored_table(table, Some(target.used), columns, alias, scope)
    }

    /// A table; `columns`, if given, are those that are seen of it, by number, and their names.
    /// `target`: what a write does with its rows, whose ids are one more column.
    fn stored_table(
        &self,
        table: &Arc<Table>,
        target: Option<Use>,
        columns: Option<&[(i16, String)]>,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
    ) -> Result<Item> {
        self.note_table(table, TableLock::AccessShare);
        if target.is_none() {
            let needs = &self.params.needs;
            needs.relation(table.oid, Privileges::SELECT);
        }
        let registers = scope.file.registers(table.columns.len());
        let row_id = scope.file.register();
        let name = &table.name;
        let mut found = Names {
            tables: vec![name.clone()],
            rows: vec![(name.clone(), Expr::Column(row_id))],
            ..Names::default()
        };
        let system = scope.file.registers(SystemColumn::ALL.len());
        for (column, register) in SystemColumn::ALL.into_iter().zip(&system) {
            found.system.push(column.named(name, *register));
        }
        for (at, c) in table.live_columns() {
            let number = at as i16 + 1;
            let shown = match columns.map(|all| all.iter().find(|(n, _)| *n == number)) {
                None => &c.name,
                Some(Some((_, name))) => name,
                // It has come since.
                Some(None) => continue,
            };
            found.columns.push(Column {
                table: name.clone(),
                name: shown.clone(),
                value: Typed {
                    expr: Expr::Column(registers[at]),
                    ty: c.ty(),
                    typmod: c.typmod,
                    collation: c.collation(),
                },
                origin: (table.oid, number),
                merged: false,
                whole: false,
            });
        }
        if target.is_some() {
            found.columns.push(Column {
                table: name.clone(),
                name: supply::ROW_ID.to_string(),
                value: Typed::new(Expr::Column(row_id), SqlType::Int8),
                origin: (0, 0),
                merged: false,
                whole: false,
            });
        }
        if let Some(key) = table.primary_key().filter(|key| key.is_unique_now()) {
            let key = key.keys.iter().map(|k| registers[k.column]).collect();
            found.keys.push((key, registers.clone()));
        }
        if let Some(alias) = alias {
            rename(&mut found, alias)?;
        }
        let at = Registers {
            columns: &registers,
            row_id,
        };
        let security = self.security(table, at, target.unwrap_or(Use::READ), scope)?;
        let relation = Relation {
            alias: found.tables[0].clone(),
            registers: (registers.iter().chain(&system).copied())
                .chain([row_id])
                .collect(),
            kind: RelationKind::Table {
                table: table.clone(),
                columns: registers,
                system,
                row_id: Some(row_id),
                sample: None,
                security: Box::new(security),
            },
        };
        Ok((From::Relation(relation), found))
    }

    pub(super) fn view(
        &self,
        view: &'static views::VirtualTable,
        name: &str,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
    ) -> Result<Item> {
        let registers = scope.file.registers(view.columns.len());
        let columns = view.columns.iter().zip(&registers);
        let columns = columns.map(|((column, ty), register)| Column {
            table: name.to_string(),
            name: column.to_string(),
            value: Typed::new(Expr::Column(*register), *ty),
            origin: (0, 0),
            merged: false,
            whole: false,
        });
        let (tableoid, xmin) = (scope.file.register(), scope.file.register());
        let mut found = Names {
            columns: columns.collect(),
            tables: vec![name.to_string()],
            system: vec![
                SystemColumn::TableOid.named(name, tableoid),
                SystemColumn::Xmin.named(name, xmin),
            ],
            ..Names::default()
        };
        if let Some(alias) = alias {
            rename(&mut found, alias)?;
        }
        let relation = Relation {
            alias: found.tables[0].clone(),
            registers: registers.iter().copied().chain([tableoid, xmin]).collect(),
            kind: RelationKind::View {
                view,
                of: None,
                columns: registers,
                tableoid,
                xmin,
            },
        };
        Ok((From::Relation(relation), found))
    }

    fn derived(
        &self,
        lateral: bool,
        q: &ast::Query,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        known: &Known<'_>,
        nullable: bool,
    ) -> Result<Item> {
        // A subquery that is no list of VALUES got an alias when it was read.
        let Some(alias) = alias else {
            return Err(Error::new("42601", "VALUES in FROM must have an alias")
                .hint("For example, FROM (VALUES ...) [AS] foo."));
        };
        let outside = scope.beside();
        let around = match lateral {
            true => scope,
            false => &outside,
        };
        let mut level = self.query(q, around, known)?;
        self.settle(&mut level)?;
        self.level_in_from(level, (Some(alias), false), scope, nullable)
    }

    /// A subquery as an item of FROM: part of the level around it, if it only joins and filters,
    /// and is no barrier to the conditions there.
    pub fn level_in_from(
        &self,
        mut level: super::tree::Level,
        (alias, barrier): (Option<&TableAlias>, bool),
        scope: &Scope<'_>,
        nullable: bool,
    ) -> Result<Item> {
        let mut computed = Vec::new();
        let mut found = Names::default();
        let plain = is_plain(&level) && !barrier;
        let mut own = HashSet::new();
        crate::query::optimize::uses::all_set_in(&level, &mut own);
        let mut taken = HashSet::new();
        for output in level.outputs.clone() {
            let mut value = output.value;
            // A column of an outer level, or a constant, is none of those that an outer join makes
            // NULL, nor one of a grouping set.
            let stays = match value.expr {
                Expr::Column(r) => own.contains(&r) && (!scope.apart || taken.insert(r)),
                ref e => plain && !nullable && !scope.apart && has_columns(e) && !is_costly(e),
            };
            if !stays {
                let register = scope.file.register();
                let e = std::mem::replace(&mut value.expr, Expr::Column(register));
                computed.push((register, e));
            }
            found.columns.push(Column {
                table: String::new(),
                name: output.name,
                value,
                origin: output.origin,
                merged: false,
                whole: false,
            });
        }
        found.tables.push(String::new());
        if let Some(alias) = alias {
            rename(&mut found, alias)?;
        }
        if plain
            && computed.is_empty()
            && let super::tree::Body::Select(select) = &mut level.body
            && !select.from.is_empty()
        {
            let select = std::mem::take(select);
            let there = select.from.iter().find_map(row_id_of);
            let there = there.map(|r| (found.tables[0].clone(), Expr::Column(r)));
            found
                .rows
                .extend(there.or_else(|| whole_row(&found, nullable)));
            let merged = From::Merged {
                alias: found.tables[0].clone(),
                items: select.from,
                conditions: select.conditions,
                of_with: false,
            };
            return Ok((merged, found));
        }
        let there = whole_row(&found, nullable).unwrap_or_else(|| {
            let register = scope.file.register();
            computed.push((register, Expr::Const(THERE)));
            (found.tables[0].clone(), Expr::Column(register))
        });
        found.rows.push(there);
        let mut registers: Vec<_> = computed.iter().map(|(r, _)| *r).collect();
        // What an expression that stays reads must last as long as a column does.
        for column in &found.columns {
            column.value.expr.visit(&mut |e| {
                if let Expr::Column(r) = e
                    && own.contains(r)
                    && !registers.contains(r)
                {
                    registers.push(*r);
                }
            });
        }
        let relation = Relation {
            alias: found.tables[0].clone(),
            registers,
            kind: RelationKind::Level {
                level: Box::new(level),
                computed,
                of_with: false,
            },
        };
        Ok((From::Relation(relation), found))
    }
}

/// Gives an item its alias, and its columns theirs.
pub fn rename(found: &mut Names, alias: &TableAlias) -> Result<()> {
    if alias.at.is_some() {
        return Err(Error::unsupported("AT in an alias"));
    }
    let name = names::ident(&alias.name);
    if alias.columns.len() > found.columns.len() {
        return Err(Error::new(
            "42P10",
            format!(
                "table \"{name}\" has {} columns available but {} columns specified",
                found.columns.len(),
                alias.columns.len()
            ),
        ));
    }
    for (column, given) in found.columns.iter_mut().zip(&alias.columns) {
        if given.data_type.is_some() {
            let message =
                "a column definition list is only allowed for functions returning \"record\"";
            return Err(Error::new("42601", message).placed(Place::of_span(given.name.span)));
        }
        column.name = names::ident(&given.name);
    }
    for column in &mut found.columns {
        column.table = name.clone();
    }
    for (table, _) in &mut found.rows {
        table.clone_from(&name);
    }
    for column in &mut found.system {
        column.table.clone_from(&name);
    }
    found.tables = vec![name];
    found.bare.clear();
    Ok(())
}

/// Whether a level only joins and filters, so that it can be part of the one around it.
fn is_plain(level: &super::tree::Level) -> bool {
    let super::tree::Body::Select(select) = &level.body else {
        return false;
    };
    select.group.is_none()
        && select.having.is_none()
        && select.windows.is_empty()
        && select.columns.is_empty()
        && select.series.is_empty()
        && select.distinct.is_none()
        && level.order.is_empty()
        && level.limit.is_none()
        && level.offset.is_none()
        && level.locks.is_empty()
        && level.shared.is_empty()
}

fn has_columns(e: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |e| found |= matches!(e, Expr::Column(_)));
    found
}

/// Whether an expression is better computed once than wherever its name stands.
fn is_costly(e: &Expr) -> bool {
    let mut parts = 0;
    let mut subquery = false;
    e.visit(&mut |e| {
        parts += 1;
        subquery |= matches!(e, Expr::Subquery { .. });
    });
    e.is_volatile() || subquery || parts > 8
}

/// The rows of a function that has several columns can be named whole, unless an outer join may
/// lack them.
fn with_row((from, mut found): Item, nullable: bool) -> Item {
    if found.rows.is_empty() && !found.columns.iter().any(|c| c.whole) {
        found.rows.extend(whole_row(&found, nullable));
    }
    (from, found)
}
