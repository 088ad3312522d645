//! Pieces of SQL: where they begin and end, and the INTO that is none of it.

use super::Parser;
use crate::Error;
use crate::lex::Token;
use crate::tree::{Into, Sql, Target};

impl Parser<'_> {
    /// The text up to one of these signs or words outside of parentheses, which is not taken.
    /// `None`: there is nothing before it.
    pub(super) fn text_until(
        &mut self,
        signs: &[&str],
        words: &[&str],
    ) -> Result<Option<String>, Error> {
        let from = self.at;
        let mut depth = 0usize;
        loop {
            let Some(token) = self.peek() else {
                let wanted = signs.first().or(words.first()).copied().unwrap_or(";");
                let wanted = wanted.to_uppercase();
                return Err(self.syntax(&format!("missing \"{wanted}\"")));
            };
            let ends = depth == 0
                && (signs.iter().any(|s| token.is_sign(s))
                    || words.iter().any(|w| token.is_word(w)));
            if ends {
                break;
            }
            if token.is_sign("(") || token.is_sign("[") {
                depth += 1;
            } else if token.is_sign(")") || token.is_sign("]") {
                if depth == 0 {
                    return Err(self.syntax("mismatched parentheses"));
                }
                depth -= 1;
            } else if token.is_sign(";") {
                let what = match depth {
                    0 => "syntax error",
                    _ => "mismatched parentheses",
                };
                return Err(self.syntax(what));
            }
            self.at += 1;
        }
        Ok(self.text_between(from, self.at))
    }

    fn text_between(&self, from: usize, to: usize) -> Option<String> {
        let first = self.tokens.get(from)?;
        let last = self.tokens.get(to.checked_sub(1)?)?;
        if from >= to {
            return None;
        }
        match self.oracle {
            true => Some(self.with_attributes(from, to)),
            false => Some(self.text[first.start..last.end].to_string()),
        }
    }

    /// A piece of SQL of its own.
    pub(super) fn piece(&mut self, text: String, at: usize) -> Sql {
        self.pieces += 1;
        Sql {
            text,
            id: self.pieces - 1,
            at,
        }
    }

    /// An expression up to one of these signs or words, which is not taken.
    pub(super) fn sql(&mut self, signs: &[&str], words: &[&str]) -> Result<Sql, Error> {
        let at = self.peek().map_or(self.text.len(), |t| t.start);
        match self.text_until(signs, words)? {
            Some(text) => Ok(self.piece(text, at)),
            None => Err(self.syntax("missing expression")),
        }
    }

    /// Expressions with commas between, up to one of these signs or words.
    pub(super) fn sql_list(&mut self, signs: &[&str], words: &[&str]) -> Result<Vec<Sql>, Error> {
        let with_comma: Vec<&str> = [","].iter().chain(signs).copied().collect();
        let mut list = vec![self.sql(&with_comma, words)?];
        while self.accept_sign(",") {
            list.push(self.sql(&with_comma, words)?);
        }
        Ok(list)
    }

    /// A variable to be set.
    pub(super) fn target(&mut self) -> Result<Target, Error> {
        let path = self.path()?;
        let mut subscripts = Vec::new();
        while self.accept_sign("[") {
            subscripts.push(self.sql(&["]", ":"], &[])?);
            if self.peek().is_some_and(|t| t.is_sign(":")) {
                return Err(self.unsupported("an assignment to a slice of an array"));
            }
            self.expect_sign("]")?;
        }
        Ok(Target { path, subscripts })
    }

    /// What stands behind INTO.
    pub(super) fn behind_into(&mut self) -> Result<Into, Error> {
        let strict = self.accept("strict");
        let mut targets = vec![self.target()?];
        while self.accept_sign(",") {
            targets.push(self.target()?);
        }
        Ok(Into { strict, targets })
    }

    /// A statement of SQL to its semicolon, with its INTO taken out.
    pub(super) fn sql_statement(&mut self) -> Result<(Sql, Option<Into>), Error> {
        let from = self.at;
        let at = self.peek().map_or(self.text.len(), |t| t.start);
        let mut depth = 0usize;
        let (mut into, mut before) = (None, String::new());
        let mut rest = from;
        loop {
            let Some(token) = self.peek() else {
                return Err(self.syntax("missing \";\""));
            };
            if token.is_sign(";") && depth == 0 {
                break;
            }
            if token.is_sign("(") {
                depth += 1;
            } else if token.is_sign(")") {
                depth = depth.saturating_sub(1);
            }
            if self.oracle {
                self.refuse_bulk()?;
            }
            let is_into = token.is_word("into") && !self.is_behind_insert(from);
            if !is_into {
                self.at += 1;
                continue;
            }
            if into.is_some() {
                return Err(self.syntax("INTO specified more than once"));
            }
            before = self.text_between(rest, self.at).unwrap_or_default();
            self.at += 1;
            into = Some(self.behind_into()?);
            rest = self.at;
        }
        let behind = self.text_between(rest, self.at).unwrap_or_default();
        self.expect_sign(";")?;
        let text = match before.is_empty() {
            true => behind,
            false if behind.is_empty() => before,
            false => format!("{before} {behind}"),
        };
        Ok((self.piece(text, at), into))
    }

    /// Whether the INTO that comes next is that of INSERT INTO or MERGE INTO.
    fn is_behind_insert(&self, from: usize) -> bool {
        let before = self.at.checked_sub(1).filter(|at| *at >= from);
        let before = before.and_then(|at| self.tokens.get(at));
        before.is_some_and(|t: &Token| t.is_word("insert") || t.is_word("merge"))
    }
}
