//! SET and RESET as clauses: of functions, roles and databases.

use super::tokens::Words;
use super::utility::{self, Utility};
use crate::error::{Error, Result};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingClause {
    Set {
        name: String,
        /// None: its default, which takes it away.
        values: Vec<String>,
    },
    /// The value that the session has.
    FromCurrent(String),
    Reset(String),
    ResetAll,
}

/// The clause that comes next, if one does.
pub fn clause(w: &mut Words<'_>) -> Result<Option<SettingClause>> {
    if w.accept("reset all") {
        return Ok(Some(SettingClause::ResetAll));
    }
    if w.accept("reset") {
        return utility::setting_name(w).map(SettingClause::Reset).map(Some);
    }
    if !w.precedes("set") {
        return Ok(None);
    }
    let begin = w.mark();
    w.bump();
    if let Ok(name) = utility::setting_name(w)
        && w.accept("from current")
    {
        return Ok(Some(SettingClause::FromCurrent(name)));
    }
    w.back_to(begin);
    match utility::set(w)? {
        Utility::Set {
            name,
            values,
            local: false,
        } => Ok(Some(SettingClause::Set { name, values })),
        _ => Err(Error::new("42601", "syntax error in a SET clause")),
    }
}
