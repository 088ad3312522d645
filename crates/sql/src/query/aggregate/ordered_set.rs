//! `mode`, `percentile_disc` and `percentile_cont`, read from a group's values in their order.
//!
//! A percentile's place depends on how many values there are. Each row is sorted twice: as a record
//! that is only counted and has the share, and as its value. So nothing of a group is kept.

use block::value::Datum;

use super::ordered::{COUNT, OrderedOutput, VALUE};
use super::{Aggregate, OrderedSet};
use crate::error::{Error, Result};
use crate::exec::sort::read_row;
use crate::expr::spans;

/// Whether a function must know the number of its rows before it reads them.
pub fn is_counted(function: Aggregate) -> bool {
    matches!(
        function,
        Aggregate::OrderedSet(OrderedSet::Discrete | OrderedSet::Continuous)
    )
}

impl OrderedOutput {
    /// The aggregate of a group. Groups come in the order of their keys.
    pub fn ordered_set(&mut self, set: OrderedSet, group: &[u8]) -> Result<Datum> {
        match set {
            OrderedSet::Mode => self.mode(group),
            OrderedSet::Discrete => self.discrete(group),
            OrderedSet::Continuous => self.continuous(group),
        }
    }

    fn mode(&mut self, group: &[u8]) -> Result<Datum> {
        let (mut best, mut most) = (Datum::Null, 0u64);
        let (mut key, mut value, mut count) = (Vec::new(), Datum::Null, 0);
        while self.records.is_at(group) {
            if count == 0 || self.records.key() != key {
                key.clear();
                key.extend_from_slice(self.records.key());
                value = self.value()?;
                count = 0;
            }
            count += 1;
            if count > most {
                most = count;
                best.clone_from(&value);
            }
            self.records.advance()?;
        }
        Ok(best)
    }

    fn discrete(&mut self, group: &[u8]) -> Result<Datum> {
        let Some((rows, share)) = self.count(group)? else {
            return Ok(Datum::Null);
        };
        let place = (share * rows as f64).ceil().max(1.0) as u64;
        Ok(self.values(group, place - 1, place - 1)?.0)
    }

    fn continuous(&mut self, group: &[u8]) -> Result<Datum> {
        let Some((rows, share)) = self.count(group)? else {
            return Ok(Datum::Null);
        };
        let place = share * (rows - 1) as f64;
        let (below, above) = (place.floor(), place.ceil());
        let values = self.values(group, below as u64, above as u64)?;
        match values {
            (Datum::Float8(low), Datum::Float8(_)) if below == above => Ok(Datum::Float8(low)),
            (Datum::Float8(low), Datum::Float8(high)) => {
                Ok(Datum::Float8(low + (place - below) * (high - low)))
            }
            (Datum::Interval(low), Datum::Interval(high)) => {
                let middle = spans::within(low, high, place - below)?;
                Ok(Datum::Interval(middle))
            }
            other => Err(Error::internal(format!("{other:?} are no floats"))),
        }
    }

    /// How many values a group has, and the share that is wanted; none if it has none.
    fn count(&mut self, group: &[u8]) -> Result<Option<(u64, f64)>> {
        let group = [group, &[COUNT]].concat();
        let (mut rows, mut share) = (0, None);
        while self.records.is_at(&group) {
            if share.is_none() {
                share = Some(self.value()?);
            }
            rows += 1;
            self.records.advance()?;
        }
        match share {
            None => Ok(None),
            Some(Datum::Float8(share)) => {
                check_share(share)?;
                Ok(Some((rows, share)))
            }
            Some(other) => Err(Error::internal(format!("{other:?} is no share"))),
        }
    }

    /// The values at two places of a group, from 0; goes on to the next group.
    fn values(&mut self, group: &[u8], low: u64, high: u64) -> Result<(Datum, Datum)> {
        let group = [group, &[VALUE]].concat();
        let mut found = (Datum::Null, Datum::Null);
        let mut place = 0;
        while self.records.is_at(&group) {
            if place == low {
                found.0 = self.value()?;
            }
            if place == high {
                found.1 = self.value()?;
            }
            place += 1;
            self.records.advance()?;
        }
        Ok(found)
    }

    /// The first value of the record that comes next.
    fn value(&self) -> Result<Datum> {
        let row = read_row(self.records.rest())?;
        let first = row.into_iter().next();
        first.ok_or_else(|| Error::internal("a record without its value"))
    }
}

/// Refuses what is no share of all rows.
pub fn check_share(share: f64) -> Result<()> {
    match (0.0..=1.0).contains(&share) {
        true => Ok(()),
        false => Err(Error::new(
            "22003",
            format!("percentile value {share} is not between 0 and 1"),
        )),
    }
}
