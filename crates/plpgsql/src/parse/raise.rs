//! RAISE.

use super::Parser;
use crate::Error;
use crate::tree::{Condition, Level, Raise, Raised, Sql, What};

const OPTIONS: [&str; 9] = [
    "errcode",
    "message",
    "detail",
    "hint",
    "column",
    "constraint",
    "datatype",
    "table",
    "schema",
];

impl Parser<'_> {
    /// Behind the word RAISE.
    pub(super) fn raise(&mut self) -> Result<What, Error> {
        if self.accept_sign(";") {
            return Ok(What::Raise(Raise {
                level: Level::Exception,
                what: Raised::Again,
                options: Vec::new(),
            }));
        }
        let level = self.level();
        let mut options = Vec::new();
        let what = if let Some(format) = self.string() {
            let mut arguments = Vec::new();
            while self.accept_sign(",") {
                arguments.push(self.sql(&[",", ";"], &["using"])?);
            }
            self.check_places(&format, arguments.len())?;
            Raised::Format { format, arguments }
        } else if self.is("using") {
            Raised::Options
        } else if self.is("sqlstate") {
            Raised::Condition(self.condition()?)
        } else {
            Raised::Condition(match self.oracle {
                true => {
                    let name = self.name()?;
                    self.condition_named(name)
                }
                false => Condition::Name(self.name()?),
            })
        };
        if self.accept("using") {
            options = self.raise_options()?;
        }
        self.expect_sign(";")?;
        Ok(What::Raise(Raise {
            level,
            what,
            options,
        }))
    }

    fn level(&mut self) -> Level {
        let levels = [
            ("exception", Level::Exception),
            ("warning", Level::Warning),
            ("notice", Level::Notice),
            ("info", Level::Info),
            ("log", Level::Log),
            ("debug", Level::Debug),
        ];
        let found = levels.into_iter().find(|(word, _)| self.accept(word));
        found.map_or(Level::Exception, |(_, level)| level)
    }

    fn raise_options(&mut self) -> Result<Vec<(String, Sql)>, Error> {
        let mut options: Vec<(String, Sql)> = Vec::new();
        loop {
            let known = self.peek().and_then(|t| t.name()).map(str::to_lowercase);
            let Some(name) = known.filter(|n| OPTIONS.contains(&n.as_str())) else {
                return Err(self.syntax("unrecognized RAISE statement option"));
            };
            self.at += 1;
            if !self.accept_sign("=") && !self.accept_sign(":=") {
                return Err(self.syntax("syntax error, expected \"=\""));
            }
            let value = self.sql(&[",", ";"], &[])?;
            options.push((name, value));
            if !self.accept_sign(",") {
                return Ok(options);
            }
        }
    }

    /// Each `%` of a format has its argument, and each argument its place; `%%` is a sign.
    fn check_places(&self, format: &str, arguments: usize) -> Result<(), Error> {
        let places = format.replace("%%", "").matches('%').count();
        let message = match places.cmp(&arguments) {
            std::cmp::Ordering::Less => "too many parameters specified for RAISE",
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Greater => "too few parameters specified for RAISE",
        };
        Err(self.error("42601", message.to_string()))
    }
}
