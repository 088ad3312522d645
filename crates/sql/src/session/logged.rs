//! What the log says of a session: errors of its statements, its messages, and its statements
//! themselves (`log_min_messages`, `log_min_error_statement`, `log_error_verbosity`,
//! `log_statement`, `log_duration`).
//!
//! The words are PostgreSQL's; the SQLSTATE, the session and its role stand before them. An error
//! is logged before its client is told of it. Passwords are hidden in all that is text of a client.

use std::borrow::Cow;
use std::fmt::Write;

use block::value::Datum;
use sqlparser::ast;

use super::statement::{Kind, Portal};
use super::{Core, Settings, SqlSession};
use crate::api::Notice;
use crate::error::Error;
use crate::parse::hidden;
use crate::parse::{self, Command, Utility};
use crate::pgtype::text_out;
use crate::plan::with::Part;
use crate::types::SqlType;

/// Severities in the order in which the log takes them, which is not that of clients: LOG is above
/// ERROR.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Severity {
    Debug5,
    Debug4,
    Debug3,
    Debug2,
    Debug1,
    Info,
    Notice,
    #[default]
    Warning,
    Error,
    Log,
    Fatal,
    Panic,
}

impl Severity {
    /// That of a parameter. Values are checked when they are set.
    fn named(name: &str) -> Severity {
        match name {
            "debug5" => Severity::Debug5,
            "debug4" => Severity::Debug4,
            "debug3" => Severity::Debug3,
            "debug2" | "debug" => Severity::Debug2,
            "debug1" => Severity::Debug1,
            "info" => Severity::Info,
            "notice" => Severity::Notice,
            "warning" => Severity::Warning,
            "log" => Severity::Log,
            "fatal" => Severity::Fatal,
            "panic" => Severity::Panic,
            _ => Severity::Error,
        }
    }

    /// That of a message to a client.
    fn of(notice: &Notice) -> Severity {
        match notice.severity {
            "DEBUG" => Severity::Debug1,
            "INFO" => Severity::Info,
            "WARNING" => Severity::Warning,
            "LOG" => Severity::Log,
            _ => Severity::Notice,
        }
    }

    /// The word before the message, where the level of the log's line does not say it already.
    fn word(self) -> &'static str {
        match self {
            Severity::Info => "INFO ",
            Severity::Notice => "NOTICE ",
            Severity::Fatal => "FATAL ",
            _ => "",
        }
    }
}

/// How much is said of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Verbosity {
    Terse,
    #[default]
    Default,
    /// With the names of what the error is about.
    Verbose,
}

/// Which statements are logged as they begin: those of this class and of all before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Class {
    #[default]
    None,
    Ddl,
    Mod,
    All,
}

/// The parameters of the log, ready for use.
#[derive(Clone, Copy, Default)]
pub struct Logging {
    min_messages: Severity,
    min_error_statement: Severity,
    verbosity: Verbosity,
    statement: Class,
    /// Whether how long a statement took is logged, whatever that is.
    pub duration: bool,
}

impl Logging {
    pub(super) fn of(settings: &Settings) -> Logging {
        let severity = |name: &str| Severity::named(&settings.get(name));
        Logging {
            min_messages: severity("log_min_messages"),
            min_error_statement: severity("log_min_error_statement"),
            verbosity: match settings.get("log_error_verbosity").as_str() {
                "terse" => Verbosity::Terse,
                "verbose" => Verbosity::Verbose,
                _ => Verbosity::Default,
            },
            statement: match settings.get("log_statement").as_str() {
                "ddl" => Class::Ddl,
                "mod" => Class::Mod,
                "all" => Class::All,
                _ => Class::None,
            },
            duration: settings.get("log_duration") == "on",
        }
    }

    #[inline]
    pub fn has_statements(&self) -> bool {
        self.statement != Class::None
    }
}

/// What is told of a statement, as the log may have it.
fn shown<'t>(message: &'t str, statement: Option<&str>) -> Cow<'t, str> {
    hidden::of_message(message, statement).map_or(Cow::Borrowed(message), Cow::Owned)
}

impl SqlSession {
    /// Logs an error of this session that its client is about to be told. `statement`: what the
    /// client had sent, if that is at hand.
    pub fn log_error(&self, error: &Error, is_fatal: bool, statement: Option<&str>) {
        let severity = match is_fatal {
            true => Severity::Fatal,
            false => Severity::Error,
        };
        let logging = self.core.settings.hot().logging;
        if severity < logging.min_messages {
            return;
        }
        // The log is for those who may see what all sessions run.
        let error = error.told_to(|_| true);
        let fields = error.fields();
        let mut text = self.core.about(severity, &fields.sqlstate);
        text.push_str(&shown(&fields.message, statement));
        let own = fields.position;
        let position = own.or(fields.internal.as_ref().map(|(_, at)| *at));
        if let Some(position) = position {
            let _ = write!(text, " at character {position}");
        }
        if logging.verbosity > Verbosity::Terse {
            let internal = fields.internal.as_ref().map(|(query, _)| query);
            let lines = [
                ("DETAIL", fields.detail.as_ref()),
                ("HINT", fields.hint.as_ref()),
                ("QUERY", internal),
                ("CONTEXT", fields.context.as_ref()),
            ];
            add_lines(&mut text, &lines);
        }
        if logging.verbosity == Verbosity::Verbose {
            let lines = [
                ("SCHEMA NAME", fields.schema.as_ref()),
                ("TABLE NAME", fields.table.as_ref()),
                ("COLUMN NAME", fields.column.as_ref()),
                ("DATATYPE NAME", fields.datatype.as_ref()),
                ("CONSTRAINT NAME", fields.constraint.as_ref()),
            ];
            add_lines(&mut text, &lines);
        }
        if let Some(statement) = statement
            && severity >= logging.min_error_statement
        {
            let _ = write!(
                text,
                "\nSTATEMENT: {}",
                self.core.shown_statement(statement)
            );
        }
        // The end of a session that an administrator wanted is no failure.
        let is_ordered = is_fatal && fields.sqlstate.starts_with("57");
        let severity = if is_ordered {
            Severity::Warning
        } else {
            severity
        };
        put(severity, &text);
    }

    /// The statement that runs, or ran last, as its client sent it.
    pub fn shown_text(&self) -> Option<std::sync::Arc<str>> {
        self.core.shown.clone()
    }

    /// Logs a statement that is about to run, if those of its class are wanted.
    #[cold]
    pub(super) fn log_statement(&self, portal: &Portal) {
        // EXECUTE and EXPLAIN are logged, and not what they run.
        if self.core.pl.is_within() || self.is_metering() {
            return;
        }
        let wanted = self.core.settings.hot().logging.statement;
        let statement = &portal.statement;
        let prepared = match &statement.kind {
            Kind::Utility(Utility::Execute { name, .. }) => self.core.prepared.get(name).ok(),
            _ => None,
        };
        let class = class_of(prepared.map_or(&statement.kind, |prepared| &prepared.kind));
        if class > wanted {
            return;
        }
        let mut text = self.core.about(Severity::Log, "");
        let _ = write!(
            text,
            "statement: {}",
            self.core.shown_statement(&self.text_of(statement))
        );
        if let Some(prepared) = prepared {
            let prepared = prepared.text();
            let shown = hidden::without_passwords(prepared);
            let shown = shown.as_deref().unwrap_or(prepared);
            let _ = write!(text, "\nDETAIL: prepare: {shown}");
        }
        // The values of a text that was sent as a whole stand in that.
        if !portal.params.is_empty() && !self.has_client_text() {
            let values = self.core.values_told(statement.params(), &portal.params);
            let _ = write!(text, "\nDETAIL: parameters: {values}");
        }
        put(Severity::Log, &text);
    }

    /// Logs how long a statement took, without its text.
    pub(super) fn log_duration(&self, took: &str) {
        let about = self.core.about(Severity::Log, "");
        put(Severity::Log, &format!("{about}duration: {took} ms"));
    }
}

impl Core {
    /// A statement as the log may have it, as its client has sent it.
    fn shown_statement<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let escapes_in_plain = self.settings.hot().backslashes.in_plain;
        hidden::of_client(text, escapes_in_plain).map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// Logs a message that goes to the client, if it is as severe as the log wants.
    pub(super) fn log_notice(&self, notice: &Notice) {
        let severity = Severity::of(notice);
        let logging = self.settings.hot().logging;
        if severity < logging.min_messages {
            return;
        }
        let mut text = self.about(severity, &notice.sqlstate);
        text.push_str(&shown(&notice.message, None));
        if logging.verbosity > Verbosity::Terse {
            let lines = [
                ("DETAIL", notice.detail.as_ref()),
                ("HINT", notice.hint.as_ref()),
            ];
            add_lines(&mut text, &lines);
        }
        if let Some(statement) = &self.shown
            && severity >= logging.min_error_statement
        {
            let _ = write!(text, "\nSTATEMENT: {}", self.shown_statement(statement));
        }
        put(severity, &text);
    }

    /// The beginning of a message: whose session, what severity and SQLSTATE.
    fn about(&self, severity: Severity, sqlstate: &str) -> String {
        let own = wait::session::with(|s| (s.sid, s.serial)).unwrap_or_default();
        let mut text = format!(
            "session {},{} of role {}: ",
            own.0, own.1, self.session_user
        );
        text.push_str(severity.word());
        if !sqlstate.is_empty() {
            text.push_str(sqlstate);
            text.push(' ');
        }
        text
    }

    /// Values of parameters in the words of PostgreSQL's log.
    fn values_told(&self, types: &[SqlType], values: &[Datum]) -> String {
        let value = |(at, (ty, value)): (usize, (&SqlType, &Datum))| {
            let mut out = Vec::new();
            text_out(*ty, value.borrow(), &self.io, &mut out);
            match value {
                Datum::Null => format!("${} = NULL", at + 1),
                _ => {
                    let text = String::from_utf8_lossy(&out).replace('\'', "''");
                    format!("${} = '{text}'", at + 1)
                }
            }
        };
        let told = types.iter().zip(values).enumerate().map(value);
        told.collect::<Vec<_>>().join(", ")
    }
}

fn add_lines(text: &mut String, lines: &[(&str, Option<&String>)]) {
    for (name, line) in lines {
        if let Some(line) = line {
            let _ = write!(text, "\n{name}: {}", shown(line, None));
        }
    }
}

/// Writes a message at the level of the instance's log that has its severity.
fn put(severity: Severity, text: &str) {
    match severity {
        Severity::Error | Severity::Fatal | Severity::Panic => tracing::error!("{text}"),
        Severity::Warning => tracing::warn!("{text}"),
        Severity::Log | Severity::Notice | Severity::Info => tracing::info!("{text}"),
        _ => tracing::debug!("{text}"),
    }
}

/// The class of a statement for `log_statement`, as PostgreSQL has it.
fn class_of(kind: &Kind) -> Class {
    match kind {
        Kind::Insert(_) | Kind::Update(_) | Kind::Delete(_) | Kind::Supplied(_) => Class::Mod,
        Kind::With(plan) => match plan.main {
            Part::Query(_) => Class::All,
            _ => Class::Mod,
        },
        Kind::Ddl(statement) => class_of_syntax(statement),
        Kind::Utility(utility) => class_of_utility(utility),
        Kind::Empty | Kind::Select(_) | Kind::Tree(_) | Kind::Call(_) => Class::All,
    }
}

fn class_of_utility(utility: &Utility) -> Class {
    use crate::parse::define::Definition;
    match utility {
        Utility::Define(definition) if matches!(**definition, Definition::Reindex(_)) => Class::All,
        Utility::Define(_)
        | Utility::CreateSequence { .. }
        | Utility::AlterSequence { .. }
        | Utility::CreateRole { .. }
        | Utility::AlterRole { .. }
        | Utility::SetOfRole { .. }
        | Utility::SetOfDatabase { .. }
        | Utility::RenameRole { .. }
        | Utility::DropRole { .. }
        | Utility::AlterSystem { .. }
        | Utility::AlterSystemResetAll
        | Utility::Security(_) => Class::Ddl,
        Utility::Copy(spec) if spec.is_from => Class::Mod,
        Utility::Prepare { text, .. } => class_of_text(text),
        Utility::Explain { options, text } if options.iter().any(|o| o.name == "analyze") => {
            class_of_text(text)
        }
        _ => Class::All,
    }
}

/// The class of a statement within another.
fn class_of_text(text: &str) -> Class {
    match parse::statement(text) {
        Ok(Command::Sql(statement)) => class_of_syntax(&statement),
        _ => Class::All,
    }
}

fn class_of_syntax(statement: &ast::Statement) -> Class {
    use ast::Statement;
    match statement {
        Statement::Insert(_)
        | Statement::Update { .. }
        | Statement::Delete(_)
        | Statement::Merge { .. }
        | Statement::Truncate { .. } => Class::Mod,
        Statement::Query(query) => match &*query.body {
            ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_) => {
                Class::Mod
            }
            _ => Class::All,
        },
        _ => Class::Ddl,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_more_severe_than_an_error() {
        assert!(Severity::named("log") > Severity::named("error"));
        assert!(Severity::named("info") < Severity::named("notice"));
        assert_eq!(Severity::named("debug"), Severity::named("debug2"));
        assert!(Severity::named("fatal") < Severity::named("panic"));
    }

    #[test]
    fn statements_within_others_have_their_class() {
        for (text, class) in [
            ("select 1", Class::All),
            ("insert into t values (1)", Class::Mod),
            ("with x as (select 1) delete from t", Class::Mod),
            (
                "merge into t using u on true when matched then delete",
                Class::Mod,
            ),
            ("create table t as select 1", Class::Ddl),
        ] {
            assert_eq!(class_of_text(text), class, "{text}");
        }
    }
}
