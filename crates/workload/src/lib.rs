//! Reports of the workload between two snapshots, and what is wrong with it. Pure: rows in, text or
//! HTML out.
//!
//! A [`Snapshot`] is what the `v$` views of all instances had counted at one moment. The difference
//! of two is a [`Span`]. Sections are tables of a [`Document`], which [`text`] and [`html`] show.
//! [`doctor`] ranks what took the time, with evidence and remedy.
//!
//! **Invariants.**
//! - Columns are found by name. One that is missing is an error that names it, never a zero.
//! - Counters of an instance that was started within the span, or of which rows are missing, are no
//!   differences: the instance is left out, and the report says so.
//! - How long a span was is told by how long its instances have run, not by the hosts' clocks.
//! - Each table says how it is read.

mod ash;
mod chart;
mod diff;
pub mod doctor;
mod document;
mod html;
mod missing;
mod sections;
mod span;
mod table;
mod text;
mod timeline;

pub use ash::{Activity, By, activity};
pub use diff::diff;
pub use document::{Bar, Chart, Document, Layer, Section};
pub use html::html;
pub use missing::rows_are_missing;
pub use sections::report;
pub use sections::sql::ROW_SOURCES;
pub use span::{FORMAT, Snapshot, Span};
pub use table::{Error, Row, Table};
pub use text::text;
pub use timeline::timelines;
