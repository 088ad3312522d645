//! Whether a picture that was made step by step is the one that is read as a whole.
//!
//! Debug builds ask so after refreshes, so that every test of definitions on two instances does;
//! release builds do not.

use std::sync::Arc;

use engine::Engine;

use super::Dict;
use super::maps::Maps;
use crate::error::Result;

/// In debug builds, every refresh of a picture of so few entries is checked, and one in so many of
/// another.
const FEW: usize = 200;
const EVERY: u64 = 16;

/// Reads the whole dictionary and compares, at times, in debug builds. To be called while nobody
/// commits a change of definitions.
pub fn is_whole(engine: &Arc<Engine>, picture: &Dict) -> Result<()> {
    let asked = picture.maps.entries.len() <= FEW || picture.version.is_multiple_of(EVERY);
    if cfg!(debug_assertions) && asked {
        let whole = super::store::load(engine)?;
        if let Some(difference) = difference(picture, &whole)? {
            panic!("invariant: a picture is what is stored: {difference}");
        }
    }
    Ok(())
}

/// What two pictures differ in: the definitions, where they are, what they are found by.
pub fn difference(one: &Dict, other: &Dict) -> Result<Option<String>> {
    let (a, b) = (&one.maps, &other.maps);
    for (here, there, which) in [(a, b, "second"), (b, a, "first")] {
        for (key, entry) in here.entries.iter() {
            let Some(known) = there.entries.get(key) else {
                return Ok(Some(format!("the {which} has no entry {key}")));
            };
            let (stored, known_stored) = (entry.object.encode()?, known.object.encode()?);
            if stored != known_stored || entry.row != known.row {
                let texts =
                    [stored, known_stored].map(|s| String::from_utf8_lossy(&s).into_owned());
                return Ok(Some(format!("entry {key}: {} and {}", texts[0], texts[1])));
            }
            if !entry.object.has_types_of(&known.object) {
                return Ok(Some(format!("entry {key} has types of other states")));
            }
        }
    }
    let found_by = |maps: &Maps| maps.found_by();
    let (a, b) = (found_by(a), found_by(b));
    let mut both = a.iter().zip(&b);
    let differing = both.find(|(a, b)| a != b);
    Ok(match differing {
        Some((a, b)) => Some(format!("found by {a} and {b}")),
        None if a.len() != b.len() => Some("found by more names".to_string()),
        None => (one.read != other.read).then(|| format!("read {} and {}", one.read, other.read)),
    })
}
