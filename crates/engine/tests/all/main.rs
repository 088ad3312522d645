//! Whole instances on simulated storage: one by itself, and several of one process.

mod affinity;
mod bounded;
mod bulk;
mod bulk_crash;
mod cluster;
mod common;
mod concurrency;
mod crash;
mod damage;
mod faults;
mod key_lines;
mod races;
mod records;
mod row_locks;
mod sequences;
mod shared;
#[cfg(debug_assertions)]
mod simulation;
mod sort;
mod survivors;
mod threads;
