//! The dictionary's own table: the only table whose definition is in no table.

use crate::table::{IndexColumn, IndexDef, IndexRules, TableDef};
use crate::{Error, Result};
use block::value::ColType;
use block::{Dba, ObjectId, Scn};

pub(crate) const DICTIONARY: ObjectId = ObjectId(1);
pub(crate) const DICTIONARY_INDEX: ObjectId = ObjectId(2);

/// The dictionary's table, made from the addresses in the control file.
pub(crate) fn table_at(bootstrap: &[u64]) -> Result<TableDef> {
    let &[heap, index] = bootstrap else {
        return Err(Error::Corrupt(
            "the control file has no addresses of the dictionary".to_string(),
        ));
    };
    Ok(TableDef {
        missing: Vec::new(),
        object: DICTIONARY,
        header: Dba(heap),
        columns: vec![ColType::Int4, ColType::Int2, ColType::Text, ColType::Bytea],
        indexes: vec![IndexDef {
            object: DICTIONARY_INDEX,
            header: Dba(index),
            columns: vec![IndexColumn {
                column: 0,
                descending: false,
                nulls_first: false,
            }],
            unique: true,
            name: "dictionary_pkey".to_string(),
            created: Scn::ZERO,
            rules: IndexRules::default(),
        }],
    })
}
