//! Names of variables, level by level, and what a piece of SQL sees of them.

use std::cell::RefCell;
use std::sync::Arc;

use plpgsql::Conflict;

use super::value::{Field, Input, Shape, Slot};
use crate::bind::sight::{Variable, Variables};
use crate::error::{Error, Result};
use crate::types::SqlType;
use crate::types::composite::CompositeType;

/// The names of a block or loop.
#[derive(Clone, Debug, Default)]
pub struct Level<'b> {
    pub label: Option<&'b str>,
    pub names: Vec<(&'b str, usize)>,
}

/// What a slot is, as far as plans must know it.
#[derive(Clone, Debug)]
pub enum Kind {
    Scalar { ty: SqlType, typmod: i32 },
    Record(Option<Arc<Shape>>),
}

impl Kind {
    pub fn of(slot: &Slot) -> Kind {
        match slot {
            Slot::Scalar(s) => Kind::Scalar {
                ty: s.ty,
                typmod: s.typmod,
            },
            Slot::Record(r) => Kind::Record(r.shape.clone()),
        }
    }

    pub fn is_still(&self, slot: &Slot) -> bool {
        match (self, slot) {
            (Kind::Scalar { ty, .. }, Slot::Scalar(s)) => *ty == s.ty,
            (Kind::Record(Some(shape)), Slot::Record(r)) => r
                .shape
                .as_ref()
                .is_some_and(|now| super::value::same(shape, now)),
            (Kind::Record(None), Slot::Record(r)) => r.shape.is_none(),
            _ => false,
        }
    }
}

/// Where a name leads.
pub enum Found<'p> {
    Slot(usize),
    /// A field, by its name, of a record.
    Field(usize, &'p str),
}

/// Looks a name up, the innermost level first.
pub fn find<'p>(
    levels: &[Level<'_>],
    is_record: &dyn Fn(usize) -> bool,
    path: &'p [String],
) -> Option<Found<'p>> {
    for level in levels.iter().rev() {
        let own = |name: &str| {
            let mut names = level.names.iter().rev();
            names.find(|(n, _)| *n == name).map(|(_, slot)| *slot)
        };
        let labelled = |label: &str| level.label == Some(label);
        match path {
            [name] => {
                if let Some(slot) = own(name) {
                    return Some(Found::Slot(slot));
                }
            }
            [first, second] => {
                if let Some(slot) = own(first).filter(|slot| is_record(*slot)) {
                    return Some(Found::Field(slot, second));
                }
                if labelled(first)
                    && let Some(slot) = own(second)
                {
                    return Some(Found::Slot(slot));
                }
            }
            [label, record, field] => {
                if labelled(label)
                    && let Some(slot) = own(record).filter(|slot| is_record(*slot))
                {
                    return Some(Found::Field(slot, field));
                }
            }
            _ => return None,
        }
    }
    None
}

/// A level with names of its own.
#[derive(Debug)]
struct KeptLevel {
    label: Option<String>,
    names: Vec<(String, usize)>,
}

/// What a piece sees, kept while it is planned, and what it has been found to take.
#[derive(Debug)]
pub struct Seen {
    levels: Vec<KeptLevel>,
    kinds: Vec<Kind>,
    inputs: RefCell<Vec<Input>>,
    conflict: Conflict,
}

impl Seen {
    pub fn new(levels: &[Level<'_>], slots: &[Slot], conflict: Conflict) -> Seen {
        let level = |l: &Level<'_>| {
            let names = l.names.iter().map(|(n, slot)| (n.to_string(), *slot));
            KeptLevel {
                label: l.label.map(str::to_string),
                names: names.collect(),
            }
        };
        Seen {
            levels: levels.iter().map(level).collect(),
            kinds: slots.iter().map(Kind::of).collect(),
            inputs: RefCell::default(),
            conflict,
        }
    }

    pub fn inputs(&self) -> Vec<Input> {
        self.inputs.borrow().clone()
    }

    /// The slots that the plan rests on, with what they are.
    pub fn assumed(&self) -> Vec<(usize, Kind)> {
        let mut slots: Vec<usize> = self.inputs.borrow().iter().map(|i| i.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        let each = slots.into_iter();
        each.map(|slot| (slot, self.kinds[slot].clone())).collect()
    }

    fn number(&self, input: Input) -> usize {
        let mut inputs = self.inputs.borrow_mut();
        match inputs.iter().position(|known| *known == input) {
            Some(at) => at,
            None => {
                inputs.push(input);
                inputs.len() - 1
            }
        }
    }
}

impl Variables for Seen {
    fn find(&self, path: &[String]) -> Result<Option<Variable>> {
        let levels: Vec<Level<'_>> = self
            .levels
            .iter()
            .map(|kept| Level {
                label: kept.label.as_deref(),
                names: kept.names.iter().map(|(n, s)| (n.as_str(), *s)).collect(),
            })
            .collect();
        let is_record = |slot: usize| matches!(self.kinds[slot], Kind::Record(_));
        let variable = |input: Input, ty, typmod| {
            Ok(Some(Variable {
                number: self.number(input),
                ty,
                typmod,
            }))
        };
        match find(&levels, &is_record, path) {
            None => Ok(None),
            Some(Found::Slot(slot)) => match &self.kinds[slot] {
                Kind::Scalar { ty, typmod } => {
                    variable(Input { slot, field: None }, ty.base(), *typmod)
                }
                Kind::Record(Some(shape)) => {
                    let ty = SqlType::Composite(shape.row_type());
                    variable(Input { slot, field: None }, ty, -1)
                }
                // One that was given no row yet is NULL as a whole.
                Kind::Record(None) => {
                    let ty = SqlType::Composite(CompositeType::any());
                    variable(Input { slot, field: None }, ty, -1)
                }
            },
            Some(Found::Field(slot, name)) => {
                let record = &path[path.len() - 2];
                let (at, field) = self.field(slot, record, name)?;
                let input = Input {
                    slot,
                    field: Some(at),
                };
                variable(input, field.ty.base(), field.typmod)
            }
        }
    }

    fn conflict(&self) -> Conflict {
        self.conflict
    }
}

impl Seen {
    fn field(&self, slot: usize, record: &str, name: &str) -> Result<(usize, &Field)> {
        let Kind::Record(Some(shape)) = &self.kinds[slot] else {
            return Err(not_assigned(record));
        };
        let missing = || no_field(record, name);
        let at = shape.field(name).ok_or_else(missing)?;
        Ok((at, &shape.fields[at]))
    }
}

fn not_assigned(record: &str) -> Error {
    let message = format!("record \"{record}\" is not assigned yet");
    Error::new("55000", message)
        .detail("The tuple structure of a not-yet-assigned record is indeterminate.")
}

pub fn no_field(record: &str, name: &str) -> Error {
    Error::new(
        "42703",
        format!("record \"{record}\" has no field \"{name}\""),
    )
}
