//! The types that messages of several families, or of `fusion`'s protocols, are made of.

mod ids;
mod primitives;
mod protocols;

pub use ids::Below62;
