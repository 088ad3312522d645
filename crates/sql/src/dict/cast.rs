//! Casts that users make, as they are stored, and how they are found.
//!
//! **Invariant.** There is one cast from a type to another at most: the name of the pair is claimed
//! by who makes one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::object::kind;
use super::{Dict, Object};
use crate::expr::cast::CastContext;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cast {
    pub oid: u32,
    /// The number of the type that is converted.
    pub source: u32,
    pub target: u32,
    pub method: Method,
    /// Where it happens by itself.
    pub context: Happens,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Method {
    /// What the one type writes the other one reads.
    InOut,
    /// A function of a user's, by its object id.
    Function(u32),
}

/// The weakest context in which a cast is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Happens {
    Implicitly,
    OnAssignment,
    WhenWritten,
}

impl Happens {
    pub fn context(self) -> CastContext {
        match self {
            Happens::Implicitly => CastContext::Implicit,
            Happens::OnAssignment => CastContext::Assignment,
            Happens::WhenWritten => CastContext::Explicit,
        }
    }
}

impl Cast {
    /// The function that it calls; zero if none.
    pub fn function(&self) -> u32 {
        match self.method {
            Method::InOut => 0,
            Method::Function(oid) => oid,
        }
    }
}

impl Dict {
    /// The cast that a user has made between two types, by their numbers.
    pub fn cast_between(&self, source: u32, target: u32) -> Option<&Arc<Cast>> {
        let key = self.maps.casts.get(&(source, target))?;
        match &self.maps.entries.get(key)?.object {
            Object::Cast(cast) => Some(cast),
            _ => None,
        }
    }

    pub fn cast_by_oid(&self, oid: u32) -> Option<&Arc<Cast>> {
        match &self.maps.entries.get(&i64::from(oid))?.object {
            Object::Cast(cast) => Some(cast),
            _ => None,
        }
    }

    pub fn has_casts(&self) -> bool {
        !self.maps.casts.is_empty()
    }

    pub fn casts(&self) -> impl Iterator<Item = &Arc<Cast>> {
        self.maps.of_kind(kind::CAST).filter_map(|o| match o {
            Object::Cast(cast) => Some(cast),
            _ => None,
        })
    }
}
