//! Access methods of indexes: what each can do, and which operator classes it has.
//!
//! B-trees are in the order of their keys. The entries of the others are keys of which a row has
//! any number, and are found by equality only ([`super::inverted`]).

use serde::{Deserialize, Serialize};
use sqlparser::ast::IndexType;

use super::extension::TRIGRAM_CLASS;
use super::inverted::KeyClass;
use crate::bind::names;
use crate::error::{Error, Result};
use crate::types::SqlType;

/// The access method of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    #[default]
    Btree,
    Hash,
    Gin,
}

impl Method {
    /// The method that CREATE INDEX names.
    pub fn named(syntax: Option<&IndexType>) -> Result<Method> {
        let known = match syntax {
            None | Some(IndexType::BTree) => Some(Method::Btree),
            Some(IndexType::Hash) => Some(Method::Hash),
            Some(IndexType::GIN) => Some(Method::Gin),
            Some(_) => None,
        };
        if let Some(method) = known {
            return Ok(method);
        }
        let name = match syntax {
            Some(IndexType::Custom(name)) => names::ident(name),
            other => other.map_or(String::new(), |t| t.to_string().to_lowercase()),
        };
        Err(match name.as_str() {
            // PostgreSQL takes `gist` for the last one.
            "gist" | "spgist" | "brin" | "rtree" => {
                Error::unsupported(format!("CREATE INDEX USING {name}"))
            }
            _ => {
                let message = format!("access method \"{name}\" does not exist");
                Error::new("42704", message)
            }
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Method::Btree => "btree",
            Method::Hash => "hash",
            Method::Gin => "gin",
        }
    }

    /// The number of the method in `pg_am`.
    pub fn oid(self) -> u32 {
        match self {
            Method::Btree => 403,
            Method::Hash => 405,
            Method::Gin => 2742,
        }
    }

    /// Whether entries are in the order of their keys, so that ranges and orders can be had.
    pub fn is_ordered(self) -> bool {
        self == Method::Btree
    }

    /// Refuses what the method has not.
    pub fn check(self, unique: bool, included: usize, columns: usize) -> Result<()> {
        let lacks = match self {
            Method::Btree => None,
            _ if unique => Some("unique indexes"),
            _ if included > 0 => Some("included columns"),
            Method::Hash if columns > 1 => Some("multicolumn indexes"),
            Method::Hash | Method::Gin => None,
        };
        match lacks {
            Some(what) => Err(self.lacks(what)),
            None => Ok(()),
        }
    }

    /// Refuses an order of a column, where there is none.
    pub fn check_order(self, direction: bool, nulls: bool) -> Result<()> {
        match self {
            Method::Btree => Ok(()),
            _ if direction => Err(self.lacks("ASC/DESC options")),
            _ if nulls => Err(self.lacks("NULLS FIRST/LAST options")),
            Method::Hash | Method::Gin => Ok(()),
        }
    }

    fn lacks(self, what: &str) -> Error {
        let message = format!("access method \"{}\" does not support {what}", self.name());
        Error::new("0A000", message)
    }

    /// How a column of this type, with an operator class or with the default, is looked up in an
    /// inverted index; an empty name is the default.
    pub fn key_class(self, ty: SqlType, class: &str) -> Result<KeyClass> {
        match (self, ty, class) {
            (Method::Hash, ..) => Ok(KeyClass::Whole),
            (Method::Gin, SqlType::Array(_), "") => Ok(KeyClass::Elements),
            (Method::Gin, SqlType::Jsonb, "") => Ok(KeyClass::Json),
            (Method::Gin, SqlType::Jsonb, "jsonb_path_ops") => Ok(KeyClass::JsonPaths),
            (Method::Gin, SqlType::Text | SqlType::Varchar, TRIGRAM_CLASS) => {
                Ok(KeyClass::Trigrams)
            }
            _ => Err(self.no_default_class(ty)),
        }
    }

    /// No class is given for a type that has no default one.
    pub fn no_default_class(self, ty: SqlType) -> Error {
        let message = format!(
            "data type {} has no default operator class for access method \"{}\"",
            ty.name(),
            self.name()
        );
        let hint = "You must specify an operator class for the index or define a default operator \
                    class for the data type.";
        Error::new("42704", message).hint(hint)
    }
}
