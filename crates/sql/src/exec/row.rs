//! Rows between their stored form and values.

use block::value::DatumRef;
use engine::TableDef;

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
    table: &'a TableDef,
    needed: usize,
    out: &mut Vec<DatumRef<'a>>,
) -> Result<()> {
    let from = out.len();
    block::row::decode_prefix(bytes, &table.columns, needed, out)
        .map_err(|e| Error::new("XX001", format!("damaged row: {e}")))?;
    // The row is older than its table's last columns.
    for at in out.len() - from..needed {
        out.push(table.missing(at));
    }
    out.resize(from + table.columns.len(), DatumRef::Null);
    Ok(())
}
