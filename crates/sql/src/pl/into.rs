//! Variables are given values.

use std::sync::Arc;

use ::block::value::Datum;
use plpgsql::tree::{Sql, Target};

use super::block::Interpreter;
use super::seen::{Found, no_field};
use super::value::{Shape, Slot};
use crate::error::{Error, Result};
use crate::expr::{Val, array_set};
use crate::types::{Element, SqlType};

/// A place that a value goes to.
enum Place {
    Slot(usize),
    Field(usize, usize),
}

/// The fields of a value that is a row; without values: it is NULL.
pub fn taken_apart(value: Datum, ty: SqlType) -> Result<(Arc<Shape>, Option<Vec<Datum>>)> {
    let SqlType::Composite(row) = ty else {
        let message = "cannot assign non-composite value to a record variable";
        return Err(Error::new("42804", message));
    };
    let shape = Shape::of_type(row);
    let shape = shape.ok_or_else(|| Error::unsupported("a record of unknown fields"))?;
    let values = match &value {
        Datum::Composite(row) => Some(row.borrow().values().map(|v| v.to_datum()).collect()),
        _ => None,
    };
    Ok((Arc::new(shape), values))
}

pub fn null_refused(name: &str) -> Error {
    Error::new(
        "22004",
        format!("null value cannot be assigned to variable \"{name}\" declared NOT NULL"),
    )
}

fn element_of(ty: SqlType) -> Result<Element> {
    crate::bind::element_of(ty).ok_or_else(|| match ty {
        SqlType::Jsonb => Error::unsupported("an assignment to a part of a jsonb variable"),
        _ => Error::new(
            "42804",
            format!(
                "cannot subscript type {} because it does not support subscripting",
                ty.name()
            ),
        ),
    })
}

/// The array, and the modifier of its elements, that a declared type is.
fn array_of((ty, typmod): (SqlType, i32)) -> (SqlType, i32) {
    match ty {
        SqlType::Domain(domain) => (domain.def().base, domain.def().typmod),
        _ => (ty, typmod),
    }
}

impl Interpreter<'_, '_> {
    fn place(&self, target: &Target) -> Result<Place> {
        match self.find(&target.path) {
            Some(Found::Slot(slot)) => Ok(Place::Slot(slot)),
            Some(Found::Field(slot, field)) => {
                let record = &target.path[target.path.len() - 2];
                let Slot::Record(r) = &self.slots[slot] else {
                    return Err(Error::internal("a field of what is no record"));
                };
                let shape = r.shape_of(record)?;
                let at = shape.field(field);
                Ok(Place::Field(
                    slot,
                    at.ok_or_else(|| no_field(record, field))?,
                ))
            }
            None => Err(Error::new(
                "42601",
                format!("\"{}\" is not a known variable", target.path.join(".")),
            )),
        }
    }

    /// The type that a value for a target is converted to; `None`: it takes a row.
    pub fn target_type(&self, target: &Target) -> Result<Option<(SqlType, i32)>> {
        let whole = self.whole_type(target)?;
        match (target.subscripts.is_empty(), whole) {
            (true, whole) => Ok(whole),
            (false, Some(whole)) => {
                let (array, typmod) = array_of(whole);
                Ok(Some((element_of(array)?.ty(), typmod)))
            }
            (false, None) => Err(Error::unsupported("an element of a record")),
        }
    }

    /// The type of the variable or field, whatever subscripts stand behind it.
    fn whole_type(&self, target: &Target) -> Result<Option<(SqlType, i32)>> {
        Ok(self.type_at(&self.place(target)?))
    }

    fn type_at(&self, place: &Place) -> Option<(SqlType, i32)> {
        match *place {
            Place::Slot(slot) => match &self.slots[slot] {
                Slot::Scalar(s) => Some((s.ty, s.typmod)),
                Slot::Record(_) => None,
            },
            Place::Field(slot, field) => match &self.slots[slot] {
                Slot::Record(r) => {
                    let shape = r.shape.as_ref();
                    shape.map(|s| (s.fields[field].ty, s.fields[field].typmod))
                }
                Slot::Scalar(_) => None,
            },
        }
    }

    /// `target := value`; false if the target takes a row.
    pub fn assign_scalar(&mut self, target: &Target, value: &Sql) -> Result<bool> {
        if !target.subscripts.is_empty() {
            let Some(to) = self.target_type(target)? else {
                return Ok(false);
            };
            let value = self.value(value, to)?;
            return self.put(target, value).map(|()| true);
        }
        let place = self.place(target)?;
        let Some(to) = self.type_at(&place) else {
            return Ok(false);
        };
        let value = self.value(value, to)?;
        self.put_at(place, target, value).map(|()| true)
    }

    /// Gives a target a value of a type.
    pub fn assign(&mut self, target: &Target, value: Datum, ty: SqlType) -> Result<()> {
        let Some(to) = self.target_type(target)? else {
            let Place::Slot(slot) = self.place(target)? else {
                return Err(Error::internal("a row for a field"));
            };
            return self.assign_value(slot, value, ty);
        };
        let value = self.core.cast(value, ty, to)?;
        self.put(target, value)
    }

    /// Gives a target a value of its own type.
    pub fn put(&mut self, target: &Target, value: Datum) -> Result<()> {
        let value = match target.subscripts.is_empty() {
            true => value,
            false => self.with_element(target, value)?,
        };
        let place = self.place(target)?;
        self.put_at(place, target, value)
    }

    fn put_at(&mut self, place: Place, target: &Target, value: Datum) -> Result<()> {
        let name = || target.path.join(".");
        match place {
            Place::Slot(slot) => match &mut self.slots[slot] {
                Slot::Scalar(s) if s.constant => Err(Error::new(
                    "22005",
                    format!("variable \"{}\" is declared CONSTANT", name()),
                )),
                Slot::Scalar(s) if s.not_null && value.is_null() => Err(null_refused(&name())),
                Slot::Scalar(s) => {
                    s.value = value;
                    Ok(())
                }
                Slot::Record(_) => Err(Error::internal("a value for a record")),
            },
            Place::Field(slot, field) => {
                if let Slot::Record(r) = &mut self.slots[slot] {
                    r.values[field] = value;
                    r.is_row = true;
                }
                Ok(())
            }
        }
    }

    /// The array of a target with another element.
    fn with_element(&mut self, target: &Target, value: Datum) -> Result<Datum> {
        let whole = self.whole_type(target)?;
        let whole = whole.ok_or_else(|| Error::internal("an element of a record"))?;
        let (array_type, _) = array_of(whole);
        let element = element_of(array_type)?;
        let mut subscripts = Vec::with_capacity(target.subscripts.len());
        for subscript in &target.subscripts {
            subscripts.push(self.value(subscript, (SqlType::Int4, -1))?);
        }
        let array = match self.place(target)? {
            Place::Slot(slot) => match &self.slots[slot] {
                Slot::Scalar(s) => &s.value,
                Slot::Record(_) => return Err(Error::internal("an element of a record")),
            },
            Place::Field(slot, field) => match &self.slots[slot] {
                Slot::Record(r) => &r.values[field],
                Slot::Scalar(_) => return Err(Error::internal("a field of what is no record")),
            },
        };
        let mut args = vec![Val::Ref(array.borrow()), Val::Ref(value.borrow())];
        args.extend(subscripts.iter().map(|s| Val::Ref(s.borrow())));
        let made = array_set::call(element, None, &args)?.into_datum();
        // A domain over the array may refuse it.
        match whole.0.is_domain() {
            true => self.core.cast(made, array_type, whole),
            false => Ok(made),
        }
    }

    /// Gives targets the columns of a row, or NULLs for the row that there is not.
    pub fn assign_row(
        &mut self,
        targets: &[Target],
        shape: &Arc<Shape>,
        row: Option<Vec<Datum>>,
    ) -> Result<()> {
        if let [target] = targets
            && let Place::Slot(slot) = self.place(target)?
            && matches!(self.slots[slot], Slot::Record(_))
        {
            // A query of one row that is a value gives that row.
            if let ([one], false) = (shape.fields.as_slice(), self.has_row_as_field(slot))
                && let SqlType::Composite(_) = one.ty
            {
                let value = row
                    .and_then(|row| row.into_iter().next())
                    .unwrap_or_default();
                let (shape, row) = taken_apart(value, one.ty)?;
                return self.assign_record(slot, &shape, row);
            }
            return self.assign_record(slot, shape, row);
        }
        let mut values = row.into_iter().flatten();
        for (at, target) in targets.iter().enumerate() {
            let ty = shape.fields.get(at).map_or(SqlType::Unknown, |f| f.ty);
            match values.next() {
                Some(value) => self.assign(target, value, ty)?,
                None => self.put(target, Datum::Null)?,
            }
        }
        Ok(())
    }

    /// Whether a record has one field that is a row.
    fn has_row_as_field(&self, slot: usize) -> bool {
        match &self.slots[slot] {
            Slot::Record(r) if r.fixed => {
                let fields = r.shape.as_ref().map(|s| s.fields.as_slice());
                matches!(fields, Some([one]) if matches!(one.ty, SqlType::Composite(_)))
            }
            _ => false,
        }
    }

    /// `record := value`.
    pub fn assign_value(&mut self, slot: usize, value: Datum, ty: SqlType) -> Result<()> {
        let (shape, row) = taken_apart(value, ty)?;
        self.assign_record(slot, &shape, row)
    }

    pub fn assign_record(
        &mut self,
        slot: usize,
        shape: &Arc<Shape>,
        row: Option<Vec<Datum>>,
    ) -> Result<()> {
        let own = match &self.slots[slot] {
            Slot::Record(r) if r.fixed => r.shape.clone(),
            _ => None,
        };
        let is_row = row.is_some();
        let values = match &own {
            None => row.unwrap_or_else(|| vec![Datum::Null; shape.fields.len()]),
            Some(own) => self.fitted(own, shape, row)?,
        };
        if let Slot::Record(r) = &mut self.slots[slot] {
            (r.values, r.is_row) = (values, is_row);
            if own.is_none() {
                r.shape = Some(shape.clone());
            }
        }
        Ok(())
    }

    /// The values of a row as fields of another shape.
    pub fn fitted(
        &mut self,
        own: &Shape,
        shape: &Shape,
        row: Option<Vec<Datum>>,
    ) -> Result<Vec<Datum>> {
        let mut values = Vec::with_capacity(own.fields.len());
        let mut given = row.into_iter().flatten().zip(&shape.fields);
        for field in &own.fields {
            values.push(match given.next() {
                Some((value, from)) => self.core.cast(value, from.ty, (field.ty, field.typmod))?,
                None => Datum::Null,
            });
        }
        Ok(values)
    }

    /// `record := other`.
    pub fn copy_record(&mut self, to: usize, from: usize, name: &str) -> Result<()> {
        let Slot::Record(source) = &self.slots[from] else {
            return Err(Error::internal("a record that is none"));
        };
        let (shape, row) = (source.shape_of(name)?.clone(), source.values.clone());
        self.assign_record(to, &shape, Some(row))
    }
}
