//! Slots: what variables hold.

use std::sync::Arc;

use ::block::value::Datum;

use crate::api::ColumnDesc;
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::session::Core;
use crate::types::SqlType;
use crate::types::composite::{self, CompositeType};

/// The fields of a record.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape {
    pub fields: Vec<Field>,
    /// The type whose fields they are, if it has a name.
    pub named: Option<CompositeType>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Field {
    pub name: String,
    pub ty: SqlType,
    pub typmod: i32,
}

impl Shape {
    pub fn of_columns(columns: &[ColumnDesc]) -> Shape {
        let field = |c: &ColumnDesc| Field {
            name: c.name.clone(),
            ty: c.ty,
            typmod: c.typmod,
        };
        Shape {
            fields: columns.iter().map(field).collect(),
            named: None,
        }
    }

    pub fn of_table(table: &Table) -> Shape {
        let field = |(_, c): (usize, &crate::dict::Column)| Field {
            name: c.name.clone(),
            ty: c.declared(),
            typmod: c.typmod,
        };
        Shape {
            fields: table.live_columns().map(field).collect(),
            named: None,
        }
    }

    /// The fields of a type of rows; `None`: they are not known.
    pub fn of_type(row: CompositeType) -> Option<Shape> {
        let field = |f: &composite::Field| Field {
            name: f.name.clone(),
            ty: f.declared,
            typmod: f.typmod,
        };
        Some(Shape {
            fields: row.fields()?.iter().map(field).collect(),
            named: (!row.is_record()).then_some(row),
        })
    }

    /// The type of its rows.
    pub fn row_type(&self) -> CompositeType {
        self.named.unwrap_or_else(|| {
            let field = |f: &Field| composite::Field::new(f.name.clone(), f.ty.base(), f.typmod);
            let fields = self.fields.iter().map(field);
            CompositeType::of_fields(fields.collect())
        })
    }

    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }
}

/// Whether two shapes are the same.
pub fn same(a: &Arc<Shape>, b: &Arc<Shape>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

#[derive(Debug)]
pub enum Slot {
    Scalar(Scalar),
    Record(Record),
}

impl Slot {
    /// Of a parameter, with what it is given.
    pub fn of_parameter(core: &mut Core, ty: SqlType, value: Datum) -> Slot {
        let SqlType::Composite(row) = ty.base() else {
            return Slot::Scalar(Scalar::new(ty, -1, value));
        };
        let mut record = Record::of_row(core, row);
        if let Datum::Composite(row) = &value {
            record.is_row = true;
            let values = row.borrow().values().map(|v| v.to_datum());
            for (own, given) in record.values.iter_mut().zip(values) {
                *own = given;
            }
        }
        Slot::Record(record)
    }
}

#[derive(Debug)]
pub struct Scalar {
    pub ty: SqlType,
    pub typmod: i32,
    pub value: Datum,
    pub constant: bool,
    pub not_null: bool,
}

impl Scalar {
    pub fn new(ty: SqlType, typmod: i32, value: Datum) -> Scalar {
        Scalar {
            ty,
            typmod,
            value,
            constant: false,
            not_null: false,
        }
    }
}

#[derive(Debug, Default)]
pub struct Record {
    /// None before it is first given a row.
    pub shape: Option<Arc<Shape>>,
    pub values: Vec<Datum>,
    /// Its shape is that of a table, and stays.
    pub fixed: bool,
    /// It was given a row, or a field. Else what it returns is NULL, and no row of NULLs.
    pub is_row: bool,
}

impl Record {
    /// A record of the rows of a type, which takes rows of any other shape if that is `record`.
    pub fn of_row(core: &mut Core, row: CompositeType) -> Record {
        // A table knows more of its columns than the type of its rows does: their domains.
        let dict = core.dict();
        if let Some(table) = dict.table_of_row_type(row.def().oid) {
            return Record::of_shape(core.shape_of(table));
        }
        let mut record = match core.pl.shape_of_type(row) {
            Some(shape) => Record::of_shape(shape),
            None => Record::default(),
        };
        record.fixed = !row.is_record();
        record
    }

    pub fn of_shape(shape: Arc<Shape>) -> Record {
        Record {
            values: vec![Datum::Null; shape.fields.len()],
            shape: Some(shape),
            fixed: true,
            is_row: false,
        }
    }

    /// The row as a value; NULL before it is given one, and if all of it is NULL.
    pub fn row(&self) -> Result<Datum> {
        match &self.shape {
            Some(shape) if !self.values.iter().all(Datum::is_null) => {
                let values: Vec<_> = self.values.iter().map(Datum::borrow).collect();
                crate::pgtype::composite::make(shape.row_type(), &values)
            }
            _ => Ok(Datum::Null),
        }
    }

    pub fn shape_of(&self, name: &str) -> Result<&Arc<Shape>> {
        self.shape.as_ref().ok_or_else(|| {
            Error::new("55000", format!("record \"{name}\" is not assigned yet"))
                .detail("The tuple structure of a not-yet-assigned record is indeterminate.")
        })
    }
}

/// What a piece takes from the slots as a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input {
    pub slot: usize,
    pub field: Option<usize>,
}
