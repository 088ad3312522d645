//! Cursors: their declaration, OPEN, FETCH, MOVE, and loops over them.

use super::Parser;
use crate::Error;
use crate::lex::Token;
use crate::tree::{BoundCursor, Direction, Opened, RowsOf, Sql, Target, What};

/// Arguments of a cursor, perhaps with their names.
type Arguments = Vec<(Option<String>, Sql)>;

impl Parser<'_> {
    /// `[NO] SCROLL`, if it is said.
    fn scroll(&mut self) -> Result<Option<bool>, Error> {
        if self.accept("no") {
            self.expect("scroll")?;
            return Ok(Some(false));
        }
        Ok(self.accept("scroll").then_some(true))
    }

    /// The declaration of a cursor, behind its name.
    pub(super) fn bound_cursor(&mut self) -> Result<BoundCursor, Error> {
        let scroll = self.scroll()?;
        self.expect("cursor")?;
        self.bound_query(scroll)
    }

    /// The arguments and the query of a cursor.
    pub(super) fn bound_query(&mut self, scroll: Option<bool>) -> Result<BoundCursor, Error> {
        let mut arguments = Vec::new();
        if self.accept_sign("(") {
            loop {
                let name = self.name()?;
                if self.oracle {
                    self.accept("in");
                }
                arguments.push((name, self.type_name(&[",", ")"], &[])?));
                if self.accept_sign(")") {
                    break;
                }
                self.expect_sign(",")?;
            }
        }
        if !self.accept("for") {
            self.expect("is")?;
        }
        let query = self.sql(&[";"], &[])?;
        self.expect_sign(";")?;
        Ok(BoundCursor {
            scroll,
            arguments,
            query,
        })
    }

    /// Arguments behind the opening parenthesis; the closing one is taken.
    fn arguments(&mut self) -> Result<Arguments, Error> {
        let mut list = Vec::new();
        loop {
            let named = self.ahead(1).is_some_and(|t| t.is_sign(":="));
            let name = match named {
                true => {
                    let name = self.name()?;
                    self.at += 1;
                    Some(name)
                }
                false => None,
            };
            list.push((name, self.sql(&[",", ")"], &[])?));
            if self.accept_sign(")") {
                return Ok(list);
            }
            self.expect_sign(",")?;
        }
    }

    /// Behind the word OPEN.
    pub(super) fn open(&mut self) -> Result<What, Error> {
        let cursor = self.target()?;
        let bound = |what| What::Open {
            cursor: cursor.clone(),
            what: Opened::Bound(what),
        };
        if self.accept_sign(";") {
            return Ok(bound(Vec::new()));
        }
        if self.accept_sign("(") {
            let arguments = self.arguments()?;
            self.expect_sign(";")?;
            return Ok(bound(arguments));
        }
        let scroll = self.scroll()?;
        self.expect("for")?;
        let rows = match self.accept("execute") {
            true => {
                let (text, using) = self.text_and_using(&[";"], &[])?;
                RowsOf::Text { text, using }
            }
            false => RowsOf::Query(self.sql(&[";"], &[])?),
        };
        self.expect_sign(";")?;
        let what = Opened::Rows { scroll, rows };
        Ok(What::Open { cursor, what })
    }

    /// Behind the word FETCH.
    pub(super) fn fetch(&mut self) -> Result<What, Error> {
        let from = self.at;
        let direction = self.direction()?;
        if let Direction::Forward(_) | Direction::Backward(_) = direction {
            self.at = from;
            let message = "FETCH statement cannot return multiple rows";
            return Err(self.error("0A000", message.to_string()));
        }
        let cursor = self.path()?;
        self.refuse_bulk()?;
        self.expect("into")?;
        let into = self.behind_into()?;
        self.expect_sign(";")?;
        Ok(What::Fetch {
            cursor,
            direction,
            into,
        })
    }

    /// Behind the word MOVE.
    pub(super) fn a_move(&mut self) -> Result<What, Error> {
        let direction = self.direction()?;
        let cursor = self.path()?;
        self.expect_sign(";")?;
        Ok(What::Move { cursor, direction })
    }

    /// The direction of FETCH or MOVE, with the FROM or IN behind it.
    fn direction(&mut self) -> Result<Direction, Error> {
        // A cursor may have the name of a direction.
        let is_cursor = |t: Option<&Token>| {
            t.is_none_or(|t| t.is_sign(";") || t.is_sign(".") || t.is_word("into"))
        };
        if is_cursor(self.ahead(1)) {
            return Ok(Direction::Next);
        }
        let ends = ["from", "in"];
        let word = self.peek().and_then(|t| t.name()).map(str::to_lowercase);
        let plain = match word.as_deref() {
            Some("next") => Some(Direction::Next),
            Some("prior") => Some(Direction::Prior),
            Some("first") => Some(Direction::First),
            Some("last") => Some(Direction::Last),
            Some("all") => Some(Direction::Forward(None)),
            Some("from" | "in") => {
                self.at += 1;
                return Ok(Direction::Next);
            }
            _ => None,
        };
        let direction = match (plain, word.as_deref()) {
            (Some(plain), _) => {
                self.at += 1;
                plain
            }
            (None, Some("absolute")) => {
                self.at += 1;
                Direction::Absolute(self.sql(&[], &ends)?)
            }
            (None, Some("relative")) => {
                self.at += 1;
                Direction::Relative(self.sql(&[], &ends)?)
            }
            (None, Some(word @ ("forward" | "backward"))) => {
                self.at += 1;
                let forward = word == "forward";
                if self.is("from") || self.is("in") {
                    match forward {
                        true => Direction::Next,
                        false => Direction::Prior,
                    }
                } else {
                    let steps = match self.accept("all") {
                        true => None,
                        false => Some(self.sql(&[], &ends)?),
                    };
                    match forward {
                        true => Direction::Forward(steps),
                        false => Direction::Backward(steps),
                    }
                }
            }
            (None, _) => Direction::Forward(Some(self.sql(&[], &ends)?)),
        };
        if !self.accept("from") {
            self.expect("in")?;
        }
        Ok(direction)
    }

    /// The name of the cursor that stands behind IN, if it is one that was declared with its query.
    pub(super) fn cursor_of_loop(&mut self) -> Option<Vec<String>> {
        let name = self.peek()?.name()?;
        let next = self.ahead(1)?;
        if !next.is_word("loop") && !next.is_sign("(") {
            return None;
        }
        let known = self.cursors.iter().rev().find(|(n, _)| n == name);
        let (name, _) = known.filter(|(_, is_cursor)| *is_cursor)?;
        let path = vec![name.clone()];
        self.at += 1;
        Some(path)
    }

    /// A loop over a cursor, behind the cursor's name.
    pub(super) fn for_cursor(
        &mut self,
        label: Option<String>,
        (at, targets): (usize, Vec<Target>),
        cursor: Vec<String>,
    ) -> Result<What, Error> {
        let variable = match targets.as_slice() {
            [Target { path, subscripts }] if path.len() == 1 && subscripts.is_empty() => {
                path[0].clone()
            }
            _ => {
                self.at = at;
                let message = "cursor FOR loop must have only one target variable";
                return Err(self.error("42601", message.to_string()));
            }
        };
        let arguments = match self.accept_sign("(") {
            true => self.arguments()?,
            false => Vec::new(),
        };
        let body = self.loop_body(label.as_deref())?;
        Ok(What::ForCursor {
            label,
            variable,
            cursor,
            arguments,
            body,
        })
    }
}
