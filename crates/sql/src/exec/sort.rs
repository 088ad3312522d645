//! Ordering of a result that no index delivers in order.

use std::cmp::Ordering;

use block::value::{Datum, DatumRef};

use crate::error::{Error, Result};
use crate::expr::{Env, Expr, compare};
use crate::plan::SortKey;
use crate::session::Core;

/// Memory of one sort's rows. A larger one belongs to the general lane, which spills.
const MAX_BYTES: usize = 256 << 20;

/// Collects output rows with their sort keys; keeps only those that LIMIT can ask for.
pub struct Sorter {
    rows: Vec<(Vec<Datum>, Vec<Datum>)>,
    /// Descending and nulls-first, per key.
    directions: Vec<(bool, bool)>,
    keep: u64,
    bytes: usize,
}

impl Sorter {
    pub fn new(order: &[SortKey], keep: u64) -> Sorter {
        Sorter {
            rows: Vec::new(),
            directions: order
                .iter()
                .map(|k| (k.descending, k.nulls_first))
                .collect(),
            keep,
            bytes: 0,
        }
    }

    pub fn push(
        &mut self,
        core: &mut Core,
        order: &[SortKey],
        output: &[Expr],
        env: &Env<'_>,
    ) -> Result<()> {
        let keys = order
            .iter()
            .map(|k| Ok(k.expr.eval(env, core)?.into_datum()))
            .collect::<Result<Vec<_>>>()?;
        let row = output
            .iter()
            .map(|e| Ok(e.eval(env, core)?.into_datum()))
            .collect::<Result<Vec<_>>>()?;
        self.bytes += keys.iter().chain(&row).map(size).sum::<usize>();
        self.rows.push((keys, row));
        // Twice the rows wanted are sorted and cut, so that each row costs its share of a sort of that size.
        if !self.directions.is_empty()
            && self.rows.len() as u64 > self.keep.saturating_mul(2).max(1024)
        {
            self.sort();
            self.rows
                .truncate(usize::try_from(self.keep).unwrap_or(usize::MAX));
            self.bytes = self
                .rows
                .iter()
                .flat_map(|(k, r)| k.iter().chain(r))
                .map(size)
                .sum();
        }
        if self.bytes > MAX_BYTES {
            return Err(Error::new(
                "53400",
                "sorting this result needs more memory than a direct plan may use",
            )
            .hint("Create an index in the order of the result, or limit it."));
        }
        Ok(())
    }

    pub fn finish(mut self) -> Vec<Vec<Datum>> {
        if !self.directions.is_empty() {
            self.sort();
        }
        self.rows.into_iter().map(|(_, row)| row).collect()
    }

    fn sort(&mut self) {
        let directions = &self.directions;
        self.rows.sort_by(|(a, _), (b, _)| {
            let keys = a.iter().zip(b).zip(directions);
            keys.map(|((a, b), d)| key_order(a.borrow(), b.borrow(), *d))
                .find(|o| o.is_ne())
                .unwrap_or(Ordering::Equal)
        });
    }
}

fn key_order(
    a: DatumRef<'_>,
    b: DatumRef<'_>,
    (descending, nulls_first): (bool, bool),
) -> Ordering {
    let null_side = if nulls_first {
        Ordering::Less
    } else {
        Ordering::Greater
    };
    match (matches!(a, DatumRef::Null), matches!(b, DatumRef::Null)) {
        (true, true) => Ordering::Equal,
        (true, false) => null_side,
        (false, true) => null_side.reverse(),
        (false, false) => {
            // Keys of one expression have one type.
            let order = compare(a, b).unwrap_or(Ordering::Equal);
            if descending { order.reverse() } else { order }
        }
    }
}

fn size(d: &Datum) -> usize {
    size_of::<Datum>()
        + match d {
            Datum::Text(t) => t.len(),
            Datum::Bytea(b) => b.len(),
            _ => 0,
        }
}
