//! Types of users in texts that are bound without a dictionary: they are written by their numbers,
//! and found among the types of the columns that the text is about.

use std::cell::RefCell;

use sqlparser::ast::{self, ArrayElemTypeDef, DataType, Expr as Syntax, Ident, ObjectName};

use super::{ParamTypes, TypeNames, names, parts};
use crate::dict::{Dict, Table};
use crate::error::{Error, Result};
use crate::types::SqlType;

/// Begins the name that stands for a type. No user can write it.
const PINNED: &str = "\u{1}type ";

/// The first number of what users make.
const FIRST_OF_USERS: u32 = 16_384;

/// Writes the types of users in an expression by their numbers; whether there are any.
pub fn pin(e: &mut Syntax, dict: &Dict, table: &Table) -> Result<bool> {
    let names = TypeNames::of(dict);
    let columns = TypeNames::of_columns(table);
    let mut found = false;
    let visited = ast::visit_expressions_mut(e, |e| {
        let data_type = match e {
            Syntax::Cast { data_type, .. } => data_type,
            Syntax::TypedString(text) => &mut text.data_type,
            Syntax::Function(call) => {
                return match constructs(&call.name, dict) {
                    Err(e) => std::ops::ControlFlow::Break(e),
                    Ok(()) => std::ops::ControlFlow::Continue(()),
                };
            }
            _ => return std::ops::ControlFlow::Continue(()),
        };
        match pinned(data_type, &names, &columns) {
            Ok(None) => std::ops::ControlFlow::Continue(()),
            Ok(Some(by_number)) => {
                *data_type = by_number;
                found = true;
                std::ops::ControlFlow::Continue(())
            }
            Err(e) => std::ops::ControlFlow::Break(e),
        }
    });
    match visited {
        std::ops::ControlFlow::Break(e) => Err(e),
        std::ops::ControlFlow::Continue(()) => Ok(found),
    }
}

/// Refuses a constructor of a range type, which is looked up in the dictionary.
fn constructs(name: &ObjectName, dict: &Dict) -> Result<()> {
    let written = names::Qualified::new(name)?;
    let number = written
        .number()
        .or_else(|| Some(dict.user_type(&written)?.oid));
    match number.and_then(|number| dict.type_of(number)) {
        Some(SqlType::Range(_) | SqlType::Multirange(_)) => Err(Error::unsupported(format!(
            "a call of {written} in an index"
        ))),
        _ => Ok(()),
    }
}

/// `None`: it is no type of users.
fn pinned(ty: &DataType, names: &TypeNames, columns: &TypeNames) -> Result<Option<DataType>> {
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(element, bound)) = ty {
        let element = pinned(element, names, columns)?;
        let array = |e| DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(e), *bound));
        return Ok(element.map(array));
    }
    let DataType::Custom(written, _) = ty else {
        return Ok(None);
    };
    let (found, _) = parts::data_type(ty, names)?;
    if found.oid() < FIRST_OF_USERS {
        return Ok(None);
    }
    if columns.pinned(found.oid()).is_none() {
        return Err(Error::unsupported(format!(
            "type {written}, which no column of the table has, in an index"
        )));
    }
    let name = Ident::with_quote('"', format!("{PINNED}{}", found.oid()));
    Ok(Some(DataType::Custom(
        ObjectName::from(vec![name]),
        Vec::new(),
    )))
}

/// The number that a name stands for.
pub fn number(name: &str) -> Option<u32> {
    name.strip_prefix(PINNED)?.parse().ok()
}

impl TypeNames {
    /// The types of a table's columns, by their numbers alone.
    pub fn of_columns(table: &Table) -> TypeNames {
        TypeNames {
            dict: None,
            noted: RefCell::default(),
            columns: table.live_columns().map(|(_, c)| c.ty()).collect(),
        }
    }

    pub fn pinned(&self, oid: u32) -> Option<SqlType> {
        if let Some(dict) = &self.dict {
            return dict.type_of(oid);
        }
        let kin = |ty: &SqlType| [Some(*ty), ty.element(), ty.array()];
        let all = self.columns.iter().flat_map(kin).flatten();
        all.into_iter().find(|ty| ty.oid() == oid)
    }
}

impl ParamTypes {
    /// No parameters; the types of a table's columns are found by their numbers.
    pub fn of_columns(table: &Table) -> ParamTypes {
        ParamTypes {
            names: TypeNames::of_columns(table),
            ..ParamTypes::default()
        }
    }
}
