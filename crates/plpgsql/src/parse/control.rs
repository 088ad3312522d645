//! IF, CASE and the loops.

use super::Parser;
use crate::Error;
use crate::tree::{RowsOf, Sql, Statement, Target, What};

impl Parser<'_> {
    /// Behind the word IF.
    pub(super) fn an_if(&mut self) -> Result<What, Error> {
        let ends = ["elsif", "elseif", "else", "end"];
        let mut branches = Vec::new();
        loop {
            let condition = self.sql(&[], &["then"])?;
            self.expect("then")?;
            branches.push((condition, self.statements(&ends)?));
            if !self.accept("elsif") && !self.accept("elseif") {
                break;
            }
        }
        let otherwise = match self.accept("else") {
            true => self.statements(&["end"])?,
            false => Vec::new(),
        };
        self.expect("end")?;
        self.expect("if")?;
        self.expect_sign(";")?;
        Ok(What::If {
            branches,
            otherwise,
        })
    }

    /// Behind the word CASE. What the branches of one with a subject compare with is a variable, of
    /// a name that nobody else gives.
    pub(super) fn a_case(&mut self) -> Result<What, Error> {
        let subject = match self.is("when") {
            true => None,
            false => {
                self.cases += 1;
                let name = format!("__Case__Variable_{}__", self.cases);
                Some((self.sql(&[], &["when"])?, name))
            }
        };
        let mut branches = Vec::new();
        while self.accept("when") {
            let mut condition = self.sql(&[], &["then"])?;
            if let Some((_, name)) = &subject {
                condition.text = format!("\"{name}\" IN ({})", condition.text);
            }
            self.expect("then")?;
            branches.push((condition, self.statements(&["when", "else", "end"])?));
        }
        if branches.is_empty() {
            return Err(self.unexpected());
        }
        let otherwise = match self.accept("else") {
            true => Some(self.statements(&["end"])?),
            false => None,
        };
        self.expect("end")?;
        self.expect("case")?;
        self.expect_sign(";")?;
        Ok(What::Case {
            subject,
            branches,
            otherwise,
        })
    }

    pub(super) fn a_loop(&mut self, label: Option<String>) -> Result<What, Error> {
        if self.accept("while") {
            let condition = self.sql(&[], &["loop"])?;
            let body = self.loop_body(label.as_deref())?;
            return Ok(What::While {
                label,
                condition,
                body,
            });
        }
        if self.accept("for") {
            return self.a_for(label);
        }
        if self.accept("foreach") {
            return self.for_each(label);
        }
        let body = self.loop_body(label.as_deref())?;
        Ok(What::Loop { label, body })
    }

    /// LOOP to END LOOP.
    pub(super) fn loop_body(&mut self, label: Option<&str>) -> Result<Vec<Statement>, Error> {
        self.expect("loop")?;
        let body = self.statements(&["end"])?;
        self.expect("end")?;
        self.expect("loop")?;
        self.end_label(label)?;
        self.expect_sign(";")?;
        Ok(body)
    }

    fn for_each(&mut self, label: Option<String>) -> Result<What, Error> {
        let targets = self.targets()?;
        let mut slice = 0;
        if self.accept("slice") {
            let number = self.peek().map(|t| self.text[t.start..t.end].parse());
            let Some(Ok(number)) = number else {
                return Err(self.unexpected());
            };
            slice = number;
            self.at += 1;
        }
        self.expect("in")?;
        self.expect("array")?;
        let array = self.sql(&[], &["loop"])?;
        let body = self.loop_body(label.as_deref())?;
        Ok(What::ForEach {
            label,
            targets,
            slice,
            array,
            body,
        })
    }

    fn targets(&mut self) -> Result<Vec<Target>, Error> {
        let mut targets = vec![self.target()?];
        while self.accept_sign(",") {
            targets.push(self.target()?);
        }
        Ok(targets)
    }

    fn a_for(&mut self, label: Option<String>) -> Result<What, Error> {
        let variable = self.at;
        let targets = self.targets()?;
        self.expect("in")?;
        if self.accept("execute") {
            let (text, using) = self.text_and_using(&[], &["loop"])?;
            let body = self.loop_body(label.as_deref())?;
            return Ok(What::ForRows {
                label,
                targets,
                rows: RowsOf::Text { text, using },
                body,
            });
        }
        if let Some(cursor) = self.cursor_of_loop() {
            return self.for_cursor(label, (variable, targets), cursor);
        }
        if !self.is_range() {
            let query = self.sql(&[], &["loop"])?;
            if let ([target], true) = (targets.as_slice(), self.oracle) {
                let name = target.path.join(".");
                return self.for_own_record(label, (name, targets), query);
            }
            let body = self.loop_body(label.as_deref())?;
            return Ok(What::ForRows {
                label,
                targets,
                rows: RowsOf::Query(query),
                body,
            });
        }
        let name = match targets.as_slice() {
            [Target { path, subscripts }] if path.len() == 1 && subscripts.is_empty() => {
                path[0].clone()
            }
            _ => {
                self.at = variable;
                let message = "integer FOR loop must have only one target variable";
                return Err(self.error("42601", message.to_string()));
            }
        };
        let reverse = self.accept("reverse");
        let from = self.sql(&[".."], &[])?;
        self.expect_sign("..")?;
        let to = self.sql(&[], &["by", "loop"])?;
        // Oracle's goes from the second bound down to the first.
        let (from, to) = match self.oracle && reverse {
            true => (to, from),
            false => (from, to),
        };
        let step: Option<Sql> = match self.accept("by") {
            true => Some(self.sql(&[], &["loop"])?),
            false => None,
        };
        let body = self.loop_body(label.as_deref())?;
        Ok(What::ForRange {
            label,
            variable: name,
            reverse,
            from,
            to,
            step,
            body,
        })
    }

    /// Whether two points come before the LOOP, outside of parentheses.
    fn is_range(&self) -> bool {
        let mut depth = 0usize;
        for token in &self.tokens[self.at..] {
            if token.is_sign("(") || token.is_sign("[") {
                depth += 1;
            } else if token.is_sign(")") || token.is_sign("]") {
                depth = depth.saturating_sub(1);
            } else if depth == 0 && token.is_sign("..") {
                return true;
            } else if token.is_word("loop") || token.is_sign(";") {
                return false;
            }
        }
        false
    }
}
