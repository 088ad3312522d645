//! What one side of a join tells the other: its keys, once it has come to its end, or that they are too many.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use block::value::Datum;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::error::Result as DfResult;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::read::Keyed;
use super::{PhysicalRef, Plan};
use crate::expr::{CmpOp, Expr};
use crate::olap::arrow::{self, describe};
use crate::olap::filters;
use crate::olap::scan::HeapExec;
use crate::plan::{Path, TableAccess};
use crate::types::SqlType;

/// What one side of a join tells the other.
pub struct Lookup {
    /// Over the rows of the first side: what columns of the table equal.
    values: Vec<PhysicalRef>,
    /// How the table is read; the values are its parameters.
    pub access: TableAccess,
    /// From how many keys on a scan is better.
    most: usize,
    noted: Mutex<Noted>,
    told: watch::Sender<Told>,
    /// Whether the table is read by keys.
    pub decided: watch::Sender<Option<bool>>,
}

/// The keys that have come so far.
struct Noted {
    /// Partitions of the first side that have not come to their end.
    open: usize,
    /// By their form in order of the bytes; `None`: there are too many.
    keys: Option<HashMap<Box<[u8]>, Vec<Datum>>>,
    bytes: usize,
    converter: RowConverter,
    /// A partition of the scan has begun to look them up.
    claimed: bool,
}

#[derive(Clone)]
enum Told {
    Nothing,
    Keys(Arc<Vec<Vec<Datum>>>),
    TooMany,
}

impl Lookup {
    /// `None` if no index is of use.
    pub fn new(
        heap: &HeapExec,
        pairs: Vec<(usize, PhysicalRef)>,
        first: &Plan,
    ) -> DfResult<Option<Lookup>> {
        let part = &*heap.part;
        let schema = first.schema();
        let mut usable = Vec::new();
        for (column, value) in pairs {
            let ty = describe(&*value.return_field(&schema)?)?.ty;
            if is_key_of(ty, part.table.columns[column].ty()) {
                usable.push((column, value));
            }
        }
        let planned = |pairs: &[(usize, PhysicalRef)]| {
            let equal = pairs.iter().enumerate().map(|(i, (column, _))| {
                let (column, value) = (Expr::Column(*column), Expr::Param(i));
                Expr::Compare(CmpOp::Eq, Box::new(column), Box::new(value))
            });
            let terms = part.known.iter().cloned().chain(equal).collect();
            filters::access(&part.context, &part.table, terms)
        };
        let mut at = 0..;
        let access = planned(&usable);
        usable.retain(|_| at.next().is_some_and(|at| uses(&access, at)));
        if usable.is_empty() {
            return Ok(None);
        }
        let access = planned(&usable);
        let (without, with) = (reach(&planned(&[])), reach(&access));
        let all_used = (0..usable.len()).all(|i| uses(&access, i));
        let most = filters::most_looked_up(part.rows, access.rows);
        if !all_used || with <= without || most == 0 {
            return Ok(None);
        }
        let values: Vec<PhysicalRef> = usable.into_iter().map(|(_, v)| v).collect();
        let sorted = values
            .iter()
            .map(|v| Ok(SortField::new(v.data_type(&schema)?)))
            .collect::<DfResult<Vec<_>>>()?;
        Ok(Some(Lookup {
            values,
            access,
            most,
            noted: Mutex::new(Noted {
                open: first.properties().partitioning.partition_count(),
                keys: Some(HashMap::new()),
                bytes: 0,
                converter: RowConverter::new(sorted)?,
                claimed: false,
            }),
            told: watch::Sender::new(Told::Nothing),
            decided: watch::Sender::new(None),
        }))
    }

    /// The index's name.
    pub fn index(&self) -> &str {
        let Path::Index { index, .. } = &self.access.path else {
            return "";
        };
        &self.access.table.indexes[*index].name
    }

    /// Notes the keys of some rows of the first side.
    pub fn note(&self, batch: &RecordBatch) -> DfResult<()> {
        let mut noted = self.noted.lock();
        let noted = &mut *noted;
        let Some(keys) = &mut noted.keys else {
            return Ok(());
        };
        let mut arrays = Vec::with_capacity(self.values.len());
        let mut columns = Vec::with_capacity(self.values.len());
        for value in &self.values {
            let array = value.evaluate(batch)?.into_array(batch.num_rows())?;
            let field = value.return_field(&batch.schema())?;
            columns.push(arrow::Column::new(&array, &field, &describe(&field)?)?);
            arrays.push(array);
        }
        let rows = noted.converter.convert_columns(&arrays)?;
        for (row, bytes) in rows.iter().enumerate() {
            let bytes = bytes.as_ref();
            // NULL equals nothing.
            if arrays.iter().any(|a| a.is_null(row)) || keys.contains_key(bytes) {
                continue;
            }
            noted.bytes += bytes.len() + size_of::<Datum>() * columns.len();
            if keys.len() == self.most || noted.bytes > filters::INDEX_BYTES {
                noted.keys = None;
                self.told.send_replace(Told::TooMany);
                break;
            }
            let key = columns.iter().map(|c| c.get(row).to_datum()).collect();
            keys.insert(bytes.into(), key);
        }
        Ok(())
    }

    /// A partition of the first side has come to its end.
    pub fn ended(&self) {
        let mut noted = self.noted.lock();
        noted.open -= 1;
        if noted.open == 0
            && let Some(keys) = noted.keys.take()
        {
            // In the order of the index: what is near is read together.
            let mut keys: Vec<_> = keys.into_iter().collect();
            keys.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            let keys = keys.into_iter().map(|(_, key)| key).collect();
            self.told.send_replace(Told::Keys(Arc::new(keys)));
        }
    }

    /// A partition of the first side ends before it has given all of its rows.
    pub fn given_up(&self) {
        self.noted.lock().keys = None;
        self.told.send_if_modified(|told| {
            let modified = matches!(told, Told::Nothing);
            if modified {
                *told = Told::TooMany;
            }
            modified
        });
    }

    /// What a partition of the scan has to do, once that is known.
    pub async fn task(self: &Arc<Self>) -> Task {
        let mut told = self.told.subscribe();
        let told = told.wait_for(|t| !matches!(t, Told::Nothing)).await;
        // The sender is in `self`.
        let told = told.map_or(Told::TooMany, |t| t.clone());
        let Told::Keys(keys) = told else {
            return Task::Scan;
        };
        if !std::mem::replace(&mut self.noted.lock().claimed, true) {
            let lookup = self.clone();
            return Task::LookUp(Keyed { lookup, keys });
        }
        let mut decided = self.decided.subscribe();
        let decided = decided.wait_for(Option::is_some).await;
        match decided.is_ok_and(|d| *d == Some(true)) {
            true => Task::Nothing,
            false => Task::Scan,
        }
    }
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Path::Index { index, equal, .. } = &self.access.path else {
            return Ok(());
        };
        let keys = &self.access.table.indexes[*index].keys;
        let name = |key: usize| &self.access.table.columns[keys[key].column].name;
        let terms = equal.iter().enumerate().filter_map(|(at, e)| match e {
            Expr::Param(i) => Some(format!("{} = {}", name(at), self.values[*i])),
            _ => None,
        });
        let terms: Vec<String> = terms.collect();
        write!(
            f,
            "{}; up to {} keys, or else Seq Scan",
            terms.join(", "),
            self.most
        )
    }
}

/// Whether values of one type can be keys of a column of another. Of floats some are equal that are not the same.
fn is_key_of(value: SqlType, column: SqlType) -> bool {
    use SqlType::{Char, Float4, Float8, Int2, Int4, Int8, Oid, Text, Varchar};
    match (value, column) {
        (Int2 | Int4 | Int8 | Oid, Int2 | Int4 | Int8 | Oid) | (Text | Varchar, Text | Varchar) => {
            true
        }
        (Float4 | Float8 | Char, _) => false,
        (value, column) => value == column,
    }
}

/// Whether an access has a parameter among the values that it looks for.
fn uses(access: &TableAccess, parameter: usize) -> bool {
    let Path::Index { equal, .. } = &access.path else {
        return false;
    };
    let is = |e: &Expr| matches!(e, Expr::Param(i) if *i == parameter);
    equal.iter().any(is)
}

/// Columns of an index for which there is a value, or a list.
fn reach(access: &TableAccess) -> usize {
    match &access.path {
        Path::Full | Path::Keys { .. } => 0,
        Path::Index { equal, any_of, .. } => equal.len() + usize::from(!any_of.is_empty()),
    }
}

/// What a partition of a scan by keys has to do.
pub enum Task {
    Scan,
    LookUp(Keyed),
    /// Another one has looked up all keys.
    Nothing,
}
