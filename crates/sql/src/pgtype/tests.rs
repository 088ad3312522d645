//! Properties over all types.
