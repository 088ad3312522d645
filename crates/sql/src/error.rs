//! What a client is told when a statement fails: an SQLSTATE, a message in PostgreSQL's words, and what goes with it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use sqlparser::ast;
use txn::Ring;

use crate::place::Place;

pub type Result<T> = std::result::Result<T, Error>;

/// An error as the wire protocol carries it. Boxed, because results are passed through every expression node.
#[derive(Clone)]
pub struct Error(Box<Fields>);

#[derive(Debug, Clone)]
pub struct Fields {
    /// Five characters; part of the interface to clients.
    pub sqlstate: Cow<'static, str>,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// Where in the client's data it happened.
    pub context: Option<String>,
    /// The statement within the client's one that failed, and the character in its text.
    pub internal: Option<(String, u32)>,
    /// Character in the statement's text, from 1.
    pub position: Option<u32>,
    /// The same while only the syntax tree is at hand; [`Error::located`] makes the position of it.
    place: Option<Place>,
    /// Relation, column and constraint that the error is about, for clients that show them.
    pub schema: Option<String>,
    pub table: Option<String>,
    pub column: Option<String>,
    pub constraint: Option<String>,
    pub datatype: Option<String>,
    /// The function of PostgreSQL's that raises this error. Only where drivers go by it.
    pub routine: Option<&'static str>,
    /// The circle of a deadlock. `detail` tells it without what the sessions run, which
    /// [`Error::told_to`] adds for those who may see it.
    ring: Option<Arc<Ring>>,
}

impl Error {
    pub fn new(sqlstate: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Error {
        Error(Box::new(Fields {
            sqlstate: sqlstate.into(),
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
            internal: None,
            position: None,
            place: None,
            schema: None,
            table: None,
            column: None,
            constraint: None,
            datatype: None,
            routine: None,
            ring: None,
        }))
    }
    /// A feature that PostgreSQL has and Braid does not.
    pub fn unsupported(what: impl fmt::Display) -> Error {
        Error::new("0A000", format!("not supported: {what}"))
    }
    /// A broken promise between modules of Braid, reported rather than panicking.
    pub fn internal(what: impl Into<String>) -> Error {
        Error::new("XX000", what)
    }
    pub fn detail(mut self, detail: impl Into<String>) -> Error {
        self.0.detail = Some(detail.into());
        self
    }
    /// Where in the client's data it happened, unless something more precise is known already.
    pub fn context_if_none(mut self, context: impl Into<String>) -> Error {
        self.0.context.get_or_insert_with(|| context.into());
        self
    }
    /// What the error happened in, after what is known of that already.
    pub fn in_context(mut self, context: impl AsRef<str>) -> Error {
        self.0.context = Some(match self.0.context.take() {
            Some(inner) => format!("{inner}\n{}", context.as_ref()),
            None => context.as_ref().to_string(),
        });
        self
    }
    /// Of a text that begins so many characters earlier than was thought.
    pub(crate) fn moved_back(mut self, characters: u32) -> Error {
        if let Some(position) = &mut self.0.position {
            *position = position.saturating_sub(characters).max(1);
        }
        self
    }
    /// Of a statement within the client's one: its position is one in that statement's text.
    pub(crate) fn in_statement(mut self, text: &str) -> Error {
        if let Some(position) = self.0.position.take() {
            self.0
                .internal
                .get_or_insert_with(|| (text.to_string(), position));
        }
        self
    }
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }
    pub(crate) fn hint_if_any(mut self, hint: Option<String>) -> Error {
        self.0.hint = hint;
        self
    }
    pub fn at(mut self, position: u32) -> Error {
        self.0.position.get_or_insert(position);
        self
    }
    /// Where it is in the syntax tree, unless something more precise is known already.
    /// Without the place, which is in another text than the statement's.
    pub(crate) fn without_place(mut self) -> Error {
        self.0.place = None;
        self
    }

    pub(crate) fn placed(mut self, place: Option<Place>) -> Error {
        if self.0.position.is_none() && self.0.place.is_none() {
            self.0.place = place;
        }
        self
    }
    pub(crate) fn at_name(self, name: &ast::ObjectName) -> Error {
        self.placed(Place::of_name(name))
    }
    pub(crate) fn at_expr(self, e: &ast::Expr) -> Error {
        self.placed(Place::of_expr(e))
    }
    /// The place of what an expression says wrong. Errors of its evaluation have none.
    pub(crate) fn in_expr(mut self, e: &ast::Expr) -> Error {
        if let Some(Place::Literal(value)) = &self.0.place {
            if let Some(place) = Place::of_literal_in(e, value) {
                self.0.place = Some(place);
            }
            return self;
        }
        match self.sqlstate() {
            "42883" | "42725" | "42846" => self.placed(Place::of_node(e)),
            "42501" => self,
            state if state.starts_with("42") || state == "0A000" => self.at_expr(e),
            _ => self,
        }
    }
    /// The place of a column that is not grouped, in the query that it stands in.
    pub(crate) fn in_select(mut self, select: &ast::Select, order: Option<&ast::OrderBy>) -> Error {
        if let Some(Place::Column { table, name }) = &self.0.place {
            self.0.place = Place::of_column_in(select, order, table, name);
        }
        self
    }
    /// With the position in the text that its place was taken from.
    pub(crate) fn located(mut self, sql: &str) -> Error {
        if let Some(position) = self.0.place.take().and_then(|place| place.position(sql)) {
            self.0.position.get_or_insert(position);
        }
        self
    }
    /// Of a piece of a message: its position is counted in the whole.
    pub fn within(self, message: &str, piece: &str) -> Error {
        let begins = (piece.as_ptr() as usize).checked_sub(message.as_ptr() as usize);
        match begins.and_then(|byte| message.get(..byte)) {
            Some(before) => self.moved(before.chars().count() as u32),
            None => self,
        }
    }
    /// Of a text that begins so many characters later than was thought.
    pub(crate) fn moved(mut self, characters: u32) -> Error {
        if let Some(position) = &mut self.0.position {
            *position += characters;
        }
        self
    }
    pub fn schema(mut self, name: impl Into<String>) -> Error {
        self.0.schema = Some(name.into());
        self
    }
    pub fn table(mut self, name: impl Into<String>) -> Error {
        self.0.table = Some(name.into());
        self
    }
    pub fn column(mut self, name: impl Into<String>) -> Error {
        self.0.column = Some(name.into());
        self
    }
    pub fn constraint(mut self, name: impl Into<String>) -> Error {
        self.0.constraint = Some(name.into());
        self
    }
    pub fn datatype(mut self, name: impl Into<String>) -> Error {
        self.0.datatype = Some(name.into());
        self
    }
    pub fn routine(mut self, name: &'static str) -> Error {
        self.0.routine = Some(name);
        self
    }
    /// The same error in other words.
    pub fn with_message(mut self, message: impl Into<String>) -> Error {
        self.0.message = message.into();
        self
    }
    pub fn sqlstate(&self) -> &str {
        &self.0.sqlstate
    }
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// The error as it is told to a client that may see what sessions of certain roles run.
    pub(crate) fn told_to(&self, may_see: impl Fn(u32) -> bool) -> Error {
        let error = self.again();
        match self.0.ring.as_ref().map(|ring| ring.told_to(may_see)) {
            Some(detail) => error.detail(detail),
            None => error,
        }
    }
    /// The same error once more, for where only a reference to it came through.
    pub(crate) fn again(&self) -> Error {
        Error(self.0.clone())
    }
    pub fn fields(&self) -> &Fields {
        &self.0
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0.message, self.0.sqlstate)
    }
}

impl std::error::Error for Error {}

impl From<charset::Error> for Error {
    fn from(e: charset::Error) -> Error {
        Error::new(e.sqlstate(), e.to_string())
    }
}

impl From<engine::Error> for Error {
    fn from(e: engine::Error) -> Error {
        let state = e.sqlstate();
        let text = e.to_string();
        if let Some(ring) = e.ring() {
            let mut deadlock = Error::new(state, text).detail(ring.told_to(|_| false));
            deadlock.0.ring = Some(Arc::new(ring.clone()));
            return deadlock.hint("See server log for query details.");
        }
        match e {
            engine::Error::Computed(own) => match own.downcast::<Error>() {
                Ok(own) => *own,
                Err(other) => Error::internal(other.to_string()),
            },
            engine::Error::UniqueViolation { index, .. } => {
                Error::new(state, text).constraint(index)
            }
            _ => Error::new(state, text),
        }
    }
}
