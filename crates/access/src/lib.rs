//! Segments and their space, heaps, B-link trees and sequences: the places of rows and keys in
//! blocks, and how they are found again.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod btree;
mod error;
pub mod heap;
pub mod sequence;
pub mod space;

pub use error::{Error, Result};
