//! COPY FROM STDIN and TO STDOUT, in text, CSV and binary.

mod binary;
mod filter;
mod input;
mod lines;
pub(crate) mod output;

pub use input::CopyIn;
