//! Cursors in a body: their variables, OPEN, FETCH, MOVE, CLOSE, and loops over them.
//!
//! A cursor's variable holds the name of a cursor of the session ([`crate::session`]).
//!
//! **Invariant.** The query that a cursor was declared with sees what was in sight at the
//! declaration, wherever it is opened. Its arguments have slots beside the variable's.

use std::sync::Arc;

use ::block::value::Datum;
use plpgsql::tree::{BoundCursor, Direction as Way, Opened, RowsOf, Sql, Statement, Target};

use super::block::Interpreter;
use super::control::{Flow, ends_loop};
use super::oracle::Asked;
use super::piece::{As, How, plan_text};
use super::seen::{Found, Level};
use super::value::{Record, Scalar, Shape, Slot};
use crate::error::{Error, Result};
use crate::exec::sort::Rows;
use crate::parse::cursor::Direction;
use crate::session::{Nested, ToOpen};
use crate::types::SqlType;

/// A cursor with its query.
#[derive(Clone, Copy)]
pub struct Bound<'b> {
    pub slot: usize,
    /// The slot of its first argument; the others follow.
    arguments: usize,
    /// The levels of names that its query sees, and the names of the last of these.
    levels: usize,
    names: usize,
    cursor: &'b BoundCursor,
}

/// Arguments, perhaps with their names.
type Arguments = [(Option<String>, Sql)];

fn wrong(message: String) -> Error {
    Error::new("42601", message)
}

impl<'b> Interpreter<'b, '_> {
    pub fn declare_cursor(&mut self, name: &'b str, cursor: &'b BoundCursor) -> Result<()> {
        let slot = self.slots.len();
        let own = Scalar::new(SqlType::Refcursor, -1, Datum::Text(name.to_string()));
        self.slots.push(Slot::Scalar(own));
        for (_, ty) in &cursor.arguments {
            let made = self.slot_of(ty)?;
            self.slots.push(made);
        }
        let names = self.levels.last().map_or(0, |level| level.names.len());
        self.cursors.push(Bound {
            slot,
            arguments: slot + 1,
            levels: self.levels.len(),
            names,
            cursor,
        });
        if let Some(level) = self.levels.last_mut() {
            level.names.push((name, slot));
        }
        Ok(())
    }

    /// The slot of a cursor's variable.
    fn cursor_slot(&self, path: &[String]) -> Result<usize> {
        let name = path.join(".");
        let Some(Found::Slot(slot)) = self.find(path) else {
            return Err(wrong(format!("\"{name}\" is not a known variable")));
        };
        match &self.slots[slot] {
            Slot::Scalar(s) if s.ty == SqlType::Refcursor => Ok(slot),
            _ => {
                let message = "variable \"{}\" must be of type cursor or refcursor";
                Err(Error::new("42804", message.replace("{}", &name)))
            }
        }
    }

    fn name_in(&self, slot: usize) -> Option<String> {
        match &self.slots[slot] {
            Slot::Scalar(s) => match &s.value {
                Datum::Text(name) => Some(name.clone()),
                _ => None,
            },
            Slot::Record(_) => None,
        }
    }

    /// The name that a cursor's variable holds.
    fn cursor_name(&self, path: &[String]) -> Result<String> {
        let slot = self.cursor_slot(path)?;
        self.name_in(slot).ok_or_else(|| {
            let message = format!("cursor variable \"{}\" is null", path.join("."));
            Error::new("22004", message)
        })
    }

    /// Opens a cursor by the name that its variable holds, or by one that the variable gets.
    fn open_by_name(&mut self, slot: usize, called: &str, cursor: ToOpen) -> Result<String> {
        self.core.check_cursor(&cursor)?;
        let name = match self.name_in(slot) {
            Some(name) => name,
            None if matches!(&self.slots[slot], Slot::Scalar(s) if s.constant) => {
                let message = format!("variable \"{called}\" is declared CONSTANT");
                return Err(Error::new("22005", message));
            }
            None => self.core.cursors.new_name(),
        };
        self.core.open_for_body(&name, cursor)?;
        if let Slot::Scalar(s) = &mut self.slots[slot] {
            s.value = Datum::Text(name.clone());
        }
        Ok(name)
    }

    pub fn open(&mut self, target: &'b Target, what: &'b Opened) -> Result<()> {
        let slot = self.cursor_slot(&target.path)?;
        let cursor = match what {
            Opened::Bound(arguments) => {
                let bound = self
                    .cursors
                    .iter()
                    .find(|bound| bound.slot == slot)
                    .copied();
                let bound = bound.ok_or_else(|| {
                    let name = target.path.join(".");
                    wrong(format!("cursor \"{name}\" has no query: OPEN it with FOR"))
                })?;
                self.bound_query(bound, &target.path, arguments)?
            }
            Opened::Rows { scroll, rows } => {
                let (nested, params) = self.query_of(rows)?;
                ToOpen {
                    nested,
                    params,
                    scroll: *scroll,
                }
            }
        };
        self.open_by_name(slot, &target.path.join("."), cursor)?;
        self.tell_cursor(&target.path, Asked::OPENED);
        Ok(())
    }

    fn query_of(&mut self, rows: &RowsOf) -> Result<(Arc<Nested>, Vec<Datum>)> {
        match rows {
            RowsOf::Query(sql) => {
                let planned = self.planned(sql, As::Statement, None)?;
                let params = self.inputs(&planned)?;
                match &planned.what {
                    How::Statement(nested) => Ok((nested.clone(), params)),
                    How::Value(_) => Err(Error::internal("a query that is an expression")),
                }
            }
            RowsOf::Text { text, using } => {
                let (nested, params) = self.dynamic(text, using)?;
                Ok((Arc::new(nested), params))
            }
        }
    }

    /// The query of a cursor that was declared with it, with these arguments.
    fn bound_query(
        &mut self,
        bound: Bound<'b>,
        path: &[String],
        arguments: &Arguments,
    ) -> Result<ToOpen> {
        self.set_arguments(bound, &path.join("."), arguments)?;
        let query = &bound.cursor.query;
        let mut levels = self.levels[..bound.levels].to_vec();
        if let Some(last) = levels.last_mut() {
            last.names.truncate(bound.names);
        }
        let names = bound.cursor.arguments.iter().enumerate();
        let names = names.map(|(at, (name, _))| (name.as_str(), bound.arguments + at));
        levels.push(Level {
            label: None,
            names: names.collect(),
        });
        let known = self.code.plans[query.id].load_full();
        let planned = match known {
            Some(known) if self.fits(&known)? => known,
            _ => {
                let sight = (&levels[..], &self.slots[..], self.conflict);
                let made = plan_text(self.core, sight, &query.text, As::Statement, None)?;
                let made = Arc::new(made);
                self.code.plans[query.id].store(Some(made.clone()));
                made
            }
        };
        let params = self.inputs(&planned)?;
        let How::Statement(nested) = &planned.what else {
            return Err(Error::internal("a query that is an expression"));
        };
        Ok(ToOpen {
            nested: nested.clone(),
            params,
            scroll: bound.cursor.scroll,
        })
    }

    fn set_arguments(&mut self, bound: Bound<'b>, called: &str, given: &Arguments) -> Result<()> {
        let declared = &bound.cursor.arguments;
        match (declared.is_empty(), given.is_empty()) {
            (true, false) => {
                return Err(wrong(format!("cursor \"{called}\" has no arguments")));
            }
            (false, true) => return Err(wrong(format!("cursor \"{called}\" has arguments"))),
            _ => {}
        }
        let mut values: Vec<Option<Datum>> = vec![None; declared.len()];
        for (place, (name, sql)) in given.iter().enumerate() {
            let at = match name {
                None => place,
                Some(name) => {
                    let at = declared.iter().position(|(n, _)| n == name);
                    at.ok_or_else(|| {
                        wrong(format!(
                            "cursor \"{called}\" has no argument named \"{name}\""
                        ))
                    })?
                }
            };
            let slot = bound.arguments + at;
            let Some(to) = values.get(at) else {
                return Err(wrong(format!("too many arguments for cursor \"{called}\"")));
            };
            if to.is_some() {
                let name = &declared[at].0;
                return Err(wrong(format!(
                    "value for parameter \"{name}\" of cursor \"{called}\" is specified more than \
                     once"
                )));
            }
            let ty = match &self.slots[slot] {
                Slot::Scalar(s) => (s.ty, s.typmod),
                Slot::Record(_) => {
                    return Err(Error::unsupported("a cursor's argument that is a row"));
                }
            };
            values[at] = Some(self.value(sql, ty)?);
        }
        for (at, value) in values.into_iter().enumerate() {
            let value = value
                .ok_or_else(|| wrong(format!("not enough arguments for cursor \"{called}\"")))?;
            if let Slot::Scalar(s) = &mut self.slots[bound.arguments + at] {
                s.value = value;
            }
        }
        Ok(())
    }

    fn direction(&mut self, way: &Way) -> Result<Direction> {
        let mut number = |sql: &Sql| match self.value(sql, (SqlType::Int8, -1))? {
            Datum::Int8(n) => Ok(n),
            _ => Err(Error::new(
                "22004",
                "relative or absolute cursor position is null",
            )),
        };
        let steps =
            |n: i64, there: fn(Option<u64>) -> Direction, back: fn(Option<u64>) -> Direction| {
                let direction = if n < 0 { back } else { there };
                direction(Some(n.unsigned_abs()))
            };
        Ok(match way {
            Way::Next => Direction::Forward(Some(1)),
            Way::Prior => Direction::Backward(Some(1)),
            Way::First => Direction::Absolute(1),
            Way::Last => Direction::Absolute(-1),
            Way::Absolute(n) => Direction::Absolute(number(n)?),
            Way::Relative(n) => Direction::Relative(number(n)?),
            Way::Forward(None) => Direction::Forward(None),
            Way::Backward(None) => Direction::Backward(None),
            Way::Forward(Some(n)) => steps(number(n)?, Direction::Forward, Direction::Backward),
            Way::Backward(Some(n)) => steps(number(n)?, Direction::Backward, Direction::Forward),
        })
    }

    pub fn fetch(
        &mut self,
        cursor: &[String],
        way: &Way,
        into: &plpgsql::tree::Into,
    ) -> Result<()> {
        let name = self.cursor_name(cursor)?;
        let direction = self.direction(way)?;
        let (shape, mut rows) = self.fetched(&name, direction)?;
        let row = rows.next_row()?;
        self.row_count = u64::from(row.is_some());
        let found = row.is_some();
        self.assign_row(&into.targets, &shape, row)?;
        self.set_found(found);
        self.tell_fetched(cursor, found);
        Ok(())
    }

    fn fetched(&mut self, name: &str, direction: Direction) -> Result<(Arc<Shape>, Rows)> {
        let columns = self.core.cursors.columns(name).unwrap_or_default();
        let rows = self.core.fetch_within(name, direction, false)?;
        Ok((Arc::new(Shape::of_columns(&columns)), rows))
    }

    pub fn move_cursor(&mut self, cursor: &[String], way: &Way) -> Result<()> {
        let name = self.cursor_name(cursor)?;
        let direction = self.direction(way)?;
        let passed = self.core.fetch_within(&name, direction, true)?.count();
        self.row_count = passed;
        self.set_found(passed > 0);
        Ok(())
    }

    pub fn close(&mut self, cursor: &[String]) -> Result<()> {
        let name = self.cursor_name(cursor)?;
        self.core.cursors.close(&name)?;
        self.tell_cursor(cursor, Asked::default());
        Ok(())
    }

    /// A loop over the rows of a cursor, which is open while it goes.
    pub fn for_cursor(
        &mut self,
        label: Option<&'b str>,
        (variable, path, arguments): (&'b str, &'b [String], &'b Arguments),
        body: &'b [Statement],
    ) -> Result<Flow<'b>> {
        let slot = self.cursor_slot(path)?;
        let bound = self
            .cursors
            .iter()
            .find(|bound| bound.slot == slot)
            .copied();
        let bound = bound
            .ok_or_else(|| wrong("cursor FOR loop must use a bound cursor variable".to_string()))?;
        let cursor = self.bound_query(bound, path, arguments)?;
        let name = self.open_by_name(slot, &path.join("."), cursor)?;
        self.tell_cursor(path, Asked::OPENED);
        let (row, levels) = (self.slots.len(), self.levels.len());
        self.slots.push(Slot::Record(Record::default()));
        self.levels.push(Level {
            label,
            names: vec![(variable, row)],
        });
        let (mut found, mut after) = (false, Flow::Next);
        loop {
            self.look_up()?;
            let (shape, mut rows) = self.fetched(&name, Direction::Forward(Some(1)))?;
            let Some(values) = rows.next_row()? else {
                break;
            };
            found = true;
            self.tell_fetched(path, true);
            self.assign_record(row, &shape, Some(values))?;
            let flow = self.statements(body)?;
            if let Some(flow) = ends_loop(flow, label) {
                after = flow;
                break;
            }
        }
        self.slots.truncate(row);
        self.levels.truncate(levels);
        // The body may have closed it.
        if self.core.cursors.is_open(&name) {
            self.core.cursors.close(&name)?;
        }
        self.tell_cursor(path, Asked::default());
        self.set_found(found);
        Ok(after)
    }
}
