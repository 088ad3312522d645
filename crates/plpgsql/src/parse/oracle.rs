//! What blocks of Oracle's have besides PL/pgSQL's words.
//!
//! - A SELECT INTO has exactly one row, or is `no_data_found` or `too_many_rows`.
//! - `DBMS_OUTPUT.PUT_LINE(x)` tells the client.
//! - `EXECUTE IMMEDIATE` is EXECUTE.
//! - Conditions have Oracle's names.
//! - `:NEW` and `:OLD` are NEW and OLD.
//! - `RAISE_APPLICATION_ERROR(number, message)` is an error with that number.

use super::Parser;
use crate::Error;
use crate::lex::{self, Token};
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

/// The bytes at which colons stand right before a word, with that word.
fn colons(text: &str) -> Result<Vec<(usize, Token)>, Error> {
    let tokens = lex::tokens(text)?;
    let mut found = Vec::new();
    for pair in tokens.windows(2) {
        let [before, word] = pair else { continue };
        let sign = &text[before.start..before.end];
        let is_colon = before.is_sign(sign) && sign.ends_with(':') && sign != "::";
        if is_colon && before.end == word.start && word.name().is_some() {
            found.push((before.end - 1, word.clone()));
        }
    }
    Ok(found)
}

/// The text with a blank for each colon of `:NEW` and `:OLD`: all else stays where it stood.
pub(super) fn without_colons(text: &str) -> Result<String, Error> {
    let mut plain = text.to_string();
    for (at, word) in colons(text)? {
        if word.is_word("new") || word.is_word("old") {
            plain.replace_range(at..=at, " ");
        }
    }
    Ok(plain)
}

/// The text of a trigger's body in which the rows have these names behind their colons, with
/// `:NEW` and `:OLD` for them.
pub fn rows_renamed(text: &str, new: &str, old: &str) -> Result<String, Error> {
    let mut renamed = text.to_string();
    for (_, word) in colons(text)?.into_iter().rev() {
        let own = match word.name() {
            Some(name) if name == new => "new",
            Some(name) if name == old => "old",
            _ => continue,
        };
        renamed.replace_range(word.start..word.end, own);
    }
    Ok(renamed)
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
        if word(0, "raise_application_error") && sign(1, "(") {
            self.at += 2;
            return self.numbered_error().map(Some);
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
    /// Behind the parenthesis of RAISE_APPLICATION_ERROR. Its third argument says whether errors
    /// that led to this one are told too, which they are in the context of each error.
    fn numbered_error(&mut self) -> Result<What, Error> {
        let number = self.sql(&[","], &[])?;
        self.expect_sign(",")?;
        let message = self.sql(&[",", ")"], &[])?;
        if self.accept_sign(",") && !self.accept("true") {
            self.expect("false")?;
        }
        self.expect_sign(")")?;
        self.expect_sign(";")?;
        Ok(What::RaiseNumber { number, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_of_rows_become_blanks_and_others_stay() {
        let text = "x:=:new.a||:OLD.b; y := ':new' || :newer || a::new -- :new";
        let plain = "x:= new.a|| OLD.b; y := ':new' || :newer || a::new -- :new";
        assert_eq!(without_colons(text).as_deref(), Ok(plain));
    }

    #[test]
    fn rows_of_other_names_are_new_and_old() {
        let text = ":n.a := :o.a; n := ':n'; :\"O\".b := 1;";
        let renamed = ":new.a := :old.a; n := ':n'; :\"O\".b := 1;";
        assert_eq!(rows_renamed(text, "n", "o").as_deref(), Ok(renamed));
    }

    #[test]
    fn a_body_begins_with_its_declarations_and_ends_with_its_name() {
        let body = super::super::parse_oracle("x number; begin x := 1; end p;");
        let body = body.expect("it can be read");
        assert_eq!(body.block.declarations.len(), 1);
        assert_eq!(body.end_name.as_deref(), Some("p"));
        assert!(super::super::parse_oracle("begin begin null; end p; end;").is_err());
    }
}
