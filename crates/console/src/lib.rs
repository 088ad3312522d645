//! The console: pages for a browser about instances, sessions, statements and what they wait for,
//! at one port of a host.
//!
//! Pages, styles and scripts are embedded in the program, and nothing is loaded from elsewhere.
//! They hold no data. Data comes as JSON from the interface below `/api/`, which asks the views
//! that SQL has, in a read-only session of the user who has logged in ([`server::Door`]).
//!
//! The instances of a host share the port: one has it, the others wait for it ([`listen`]).
//!
//! **Invariants.**
//! - Without a token that an instance of this database has sealed for the user and the address of
//!   the caller, no request reaches a view.
//! - Whatever a caller sends, the answer is a response or the end of the connection.
//! - Every text of the database leaves as a JSON string, and scripts put it into the page as text.

mod answer;
mod assets;
mod doctor;
mod http;
mod listen;
mod origin;
mod pages;
mod table;
mod token;

pub use listen::{Console, Settings};
