//! Statements that decide what runs next.

use ::block::array::{ArrayRef, Dimension};
use ::block::value::Datum;
use plpgsql::tree::{RowsOf, Sql, Statement, Target, What};

use super::block::{At, Interpreter};
use super::seen::Level;
use super::value::{Scalar, Slot};
use crate::error::{Error, Result};
use crate::exec::sort::Spool;
use crate::pgtype::array;
use crate::types::{Element, SqlType};

/// What comes after a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow<'b> {
    Next,
    Exit(Option<&'b str>),
    Continue(Option<&'b str>),
    Return,
}

/// The ends of a loop over integers, how it goes from one to the next, and which way.
struct Range {
    from: i32,
    to: i32,
    step: i32,
    reverse: bool,
}

impl<'b> Interpreter<'b, '_> {
    pub fn statements(&mut self, list: &'b [Statement]) -> Result<Flow<'b>> {
        for statement in list {
            let outer = self.at;
            self.at = At {
                line: Some(statement.line),
                what: statement.what.called(),
            };
            let flow = self.statement(&statement.what)?;
            self.at = outer;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, what: &'b What) -> Result<Flow<'b>> {
        match what {
            What::Block(block) => return self.block(block),
            What::If {
                branches,
                otherwise,
            } => {
                for (condition, body) in branches {
                    if self.holds(condition)? {
                        return self.statements(body);
                    }
                }
                return self.statements(otherwise);
            }
            What::Case {
                subject,
                branches,
                otherwise,
            } => return self.case(subject.as_ref(), branches, otherwise.as_deref()),
            What::Loop { label, body } => loop {
                self.look_up()?;
                let flow = self.statements(body)?;
                if let Some(flow) = ends_loop(flow, label.as_deref()) {
                    return Ok(flow);
                }
            },
            What::While {
                label,
                condition,
                body,
            } => {
                while self.holds(condition)? {
                    self.look_up()?;
                    let flow = self.statements(body)?;
                    if let Some(flow) = ends_loop(flow, label.as_deref()) {
                        return Ok(flow);
                    }
                }
            }
            What::ForRange {
                label,
                variable,
                reverse,
                from,
                to,
                step,
                body,
            } => {
                let range = self.range(from, to, step.as_ref(), *reverse)?;
                return self.for_range(label.as_deref(), variable, &range, body);
            }
            What::ForRows {
                label,
                targets,
                rows,
                body,
            } => return self.for_rows(label.as_deref(), targets, rows, body),
            What::ForCursor {
                label,
                variable,
                cursor,
                arguments,
                body,
            } => {
                let of = (variable.as_str(), cursor.as_slice(), arguments.as_slice());
                return self.for_cursor(label.as_deref(), of, body);
            }
            What::Open { cursor, what } => self.open(cursor, what)?,
            What::Fetch {
                cursor,
                direction,
                into,
            } => self.fetch(cursor, direction, into)?,
            What::Move { cursor, direction } => self.move_cursor(cursor, direction)?,
            What::Close(cursor) => self.close(cursor)?,
            What::ForEach {
                label,
                targets,
                slice,
                array,
                body,
            } => return self.for_each(label.as_deref(), targets, *slice, array, body),
            What::Exit {
                goes_on,
                label,
                when,
            } => {
                if let Some(when) = when
                    && !self.holds(when)?
                {
                    return Ok(Flow::Next);
                }
                let label = label.as_deref();
                return Ok(match goes_on {
                    true => Flow::Continue(label),
                    false => Flow::Exit(label),
                });
            }
            What::Return(value) => return self.a_return(value.as_ref()),
            What::ReturnNext(value) => self.return_next(value.as_ref())?,
            What::ReturnQuery(rows) => self.return_query(rows)?,
            other => self.simple(other)?,
        }
        Ok(Flow::Next)
    }

    /// Whether the statement is to end.
    pub fn look_up(&self) -> Result<()> {
        wait::check_cancel().map_err(|_| crate::session::cancelled())
    }

    fn case(
        &mut self,
        subject: Option<&'b (Sql, String)>,
        branches: &'b [(Sql, Vec<Statement>)],
        otherwise: Option<&'b [Statement]>,
    ) -> Result<Flow<'b>> {
        let (slots, levels) = (self.slots.len(), self.levels.len());
        if let Some((subject, name)) = subject {
            let (value, ty) = self.typed_value(subject)?;
            let names = vec![(name.as_str(), self.slots.len())];
            self.slots.push(Slot::Scalar(Scalar::new(ty, -1, value)));
            self.levels.push(Level { label: None, names });
        }
        let mut chosen = None;
        for (condition, body) in branches {
            if self.holds(condition)? {
                chosen = Some(body.as_slice());
                break;
            }
        }
        self.slots.truncate(slots);
        self.levels.truncate(levels);
        match chosen.or(otherwise) {
            Some(body) => self.statements(body),
            None => {
                Err(Error::new("20000", "case not found")
                    .hint("CASE statement is missing ELSE part."))
            }
        }
    }

    fn range(&mut self, from: &Sql, to: &Sql, step: Option<&Sql>, reverse: bool) -> Result<Range> {
        let mut bound = |sql: &Sql, what: &str| match self.value(sql, (SqlType::Int4, -1))? {
            Datum::Int4(n) => Ok(n),
            _ => Err(Error::new(
                "22004",
                format!("{what} of FOR loop cannot be null"),
            )),
        };
        let (from, to) = (bound(from, "lower bound")?, bound(to, "upper bound")?);
        let step = match step {
            Some(step) => bound(step, "BY value")?,
            None => 1,
        };
        match step {
            ..=0 => Err(Error::new(
                "22023",
                "BY value of FOR loop must be greater than zero",
            )),
            _ => Ok(Range {
                from,
                to,
                step,
                reverse,
            }),
        }
    }

    fn for_range(
        &mut self,
        label: Option<&'b str>,
        variable: &'b str,
        range: &Range,
        body: &'b [Statement],
    ) -> Result<Flow<'b>> {
        let (slot, levels) = (self.slots.len(), self.levels.len());
        self.slots
            .push(Slot::Scalar(Scalar::new(SqlType::Int4, -1, Datum::Null)));
        self.levels.push(Level {
            label,
            names: vec![(variable, slot)],
        });
        let (mut now, mut found, mut after) = (range.from, false, Flow::Next);
        while if range.reverse {
            now >= range.to
        } else {
            now <= range.to
        } {
            self.look_up()?;
            found = true;
            if let Slot::Scalar(s) = &mut self.slots[slot] {
                s.value = Datum::Int4(now);
            }
            let flow = self.statements(body)?;
            if let Some(flow) = ends_loop(flow, label) {
                after = flow;
                break;
            }
            let next = match range.reverse {
                true => now.checked_sub(range.step),
                false => now.checked_add(range.step),
            };
            match next {
                Some(next) => now = next,
                None => break,
            }
        }
        self.slots.truncate(slot);
        self.levels.truncate(levels);
        self.set_found(found);
        Ok(after)
    }

    /// The names of a loop, which has a label but no variables of its own.
    fn label_level(&mut self, label: Option<&'b str>) {
        self.levels.push(Level {
            label,
            names: Vec::new(),
        });
    }

    fn for_rows(
        &mut self,
        label: Option<&'b str>,
        targets: &'b [Target],
        rows: &'b RowsOf,
        body: &'b [Statement],
    ) -> Result<Flow<'b>> {
        let levels = self.levels.len();
        self.label_level(label);
        let mut kept = Spool::new(self.core);
        let shape = self.query_rows(rows, &mut kept)?;
        let mut rows = kept.finish()?;
        let (mut found, mut after) = (false, Flow::Next);
        while let Some(row) = rows.next_row()? {
            self.look_up()?;
            found = true;
            self.assign_row(targets, &shape, Some(row))?;
            let flow = self.statements(body)?;
            if let Some(flow) = ends_loop(flow, label) {
                after = flow;
                break;
            }
        }
        if !found {
            self.assign_row(targets, &shape, None)?;
        }
        self.levels.truncate(levels);
        self.set_found(found);
        Ok(after)
    }

    fn for_each(
        &mut self,
        label: Option<&'b str>,
        targets: &'b [Target],
        slice: u32,
        array: &'b Sql,
        body: &'b [Statement],
    ) -> Result<Flow<'b>> {
        let (value, ty) = self.typed_value(array)?;
        let array = match value {
            Datum::Null => {
                let message = "FOREACH expression must not be null";
                return Err(Error::new("22004", message));
            }
            Datum::Array(array) => array,
            _ => {
                let message = format!(
                    "FOREACH expression must yield an array, not type {}",
                    ty.name()
                );
                return Err(Error::new("42804", message));
            }
        };
        let [target] = targets else {
            return Err(Error::unsupported("FOREACH with several variables"));
        };
        let of_array = self
            .target_type(target)?
            .is_some_and(|(ty, _)| ty.element().is_some());
        let element = ty.element().unwrap_or(SqlType::Text);
        let (parts, ty) = match slice {
            0 if of_array && element.element().is_none() => {
                let message = "FOREACH loop variable must not be of an array type";
                return Err(Error::new("42804", message));
            }
            0 => {
                let values = array.borrow().values();
                (values.map(|v| v.to_datum()).collect::<Vec<_>>(), element)
            }
            _ if !of_array => {
                let message = "FOREACH ... SLICE loop variable must be of an array type";
                return Err(Error::new("42804", message));
            }
            _ => (slices(array.borrow(), ty, slice)?, ty),
        };
        let levels = self.levels.len();
        self.label_level(label);
        let (mut found, mut after) = (false, Flow::Next);
        for value in parts {
            self.look_up()?;
            found = true;
            self.assign(target, value, ty)?;
            let flow = self.statements(body)?;
            if let Some(flow) = ends_loop(flow, label) {
                after = flow;
                break;
            }
        }
        self.levels.truncate(levels);
        self.set_found(found);
        Ok(after)
    }
}

/// The parts of an array that have its last dimensions, so many of them.
fn slices(array: ArrayRef<'_>, ty: SqlType, slice: u32) -> Result<Vec<Datum>> {
    let dimensions: Vec<Dimension> = array.dimensions().collect();
    let kept = slice as usize;
    if kept > dimensions.len() {
        let message = format!(
            "slice dimension ({slice}) is out of the valid range 0..{}",
            dimensions.len()
        );
        return Err(Error::new("2202E", message));
    }
    let missing = || Error::internal("slices of what is no array");
    let element = ty.element().and_then(Element::of).ok_or_else(missing)?;
    let inner = &dimensions[dimensions.len() - kept..];
    let size: usize = inner.iter().map(|d| d.length as usize).product();
    let values: Vec<Datum> = array.values().map(|v| v.to_datum()).collect();
    let part = |values: &[Datum]| array::make(element, inner, values).map(Datum::Array);
    values.chunks(size.max(1)).map(part).collect()
}

/// What comes after a loop once its body has come to this; `None`: the loop goes on.
pub fn ends_loop<'b>(flow: Flow<'b>, label: Option<&str>) -> Option<Flow<'b>> {
    match flow {
        Flow::Next | Flow::Continue(None) => None,
        Flow::Exit(None) => Some(Flow::Next),
        Flow::Exit(Some(to)) if label == Some(to) => Some(Flow::Next),
        Flow::Continue(Some(to)) if label == Some(to) => None,
        other => Some(other),
    }
}
