//! Statements: which one it is, and the ones that are one line.

use super::{MAX_DEPTH, Parser};
use crate::Error;
use crate::lex::Kind;
use crate::tree::{RowsOf, Statement, What};

impl Parser<'_> {
    /// Statements up to one of these words, which is not taken.
    pub(super) fn statements(&mut self, ends: &[&str]) -> Result<Vec<Statement>, Error> {
        if self.depth == MAX_DEPTH {
            return Err(self.error("54001", "stack depth limit exceeded".to_string()));
        }
        self.depth += 1;
        let mut list = Vec::new();
        loop {
            if self.peek().is_none() {
                return Err(self.unexpected());
            }
            if ends.iter().any(|end| self.is(end)) && !self.is_assignment() {
                break;
            }
            let line = self.line();
            let what = self.statement()?;
            list.push(Statement { line, what });
        }
        self.depth -= 1;
        Ok(list)
    }

    /// Whether a name comes next that is given a value.
    fn is_assignment(&self) -> bool {
        let named = |n: usize| self.ahead(n).is_some_and(|t| t.name().is_some());
        let sign = |n: usize, s: &str| self.ahead(n).is_some_and(|t| t.is_sign(s));
        let is_parameter = self
            .peek()
            .is_some_and(|t| matches!(t.kind, Kind::Parameter));
        if !named(0) && !is_parameter {
            return false;
        }
        let mut n = 1;
        loop {
            if sign(n, ":=") || sign(n, "=") || sign(n, "[") {
                return true;
            }
            if !sign(n, ".") || !named(n + 1) {
                return false;
            }
            n += 2;
        }
    }

    fn statement(&mut self) -> Result<What, Error> {
        if self.is_assignment() {
            return self.assignment();
        }
        if self.oracle
            && let Some(what) = self.oracle_statement()?
        {
            return Ok(what);
        }
        let label = self.label()?;
        let word = match self.peek().map(|t| &t.kind) {
            Some(Kind::Word(word)) => word.clone(),
            _ => String::new(),
        };
        if label.is_some()
            && !matches!(
                &*word,
                "declare" | "begin" | "loop" | "while" | "for" | "foreach"
            )
        {
            return Err(self.unexpected());
        }
        match word.as_str() {
            "declare" | "begin" => {
                let block = self.block(label, false)?;
                self.expect_sign(";")?;
                return Ok(What::Block(block));
            }
            "loop" | "while" | "for" | "foreach" => return self.a_loop(label),
            _ => {}
        }
        let at = self.at;
        self.at += 1;
        match word.as_str() {
            "if" => self.an_if(),
            "case" => self.a_case(),
            "exit" | "continue" => self.exit(word == "continue"),
            "return" => self.a_return(),
            "raise" => self.raise(),
            "assert" => self.assert(),
            "perform" => {
                let sql = self.sql(&[";"], &[])?;
                self.expect_sign(";")?;
                Ok(What::Perform(sql))
            }
            "execute" => self.execute(),
            "get" => self.diagnostics(),
            "null" => {
                self.expect_sign(";")?;
                Ok(What::Null)
            }
            "commit" | "rollback" => self.end_of_transaction(word == "commit"),
            "open" => self.open(),
            "fetch" => self.fetch(),
            "move" => self.a_move(),
            "close" => {
                let cursor = self.path()?;
                self.expect_sign(";")?;
                Ok(What::Close(cursor))
            }
            _ => {
                self.at = at;
                if word.is_empty() || word == "elsif" || word == "else" || word == "end" {
                    return Err(self.unexpected());
                }
                if self.oracle && self.is_call() {
                    return self.a_call();
                }
                let (sql, mut into) = self.sql_statement()?;
                if self.oracle
                    && let Some(into) = &mut into
                {
                    into.strict = true;
                }
                Ok(What::Execute { sql, into })
            }
        }
    }

    fn assignment(&mut self) -> Result<What, Error> {
        let target = self.target()?;
        if !self.accept_sign(":=") && !self.accept_sign("=") {
            return Err(self.unexpected());
        }
        let value = self.sql(&[";"], &[])?;
        self.expect_sign(";")?;
        Ok(What::Assign { target, value })
    }

    fn exit(&mut self, goes_on: bool) -> Result<What, Error> {
        let mut label = None;
        if !self.is("when") && !self.peek().is_some_and(|t| t.is_sign(";")) {
            label = Some(self.name()?);
        }
        let when = match self.accept("when") {
            true => Some(self.sql(&[";"], &[])?),
            false => None,
        };
        self.expect_sign(";")?;
        Ok(What::Exit {
            goes_on,
            label,
            when,
        })
    }

    fn a_return(&mut self) -> Result<What, Error> {
        if self.accept_sign(";") {
            return Ok(What::Return(None));
        }
        if self.is("next") {
            self.at += 1;
            let value = match self.peek().is_some_and(|t| t.is_sign(";")) {
                true => None,
                false => Some(self.sql(&[";"], &[])?),
            };
            self.expect_sign(";")?;
            return Ok(What::ReturnNext(value));
        }
        if self.accept("query") {
            if self.accept("execute") {
                let (text, using) = self.text_and_using(&[";"], &[])?;
                self.expect_sign(";")?;
                return Ok(What::ReturnQuery(RowsOf::Text { text, using }));
            }
            let query = self.sql(&[";"], &[])?;
            self.expect_sign(";")?;
            return Ok(What::ReturnQuery(RowsOf::Query(query)));
        }
        let value = self.sql(&[";"], &[])?;
        self.expect_sign(";")?;
        Ok(What::Return(Some(value)))
    }

    fn assert(&mut self) -> Result<What, Error> {
        let condition = self.sql(&[",", ";"], &[])?;
        let message = match self.accept_sign(",") {
            true => Some(self.sql(&[";"], &[])?),
            false => None,
        };
        self.expect_sign(";")?;
        Ok(What::Assert { condition, message })
    }

    /// A text to be executed, and its parameters.
    pub(super) fn text_and_using(
        &mut self,
        signs: &[&str],
        words: &[&str],
    ) -> Result<(crate::tree::Sql, Vec<crate::tree::Sql>), Error> {
        let with_using: Vec<&str> = ["using"].iter().chain(words).copied().collect();
        let text = self.sql(signs, &with_using)?;
        let using = match self.accept("using") {
            true => self.sql_list(signs, words)?,
            false => Vec::new(),
        };
        Ok((text, using))
    }

    /// EXECUTE: INTO and USING come in any order, each once.
    pub(super) fn execute(&mut self) -> Result<What, Error> {
        let text = self.sql(&[";"], &["into", "using"])?;
        let (mut into, mut using) = (None, Vec::new());
        loop {
            if self.is("into") {
                if into.is_some() {
                    return Err(self.unexpected());
                }
                self.at += 1;
                into = Some(self.behind_into()?);
            } else if self.is("using") {
                if !using.is_empty() {
                    return Err(self.unexpected());
                }
                self.at += 1;
                using = self.sql_list(&[";"], &["into"])?;
            } else {
                self.expect_sign(";")?;
                return Ok(What::ExecuteText { text, into, using });
            }
        }
    }

    fn diagnostics(&mut self) -> Result<What, Error> {
        let stacked = self.accept("stacked");
        if !stacked {
            self.accept("current");
        }
        self.expect("diagnostics")?;
        let mut items = Vec::new();
        loop {
            let target = self.target()?;
            if !self.accept_sign("=") && !self.accept_sign(":=") {
                return Err(self.unexpected());
            }
            const CURRENT: [&str; 2] = ["row_count", "pg_context"];
            const STACKED: [&str; 10] = [
                "returned_sqlstate",
                "message_text",
                "pg_exception_detail",
                "pg_exception_hint",
                "pg_exception_context",
                "column_name",
                "constraint_name",
                "pg_datatype_name",
                "table_name",
                "schema_name",
            ];
            let known = self.peek().and_then(|t| t.name()).map(str::to_lowercase);
            let known =
                known.filter(|k| CURRENT.contains(&k.as_str()) || STACKED.contains(&k.as_str()));
            let Some(item) = known else {
                return Err(self.syntax("unrecognized GET DIAGNOSTICS item"));
            };
            if STACKED.contains(&item.as_str()) != stacked {
                let kind = if stacked { "STACKED" } else { "CURRENT" };
                let message = format!(
                    "diagnostics item {} is not allowed in GET {kind} DIAGNOSTICS",
                    item.to_uppercase()
                );
                return Err(self.error("42601", message));
            }
            self.at += 1;
            items.push((target, item));
            if self.accept_sign(";") {
                return Ok(What::Diagnostics { stacked, items });
            }
            self.expect_sign(",")?;
        }
    }

    fn end_of_transaction(&mut self, commits: bool) -> Result<What, Error> {
        let mut chain = false;
        if self.accept("and") {
            chain = !self.accept("no");
            self.expect("chain")?;
        }
        self.expect_sign(";")?;
        Ok(match commits {
            true => What::Commit { chain },
            false => What::Rollback { chain },
        })
    }
}
