//! Functions and procedures of users, as they are stored.
//!
//! **Invariants.**
//! - What a caller must know of a function for its plan (types, volatility, strictness) is in the
//!   object that the plan has noted: a plan is good as long as that very object is current.
//! - Two functions of a schema have different names, or different types of their input arguments.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::object::kind;
use super::open_type::OpenType;
use super::role::FIRST_SUPERUSER;
use super::{Dict, Object, path};
use crate::bind::names::Qualified;
use crate::types::SqlType;
use crate::types::call_types::CallTypes;
use crate::types::composite::{self, CompositeType};

/// The number of the type `trigger`, which is no type of values.
pub const TRIGGER: u32 = 2279;
/// The number of the type `record`, which stands for rows of several columns.
pub const RECORD: u32 = 2249;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Language {
    Sql,
    PlPgSql,
    /// Bodies in Oracle's words.
    PlSql,
    /// Computed by the program itself: the body is the name of what does it
    /// ([`crate::expr::linked`]). Extensions have such functions, and nobody else.
    C,
}

impl Language {
    /// As `pg_language` and definitions call it.
    pub fn name(self) -> &'static str {
        match self {
            Language::Sql => "sql",
            Language::PlPgSql => "plpgsql",
            Language::PlSql => "plsql",
            Language::C => "c",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Volatility {
    Immutable,
    Stable,
    Volatile,
}

/// Which way a parameter goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Mode {
    In,
    Out,
    InOut,
    Variadic,
    /// A column of RETURNS TABLE.
    Table,
}

impl Mode {
    pub fn is_input(self) -> bool {
        !matches!(self, Mode::Out | Mode::Table)
    }

    pub fn is_output(self) -> bool {
        matches!(self, Mode::Out | Mode::InOut | Mode::Table)
    }

    /// As `pg_proc` has it.
    pub fn letter(self) -> char {
        match self {
            Mode::In => 'i',
            Mode::Out => 'o',
            Mode::InOut => 'b',
            Mode::Variadic => 'v',
            Mode::Table => 't',
        }
    }
}

/// A parameter of whatever mode.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Parameter {
    pub mode: Mode,
    pub name: String,
    pub type_oid: u32,
    /// The type, once it is known what the number means: see [`super::types`].
    #[serde(skip)]
    pub known: Option<SqlType>,
}

/// A column of the rows that a function gives: its name, type and modifier.
pub type Field = (String, SqlType, i32);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Argument {
    /// Empty if it has none.
    pub name: String,
    pub type_oid: u32,
    /// The type, once it is known what the number means: see [`super::types`].
    #[serde(skip)]
    pub known: Option<SqlType>,
    /// SQL text of the default.
    #[serde(default)]
    pub default: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Function {
    pub oid: u32,
    #[serde(default = "path::public")]
    pub schema: u32,
    pub name: String,
    #[serde(default = "first_superuser")]
    pub owner: u32,
    #[serde(default)]
    pub procedure: bool,
    /// What a call gives it, in their order.
    pub arguments: Vec<Argument>,
    /// All parameters in their order, if some are not only inputs; else none.
    #[serde(default)]
    pub parameters: Vec<Parameter>,
    /// That of its result; `void`, `trigger` and `record` too.
    pub result: u32,
    /// The type of its result, once it is known what the number means.
    #[serde(skip)]
    pub known_result: Option<SqlType>,
    #[serde(default)]
    pub returns_set: bool,
    /// The table whose rows it gives, if its result is the type of these.
    #[serde(default)]
    pub row_of: Option<u32>,
    /// How many rows it is said to give.
    #[serde(default)]
    pub rows: f32,
    pub language: Language,
    pub volatility: Volatility,
    pub strict: bool,
    /// As it was said: `u`, `r` or `s`, which has no effect.
    pub parallel: char,
    pub leakproof: bool,
    /// It runs by the rights of its owner.
    #[serde(default)]
    pub security_definer: bool,
    /// Parameters that hold while it runs: name and value.
    #[serde(default)]
    pub settings: Vec<(String, String)>,
    pub cost: f32,
    pub body: String,
    /// The table or view whose trigger it was made with, if it is the body of one: it goes with
    /// the trigger.
    #[serde(default)]
    pub trigger_of: Option<u32>,
    #[serde(default)]
    pub comment: Option<String>,
    /// The extension that has made it.
    #[serde(default)]
    pub extension: Option<u32>,
}

fn first_superuser() -> u32 {
    FIRST_SUPERUSER
}

impl Parameter {
    pub fn ty(&self) -> SqlType {
        let known = self.known.or_else(|| SqlType::from_oid(self.type_oid));
        known.unwrap_or(SqlType::Text)
    }
}

impl Argument {
    pub fn ty(&self) -> SqlType {
        let known = self.known.or_else(|| SqlType::from_oid(self.type_oid));
        known.unwrap_or(SqlType::Text)
    }
}

impl Function {
    pub fn is_trigger(&self) -> bool {
        self.result == TRIGGER
    }

    /// The type of its result; of a trigger's function, which nobody calls, `void`.
    pub fn result_type(&self) -> SqlType {
        let known = self.known_result.or_else(|| SqlType::from_oid(self.result));
        known.unwrap_or(SqlType::Void)
    }

    pub fn argument_types(&self) -> Vec<u32> {
        self.arguments.iter().map(|a| a.type_oid).collect()
    }

    /// The same with what the numbers of its types mean now; `None`: it knows.
    pub(super) fn retyped(&self, types: &dyn Fn(u32) -> Option<SqlType>) -> Option<Function> {
        let is_same = |known: Option<SqlType>, now: Option<SqlType>| match (known, now) {
            (Some(known), Some(now)) => known.is_state(now),
            (known, now) => known.is_none() && now.is_none(),
        };
        let made = |oid: u32| types(oid).filter(|_| SqlType::from_oid(oid).is_none());
        let mut arguments = self.arguments.iter();
        let mut parameters = self.parameters.iter();
        if arguments.all(|a| is_same(a.known, made(a.type_oid)))
            && parameters.all(|p| is_same(p.known, made(p.type_oid)))
            && is_same(self.known_result, made(self.result))
        {
            return None;
        }
        let mut next = self.clone();
        for a in &mut next.arguments {
            a.known = made(a.type_oid);
        }
        for p in &mut next.parameters {
            p.known = made(p.type_oid);
        }
        next.known_result = made(self.result);
        Some(next)
    }

    /// Whether the types of both are of the same states.
    pub(super) fn has_types_of(&self, other: &Function) -> bool {
        let types = |f: &Function| {
            let arguments = f.arguments.iter().map(Argument::ty);
            let parameters = f.parameters.iter().map(Parameter::ty);
            let all = arguments.chain(parameters);
            all.chain([f.result_type()]).collect::<Vec<_>>()
        };
        let (own, others) = (types(self), types(other));
        own.len() == others.len() && own.iter().zip(&others).all(|(a, b)| a.is_state(*b))
    }

    /// The parameters that go out.
    pub fn outputs(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|p| p.mode.is_output())
    }

    /// Whether what it gives are rows of columns, not values.
    pub fn gives_rows(&self) -> bool {
        self.result == RECORD || self.row_of.is_some() || self.named_row().is_some()
    }

    /// The type of rows, which has a name, that is its result, if that is no table's.
    fn named_row(&self) -> Option<CompositeType> {
        match self.known_result {
            Some(SqlType::Composite(row)) if !row.is_record() => Some(row),
            _ => None,
        }
    }

    /// The type of the rows that it gives. `None`: it gives values, or rows whose columns each call
    /// defines.
    pub fn row_type(&self, dict: &Dict) -> Option<CompositeType> {
        if let Some(oid) = self.row_of {
            return Some(dict.row_state(dict.table_by_oid(oid)?));
        }
        if let Some(row) = self.named_row() {
            return Some(row);
        }
        let field = |(name, ty, _): Field| composite::Field::new(name, ty.base(), -1);
        let fields = self.columns(dict)?.into_iter().map(field);
        Some(CompositeType::of_fields(fields.collect()))
    }

    /// Whether each call settles some of its types.
    pub fn is_open(&self) -> bool {
        let mut arguments = self.arguments.iter();
        arguments.any(|a| OpenType::of(a.type_oid).is_some())
    }

    /// This function for a call that has settled its types.
    pub fn settled(&self, types: CallTypes) -> Function {
        let mut next = self.clone();
        let mut types = types.types().iter().copied();
        for a in &mut next.arguments {
            a.known = types.next();
        }
        let result = types.next();
        if OpenType::of_result(self.result).is_some() {
            next.known_result = result;
        }
        let mut arguments = next.arguments.iter();
        for p in &mut next.parameters {
            p.known = match p.mode.is_input() {
                true => arguments.next().and_then(|a| a.known),
                false => types.next(),
            };
        }
        next
    }

    /// The columns of the rows that it gives. `None`: it gives values, or rows whose columns each
    /// call defines.
    pub fn columns(&self, dict: &Dict) -> Option<Vec<Field>> {
        if let Some(oid) = self.row_of {
            let columns = dict.table_by_oid(oid)?.live_columns();
            let field = |(_, c): (usize, &super::Column)| (c.name.clone(), c.ty(), c.typmod);
            return Some(columns.map(field).collect());
        }
        if let Some(row) = self.named_row() {
            let field = |f: &composite::Field| (f.name.clone(), f.declared, f.typmod);
            return Some(row.fields()?.iter().map(field).collect());
        }
        let (mut fields, mut number) = (Vec::new(), 0);
        for output in self.outputs() {
            number += 1;
            let name = match output.name.is_empty() {
                true => format!("column{number}"),
                false => output.name.clone(),
            };
            fields.push((name, output.ty(), -1));
        }
        (self.result == RECORD && !fields.is_empty()).then_some(fields)
    }

    /// How many of its last arguments have a default.
    pub fn defaults(&self) -> usize {
        self.arguments
            .iter()
            .filter(|a| a.default.is_some())
            .count()
    }

    /// With the types of its arguments, as messages and contexts show it.
    pub fn signature(&self) -> String {
        let name = |a: &Argument| match OpenType::of(a.type_oid) {
            Some(open) => open.name(),
            None => a.ty().name(),
        };
        let types: Vec<&str> = self.arguments.iter().map(name).collect();
        format!("{}({})", self.name, types.join(","))
    }
}

impl Dict {
    pub fn functions(&self) -> impl Iterator<Item = &Arc<Function>> {
        self.maps.of_kind(kind::FUNCTION).filter_map(|o| match o {
            Object::Function(f) => Some(f),
            _ => None,
        })
    }

    pub fn function_by_oid(&self, oid: u32) -> Option<&Arc<Function>> {
        match &self.maps.entries.get(&i64::from(oid))?.object {
            Object::Function(f) => Some(f),
            _ => None,
        }
    }

    /// Whether a name may mean a function, in whatever schema.
    pub fn has_function_named(&self, name: &Qualified) -> bool {
        name.number().is_some() || self.maps.functions.contains_key(name.name.as_str())
    }

    /// The functions that a name may mean, which may be the number of one.
    pub fn functions_meant(&self, name: &Qualified) -> Vec<Arc<Function>> {
        match name.number() {
            Some(number) => self.function_by_oid(number).cloned().into_iter().collect(),
            None => self.functions_named(name.schema.as_deref(), &name.name),
        }
    }

    /// The functions that a name may mean: of its schema, or of those of the path. One that comes
    /// later on the path than another of the same types is not among them.
    pub fn functions_named(&self, schema: Option<&str>, name: &str) -> Vec<Arc<Function>> {
        let Some(keys) = self.maps.functions.get(name) else {
            return Vec::new();
        };
        let all = keys.keys().filter_map(|key| self.function_by_oid(*key));
        let searched: Vec<u32> = match schema {
            Some(schema) => self.schema(schema).into_iter().collect(),
            // As in PostgreSQL, a temporary one is called by its schema alone.
            None => {
                let path = self.path.iter().copied();
                path.filter(|s| !self.is_temporary(*s)).collect()
            }
        };
        let place = |f: &&Arc<Function>| searched.iter().position(|s| *s == f.schema);
        let mut found: Vec<(usize, &Arc<Function>)> =
            all.filter_map(|f| Some((place(&f)?, f))).collect();
        found.sort_by_key(|(at, f)| (*at, f.oid));
        let mut seen: Vec<Arc<Function>> = Vec::with_capacity(found.len());
        for (_, f) in found {
            let types = f.argument_types();
            if !seen.iter().any(|known| known.argument_types() == types) {
                seen.push(f.clone());
            }
        }
        seen
    }

    /// The function of a schema, a name and types.
    pub fn function_in(&self, schema: u32, name: &str, types: &[u32]) -> Option<&Arc<Function>> {
        let keys = self.maps.functions.get(name)?;
        let mut all = keys.keys().filter_map(|key| self.function_by_oid(*key));
        all.find(|f| f.schema == schema && f.argument_types() == types)
    }
}
