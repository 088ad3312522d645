//! RAISE.

use ::block::value::Datum;
use plpgsql::tree::{Condition, Level, Raise, Raised, Sql};

use super::block::Interpreter;
use super::condition;
use crate::api::Notice;
use crate::error::{Error, Result};
use crate::types::SqlType;

/// What is raised, as far as it is said.
#[derive(Default)]
struct Said {
    state: Option<String>,
    message: Option<String>,
    /// By the names of the options.
    others: Vec<(String, String)>,
}

/// Refuses a condition of an unknown name.
pub fn check(raise: &Raise) -> Result<()> {
    match &raise.what {
        Raised::Condition(Condition::Name(name)) if condition::state(name).is_none() => {
            Err(condition::unknown(name))
        }
        _ => Ok(()),
    }
}

impl Interpreter<'_, '_> {
    pub fn raise(&mut self, raise: &Raise) -> Result<()> {
        let mut said = Said::default();
        match &raise.what {
            Raised::Again => {
                let message =
                    "RAISE without parameters cannot be used outside an exception handler";
                let caught = self.caught.last();
                self.raised = caught.and_then(|(_, own)| *own);
                let caught = caught.map(|(error, _)| error.again());
                return Err(caught.unwrap_or_else(|| Error::new("0Z002", message)));
            }
            Raised::Format { format, arguments } => {
                let mut texts = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    let text = self.text(argument)?;
                    texts.push(match raise.level {
                        Level::Output => Some(text.unwrap_or_default()),
                        _ => text,
                    });
                }
                said.message = Some(formatted(format, &texts));
            }
            Raised::Condition(Condition::Name(name)) => {
                let state = condition::state(name).ok_or_else(|| condition::unknown(name))?;
                said.state = Some(state.to_string());
                said.message = Some(name.clone());
            }
            Raised::Condition(Condition::State(state)) => {
                said.state = Some(state.clone());
                said.message = Some(state.clone());
            }
            Raised::Condition(Condition::Own { name, id }) => return Err(self.raise_own(name, *id)),
            Raised::Condition(Condition::Number { name, number }) => {
                return Err(super::oracle::raise_number(name, *number));
            }
            Raised::Options => {}
        }
        let is_format = matches!(raise.what, Raised::Format { .. });
        let has_condition = matches!(raise.what, Raised::Condition(_));
        for (name, value) in &raise.options {
            let Some(text) = self.text(value)? else {
                let message = "RAISE statement option cannot be null";
                return Err(Error::new("22004", message));
            };
            let again = || {
                let message = format!("RAISE option already specified: {}", name.to_uppercase());
                Error::new("42601", message)
            };
            match name.as_str() {
                "errcode" if has_condition => return Err(again()),
                "errcode" => {
                    let state = code(&text)?;
                    if said.state.replace(state).is_some() {
                        return Err(again());
                    }
                }
                "message" if is_format => return Err(again()),
                "message" => said.message = Some(text),
                _ => said.others.push((name.clone(), text)),
            }
        }
        self.say(raise.level, said)
    }

    /// RAISE_APPLICATION_ERROR: the number stands in the message, as clients of Oracle's see it.
    pub fn raise_number(&mut self, number: &Sql, message: &Sql) -> Result<()> {
        let (number, message) = (
            self.value(number, (SqlType::Int4, -1))?,
            self.text(message)?.unwrap_or_default(),
        );
        let Datum::Int4(number @ -20_999..=-20_000) = number else {
            let message = "the number of RAISE_APPLICATION_ERROR must be from -20999 to -20000";
            return Err(Error::new("22023", message));
        };
        let message = format!("ORA{number}: {message}");
        Err(Error::new("P0001", message))
    }

    fn say(&mut self, level: Level, said: Said) -> Result<()> {
        let state = said.state;
        let of_level = match level {
            Level::Exception => "P0001",
            Level::Warning => "01000",
            _ => "00000",
        };
        let message = said.message.or_else(|| state.clone());
        let message = message.unwrap_or_else(|| of_level.to_string());
        if level == Level::Exception {
            let error = Error::new(state.unwrap_or_else(|| of_level.to_string()), message);
            let with = |e: Error, (name, text): (String, String)| match name.as_str() {
                "detail" => e.detail(text),
                "hint" => e.hint(text),
                "column" => e.column(text),
                "constraint" => e.constraint(text),
                "table" => e.table(text),
                "schema" => e.schema(text),
                _ => e.datatype(text),
            };
            return Err(said.others.into_iter().fold(error, with));
        }
        let of = |wanted: &str| {
            let found = said.others.iter().find(|(name, _)| name == wanted);
            found.map(|(_, text)| text.clone())
        };
        if level == Level::Output && !self.core.serves_output() {
            return Ok(());
        }
        self.core.tell(Notice {
            severity: match level {
                Level::Warning => "WARNING",
                Level::Info => "INFO",
                Level::Log => "LOG",
                Level::Debug => "DEBUG",
                Level::Notice | Level::Output | Level::Exception => "NOTICE",
            },
            sqlstate: state.unwrap_or_else(|| of_level.to_string()).into(),
            message,
            detail: of("detail"),
            hint: of("hint"),
        });
        Ok(())
    }
}

/// ERRCODE: a SQLSTATE, or the name of a condition.
fn code(text: &str) -> Result<String> {
    let is_state = |b: u8| b.is_ascii_digit() || b.is_ascii_uppercase();
    if text.len() == 5 && text.bytes().all(is_state) {
        return Ok(text.to_string());
    }
    let state = condition::state(text);
    state
        .map(str::to_string)
        .ok_or_else(|| condition::unknown(text))
}

fn formatted(format: &str, arguments: &[Option<String>]) -> String {
    let mut out = String::new();
    let mut arguments = arguments.iter();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
        } else if rest.next_if_eq(&'%').is_some() {
            out.push('%');
        } else if let Some(argument) = arguments.next() {
            out.push_str(argument.as_deref().unwrap_or("<NULL>"));
        }
    }
    out
}
