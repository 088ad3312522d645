//! What blocks of Oracle's have besides PL/pgSQL's words.
//!
//! - A SELECT INTO has exactly one row, or is `no_data_found` or `too_many_rows`.
//! - `DBMS_OUTPUT.PUT_LINE(x)` tells the client.
//! - `EXECUTE IMMEDIATE` is EXECUTE.
//! - Conditions have Oracle's names.

use super::Parser;
use crate::Error;
use crate::tree::{Condition, Level, Raise, Raised, What};

/// Oracle's names of conditions, and PL/pgSQL's.
const CONDITIONS: [(&str, &str); 6] = [
    ("dup_val_on_index", "unique_violation"),
    ("zero_divide", "division_by_zero"),
    ("value_error", "data_exception"),
    ("invalid_number", "invalid_text_representation"),
    ("invalid_cursor", "invalid_cursor_name"),
    ("timeout_on_resource", "lock_not_available"),
];

pub(super) fn condition(name: String) -> Condition {
    let known = CONDITIONS.iter().find(|(oracle, _)| *oracle == name);
    Condition::Name(known.map_or(name, |(_, ours)| ours.to_string()))
}

impl Parser<'_> {
    /// A statement that only Oracle's blocks have.
    pub(super) fn oracle_statement(&mut self) -> Result<Option<What>, Error> {
        let word = |n: usize, w: &str| self.ahead(n).is_some_and(|t| t.is_word(w));
        let sign = |n: usize, s: &str| self.ahead(n).is_some_and(|t| t.is_sign(s));
        if word(0, "execute") && word(1, "immediate") {
            self.at += 2;
            return self.execute().map(Some);
        }
        if !word(0, "dbms_output") || !sign(1, ".") {
            return Ok(None);
        }
        if !word(2, "put_line") || !sign(3, "(") {
            return Err(self.unsupported("DBMS_OUTPUT but for PUT_LINE"));
        }
        self.at += 4;
        let line = self.sql(&[")"], &[])?;
        self.expect_sign(")")?;
        self.expect_sign(";")?;
        let what = Raised::Format {
            format: "%".to_string(),
            arguments: vec![line],
        };
        Ok(Some(What::Raise(Raise {
            level: Level::Output,
            what,
            options: Vec::new(),
        })))
    }
}
