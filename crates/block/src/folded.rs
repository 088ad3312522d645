//! Text whose letters are the same in either case: it is kept as it was written, and compared,
//! ordered and hashed as it is in small letters.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// A character in its small letter: one for one, as PostgreSQL's `lower` has it.
pub fn small(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

/// A text that lies somewhere else.
#[derive(Clone, Copy, Debug)]
pub struct FoldedRef<'a>(pub &'a str);

impl<'a> FoldedRef<'a> {
    /// The text in small letters, a character at a time, whatever stands beside it.
    pub fn small(self) -> impl Iterator<Item = char> + 'a {
        self.0.chars().map(small)
    }
}

// The order of characters is that of their bytes in UTF-8, and so that of keys.
impl Ord for FoldedRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.small().cmp(other.small())
    }
}

impl PartialOrd for FoldedRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for FoldedRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.small().eq(other.small())
    }
}

impl Eq for FoldedRef<'_> {}

impl Hash for FoldedRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.small().for_each(|c| c.hash(state));
    }
}
