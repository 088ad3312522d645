//! Names in sight, level by level, and the register files they lead to.

use std::cell::RefCell;
use std::rc::Rc;

use crate::bind::Typed;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::query::plan::Register;

/// A register file while its queries are analysed.
pub struct File {
    /// What is around it: its inputs come from there.
    pub parent: Option<Rc<File>>,
    next: RefCell<Register>,
    /// What it takes from its parent: an expression there, and the register here.
    inputs: RefCell<Vec<(Expr, Register)>>,
}

impl File {
    pub fn new(parent: Option<&Rc<File>>) -> Rc<File> {
        Rc::new(File {
            parent: parent.cloned(),
            next: RefCell::new(0),
            inputs: RefCell::default(),
        })
    }

    pub fn register(&self) -> Register {
        let mut next = self.next.borrow_mut();
        *next += 1;
        *next - 1
    }

    pub fn registers(&self, count: usize) -> Vec<Register> {
        (0..count).map(|_| self.register()).collect()
    }

    /// How many registers it has.
    pub fn width(&self) -> usize {
        *self.next.borrow()
    }

    /// The register that has the value of an expression over the parent's registers.
    pub fn input(&self, outer: Expr) -> Register {
        let known = self.inputs.borrow();
        if let Some((_, register)) = known.iter().find(|(e, _)| *e == outer) {
            return *register;
        }
        drop(known);
        let register = self.register();
        self.inputs.borrow_mut().push((outer, register));
        register
    }

    /// Its inputs so far: what each is in the parent, and its register here.
    pub fn inputs(&self) -> Vec<(Expr, Register)> {
        self.inputs.borrow().clone()
    }

    /// An expression over `from`'s registers, which is this file or one around it, as one over
    /// this file's.
    pub fn import(&self, from: &File, e: Expr) -> Result<Expr> {
        if std::ptr::eq(self, from) {
            return Ok(e);
        }
        let Some(parent) = &self.parent else {
            return Err(Error::internal("a name from a query that is not around"));
        };
        let outer = parent.import(from, e)?;
        Ok(Expr::Column(self.input(outer)))
    }
}

/// A column that can be named.
#[derive(Clone, Debug)]
pub struct Column {
    /// Alias of its relation; empty for what USING merged.
    pub table: String,
    pub name: String,
    pub value: Typed,
    pub origin: (u32, i16),
    /// Merged by USING: found with its table's name only, and not part of `*`.
    pub merged: bool,
}

/// The names of one level of FROM, and what is around it.
pub struct Scope<'s> {
    pub parent: Option<&'s Scope<'s>>,
    pub file: Rc<File>,
    pub columns: Vec<Column>,
    /// Aliases, also of relations without columns.
    pub tables: Vec<String>,
    /// Primary keys of its tables: alias, registers of the key, registers of all columns.
    pub keys: Vec<(Vec<Register>, Vec<Register>)>,
}

impl<'s> Scope<'s> {
    pub fn new(parent: Option<&'s Scope<'s>>, file: &Rc<File>) -> Scope<'s> {
        Scope {
            parent,
            file: file.clone(),
            columns: Vec::new(),
            tables: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Takes in the names of an item of FROM.
    pub fn add(&mut self, item: Names) -> Result<()> {
        for table in &item.tables {
            if !table.is_empty() && self.tables.contains(table) {
                return Err(Error::new(
                    "42712",
                    format!("table name \"{table}\" specified more than once"),
                ));
            }
        }
        self.tables.extend(item.tables);
        self.columns.extend(item.columns);
        self.keys.extend(item.keys);
        Ok(())
    }

    /// The column of a name, of this level or of one around it, its value over this scope's file.
    pub fn resolve(&self, table: Option<&str>, name: &str) -> Result<Column> {
        let mut at = Some(self);
        while let Some(scope) = at {
            if let Some(found) = scope.own(table, name)? {
                let mut column = found.clone();
                column.value.expr = self.file.import(&scope.file, column.value.expr)?;
                return Ok(column);
            }
            if let Some(t) = table
                && scope.tables.iter().any(|known| known == t)
            {
                return Err(Error::new(
                    "42703",
                    format!("column {t}.{name} does not exist"),
                ));
            }
            at = scope.parent;
        }
        Err(match table {
            Some(t) => Error::new(
                "42P01",
                format!("missing FROM-clause entry for table \"{t}\""),
            ),
            None => Error::new("42703", format!("column \"{name}\" does not exist")),
        })
    }

    fn own(&self, table: Option<&str>, name: &str) -> Result<Option<&Column>> {
        let mut found = self.columns.iter().filter(|c| {
            c.name == name
                && match table {
                    Some(t) => c.table == t,
                    None => !c.merged,
                }
        });
        let first = found.next();
        if found.next().is_some() {
            return Err(Error::new(
                "42702",
                format!("column reference \"{name}\" is ambiguous"),
            ));
        }
        Ok(first)
    }

    pub fn has_table(&self, table: &str) -> bool {
        self.tables.iter().any(|t| t == table)
    }
}

/// The names that an item of FROM brings.
#[derive(Default)]
pub struct Names {
    pub columns: Vec<Column>,
    pub tables: Vec<String>,
    pub keys: Vec<(Vec<Register>, Vec<Register>)>,
}
