//! Rows between their stored form and values.

use block::value::{ColType, DatumRef};

use crate::error::{Error, Result};

/// Lends out an empty vector's memory under another lifetime, so that a loop over rows allocates once. The collect
/// happens in place.
pub fn recycle<'a, 'b>(mut values: Vec<DatumRef<'a>>) -> Vec<DatumRef<'b>> {
    values.clear();
    values.into_iter().map(|_| DatumRef::Null).collect()
}

/// Appends the first `needed` columns of a stored row, and NULLs for the rest.
pub fn decode<'a>(
    bytes: &'a [u8],
    columns: &[ColType],
    needed: usize,
    out: &mut Vec<DatumRef<'a>>,
) -> Result<()> {
    let from = out.len();
    block::row::decode_prefix(bytes, columns, needed, out)
        .map_err(|e| Error::new("XX001", format!("damaged row: {e}")))?;
    out.resize(from + columns.len(), DatumRef::Null);
    Ok(())
}
