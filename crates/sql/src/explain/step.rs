//! The steps of a plan, in the order in which the text has them, and what is to be said of each.
//!
//! A step's depth says what it is below: the last step before it that is one less deep.

use crate::exec::profile::{StepKey, Took};

/// A value under a key of PostgreSQL's formats for programs.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Text(String),
    /// A number as it is shown.
    Number(String),
    Bool(bool),
    Texts(Vec<String>),
    Group(Group),
    Plans(Vec<Group>),
}

pub(super) type Group = Vec<(&'static str, Value)>;

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_string())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number.to_string())
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Value {
        Value::Bool(is)
    }
}

pub(super) enum Entry {
    Step(Step),
    Note(Note),
    Heading(Heading),
}

pub(super) struct Step {
    pub depth: usize,
    /// What PostgreSQL calls the kind of step.
    pub kind: &'static str,
    /// What the text calls the step.
    pub label: String,
    pub facts: Group,
    /// By which samples of sessions know the step.
    pub place: Option<StepKey>,
    /// Rows expected, if that is known.
    pub rows: Option<f64>,
    pub actual: Option<Actual>,
}

/// What a step took when it ran, all its runs together.
#[derive(Clone, Copy)]
pub(super) struct Actual {
    pub rows: u64,
    pub loops: u64,
    pub took: Took,
}

/// Something about the last step of its depth.
pub(super) struct Note {
    pub depth: usize,
    pub text: String,
    pub facts: Group,
}

/// What the steps are for that come next, below the last step of this depth.
pub(super) struct Heading {
    pub depth: usize,
    /// Nothing if the steps stand under the heading before as well.
    pub text: Option<String>,
    pub name: String,
    /// Of the steps to what they are below.
    pub relationship: &'static str,
}

impl Step {
    pub fn fact(&mut self, key: &'static str, value: impl Into<Value>) -> &mut Step {
        self.facts.push((key, value.into()));
        self
    }

    pub fn placed(&mut self, key: StepKey) -> &mut Step {
        self.place = Some(key);
        self
    }

    pub fn rows(&mut self, rows: f64) -> &mut Step {
        self.rows = Some(rows);
        self
    }
}

impl Note {
    pub fn fact(&mut self, key: &'static str, value: impl Into<Value>) -> &mut Note {
        self.facts.push((key, value.into()));
        self
    }
}
