//! Names in sight, level by level, and the register files they lead to.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use super::group::Groups;
use crate::bind::{Typed, names, similar};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::plan::supply;
use crate::query::plan::Register;
use crate::types::SqlType;

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

    /// How many inputs it and the files around it have.
    pub fn marks(&self) -> Vec<usize> {
        let around = self.parent.iter().flat_map(|parent| parent.marks());
        [self.inputs.borrow().len()]
            .into_iter()
            .chain(around)
            .collect()
    }

    /// Forgets what was taken from the parents since.
    pub fn forget(&self, marks: &[usize]) {
        let Some((own, around)) = marks.split_first() else {
            return;
        };
        self.inputs.borrow_mut().truncate(*own);
        if let Some(parent) = &self.parent {
            parent.forget(around);
        }
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
    /// All that its relation, a function, gives of a row: also found by the relation's name.
    pub whole: bool,
}

/// The names of one level of FROM, and what is around it.
pub struct Scope<'s> {
    pub parent: Option<&'s Scope<'s>>,
    pub file: Rc<File>,
    pub columns: Vec<Column>,
    /// Aliases, also of relations without columns.
    pub tables: Vec<String>,
    /// Relations that have no alias, by name and object id: another of that name may stand beside.
    pub bare: Vec<(String, u32)>,
    /// Primary keys of its tables: alias, registers of the key, registers of all columns.
    pub keys: Vec<(Vec<Register>, Vec<Register>)>,
    /// Whole rows: alias, and what is NULL if and only if an outer join has no row of it.
    pub rows: Vec<(String, Expr)>,
    /// Columns that tables have besides their own, of which no `*` is.
    pub system: Vec<Column>,
    /// What stands before, but may be missing where this is, so that LATERAL does not reach it.
    pub refused: Names,
    /// Grouping sets have some of the columns and not others, so that two columns of a subquery
    /// need a register each, also if they are the same.
    pub apart: bool,
    /// The clause of the level around it that it stands in; none in FROM.
    pub within: Option<Within<'s>>,
}

/// A clause that a subquery stands in.
#[derive(Clone, Copy)]
pub struct Within<'s> {
    pub clause: &'static str,
    /// Where the clause's aggregates go; none are allowed without.
    pub groups: Option<&'s Groups>,
}

impl<'s> Scope<'s> {
    pub fn new(parent: Option<&'s Scope<'s>>, file: &Rc<File>) -> Scope<'s> {
        Scope {
            parent,
            file: file.clone(),
            columns: Vec::new(),
            tables: Vec::new(),
            bare: Vec::new(),
            keys: Vec::new(),
            rows: Vec::new(),
            system: Vec::new(),
            refused: Names::default(),
            apart: false,
            within: None,
        }
    }

    /// A scope without names in the place of this one.
    pub fn beside(&self) -> Scope<'s> {
        Scope {
            apart: self.apart,
            within: self.within,
            ..Scope::new(self.parent, &self.file)
        }
    }

    /// The same without the names of a table.
    pub fn without(&self, table: &str) -> Scope<'s> {
        let other = |name: &str| name != table;
        Scope {
            columns: (self.columns.iter().filter(|c| other(&c.table)).cloned()).collect(),
            tables: (self.tables.iter().filter(|t| other(t)).cloned()).collect(),
            keys: self.keys.clone(),
            rows: (self.rows.iter().filter(|(t, _)| other(t)).cloned()).collect(),
            system: (self.system.iter().filter(|c| other(&c.table)).cloned()).collect(),
            ..self.beside()
        }
    }

    /// The names of a table of it.
    pub fn named(&self, table: &str) -> Names {
        let columns = self.columns.iter().filter(|c| c.table == table);
        Names {
            columns: columns.cloned().collect(),
            tables: vec![table.to_string()],
            ..Names::default()
        }
    }

    /// How many levels are around it.
    pub fn depth(&self) -> usize {
        self.parent.map_or(0, |parent| parent.depth() + 1)
    }

    /// Takes in the names of an item of FROM.
    pub fn add(&mut self, item: Names) -> Result<()> {
        for (at, table) in item.tables.iter().enumerate() {
            let before = self.tables.iter().chain(&item.tables[..at]);
            if !table.is_empty() && before.clone().any(|t| t == table) {
                self.check_apart(table, &item)?;
            }
        }
        self.tables.extend(item.tables);
        self.bare.extend(item.bare);
        self.columns.extend(item.columns);
        self.keys.extend(item.keys);
        self.rows.extend(item.rows);
        self.system.extend(item.system);
        Ok(())
    }

    /// Refuses a name that this level and an item of FROM have several times, unless each is that
    /// of another relation, without an alias.
    fn check_apart(&self, table: &str, item: &Names) -> Result<()> {
        let tables = self.tables.iter().chain(&item.tables);
        let bare = self.bare.iter().chain(&item.bare);
        let bare = bare.filter(|(t, _)| t == table).map(|(_, oid)| oid);
        let others: HashSet<&u32> = bare.collect();
        match tables.filter(|t| *t == table).count() == others.len() {
            true => Ok(()),
            false => Err(Error::new(
                "42712",
                format!("table name \"{table}\" specified more than once"),
            )),
        }
    }

    /// How many relations of this level have a name.
    pub fn count(&self, table: &str) -> usize {
        self.tables.iter().filter(|t| *t == table).count()
    }

    /// A column of a relation that has no alias, by the relation's name and object id, and the
    /// depth of its level; nothing if the relation stands in no level by its own name.
    pub fn resolve_in(
        &self,
        (table, oid): (&str, u32),
        name: &str,
    ) -> Result<Option<(Column, usize)>> {
        let mut levels = std::iter::successors(Some(self), |scope| scope.parent);
        let of = |scope: &&Scope<'_>| scope.bare.iter().any(|(t, o)| t == table && *o == oid);
        let Some(scope) = levels.find(of) else {
            return Ok(None);
        };
        let named = |c: &&Column| c.table == table && c.name == name && c.origin.0 == oid;
        let Some(found) = scope.columns.iter().find(named) else {
            if scope.count(table) == 1 {
                return Ok(None);
            }
            let error = names::no_column_of_query(&format!("{table}.{name}"), name);
            return Err(error.hint_if_any(self.similar(Some(table), name)));
        };
        let mut column = found.clone();
        column.value.expr = self.file.import(&scope.file, column.value.expr)?;
        Ok(Some((column, scope.depth())))
    }

    /// The column of a name, of this level or of one around it, its value over this scope's file;
    /// and the depth of its level.
    pub fn resolve(&self, table: Option<&str>, name: &str) -> Result<(Column, usize)> {
        let mut at = Some(self);
        while let Some(scope) = at {
            if let Some(found) = scope.own(table, name)? {
                let mut column = found.clone();
                column.value.expr = self.file.import(&scope.file, column.value.expr)?;
                return Ok((column, scope.depth()));
            }
            if let Some(t) = scope.refuses(table, name) {
                let message = format!("invalid reference to FROM-clause entry for table \"{t}\"");
                let error = Error::new("42P10", message);
                if scope
                    .refused
                    .columns
                    .iter()
                    .any(|c| c.name == supply::ROW_ID)
                {
                    return Err(error.hint(format!(
                        "There is an entry for table \"{t}\", but it cannot be referenced from \
                         this part of the query."
                    )));
                }
                return Err(error.detail(
                    "The combining JOIN type must be INNER or LEFT for a LATERAL reference.",
                ));
            }
            if let Some(t) = table
                && scope.tables.iter().any(|known| known == t)
            {
                return Err(names::no_column_of_query(&format!("{t}.{name}"), name)
                    .hint_if_any(self.similar(table, name)));
            }
            at = scope.parent;
        }
        Err(match table {
            Some(t) => Error::new(
                "42P01",
                format!("missing FROM-clause entry for table \"{t}\""),
            ),
            None => names::no_column_of_query(&format!("\"{name}\""), name)
                .hint_if_any(self.similar(table, name)),
        })
    }

    /// The hint for a name that no column of this level and those around it has.
    fn similar(&self, table: Option<&str>, name: &str) -> Option<String> {
        let levels = std::iter::successors(Some(self), |scope| scope.parent);
        let columns = levels.flat_map(|scope| scope.columns.iter().filter(|c| !c.table.is_empty()));
        let columns = columns.map(|c| (c.table.as_str(), c.name.as_str()));
        similar::hint(columns, table, name)
    }

    /// The table that a name leads to, if LATERAL does not reach it.
    fn refuses(&self, table: Option<&str>, name: &str) -> Option<&str> {
        let named = match table {
            Some(table) => self.refused.tables.iter().find(|t| *t == table),
            None => {
                let column = self.refused.columns.iter().find(|c| c.name == name);
                column.map(|c| &c.table)
            }
        };
        named.map(String::as_str)
    }

    /// The whole row of a table of this level or of one around it, over this scope's file: what is
    /// NULL if there is none, the values of its columns, and the depth of its level.
    pub fn row(&self, table: &str) -> Result<Option<Row>> {
        let mut at = Some(self);
        while let Some(scope) = at {
            if scope.has_table(table) {
                let Some((_, there)) = scope.rows.iter().find(|(t, _)| t == table) else {
                    return Ok(None);
                };
                let import = |e: &Expr| self.file.import(&scope.file, e.clone());
                let columns = scope.columns.iter().filter(|c| c.table == table);
                let field = |c: &Column| (c.name.clone(), c.value.ty, c.value.typmod);
                let fields = columns.clone().map(field).collect();
                return Ok(Some(Row {
                    there: import(there)?,
                    columns: columns
                        .clone()
                        .map(|c| import(&c.value.expr))
                        .collect::<Result<_>>()?,
                    fields,
                    origins: columns.map(|c| c.origin).collect(),
                    depth: scope.depth(),
                }));
            }
            at = scope.parent;
        }
        Ok(None)
    }

    /// What a function gives whose name, in FROM, is that, over this scope's file.
    pub fn function_value(&self, name: &str) -> Result<Option<(Typed, usize)>> {
        let mut at = Some(self);
        while let Some(scope) = at {
            if scope.has_table(name) {
                let whole = scope.columns.iter().find(|c| c.whole && c.table == name);
                let Some(column) = whole else { return Ok(None) };
                let mut value = column.value.clone();
                value.expr = self.file.import(&scope.file, value.expr)?;
                return Ok(Some((value, scope.depth())));
            }
            at = scope.parent;
        }
        Ok(None)
    }

    fn own(&self, table: Option<&str>, name: &str) -> Result<Option<&Column>> {
        if let Some(t) = table
            && self.count(t) > 1
        {
            return Err(Error::new(
                "42P09",
                format!("table reference \"{t}\" is ambiguous"),
            ));
        }
        let named = |c: &&Column| {
            c.name == name
                && match table {
                    Some(t) => c.table == t,
                    None => !c.merged,
                }
        };
        let mut found = self.columns.iter().filter(named);
        let mut first = found.next();
        let mut second = found.next();
        if first.is_none() {
            let mut found = self.system.iter().filter(named);
            (first, second) = (found.next(), found.next());
        }
        if second.is_some() {
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

/// The whole row of a table.
pub struct Row {
    pub there: Expr,
    pub columns: Vec<Expr>,
    /// Names, types and modifiers of the columns.
    pub fields: Vec<(String, SqlType, i32)>,
    /// Table and number of the columns that are a table's.
    pub origins: Vec<(u32, i16)>,
    pub depth: usize,
}

/// The names that an item of FROM brings.
#[derive(Default)]
pub struct Names {
    pub columns: Vec<Column>,
    pub tables: Vec<String>,
    pub bare: Vec<(String, u32)>,
    pub keys: Vec<(Vec<Register>, Vec<Register>)>,
    pub rows: Vec<(String, Expr)>,
    pub system: Vec<Column>,
}
