//! How recovery applies a change vector of an instance, or of several, that have died.

use block::record::Vector;
use block::{BlockBuf, Scn, apply};

/// Applies a vector of a record with this SCN if the block lacks it; false if the block had it
/// already. It is an error if the block has neither what the vector rests on nor what the vector
/// makes.
pub fn apply_vector(
    block: &mut BlockBuf,
    scn: Scn,
    vector: &Vector<'_>,
) -> std::result::Result<bool, String> {
    if block.scn() >= scn {
        return Ok(false);
    }
    match (vector.before, vector.op.formats()) {
        (None, Some(kind)) => block.format(vector.dba, vector.object, kind),
        (Some(before), None) if block.scn() == before => {}
        (Some(before), None) => {
            return Err(format!(
                "its SCN is {}, the record wants {}",
                block.scn().0,
                before.0
            ));
        }
        _ => {
            return Err(format!(
                "{:?} does not go with the kind of vector it stands in",
                vector.op
            ));
        }
    }
    apply(vector.op, block, vector.payload).map_err(|e| e.to_string())?;
    block.set_scn(scn);
    Ok(true)
}
