//! Definitions that the SQL grammar does not read, or not in full: schemas, what has one, comments.

use sqlparser::tokenizer::Token;

use super::absent::{self, DropAbsent};
use super::cast::{self, CastStatement};
use super::domain::{self, DomainStatement};
use super::extension::{self, ExtensionStatement};
use super::function::{self, Attributes, CreateFunction, FunctionName, Routine};
use super::policy::{self, PolicyStatement};
use super::role::{RoleName, role_name};
use super::storage;
use super::tokens::Words;
use super::trigger::{self, CreateTrigger};
use super::types::{self, TypeDefinition};
use super::view::{self, Given};
use crate::bind::names::Qualified;
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub enum Definition {
    CreateSchema {
        /// `None`: the owner's name.
        name: Option<String>,
        owner: Option<RoleName>,
        if_not_exists: bool,
        /// The statements that stand in it.
        elements: Vec<String>,
    },
    AlterSchema {
        name: String,
        change: Change,
    },
    /// ALTER LARGE OBJECT .. OWNER TO.
    OwnLargeObject {
        oid: u32,
        owner: RoleName,
    },
    /// ALTER of a relation, in what relations have in common.
    AlterRelation {
        kind: Kind,
        name: Qualified,
        if_exists: bool,
        change: Change,
    },
    AlterFunction {
        kind: Routine,
        name: FunctionName,
        change: Change,
    },
    Type(TypeDefinition),
    Domain(DomainStatement),
    Comment {
        on: Commented,
        text: Option<String>,
    },
    CreateFunction(Box<CreateFunction>),
    CreateTrigger(Box<CreateTrigger>),
    /// CREATE RECURSIVE VIEW, as the text of the CREATE VIEW that it is.
    RecursiveView(String),
    RefreshView {
        name: Qualified,
        concurrently: bool,
        with_data: bool,
    },
    Reindex(Reindex),
    DropIndexConcurrently {
        name: Qualified,
        if_exists: bool,
    },
    DropTrigger {
        name: Qualified,
        /// Oracle's form has none.
        table: Option<Qualified>,
        if_exists: bool,
    },
    RenameTrigger {
        name: String,
        table: Qualified,
        to: String,
    },
    Policy(PolicyStatement),
    Cast(CastStatement),
    DropAbsent(DropAbsent),
    Extension(ExtensionStatement),
    DropFunction {
        kind: Routine,
        names: Vec<FunctionName>,
        if_exists: bool,
        cascade: bool,
    },
}

/// REINDEX.
#[derive(Clone, Debug)]
pub struct Reindex {
    pub what: Reindexed,
    /// Of a schema, the name is in both places.
    pub name: Qualified,
    pub concurrently: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reindexed {
    Index,
    Table,
    Schema,
    Database,
}

#[derive(Clone, Debug)]
pub enum Change {
    Rename(String),
    RenameColumn(String, String),
    Owner(RoleName),
    Schema(String),
    /// SET LOGGED, or SET UNLOGGED.
    Logged(bool),
    /// Of a function.
    Attributes(Box<Attributes>),
    OfView(ViewChange),
    /// SET, or RESET, of parameters of an index's column, which has none.
    OfIndexColumn {
        reset: bool,
    },
    /// SET and RESET of storage parameters.
    Options {
        given: Vec<Given>,
        reset: bool,
    },
}

/// What ALTER VIEW changes that only views have.
#[derive(Clone, Debug)]
pub enum ViewChange {
    /// The default of a column, as SQL text.
    Default(String, Option<String>),
    SetOptions(Vec<Given>),
    ResetOptions(Vec<Given>),
}

/// The word by which a statement calls a relation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Table,
    Sequence,
    View,
    MaterializedView,
    Index,
}

/// What a comment is on.
#[derive(Clone, Debug)]
pub enum Commented {
    Relation(Kind, Qualified),
    Column(Qualified, String),
    Constraint(String, Qualified),
    Schema(String),
    Role(String),
    Type(Qualified),
    Function(Routine, FunctionName),
    Trigger(String, Qualified),
    Policy(String, Qualified),
    Extension(String),
}

impl Definition {
    pub fn command(&self) -> &'static str {
        match self {
            Definition::CreateSchema { .. } => "CREATE SCHEMA",
            Definition::AlterSchema { .. } => "ALTER SCHEMA",
            Definition::OwnLargeObject { .. } => "ALTER LARGE OBJECT",
            Definition::AlterRelation { kind, .. } => match kind {
                Kind::Table => "ALTER TABLE",
                Kind::Sequence => "ALTER SEQUENCE",
                Kind::View => "ALTER VIEW",
                Kind::MaterializedView => "ALTER MATERIALIZED VIEW",
                Kind::Index => "ALTER INDEX",
            },
            Definition::Type(
                TypeDefinition::CreateEnum { .. }
                | TypeDefinition::CreateComposite { .. }
                | TypeDefinition::CreateRange { .. },
            ) => "CREATE TYPE",
            Definition::Type(TypeDefinition::Alter { .. }) => "ALTER TYPE",
            Definition::Domain(statement) => statement.command(),
            Definition::Comment { .. } => "COMMENT",
            Definition::CreateFunction(new) if new.procedure => "CREATE PROCEDURE",
            Definition::CreateFunction(_) => "CREATE FUNCTION",
            Definition::CreateTrigger(_) => "CREATE TRIGGER",
            Definition::RecursiveView(_) => "CREATE VIEW",
            Definition::RefreshView { .. } => "REFRESH MATERIALIZED VIEW",
            Definition::Reindex(_) => "REINDEX",
            Definition::DropIndexConcurrently { .. } => "DROP INDEX",
            Definition::DropTrigger { .. } => "DROP TRIGGER",
            Definition::RenameTrigger { .. } => "ALTER TRIGGER",
            Definition::Policy(statement) => statement.command(),
            Definition::Extension(statement) => statement.command(),
            Definition::Cast(statement) => statement.command(),
            Definition::DropAbsent(gone) => gone.command(),
            Definition::AlterFunction { kind, .. } => kind.alter_command(),
            Definition::DropFunction { kind, .. } => kind.drop_command(),
        }
    }
}

/// After the word CREATE.
pub fn create(w: &mut Words<'_>) -> Result<Option<Definition>> {
    if let Some(text) = recursive_view(w)? {
        return Ok(Some(Definition::RecursiveView(text)));
    }
    if let Some(made) = function::create(w)? {
        return Ok(Some(Definition::CreateFunction(Box::new(made))));
    }
    if let Some(made) = trigger::create(w)? {
        return Ok(Some(Definition::CreateTrigger(Box::new(made))));
    }
    if let Some(made) = policy::create(w)? {
        return Ok(Some(Definition::Policy(made)));
    }
    if let Some(made) = extension::create(w)? {
        return Ok(Some(Definition::Extension(made)));
    }
    if let Some(made) = cast::create(w)? {
        return Ok(Some(Definition::Cast(made)));
    }
    if let Some(made) = domain::create(w)? {
        return Ok(Some(made));
    }
    if !w.accept("schema") {
        return types::create(w);
    }
    let if_not_exists = w.accept("if not exists");
    let mut name = None;
    if !w.precedes("authorization") {
        name = Some(w.name()?);
    }
    let owner = match w.accept("authorization") {
        true => Some(role_name(w)?),
        false => None,
    };
    let elements = elements(w)?;
    if if_not_exists && !elements.is_empty() {
        let message = "CREATE SCHEMA IF NOT EXISTS cannot include schema elements";
        return Err(Error::new("0A000", message));
    }
    Ok(Some(Definition::CreateSchema {
        name,
        owner,
        if_not_exists,
        elements,
    }))
}

/// The statements behind CREATE SCHEMA: each begins with CREATE or GRANT.
fn elements(w: &mut Words<'_>) -> Result<Vec<String>> {
    let begins = |w: &mut Words<'_>| ["create", "grant"].iter().any(|word| w.precedes(word));
    if !w.at_end() && !begins(w) {
        return Err(w.unexpected());
    }
    let (mut depth, mut rests) = (0usize, Vec::new());
    while !w.at_end() {
        if depth == 0 && begins(w) {
            let here = w.mark();
            rests.push(w.rest().to_string());
            w.back_to(here);
        }
        match w.bump() {
            Some(Token::LParen) => depth += 1,
            Some(Token::RParen) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let lengths: Vec<usize> = rests.iter().skip(1).map(String::len).chain([0]).collect();
    let cut = |(rest, after): (String, usize)| rest[..rest.len() - after].trim().to_string();
    Ok(rests.into_iter().zip(lengths).map(cut).collect())
}

/// After the word REFRESH.
pub fn refresh(w: &mut Words<'_>) -> Result<Definition> {
    w.expect("materialized view")?;
    let concurrently = w.accept("concurrently");
    let name = w.relation()?;
    let with_data = !w.accept("with no data");
    if with_data {
        w.accept("with data");
    }
    Ok(Definition::RefreshView {
        name,
        concurrently,
        with_data,
    })
}

/// After the word DROP.
pub fn drop(w: &mut Words<'_>) -> Result<Option<Definition>> {
    if w.accept("index concurrently") {
        return drop_index_concurrently(w).map(Some);
    }
    if w.accept("trigger") {
        let (name, table, if_exists) = trigger::drop(w)?;
        return Ok(Some(Definition::DropTrigger {
            name,
            table,
            if_exists,
        }));
    }
    if let Some(gone) = policy::drop(w)? {
        return Ok(Some(Definition::Policy(gone)));
    }
    if let Some(gone) = extension::drop(w)? {
        return Ok(Some(Definition::Extension(gone)));
    }
    if let Some(gone) = cast::drop(w)? {
        return Ok(Some(Definition::Cast(gone)));
    }
    if let Some(gone) = absent::drop(w)? {
        return Ok(Some(Definition::DropAbsent(gone)));
    }
    let Some(kind) = function::kind(w) else {
        return domain::drop(w);
    };
    let (names, if_exists, cascade) = function::names_to_drop(w)?;
    Ok(Some(Definition::DropFunction {
        kind,
        names,
        if_exists,
        cascade,
    }))
}

/// After the word REINDEX.
pub fn reindex(w: &mut Words<'_>) -> Result<Definition> {
    let mut concurrently = false;
    if w.accept_token(&Token::LParen) {
        loop {
            if !w.accept("concurrently") {
                return Err(Error::unsupported("options of REINDEX but CONCURRENTLY"));
            }
            concurrently = true;
            if !w.accept_token(&Token::Comma) {
                break;
            }
        }
        if !w.accept_token(&Token::RParen) {
            return Err(w.unexpected());
        }
    }
    let what = match () {
        () if w.accept("index") => Reindexed::Index,
        () if w.accept("table") => Reindexed::Table,
        () if w.accept("schema") => Reindexed::Schema,
        () if w.accept("database") => Reindexed::Database,
        () if w.accept("system") => return Err(Error::unsupported("REINDEX SYSTEM")),
        () => return Err(w.unexpected()),
    };
    concurrently |= w.accept("concurrently");
    let name = match what {
        Reindexed::Index | Reindexed::Table => w.relation()?,
        Reindexed::Schema | Reindexed::Database => {
            let name = w.name()?;
            let schema = (what == Reindexed::Schema).then(|| name.clone());
            Qualified { schema, name }
        }
    };
    if !w.at_end() {
        return Err(w.unexpected());
    }
    Ok(Definition::Reindex(Reindex {
        what,
        name,
        concurrently,
    }))
}

/// After the words DROP INDEX CONCURRENTLY.
fn drop_index_concurrently(w: &mut Words<'_>) -> Result<Definition> {
    let if_exists = w.accept("if exists");
    let name = w.relation()?;
    let mut several = false;
    while w.accept_token(&Token::Comma) {
        w.relation()?;
        several = true;
    }
    let cascade = w.accept("cascade");
    if !cascade {
        w.accept("restrict");
    }
    if !w.at_end() {
        return Err(w.unexpected());
    }
    let refused = match (several, cascade) {
        (true, _) => "dropping multiple objects",
        (_, true) => "CASCADE",
        _ => return Ok(Definition::DropIndexConcurrently { name, if_exists }),
    };
    let message = format!("DROP INDEX CONCURRENTLY does not support {refused}");
    Err(Error::new("0A000", message))
}

/// CREATE RECURSIVE VIEW, as a CREATE VIEW.
fn recursive_view(w: &mut Words<'_>) -> Result<Option<String>> {
    let begin = w.mark();
    let mut created = "CREATE".to_string();
    if w.accept("or replace") {
        created.push_str(" OR REPLACE");
    }
    if w.accept("temporary") || w.accept("temp") {
        created.push_str(" TEMPORARY");
    }
    if !w.accept("recursive view") {
        w.back_to(begin);
        return Ok(None);
    }
    view::recursive(w, &created).map(Some)
}

/// After the word ALTER. What other forms there are is left to those who read them.
pub fn alter(w: &mut Words<'_>) -> Result<Option<Definition>> {
    if w.accept("schema") {
        let name = w.name()?;
        let change = match change(w, Kind::Table)? {
            Some(change @ (Change::Rename(_) | Change::Owner(_))) => change,
            _ => return Err(w.unexpected()),
        };
        return Ok(Some(Definition::AlterSchema { name, change }));
    }
    if w.accept("large object") {
        let oid = large_object(w)?;
        w.expect("owner to")?;
        let owner = role_name(w)?;
        return Ok(Some(Definition::OwnLargeObject { oid, owner }));
    }
    if w.accept("trigger") {
        let (name, table, to) = trigger::alter(w)?;
        return Ok(Some(Definition::RenameTrigger { name, table, to }));
    }
    if let Some(changed) = policy::alter(w)? {
        return Ok(Some(Definition::Policy(changed)));
    }
    if let Some(changed) = extension::alter(w)? {
        return Ok(Some(Definition::Extension(changed)));
    }
    if let Some(changed) = domain::alter(w)? {
        return Ok(Some(changed));
    }
    if let Some(kind) = function::kind(w) {
        let name = function::function_name(w)?;
        let change = match change(w, Kind::Table)? {
            Some(change) => change,
            None => match function::attributes(w)? {
                Some(attributes) => Change::Attributes(Box::new(attributes)),
                None if w.precedes("depends on extension")
                    || w.precedes("no depends on extension")
                    || w.precedes("support") =>
                {
                    let command = kind.alter_command();
                    return Err(Error::unsupported(format!("this form of {command}")));
                }
                None => return Err(w.unexpected()),
            },
        };
        return Ok(Some(Definition::AlterFunction { kind, name, change }));
    }
    let begin = w.mark();
    let Some(kind) = kind(w) else {
        return types::alter(w);
    };
    let if_exists = w.accept("if exists");
    if kind == Kind::Table {
        w.accept("only");
    }
    let found = match w.relation() {
        Ok(name) => relation_change(w, kind)?.map(|change| Definition::AlterRelation {
            kind,
            name,
            if_exists,
            change,
        }),
        Err(_) => None,
    };
    // RENAME and OWNER of tables and sequences are read elsewhere.
    let read_here = |d: &Definition| match d {
        Definition::AlterRelation { change, .. } => {
            let own = matches!(kind, Kind::View | Kind::MaterializedView | Kind::Index);
            matches!(change, Change::Schema(_) | Change::Logged(_)) || own
        }
        _ => true,
    };
    match found.filter(read_here) {
        Some(found) => Ok(Some(found)),
        None if kind == Kind::View => Err(w.unexpected()),
        None if kind == Kind::MaterializedView => Err(Error::unsupported(
            "ALTER MATERIALIZED VIEW other than RENAME, OWNER and SET SCHEMA",
        )),
        None => {
            w.back_to(begin);
            Ok(None)
        }
    }
}

fn kind(w: &mut Words<'_>) -> Option<Kind> {
    let kinds = [
        ("table", Kind::Table),
        ("sequence", Kind::Sequence),
        ("view", Kind::View),
        ("materialized view", Kind::MaterializedView),
        ("index", Kind::Index),
    ];
    let found = kinds.into_iter().find(|(word, _)| w.accept(word));
    found.map(|(_, kind)| kind)
}

fn relation_change(w: &mut Words<'_>, kind: Kind) -> Result<Option<Change>> {
    if matches!(kind, Kind::Table | Kind::Sequence) {
        if w.accept("set logged") {
            return Ok(Some(Change::Logged(true)));
        }
        if w.accept("set unlogged") {
            return Ok(Some(Change::Logged(false)));
        }
    }
    change(w, kind)
}

/// SET SCHEMA of any, RENAME and OWNER of what the SQL grammar does not read them of.
fn change(w: &mut Words<'_>, kind: Kind) -> Result<Option<Change>> {
    if w.accept("set schema") {
        return Ok(Some(Change::Schema(w.name()?)));
    }
    let begin = w.mark();
    if w.accept("rename to") {
        return Ok(Some(Change::Rename(w.name()?)));
    }
    if w.accept("owner to") {
        return Ok(Some(Change::Owner(role_name(w)?)));
    }
    if matches!(kind, Kind::View | Kind::MaterializedView) && w.accept("rename") {
        w.accept("column");
        let from = w.name()?;
        w.expect("to")?;
        return Ok(Some(Change::RenameColumn(from, w.name()?)));
    }
    if kind == Kind::View && w.accept("alter") {
        w.accept("column");
        let column = w.name()?;
        if w.accept("drop default") {
            return Ok(Some(Change::OfView(ViewChange::Default(column, None))));
        }
        w.expect("set default")?;
        let before = w.position() - 1;
        let text = w.rest().trim_end_matches(';').trim_end().to_string();
        super::whole_expression(&text).map_err(|e| e.moved(before))?;
        return Ok(Some(Change::OfView(ViewChange::Default(
            column,
            Some(text),
        ))));
    }
    if matches!(kind, Kind::Index | Kind::MaterializedView) {
        if w.accept("set tablespace") {
            storage::known_tablespace(&w.name()?)?;
            let given = Vec::new();
            return Ok(Some(Change::Options { given, reset: true }));
        }
        let reset = w.precedes("reset");
        if (w.accept("set") || w.accept("reset")) && w.peek() == Some(&Token::LParen) {
            let given = view::options(w)?;
            return Ok(Some(Change::Options { given, reset }));
        }
        w.back_to(begin);
    }
    if kind == Kind::Index && w.accept("alter") {
        w.accept("column");
        if w.name().is_ok() {
            let reset = w.precedes("reset");
            if (w.accept("set") || w.accept("reset")) && w.peek() == Some(&Token::LParen) {
                view::options(w)?;
                return Ok(Some(Change::OfIndexColumn { reset }));
            }
        }
        w.back_to(begin);
    }
    if kind == Kind::View && w.accept("set") {
        return Ok(Some(Change::OfView(ViewChange::SetOptions(view::options(
            w,
        )?))));
    }
    if kind == Kind::View && w.accept("reset") {
        return Ok(Some(Change::OfView(ViewChange::ResetOptions(
            view::options(w)?,
        ))));
    }
    w.back_to(begin);
    Ok(None)
}

/// After the word COMMENT.
/// The number of a large object.
pub fn large_object(w: &mut Words<'_>) -> Result<u32> {
    let mark = w.mark();
    let number = w.integer()?;
    u32::try_from(number).map_err(|_| {
        w.back_to(mark);
        w.unexpected()
    })
}

pub fn comment(w: &mut Words<'_>) -> Result<Definition> {
    w.expect("on")?;
    let on = if let Some(kind) = kind(w) {
        Commented::Relation(kind, w.relation()?)
    } else if w.accept("column") {
        let mut path = vec![w.name()?];
        while w.accept_token(&Token::Period) {
            path.push(w.name()?);
        }
        let column = path.pop();
        match (column, path.pop()) {
            (Some(column), Some(name)) if path.len() < 2 => {
                let schema = path.pop();
                Commented::Column(Qualified { schema, name }, column)
            }
            (column, _) if path.is_empty() => {
                let message = "column name must be qualified";
                return Err(column.map_or(w.unexpected(), |_| Error::new("42601", message)));
            }
            _ => return Err(Error::unsupported("a name with its database")),
        }
    } else if w.accept("constraint") {
        let name = w.name()?;
        w.expect("on")?;
        // A table may have the name.
        if w.precedes("domain") && !w.precedes("domain is") {
            return Err(Error::unsupported("COMMENT ON CONSTRAINT of a domain"));
        }
        Commented::Constraint(name, w.relation()?)
    } else if w.accept("schema") {
        Commented::Schema(w.name()?)
    } else if w.accept("role") {
        Commented::Role(w.name()?)
    } else if w.accept("type") || w.accept("domain") {
        Commented::Type(w.relation()?)
    } else if let Some(kind) = function::kind(w) {
        Commented::Function(kind, function::function_name(w)?)
    } else if w.accept("trigger") {
        let name = w.name()?;
        w.expect("on")?;
        Commented::Trigger(name, w.relation()?)
    } else if w.accept("policy") {
        let name = w.name()?;
        w.expect("on")?;
        Commented::Policy(name, w.relation()?)
    } else if w.accept("extension") {
        Commented::Extension(w.name()?)
    } else {
        let kind = w.word().unwrap_or_default().to_uppercase();
        return Err(Error::unsupported(format!("COMMENT ON {kind}")));
    };
    w.expect("is")?;
    let text = match w.accept("null") {
        true => None,
        false => Some(w.string()?),
    };
    Ok(Definition::Comment { on, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sql: &str) -> Result<Option<Definition>> {
        let mut w = Words::new(sql)?;
        match w.word().as_deref() {
            Some("create") => {
                w.bump();
                create(&mut w)
            }
            _ => {
                w.bump();
                alter(&mut w)
            }
        }
    }

    #[test]
    fn the_statements_of_a_schema_are_told_apart() {
        let sql = "create schema s create table t (a int, b text default 'create') \
                   create view v as select (select 1) as x;";
        let Ok(Some(Definition::CreateSchema { elements, .. })) = parsed(sql) else {
            panic!("{sql} is none");
        };
        let wanted = [
            "create table t (a int, b text default 'create')",
            "create view v as select (select 1) as x",
        ];
        let found: Vec<&str> = elements.iter().map(|e| e.trim_end_matches(';')).collect();
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_others_read_is_left_to_them() {
        for sql in [
            "alter table t rename to u",
            "alter table t add column c int",
            "alter sequence s restart",
            "create table t (a int)",
        ] {
            assert!(matches!(parsed(sql), Ok(None)), "{sql}");
        }
        let moved = parsed("alter table if exists a.t set schema b");
        assert!(matches!(
            moved,
            Ok(Some(Definition::AlterRelation {
                change: Change::Schema(_),
                if_exists: true,
                ..
            }))
        ));
        let changed = parsed("alter view v alter column a set default 1");
        assert!(matches!(
            changed,
            Ok(Some(Definition::AlterRelation {
                change: Change::OfView(ViewChange::Default(_, Some(_))),
                ..
            }))
        ));
    }
}
