//! A sequence in FROM: one row, with what it stands at.

use std::sync::Arc;

use sqlparser::ast::{ObjectName, TableAlias};

use super::Analyzer;
use super::from::Item;
use super::scope::Scope;
use super::tree::{From, RelationKind};
use crate::dict::Sequence;
use crate::error::{Error, Result};
use crate::views;

impl Analyzer<'_> {
    pub(super) fn sequence(
        &self,
        sequence: &Arc<Sequence>,
        name: &ObjectName,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
    ) -> Result<Item> {
        if self.notes.borrow().is_some() {
            let error = Error::unsupported("a sequence in FROM of a view");
            return Err(error.at_name(name));
        }
        let (mut from, found) = self.view(&views::SEQUENCE, &sequence.name, alias, scope)?;
        if let From::Relation(relation) = &mut from
            && let RelationKind::View { of, .. } = &mut relation.kind
        {
            *of = Some(sequence.clone());
        }
        Ok((from, found))
    }
}
