//! Maps whose order is the same in every run. Otherwise what a loop over a map does, messages sent
//! included, would differ between two runs of one seed. The keys are ours, not a client's: nobody
//! chooses them to collide.

use rustc_hash::FxBuildHasher;

pub type HashMap<K, V> = std::collections::HashMap<K, V, FxBuildHasher>;
pub type HashSet<K> = std::collections::HashSet<K, FxBuildHasher>;
