//! Statements of the simple protocol: what clients write values into is planned once for all
//! values.

use std::sync::Arc;

use super::SqlSession;
use super::statement::{Portal, Statement};
use crate::api::Params;
use crate::error::{Error, Result};
use crate::parse::literals::{self, Shared};
use crate::pgtype;

impl SqlSession {
    /// Parses, plans and binds a statement that has no parameters.
    pub fn prepare_simple(&mut self, sql: &str) -> Result<(Arc<Statement>, Portal)> {
        if let Some(shared) = self.shared_form(sql) {
            self.client_text = Some(sql.into());
            match self.prepare_shared(&shared) {
                Ok(prepared) => return Ok(prepared),
                // The statement as it was sent says what is wrong with it, if anything is.
                Err(e) if is_of_text(&e) => self.core.database.plans.keep_apart(&shared.text),
                Err(e) => return Err(e),
            }
        }
        let statement = self.parse(sql, &[])?;
        if !statement.param_types().is_empty() {
            return Err(Error::new("42P02", "there is no parameter $1"));
        }
        let portal = self.bind(&statement, Params::default())?;
        Ok((statement, portal))
    }

    /// The statement with parameters for its literals, if others may share that.
    fn shared_form<'s>(&self, sql: &'s str) -> Option<Shared<'s>> {
        if self.core.has_own_dict() {
            return None;
        }
        let shared = literals::shared(sql)?;
        let apart = self.core.database.plans.is_apart(&shared.text);
        (!apart).then_some(shared)
    }

    fn prepare_shared(&mut self, shared: &Shared<'_>) -> Result<(Arc<Statement>, Portal)> {
        let statement = self.analysed(&shared.text, &shared.types)?;
        let types = statement.params();
        if !statement.is_cacheable() || types.len() != shared.values.len() {
            return Err(Error::unsupported("this statement for any values"));
        }
        let values = types.iter().zip(&shared.values);
        let values = values
            .map(|(ty, text)| pgtype::text_in(*ty, text, &self.core.io))
            .collect::<Result<Vec<_>>>()?;
        let mut portal = Portal::new(&statement, values);
        portal.mark = self.core.mark;
        Ok((statement, portal))
    }

    /// Whether the statement was sent as a whole, without parameters of its client's.
    pub(super) fn has_client_text(&self) -> bool {
        self.client_text.is_some()
    }

    /// The text that other sessions are shown while a statement runs: as its client sent it.
    pub(super) fn text_of(&self, statement: &Statement) -> Arc<str> {
        let sent = self.client_text.as_ref();
        sent.unwrap_or_else(|| statement.text()).clone()
    }
}

/// Whether an error may be due to a literal that became a parameter.
fn is_of_text(e: &Error) -> bool {
    ["0A", "22", "42"]
        .iter()
        .any(|class| e.sqlstate().starts_with(class))
}
