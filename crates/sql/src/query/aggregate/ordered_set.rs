//! `mode`, `percentile_disc` and `percentile_cont`, read from a group's values in their order.
//!
//! A percentile's place depends on how many values there are. Each row is sorted twice: as a record
//! that is only counted and has the share, and as its value. So nothing of a group is kept.

use std::collections::BTreeMap;

use block::value::{Datum, DatumRef};

use super::ordered::{COUNT, OrderedOutput, VALUE};
use super::{Aggregate, OrderedSet};
use crate::error::{Error, Result};
use crate::exec::sort::read_row;
use crate::expr::spans;
use crate::pgtype::array;
use crate::types::Element;

/// Whether a function must know the number of its rows before it reads them.
pub fn is_counted(function: Aggregate) -> bool {
    matches!(
        function,
        Aggregate::OrderedSet(set) if set != OrderedSet::Mode
    )
}

impl OrderedOutput {
    /// The aggregate of a group. Groups come in the order of their keys.
    pub fn ordered_set(&mut self, set: OrderedSet, group: &[u8]) -> Result<Datum> {
        match set {
            OrderedSet::Mode => self.mode(group),
            OrderedSet::Discrete => self.discrete(group),
            OrderedSet::Continuous => self.continuous(group),
            OrderedSet::DiscreteList(element) => self.list(group, element, false),
            OrderedSet::ContinuousList(element) => self.list(group, element, true),
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
        let place = discrete_place(share, rows);
        Ok(self.values(group, place, place)?.0)
    }

    fn continuous(&mut self, group: &[u8]) -> Result<Datum> {
        let Some((rows, share)) = self.count(group)? else {
            return Ok(Datum::Null);
        };
        let place = share * (rows - 1) as f64;
        let (below, above) = (place.floor(), place.ceil());
        let (low, high) = self.values(group, below as u64, above as u64)?;
        between(&low, &high, place - below)
    }

    /// The values at several shares, as an array of the same shape. The rows are read once.
    fn list(&mut self, group: &[u8], element: Element, continuous: bool) -> Result<Datum> {
        let (rows, shares) = match self.counted(group)? {
            None | Some((_, Datum::Null)) => return Ok(Datum::Null),
            Some((rows, Datum::Array(shares))) => (rows, shares),
            Some((_, other)) => {
                return Err(Error::internal(format!("{other:?} are no shares")));
            }
        };
        let shares = shares.borrow();
        let mut places = Vec::with_capacity(shares.count());
        for share in shares.values() {
            places.push(match share {
                DatumRef::Null => None,
                DatumRef::Float8(share) => {
                    check_share(share)?;
                    Some(match continuous {
                        true => share * (rows - 1) as f64,
                        false => discrete_place(share, rows) as f64,
                    })
                }
                other => return Err(Error::internal(format!("{other:?} is no share"))),
            });
        }
        let ends = places.iter().flatten().flat_map(|p| [p.floor(), p.ceil()]);
        let mut found: BTreeMap<u64, Datum> = ends.map(|p| (p as u64, Datum::Null)).collect();
        let group = [group, &[VALUE]].concat();
        let mut place = 0;
        while self.records.is_at(&group) {
            if let Some(value) = found.get_mut(&place) {
                *value = self.value()?;
            }
            place += 1;
            self.records.advance()?;
        }
        let mut values = Vec::with_capacity(places.len());
        for place in places {
            let Some(place) = place else {
                values.push(Datum::Null);
                continue;
            };
            let at = |place: f64| found.get(&(place as u64)).cloned().unwrap_or(Datum::Null);
            values.push(match continuous {
                true => between(&at(place.floor()), &at(place.ceil()), place.fract())?,
                false => at(place),
            });
        }
        let dimensions: Vec<_> = shares.dimensions().collect();
        Ok(Datum::Array(array::make(element, &dimensions, &values)?))
    }

    /// How many values a group has, and the share that is wanted; none if it has none.
    fn count(&mut self, group: &[u8]) -> Result<Option<(u64, f64)>> {
        match self.counted(group)? {
            None | Some((_, Datum::Null)) => Ok(None),
            Some((rows, Datum::Float8(share))) => {
                check_share(share)?;
                Ok(Some((rows, share)))
            }
            Some((_, other)) => Err(Error::internal(format!("{other:?} is no share"))),
        }
    }

    /// How many values a group has, and what the aggregate was given besides; none if it has none.
    fn counted(&mut self, group: &[u8]) -> Result<Option<(u64, Datum)>> {
        let group = [group, &[COUNT]].concat();
        let (mut rows, mut share) = (0, None);
        while self.records.is_at(&group) {
            if share.is_none() {
                share = Some(self.value()?);
            }
            rows += 1;
            self.records.advance()?;
        }
        Ok(share.map(|share| (rows, share)))
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

/// The place of the value at a share of so many rows, from 0.
fn discrete_place(share: f64, rows: u64) -> u64 {
    (share * rows as f64).ceil().max(1.0) as u64 - 1
}

/// What lies between two values, at a part of the way.
fn between(low: &Datum, high: &Datum, part: f64) -> Result<Datum> {
    match (low, high) {
        (Datum::Float8(low), Datum::Float8(_)) if part == 0.0 => Ok(Datum::Float8(*low)),
        (Datum::Float8(low), Datum::Float8(high)) => Ok(Datum::Float8(low + part * (high - low))),
        (Datum::Interval(low), Datum::Interval(high)) => {
            Ok(Datum::Interval(spans::within(*low, *high, part)?))
        }
        other => Err(Error::internal(format!("{other:?} are no floats"))),
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
