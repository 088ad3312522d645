//! CREATE TABLE (LIKE ..): the columns, checks and keys of another relation as they would be
//! written out, and after the table is made its other indexes and its comments.

use std::sync::Arc;

use sqlparser::ast::{self, CreateTable};

use super::{Core, index, name_of, no_relation};
use crate::bind::numbered::{self, Shown};
use crate::dict::acl::Privileges;
use crate::dict::{Column, Dict, Identity, Index, Object, Relation, Table};
use crate::dict::{Comment, CommentOn};
use crate::error::{Error, Result};
use crate::parse::like::{Included, of_column};
use crate::parse::utility::TableLock;
use crate::parse::{self, Command};
use crate::views::describe;

/// A relation that a statement has in LIKE.
struct Like {
    table: Arc<Table>,
    included: Included,
}

/// What is left to be done once the table is there.
pub struct Left(Vec<Like>);

/// The statement with all LIKE clauses written out; `None`: it has none.
pub fn written_out(core: &mut Core, c: &CreateTable) -> Result<Option<(CreateTable, Left)>> {
    if c.columns.iter().all(|column| of_column(column).is_none()) {
        return Ok(None);
    }
    let mut made = c.clone();
    made.columns.clear();
    let mut left = Vec::new();
    for column in &c.columns {
        let Some((name, included)) = of_column(column) else {
            made.columns.push(column.clone());
            continue;
        };
        let table = source(core, name)?;
        let parts = parts(&core.dict(), &table, included)?;
        made.columns.extend(parts.columns);
        made.constraints.extend(parts.constraints);
        left.push(Like { table, included });
    }
    Ok(Some((made, Left(left))))
}

/// The table, or the view as one, locked.
fn source(core: &mut Core, name: &ast::ObjectName) -> Result<Arc<Table>> {
    let wanted = name_of(name)?;
    let rights = core.rights();
    let refused = |what: &str| {
        let message = format!("relation \"{}\" is invalid in LIKE clause", wanted.name);
        let detail = format!("This operation is not supported for {what}.");
        Err(Error::new("42809", message).detail(detail))
    };
    let found = core.locked_relation(&wanted, TableLock::AccessShare, false, |found| {
        let table = match found {
            Relation::Table(table) => table.clone(),
            Relation::View(view) => Arc::new(view.as_table()),
            Relation::Index(..) => return refused("indexes"),
            Relation::Sequence(_) => return refused("sequences"),
        };
        rights.check_relation(found, Privileges::SELECT)?;
        Ok(Some(table))
    })?;
    found.ok_or_else(|| no_relation(core, &wanted).at_name(name))
}

/// The columns and constraints of a table, read as they would be written.
fn parts(dict: &Dict, table: &Table, included: Included) -> Result<CreateTable> {
    let mut lines = Vec::new();
    for (_, c) in table.live_columns() {
        lines.push(column(dict, table, c, included)?);
    }
    if included.has("constraints") {
        let checks = table.checks.iter();
        lines.extend(checks.map(|k| format!("CONSTRAINT {} CHECK ({})", quoted(&k.name), k.text)));
    }
    if included.has("indexes") {
        let keys = table.indexes.iter().filter(|i| i.constraint != 0);
        lines.extend(keys.map(|i| describe::key_constraint(table, i, true)));
    }
    let text = format!("CREATE TABLE x ({})", lines.join(", "));
    let unexpected = || Error::internal("a table's definition that is none");
    match parse::statement(&text)? {
        Command::Sql(statement) => match *statement {
            ast::Statement::CreateTable(c) => Ok(c),
            _ => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn column(dict: &Dict, table: &Table, c: &Column, included: Included) -> Result<String> {
    let mut text = format!(
        "{} {}",
        quoted(&c.name),
        numbered::type_text(c.declared(), c.typmod)
    );
    if c.not_null {
        text.push_str(" NOT NULL");
    }
    let default = c.default.as_deref();
    match (c.identity, c.generated) {
        (Some(identity), _) => {
            if included.has("identity") {
                text.push_str(&sequence_of(dict, c, identity)?);
            }
        }
        (None, true) => {
            if let Some(text_of) = default.filter(|_| included.has("generated")) {
                text.push_str(&format!(" GENERATED ALWAYS AS ({text_of}) STORED"));
            }
        }
        (None, false) => {
            if included.has("defaults")
                && let Some(shown) = super::sequence::default_of(dict, table, c)?
            {
                text.push_str(&format!(" DEFAULT {shown}"));
            }
        }
    }
    Ok(text)
}

fn sequence_of(dict: &Dict, c: &Column, identity: Identity) -> Result<String> {
    let sequence = c.sequence.and_then(|s| dict.sequence_by_oid(s));
    let s = sequence.ok_or_else(|| Error::internal("the sequence of a column is gone"))?;
    let how = match identity {
        Identity::Always => "ALWAYS",
        Identity::ByDefault => "BY DEFAULT",
    };
    let cycle = if s.cycle { " CYCLE" } else { "" };
    Ok(format!(
        " GENERATED {how} AS IDENTITY (INCREMENT BY {} MINVALUE {} MAXVALUE {} START WITH {} CACHE \
         {}{cycle})",
        s.increment, s.min, s.max, s.start, s.cache
    ))
}

impl Left {
    /// Makes the indexes that serve no constraint, and the comments, and says how columns are
    /// stored.
    pub fn make(&self, core: &mut Core, oid: u32) -> Result<()> {
        for like in &self.0 {
            if like.included.has("storage") {
                like.storage(core, oid)?;
            }
            let made = match like.included.has("indexes") {
                true => like.indexes(core, oid)?,
                false => Vec::new(),
            };
            if like.included.has("comments") {
                like.comments(core, oid, &made)?;
            }
        }
        Ok(())
    }
}

/// The table that is made, as it is by now.
fn now(core: &Core, oid: u32) -> Result<Arc<Table>> {
    let table = core.dict().table_by_oid(oid).cloned();
    table.ok_or_else(|| Error::internal("a table that was made is not there"))
}

impl Like {
    /// Makes the indexes; gives the object ids of each old one and its new one.
    fn indexes(&self, core: &mut Core, oid: u32) -> Result<Vec<(u32, u32)>> {
        let mut made = Vec::new();
        for i in self.table.indexes.iter().filter(|i| i.constraint == 0) {
            let dict = core.dict();
            let text = describe::index(Shown::AsStored, &dict, None, &self.table, i, 0, false);
            let unexpected = || Error::internal("an index's definition that is none");
            let Command::Sql(statement) = parse::statement(&text)? else {
                return Err(unexpected());
            };
            let ast::Statement::CreateIndex(mut create) = *statement else {
                return Err(unexpected());
            };
            let table = now(core, oid)?;
            let schema = core.dict().schema_name(table.schema).to_string();
            let name = [schema, table.name.clone()].map(|n| ast::Ident::with_quote('"', n));
            create.name = None;
            create.table_name = name.to_vec().into();
            index::create(core, &create)?;
            let after = now(core, oid)?;
            let is_new = |i: &&Index| table.indexes.iter().all(|old| old.oid != i.oid);
            made.extend(
                after
                    .indexes
                    .iter()
                    .find(is_new)
                    .map(|new| (i.oid, new.oid)),
            );
        }
        Ok(made)
    }

    /// Gives the columns the storage that those of the other table have.
    fn storage(&self, core: &mut Core, oid: u32) -> Result<()> {
        let mut next = Table::clone(&*now(core, oid)?);
        for (_, c) in self.table.live_columns() {
            if let Some(at) = next.column(&c.name) {
                next.columns[at].storing.storage = c.storing.storage;
            }
        }
        core.define(Object::Table(Arc::new(next.finish()?)))
    }

    /// Copies the comments on what was copied.
    fn comments(&self, core: &mut Core, oid: u32, indexes: &[(u32, u32)]) -> Result<()> {
        let table = now(core, oid)?;
        let on = |on: &CommentOn| match on {
            CommentOn::Relation => None,
            CommentOn::Column(at) => {
                let name = &self.table.columns.get(*at)?.name;
                table.column(name).map(CommentOn::Column)
            }
            CommentOn::Index(old) => {
                let new = indexes.iter().find(|(known, _)| known == old)?.1;
                Some(CommentOn::Index(new))
            }
            CommentOn::Constraint(name) => {
                let known = self.included.has("constraints")
                    && table.checks.iter().any(|c| c.name == *name);
                known.then(|| CommentOn::Constraint(name.clone()))
            }
        };
        // Those of a view are with the view.
        let comments = match &self.table.view {
            Some(view) => &view.comments,
            None => &self.table.comments,
        };
        let copied = comments.iter().filter_map(|c| {
            let text = c.text.clone();
            Some(Comment {
                on: on(&c.on)?,
                text,
            })
        });
        let copied: Vec<Comment> = copied.collect();
        if copied.is_empty() {
            return Ok(());
        }
        let mut next = Table::clone(&table);
        next.comments.extend(copied);
        core.define(Object::Table(Arc::new(next.finish()?)))
    }
}
