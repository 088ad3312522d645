//! Maps whose order is the same in every run: what a loop over one does, messages sent included, would otherwise differ between two runs of one seed. Their keys are ours, not a client's: nobody chooses them to collide.

use std::hash::{BuildHasherDefault, DefaultHasher};

pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
pub type HashSet<K> = std::collections::HashSet<K, BuildHasherDefault<DefaultHasher>>;
