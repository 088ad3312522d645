//! A thread of redo on simulated storage: what is written, and what is read back.

mod common;
mod crash;
mod fuzz;
mod group_commit;
mod reader;
mod writes_at_once;
