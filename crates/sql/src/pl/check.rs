//! A body is looked over when it is made: each piece of SQL is read, so that what is no SQL is an
//! error at once; what is set must be a variable, and what is left by EXIT must be around it.

use plpgsql::tree::{
    Block, Declared, Direction, Into, Opened, RowsOf, Sql, Statement, Target, What,
};

use super::block::NUMBERS;
use super::body::Code;
use crate::dict::Function;
use crate::dict::function::Language;
use crate::error::{Error, Result};
use crate::parse;
use crate::types::SqlType;

pub fn check(code: &Code, function: Option<&Function>) -> Result<()> {
    let Some(body) = &code.body else {
        return Ok(());
    };
    let mut check = Check {
        function,
        oracle: code.oracle,
        names: vec![vec![("found".to_string(), false)]],
        around: Vec::new(),
    };
    if let Some(function) = function {
        check.names.push(names_of(function));
        check.around.push((Some(function.name.clone()), false));
    }
    check.block(&body.block)
}

/// The names that a function gives its body.
fn names_of(function: &Function) -> Vec<(String, bool)> {
    let mut names: Vec<String> = Vec::new();
    if function.is_trigger() {
        names.extend(super::trigger::names(function).map(str::to_string));
    }
    let mut parameters: Vec<&str> = function
        .parameters
        .iter()
        .map(|p| p.name.as_str())
        .collect();
    if parameters.is_empty() {
        parameters.extend(function.arguments.iter().map(|a| a.name.as_str()));
    }
    let numbers = NUMBERS.iter().take(parameters.len());
    names.extend(numbers.map(|n| n.to_string()));
    names.extend(parameters.into_iter().map(str::to_string));
    names.into_iter().map(|name| (name, false)).collect()
}

/// A body on its way through.
struct Check<'f> {
    oracle: bool,
    /// The function whose body it is; none of DO.
    function: Option<&'f Function>,
    /// The names of each level around, and whether each is a constant.
    names: Vec<Vec<(String, bool)>>,
    /// The blocks and loops around: the label of each, and whether it is a loop.
    around: Vec<(Option<String>, bool)>,
}

fn expression(piece: &Sql) -> Result<()> {
    query(&format!("SELECT {}", piece.text), &piece.text)
}

fn query(text: &str, shown: &str) -> Result<()> {
    let moved = (text.chars().count() - shown.chars().count()) as u32;
    parse::statement(text)
        .map(drop)
        .map_err(|e| e.moved_back(moved).in_statement(shown))
}

fn rows(rows: &RowsOf) -> Result<()> {
    match rows {
        RowsOf::Query(sql) => query(&sql.text, &sql.text),
        RowsOf::Text { text, using } => {
            expression(text)?;
            using.iter().try_for_each(expression)
        }
    }
}

/// The number that a direction has.
fn steps(direction: &Direction) -> Option<&Sql> {
    match direction {
        Direction::Absolute(n) | Direction::Relative(n) => Some(n),
        Direction::Forward(n) | Direction::Backward(n) => n.as_ref(),
        Direction::Next | Direction::Prior | Direction::First | Direction::Last => None,
    }
}

impl Check<'_> {
    fn block(&mut self, block: &Block) -> Result<()> {
        self.names.push(Vec::new());
        self.around.push((block.label.clone(), false));
        for declaration in &block.declarations {
            let mut constant_name = false;
            if let Declared::Variable {
                default, constant, ..
            } = &declaration.what
            {
                default.iter().try_for_each(expression)?;
                constant_name = *constant;
            }
            if let Declared::Cursor(cursor) = &declaration.what {
                query(&cursor.query.text, &cursor.query.text)?;
            }
            if let Some(level) = self.names.last_mut() {
                level.push((declaration.name.clone(), constant_name));
            }
        }
        self.all(&block.body)?;
        for handler in block.handlers.iter().flatten() {
            super::condition::check(&handler.conditions)?;
            let told = ["sqlstate", "sqlerrm", "sqlcode"];
            let told = &told[..if self.oracle { told.len() } else { 2 }];
            self.names
                .push(told.iter().map(|n| (n.to_string(), true)).collect());
            self.all(&handler.body)?;
            self.names.pop();
        }
        self.names.pop();
        self.around.pop();
        Ok(())
    }

    fn all(&mut self, list: &[Statement]) -> Result<()> {
        list.iter().try_for_each(|s| self.one(&s.what))
    }

    /// The body of a loop, which may have a variable of its own.
    fn looped(
        &mut self,
        label: Option<&String>,
        variable: Option<&str>,
        body: &[Statement],
    ) -> Result<()> {
        let names = variable.map(|v| (v.to_string(), false));
        self.names.push(names.into_iter().collect());
        self.around.push((label.cloned(), true));
        let done = self.all(body);
        self.names.pop();
        self.around.pop();
        done
    }

    /// Whether a name leads to a variable, and whether that is a constant.
    fn find(&self, path: &[String]) -> Option<bool> {
        let first = path.first()?;
        let mut levels = self.names.iter().rev();
        let own = levels.find_map(|level| level.iter().rev().find(|(n, _)| n == first));
        let labelled = |(label, _): &(Option<String>, bool)| label.as_ref() == Some(first);
        match own {
            Some((_, constant)) => Some(*constant && path.len() == 1),
            // What is behind a label is looked up when it is run.
            None if path.len() > 1 && self.around.iter().any(labelled) => Some(false),
            None => None,
        }
    }

    fn target(&self, target: &Target) -> Result<()> {
        target.subscripts.iter().try_for_each(expression)?;
        let name = target.path.join(".");
        match self.find(&target.path) {
            Some(false) => Ok(()),
            Some(true) => {
                let message = format!("variable \"{name}\" is declared CONSTANT");
                Err(Error::new("22005", message))
            }
            None => {
                let message = format!("\"{name}\" is not a known variable");
                Err(Error::new("42601", message))
            }
        }
    }

    /// A cursor's variable, which may be a constant.
    fn cursor(&self, path: &[String]) -> Result<()> {
        match self.find(path) {
            Some(_) => Ok(()),
            None => {
                let message = format!("\"{}\" is not a known variable", path.join("."));
                Err(Error::new("42601", message))
            }
        }
    }

    fn check_into(&self, into: Option<&Into>) -> Result<()> {
        let mut targets = into.into_iter().flat_map(|into| &into.targets);
        targets.try_for_each(|t| self.target(t))
    }

    fn loop_targets(&self, targets: &[Target]) -> Result<()> {
        if let [only] = targets
            && self.find(&only.path).is_none()
        {
            let message = "loop variable of loop over rows must be a record variable or list of \
                           scalar variables";
            return Err(Error::new("42601", message));
        }
        targets.iter().try_for_each(|t| self.target(t))
    }

    fn one(&mut self, what: &What) -> Result<()> {
        match what {
            What::Block(block) => self.block(block),
            What::Assign { target, value } => {
                self.target(target)?;
                expression(value)
            }
            What::If {
                branches,
                otherwise,
            } => {
                self.branches(branches)?;
                self.all(otherwise)
            }
            What::Case {
                subject,
                branches,
                otherwise,
            } => {
                subject.iter().try_for_each(|(e, _)| expression(e))?;
                self.branches(branches)?;
                self.all(otherwise.as_deref().unwrap_or_default())
            }
            What::Loop { label, body } => self.looped(label.as_ref(), None, body),
            What::While {
                label,
                condition,
                body,
            } => {
                expression(condition)?;
                self.looped(label.as_ref(), None, body)
            }
            What::ForRange {
                label,
                variable,
                from,
                to,
                step,
                body,
                ..
            } => {
                expression(from)?;
                expression(to)?;
                step.iter().try_for_each(expression)?;
                self.looped(label.as_ref(), Some(variable), body)
            }
            What::ForRows {
                label,
                targets,
                rows: over,
                body,
            } => {
                self.loop_targets(targets)?;
                rows(over)?;
                self.looped(label.as_ref(), None, body)
            }
            What::ForCursor {
                label,
                variable,
                cursor,
                arguments,
                body,
            } => {
                self.cursor(cursor)?;
                arguments.iter().try_for_each(|(_, e)| expression(e))?;
                self.looped(label.as_ref(), Some(variable), body)
            }
            What::ForEach {
                label,
                targets,
                array,
                body,
                ..
            } => {
                targets.iter().try_for_each(|t| self.target(t))?;
                expression(array)?;
                self.looped(label.as_ref(), None, body)
            }
            What::Exit {
                goes_on,
                label,
                when,
            } => {
                self.exit(*goes_on, label.as_deref())?;
                when.iter().try_for_each(expression)
            }
            other => self.simple(other),
        }
    }

    fn branches(&mut self, branches: &[(Sql, Vec<Statement>)]) -> Result<()> {
        branches.iter().try_for_each(|(condition, body)| {
            expression(condition)?;
            self.all(body)
        })
    }

    fn simple(&mut self, what: &What) -> Result<()> {
        match what {
            What::Return(value) => self.a_return(value.as_ref()),
            What::ReturnNext(value) => {
                self.gives_several(what)?;
                self.row(value.as_ref())
            }
            What::ReturnQuery(query) => {
                self.gives_several(what)?;
                rows(query)
            }
            What::Raise(raise) => super::raise::check(raise),
            What::RaiseNumber { number, message } => {
                expression(number)?;
                expression(message)
            }
            What::Assert { condition, message } => {
                expression(condition)?;
                message.iter().try_for_each(expression)
            }
            What::Perform(sql) => expression(sql),
            What::Execute { sql, into } => {
                self.check_into(into.as_ref())?;
                query(&sql.text, &sql.text)
            }
            What::ExecuteText { text, into, using } => {
                self.check_into(into.as_ref())?;
                expression(text)?;
                using.iter().try_for_each(expression)
            }
            What::Open { cursor, what } => {
                self.cursor(&cursor.path)?;
                match what {
                    Opened::Bound(arguments) => {
                        arguments.iter().try_for_each(|(_, e)| expression(e))
                    }
                    Opened::Rows { rows: over, .. } => rows(over),
                }
            }
            What::Fetch {
                cursor,
                direction,
                into,
            } => {
                self.cursor(cursor)?;
                steps(direction).into_iter().try_for_each(expression)?;
                self.check_into(Some(into))
            }
            What::Move { cursor, direction } => {
                self.cursor(cursor)?;
                steps(direction).into_iter().try_for_each(expression)
            }
            What::Close(cursor) => self.cursor(cursor),
            What::Diagnostics { items, .. } => {
                items.iter().try_for_each(|(target, _)| self.target(target))
            }
            _ => Ok(()),
        }
    }

    fn exit(&self, goes_on: bool, label: Option<&str>) -> Result<()> {
        let wrong = |message: String| Err(Error::new("42601", message));
        let Some(label) = label else {
            return match (self.around.iter().any(|(_, is_loop)| *is_loop), goes_on) {
                (true, _) => Ok(()),
                (false, true) => wrong("CONTINUE cannot be used outside a loop".to_string()),
                (false, false) => {
                    wrong("EXIT cannot be used outside a loop, unless it has a label".to_string())
                }
            };
        };
        let mut around = self.around.iter().rev();
        match around.find(|(l, _)| l.as_deref() == Some(label)) {
            Some((_, false)) if goes_on => wrong(format!(
                "block label \"{label}\" cannot be used in CONTINUE"
            )),
            Some(_) => Ok(()),
            None => wrong(format!(
                "there is no label \"{label}\" attached to any block or loop enclosing this statement"
            )),
        }
    }

    fn a_return(&self, value: Option<&Sql>) -> Result<()> {
        let wrong = |message: &str| Err(Error::new("42804", message));
        let Some(function) = self.function else {
            return match value {
                Some(_) => wrong("RETURN cannot have a parameter in function returning void"),
                None => Ok(()),
            };
        };
        let has_outputs = function.outputs().next().is_some();
        let is_void = function.result == SqlType::Void.oid();
        let gives_row = function.is_trigger() && function.language == Language::PlSql;
        match value {
            Some(_) if gives_row => wrong("RETURN cannot have a parameter in a trigger"),
            None if gives_row => Ok(()),
            Some(_) if function.returns_set => {
                let message = "RETURN cannot have a parameter in function returning set";
                Err(Error::new("42804", message).hint("Use RETURN NEXT or RETURN QUERY."))
            }
            Some(_) if function.procedure => {
                let message = "RETURN cannot have a parameter in a procedure";
                Err(Error::new("42601", message))
            }
            Some(_) if is_void => {
                wrong("RETURN cannot have a parameter in function returning void")
            }
            Some(_) if has_outputs => {
                wrong("RETURN cannot have a parameter in function with OUT parameters")
            }
            Some(value) => expression(value),
            None if function.returns_set || has_outputs || is_void => Ok(()),
            None => Err(Error::new("42601", "missing expression at or near \";\"")),
        }
    }

    fn gives_several(&self, what: &What) -> Result<()> {
        match self.function.is_some_and(|f| f.returns_set) {
            true => Ok(()),
            false => Err(Error::new(
                "42804",
                format!("cannot use {} in a non-SETOF function", what.called()),
            )),
        }
    }

    /// What stands behind RETURN NEXT.
    fn row(&self, value: Option<&Sql>) -> Result<()> {
        let has_outputs = self.function.is_some_and(|f| f.outputs().next().is_some());
        match (value, has_outputs) {
            (Some(_), true) => Err(Error::new(
                "42804",
                "RETURN NEXT cannot have a parameter in function with OUT parameters",
            )),
            (Some(value), false) => expression(value),
            (None, true) => Ok(()),
            (None, false) => Err(Error::new("42601", "missing expression at or near \";\"")),
        }
    }
}
