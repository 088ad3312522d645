//! What names in a statement may mean besides columns: functions that users have defined, and
//! variables of the body that the statement stands in.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use plpgsql::Conflict;

use super::inline::Inlining;
use super::{ParamTypes, TypeNames, Typed};
use crate::collate::Derived;
use crate::dict::{Dict, Function};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::types::SqlType;

/// The variables of a body, as a piece of SQL in it sees them.
pub trait Variables: fmt::Debug {
    /// The variable that a name, with what stands before its points, leads to; `$1` too.
    fn find(&self, path: &[String]) -> Result<Option<Variable>>;

    /// What a name means that is a variable's and a column's.
    fn conflict(&self) -> Conflict;
}

/// A variable as a parameter of the piece.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// From 0.
    pub number: usize,
    pub ty: SqlType,
    pub typmod: i32,
}

#[derive(Default)]
pub struct Sight {
    dict: Option<Dict>,
    variables: Option<Rc<dyn Variables>>,
    /// The functions that calls were found to mean.
    called: RefCell<Vec<Arc<Function>>>,
    /// The types that values were made of.
    types: RefCell<Vec<SqlType>>,
    /// Whether a cast of a user's converts something.
    casts: Cell<bool>,
    /// Which calls become the expressions that their functions are.
    pub(super) inlining: Inlining,
    /// The text is a stored one, in which a name without a number is that of a built-in function,
    /// if there is one.
    stored: Cell<bool>,
}

impl fmt::Debug for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sight")
            .field("variables", &self.variables)
            .finish_non_exhaustive()
    }
}

impl Sight {
    pub fn has_variables(&self) -> bool {
        self.variables.is_some()
    }

    pub fn dict(&self) -> Option<&Dict> {
        self.dict.as_ref()
    }

    pub(super) fn has_schema(&self, name: &str) -> bool {
        self.dict.as_ref().is_some_and(|d| d.schema(name).is_some())
    }

    /// Says whether what follows is a stored text, and gives what it was before.
    pub fn reads_stored(&self, stored: bool) -> bool {
        self.stored.replace(stored)
    }

    pub(super) fn is_stored(&self) -> bool {
        self.stored.get()
    }

    pub(super) fn note(&self, function: &Arc<Function>) {
        let mut called = self.called.borrow_mut();
        if !called.iter().any(|f| Arc::ptr_eq(f, function)) {
            called.push(function.clone());
        }
    }

    pub(super) fn note_type(&self, ty: SqlType) {
        let mut types = self.types.borrow_mut();
        if !types.iter().any(|known| known.is_state(ty)) {
            types.push(ty);
        }
    }

    pub(super) fn note_cast(&self) {
        self.casts.set(true);
    }

    /// Whether casts of users were found to be meant so far.
    pub fn uses_casts(&self) -> bool {
        self.casts.get()
    }

    /// The states of types that values were made of so far.
    pub fn types(&self) -> Vec<SqlType> {
        self.types.borrow().clone()
    }

    /// The functions that calls were found to mean so far.
    pub fn called(&self) -> Vec<Arc<Function>> {
        self.called.borrow().clone()
    }
}

impl ParamTypes {
    /// The same, with the functions of a dictionary in sight.
    pub fn seeing(mut self, dict: &Dict) -> ParamTypes {
        self.sight.dict = Some(dict.clone());
        self.names = TypeNames::of(dict);
        self
    }

    /// The same, with variables in sight.
    pub fn with_variables(mut self, variables: Rc<dyn Variables>) -> ParamTypes {
        self.sight.variables = Some(variables);
        self
    }

    /// Parameters of what stands in a definition, which sees the same functions.
    pub fn of_definition(&self) -> ParamTypes {
        let mut own = match &self.sight.dict {
            Some(dict) => ParamTypes::default().seeing(dict),
            None => ParamTypes::default(),
        };
        own.sight.inlining = self.sight.inlining.clone();
        own
    }

    /// Parameters of a stored text.
    pub fn of_stored(&self) -> ParamTypes {
        let own = self.of_definition();
        own.sight.reads_stored(true);
        own
    }

    /// The same; functions stay calls, whatever they are.
    pub fn keeping_calls(mut self) -> ParamTypes {
        self.sight.inlining = Inlining::none();
        self
    }

    /// Notes the functions that a part has been found to call, and its types.
    pub fn note_called(&self, part: &ParamTypes) {
        for function in part.sight.called() {
            self.sight.note(&function);
        }
        if part.sight.uses_casts() {
            self.sight.note_cast();
        }
        for ty in part.sight.types() {
            self.sight.note_type(ty);
        }
    }

    /// Whether a variable has the name.
    pub fn sees_variable(&self, path: &[String]) -> Result<bool> {
        match &self.sight.variables {
            Some(variables) => Ok(variables.find(path)?.is_some()),
            None => Ok(false),
        }
    }

    pub(super) fn variable(&self, path: &[String]) -> Result<Option<Typed>> {
        let Some(variables) = &self.sight.variables else {
            return Ok(None);
        };
        let Some(found) = variables.find(path)? else {
            return Ok(None);
        };
        self.get(found.number)?;
        self.set(found.number, found.ty);
        Ok(Some(Typed {
            expr: Expr::Param(found.number),
            ty: found.ty,
            typmod: found.typmod,
            collation: Derived::default(),
        }))
    }

    /// What a name means: the column that it was looked up as, or else a variable.
    pub fn or_variable(&self, path: &[String], column: Result<Typed>) -> Result<Typed> {
        let Some(variables) = &self.sight.variables else {
            return column;
        };
        match column {
            Ok(found) if variables.conflict() == Conflict::Column => Ok(found),
            // A function without parentheses is no column.
            Ok(found) if !matches!(found.expr, Expr::Column(_)) => Ok(found),
            Ok(found) if variables.conflict() == Conflict::Variable => {
                Ok(self.variable(path)?.unwrap_or(found))
            }
            Ok(found) => match variables.find(path)? {
                None => Ok(found),
                Some(_) => {
                    let name = path.join(".");
                    let message = format!("column reference \"{name}\" is ambiguous");
                    let detail = "It could refer to either a PL/pgSQL variable or a table column.";
                    Err(Error::new("42702", message).detail(detail))
                }
            },
            Err(e) if matches!(e.sqlstate(), "42703" | "42P01" | "0A000") => {
                self.variable(path)?.ok_or(e)
            }
            Err(e) => Err(e),
        }
    }
}
