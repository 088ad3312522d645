//! Segments and their space, heaps, B-link trees and sequences: how rows and keys lie in blocks and are found again.

pub mod btree;
mod error;
pub mod sequence;

pub use error::{Error, Result};
