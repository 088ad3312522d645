//! Maps whose order is the same in every run. Otherwise what a loop over a map does, messages sent
//! included, would differ between two runs of one seed. The keys are ours, not a client's: nobody
//! chooses them to collide.

use std::hash::{BuildHasherDefault, DefaultHasher};

pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
pub type HashSet<K> = std::collections::HashSet<K, BuildHasherDefault<DefaultHasher>>;
