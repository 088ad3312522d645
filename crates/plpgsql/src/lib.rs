//! PL/pgSQL: from the text of a body to its syntax tree.
//!
//! The crate knows the language's own words only. What is SQL in a body it keeps as text, and says
//! where it stood; names of variables it does not resolve. See the README.

mod lex;
mod parse;
pub mod tree;

pub use parse::{Body, Conflict, numbered_parameters, parse, parse_oracle, rows_renamed};

/// What is wrong with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub sqlstate: &'static str,
    pub message: String,
    pub hint: Option<String>,
    /// Byte of the body.
    pub at: usize,
    pub line: u32,
}
