//! Heaps, indexes and space over the real transactions, cache and log.

mod common;
mod extents;
mod heap;
mod index;
mod instances;
