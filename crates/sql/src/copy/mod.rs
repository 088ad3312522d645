//! COPY from and to the client, and files of the server, in text, CSV and binary.

mod binary;
pub(crate) mod file;
mod filter;
mod input;
mod lines;
pub(crate) mod output;

pub use file::failed as file_error;
pub use input::CopyIn;
