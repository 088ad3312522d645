//! COPY FROM STDIN and TO STDOUT, in text and CSV.

mod input;
mod lines;
pub(crate) mod output;

pub use input::CopyIn;
