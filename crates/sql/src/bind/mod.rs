//! From syntax to bound expressions: names become columns, literals and parameters get types, conversions become
//! explicit, functions are chosen among their overloads. PostgreSQL's rules and messages.

mod array;
mod call;
mod catalog;
mod coerce;
pub mod collation;
mod composite;
mod days;
pub mod domain;
mod element;
mod enums;
mod expr;
mod extension_operator;
pub mod inline;
mod json;
mod listed;
mod named;
pub mod names;
pub mod needs;
pub mod numbered;
pub mod numbered_operator;
mod open_call;
mod operator_call;
mod oracle;
mod oracle_call;
mod overlaps;
pub mod parts;
pub mod pinned_type;
mod predicate;
pub mod probe;
mod quantified;
mod ranges;
mod routines;
pub mod sight;
pub mod similar;
mod simplify;
mod stored;
mod temporal;
mod user_call;
mod user_cast;
mod variadic;

use std::cell::RefCell;

use block::value::Datum;
use sqlparser::ast;

use crate::collate::Derived;
use crate::dict::{Dict, Table};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::query::analyze::system::SystemColumn;
use crate::types::SqlType;

pub use array::element_of;
pub use call::{call_of, no_function};
pub use coerce::{chosen_type, common_type, null_if_type};
pub use composite::{field_name, is_written_row, record, row_constructor, row_of};
pub use expr::comparison;
pub use json::check_comparable;
pub use user_call::{Called, linked_func};

/// An expression with the type the binder found for it.
#[derive(Clone, Debug)]
pub struct Typed {
    pub expr: Expr,
    pub ty: SqlType,
    pub typmod: i32,
    pub collation: Derived,
}

impl Typed {
    /// Whether its type is one of strings, or of arrays of them.
    pub fn has_collation(&self) -> bool {
        element_of(self.ty).map_or(self.ty, |e| e.ty()).is_string()
    }

    pub fn new(expr: Expr, ty: SqlType) -> Typed {
        Typed {
            expr,
            ty,
            typmod: -1,
            collation: Derived::default(),
        }
    }
    pub fn literal(value: Datum, ty: SqlType) -> Typed {
        Typed::new(Expr::Const(value), ty)
    }
}

/// A column that expressions may name.
#[derive(Clone, Debug)]
pub struct ScopeColumn {
    /// Name or alias of its table in the query.
    pub table: String,
    pub name: String,
    pub ty: SqlType,
    pub typmod: i32,
    pub collation: Derived,
    /// Its place in the rows the expressions are evaluated over.
    pub slot: usize,
    /// Where it comes from, for RowDescription; zeros if computed.
    pub table_oid: u32,
    pub attnum: i16,
    /// Not part of `*`: the second copy of a column merged by USING.
    pub hidden: bool,
}

/// The columns in sight.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub columns: Vec<ScopeColumn>,
    /// Those that tables have besides their own, which are found where no other is.
    pub system: Vec<ScopeColumn>,
}

impl Scope {
    /// Adds a table's columns, whose rows start at `offset` of the combined row.
    pub fn add_table(&mut self, table: &Table, alias: &str, offset: usize) {
        for (i, c) in table.live_columns() {
            self.columns.push(ScopeColumn {
                table: alias.to_string(),
                name: c.name.clone(),
                ty: c.ty(),
                typmod: c.typmod,
                collation: c.collation(),
                slot: offset + i,
                table_oid: table.oid,
                attnum: i as i16 + 1,
                hidden: false,
            });
        }
    }

    /// Adds what a table has besides its columns, from a place of the row on; `xmax` only of rows
    /// that are inserted.
    pub fn add_system(&mut self, alias: &str, from: usize, inserted: bool) {
        let known = SystemColumn::ALL.map(|c| (c.name(), c.ty()));
        let xmax = inserted.then_some(("xmax", SqlType::Xid));
        for (at, (name, ty)) in known.into_iter().chain(xmax).enumerate() {
            self.system.push(ScopeColumn {
                table: alias.to_string(),
                name: name.to_string(),
                ty,
                typmod: -1,
                collation: Derived::default(),
                slot: from + at,
                table_oid: 0,
                attnum: 0,
                hidden: false,
            });
        }
    }

    pub fn of_table(table: &Table, alias: &str) -> Scope {
        let mut scope = Scope::default();
        scope.add_table(table, alias, 0);
        scope
    }

    pub fn has_table(&self, alias: &str) -> bool {
        self.columns.iter().any(|c| c.table == alias)
    }

    pub fn resolve(&self, table: Option<&str>, name: &str) -> Result<&ScopeColumn> {
        let found = self.found(&self.columns, table, name)?;
        let found = match found {
            None => self.found(&self.system, table, name)?,
            found => found,
        };
        found.ok_or_else(|| self.missing(table, name))
    }

    fn found<'c>(
        &self,
        columns: &'c [ScopeColumn],
        table: Option<&str>,
        name: &str,
    ) -> Result<Option<&'c ScopeColumn>> {
        let mut found = None;
        for c in columns {
            if c.name == name
                && table.is_none_or(|t| t == c.table)
                && !(c.hidden && table.is_none())
            {
                if found.is_some() {
                    // Of one table no name is there twice.
                    return Err(match table {
                        Some(t) => {
                            Error::new("42P09", format!("table reference \"{t}\" is ambiguous"))
                        }
                        None => {
                            Error::new("42702", format!("column reference \"{name}\" is ambiguous"))
                        }
                    });
                }
                found = Some(c);
            }
        }
        Ok(found)
    }

    fn missing(&self, table: Option<&str>, name: &str) -> Error {
        match table {
            Some(t) if !self.has_table(t) => Error::new(
                "42P01",
                format!("missing FROM-clause entry for table \"{t}\""),
            ),
            Some(t) => names::no_column(&format!("{t}.{name}"), name)
                .hint_if_any(self.similar(table, name)),
            None if self.has_table(name) => Error::unsupported(format!("the whole row {name}")),
            None => names::no_column(&format!("\"{name}\""), name)
                .hint_if_any(self.similar(table, name)),
        }
    }

    fn similar(&self, table: Option<&str>, name: &str) -> Option<String> {
        let columns = self.columns.iter();
        let columns = columns.map(|c| (c.table.as_str(), c.name.as_str()));
        similar::hint(columns, table, name)
    }
}

/// Types of the statement's parameters, filled in as their uses are met; and what else its names
/// may mean besides columns.
#[derive(Debug, Default)]
pub struct ParamTypes {
    types: RefCell<Vec<Option<SqlType>>>,
    pub(crate) sight: sight::Sight,
    pub names: TypeNames,
    /// What the statement needs privileges for.
    pub needs: needs::Needs,
}

/// Where types that users made are looked up. Without a dictionary only those are found that a text
/// has by their numbers ([`pinned_type`]).
#[derive(Clone, Default)]
pub struct TypeNames {
    dict: Option<Dict>,
    columns: Vec<SqlType>,
    /// What names of functions and types of users were found to mean, if that is to be known.
    noted: RefCell<Option<Vec<numbered::Noted>>>,
}

impl std::fmt::Debug for TypeNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TypeNames")
    }
}

impl TypeNames {
    pub fn of(dict: &Dict) -> TypeNames {
        TypeNames {
            dict: Some(dict.clone()),
            columns: Vec::new(),
            noted: RefCell::default(),
        }
    }

    pub fn dict(&self) -> Option<&Dict> {
        self.dict.as_ref()
    }

    /// Puts another list in the place of the one that names are noted in; `None`: they are noted
    /// nowhere.
    pub fn note_in(&self, list: Option<Vec<numbered::Noted>>) -> Option<Vec<numbered::Noted>> {
        self.noted.replace(list)
    }

    /// Notes what a name means. A name that has the number already is left as it is.
    fn note(&self, name: &ast::ObjectName, number: u32) -> Result<()> {
        if let Some(noted) = self.noted.borrow_mut().as_mut() {
            let written = names::Qualified::new(name)?;
            if written.number().is_none() {
                noted.push(numbered::Noted {
                    place: numbered::place_of(name),
                    written,
                    number,
                });
            }
        }
        Ok(())
    }

    /// Notes which function computes an operator. One that has the number already is left as it is.
    fn note_operator(
        &self,
        (left, op, right): (&ast::Expr, &ast::BinaryOperator, &ast::Expr),
        number: u32,
    ) {
        if let Some(noted) = self.noted.borrow_mut().as_mut()
            && numbered_operator::number_of(op).is_none()
        {
            noted.push(numbered::Noted {
                place: numbered_operator::place_between(left, right),
                written: names::Qualified::bare(&numbered_operator::symbol_of(op)),
                number,
            });
        }
    }
}

/// The highest parameter number, PostgreSQL's limit of the wire protocol.
const MAX_PARAMS: usize = 65_535;

impl ParamTypes {
    /// From the client's OIDs; zero leaves the type to inference.
    pub fn declared(oids: &[u32], dict: &Dict) -> Result<ParamTypes> {
        let mut types = Vec::with_capacity(oids.len());
        for &oid in oids {
            types.push(match oid {
                0 | 705 => None,
                _ => {
                    let declared = dict.type_of(oid).ok_or_else(|| {
                        Error::unsupported(format!("a parameter of type OID {oid}"))
                    })?;
                    Some(declared.base())
                }
            });
        }
        Ok(ParamTypes {
            types: RefCell::new(types),
            sight: sight::Sight::default(),
            names: TypeNames::default(),
            needs: needs::Needs::default(),
        }
        .seeing(dict))
    }

    /// As found out before.
    pub fn of(types: &[SqlType], dict: &Dict) -> ParamTypes {
        ParamTypes {
            types: RefCell::new(types.iter().map(|t| Some(t.base())).collect()),
            sight: sight::Sight::default(),
            names: TypeNames::default(),
            needs: needs::Needs::default(),
        }
        .seeing(dict)
    }

    /// None yet.
    pub fn none(dict: &Dict) -> ParamTypes {
        ParamTypes::of(&[], dict)
    }

    /// The type of a parameter (from 0), making room for it.
    fn get(&self, i: usize) -> Result<Option<SqlType>> {
        if i >= MAX_PARAMS {
            return Err(Error::new(
                "42P02",
                format!("there is no parameter ${}", i + 1),
            ));
        }
        let mut types = self.types.borrow_mut();
        if types.len() <= i {
            types.resize(i + 1, None);
        }
        Ok(types[i])
    }

    fn set(&self, i: usize, ty: SqlType) {
        self.types.borrow_mut()[i] = Some(ty);
    }

    /// Takes over the types that another has found out.
    pub fn follow(&self, other: &ParamTypes) {
        self.types.replace(other.types.borrow().clone());
    }

    /// How many parameters have been met.
    pub fn count(&self) -> usize {
        self.types.borrow().len()
    }

    /// The final types; a parameter whose uses told nothing is text.
    pub fn finish(self) -> Vec<SqlType> {
        self.types
            .into_inner()
            .into_iter()
            .map(|t| t.unwrap_or(SqlType::Text))
            .collect()
    }
}

/// Binds the expressions of one clause.
pub struct Binder<'b> {
    pub scope: &'b Scope,
    pub params: &'b ParamTypes,
    /// What the clause is called in messages: `WHERE`, `VALUES`.
    pub clause: &'static str,
    /// Set where expressions are over groups: what stands for a group's key or an aggregate becomes a column of the
    /// grouped row.
    pub groups: Option<&'b dyn Groups>,
}

impl<'b> Binder<'b> {
    pub fn new(scope: &'b Scope, params: &'b ParamTypes, clause: &'static str) -> Binder<'b> {
        Binder {
            scope,
            params,
            clause,
            groups: None,
        }
    }
}

/// The grouped row, seen from expressions over it.
pub trait Groups {
    /// The column that stands for a whole expression, if one does.
    fn lookup(&self, e: &ast::Expr) -> Result<Option<Typed>>;

    /// The whole row of a table of the query.
    fn whole_row(&self, table: &str) -> Result<Option<Typed>>;
}

/// Whether a function of this name works on groups.
pub fn is_aggregate(name: &str) -> bool {
    call::AGGREGATES.contains(&name)
}
