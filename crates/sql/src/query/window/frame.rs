//! Frames: which rows of the partition a window function looks at from the current row.
//!
//! **Invariant.** From one row to the next neither end of a frame moves back. So each end is found
//! by going on from where it was.

use block::value::Datum;

use super::distance::in_range;
use super::rows::Reader;
use super::{Bound, Exclude, Units, WindowFrame};
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;
use crate::plan::SortKey;

/// The rows of a partition, which are read from the input as they are asked for.
pub trait Partition {
    fn exists(&mut self, n: u64) -> Result<bool>;
    /// How many there are in all.
    fn count(&mut self) -> Result<u64>;
    /// How many groups of peers are before that of a row.
    fn group(&mut self, n: u64, reader: &mut Reader) -> Result<u64>;
    /// The value that the order goes by.
    fn key(&mut self, n: u64, reader: &mut Reader) -> Result<Datum>;
}

/// The row whose values are computed, and its peers.
#[derive(Default)]
pub struct Current {
    pub row: u64,
    pub group: u64,
    pub group_start: u64,
    group_end: Option<u64>,
    key: Option<Datum>,
    reader: Reader,
}

impl Current {
    /// Goes to a row, the next or the first of a partition.
    pub fn go(&mut self, row: u64, rows: &mut dyn Partition) -> Result<()> {
        let group = rows.group(row, &mut self.reader)?;
        if row == 0 || group != self.group {
            (self.group_start, self.group_end) = (row, None);
        }
        (self.row, self.group, self.key) = (row, group, None);
        Ok(())
    }

    /// What the order goes by.
    fn key(&mut self, rows: &mut dyn Partition) -> Result<&Datum> {
        Ok(match &mut self.key {
            Some(key) => key,
            none => none.insert(rows.key(self.row, &mut self.reader)?),
        })
    }

    /// The row behind the last peer.
    pub fn group_end(&mut self, rows: &mut dyn Partition) -> Result<u64> {
        if let Some(end) = self.group_end {
            return Ok(end);
        }
        let mut end = self.row + 1;
        while rows.exists(end)? && rows.group(end, &mut self.reader)? == self.group {
            end += 1;
        }
        self.group_end = Some(end);
        Ok(end)
    }
}

/// A frame under way.
pub struct FrameRun {
    plan: WindowFrame,
    descending: bool,
    nulls_first: bool,
    start: Datum,
    end: Datum,
    /// Of the session, for distances in time.
    io: IoSettings,
    head: Edge,
    tail: Edge,
}

/// An end of the frame that is found by looking at rows.
#[derive(Default)]
struct Edge {
    at: u64,
    /// What the row there has, once that has been read.
    group: Option<u64>,
    key: Option<Datum>,
    reader: Reader,
}

impl Edge {
    /// The group of the row there; `None`: there is no row.
    fn group(&mut self, rows: &mut dyn Partition) -> Result<Option<u64>> {
        if self.group.is_none() && rows.exists(self.at)? {
            self.group = Some(rows.group(self.at, &mut self.reader)?);
        }
        Ok(self.group)
    }

    /// The key of the row there; `None`: there is no row.
    fn key(&mut self, rows: &mut dyn Partition) -> Result<Option<&Datum>> {
        if self.key.is_none() && rows.exists(self.at)? {
            self.key = Some(rows.key(self.at, &mut self.reader)?);
        }
        Ok(self.key.as_ref())
    }

    fn advance(&mut self) {
        self.at += 1;
        (self.group, self.key) = (None, None);
    }
}

/// The rows of a frame before any are excluded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extent {
    pub head: u64,
    /// The row behind the last.
    pub tail: u64,
}

impl FrameRun {
    pub fn new(plan: &WindowFrame, order: &[SortKey]) -> FrameRun {
        let key = order.first();
        FrameRun {
            plan: plan.clone(),
            descending: key.is_some_and(|k| k.descending),
            nulls_first: key.is_some_and(|k| k.nulls_first),
            start: Datum::Null,
            end: Datum::Null,
            io: IoSettings::default(),
            head: Edge::default(),
            tail: Edge::default(),
        }
    }

    pub fn plan(&self) -> &WindowFrame {
        &self.plan
    }

    /// Takes the distances of its ends, and what points in time depend on.
    pub fn set_distances(
        &mut self,
        start: Option<Datum>,
        end: Option<Datum>,
        io: &IoSettings,
    ) -> Result<()> {
        self.io = io.clone();
        self.check_distance(start.as_ref(), "starting")?;
        self.check_distance(end.as_ref(), "ending")?;
        (self.start, self.end) = (start.unwrap_or_default(), end.unwrap_or_default());
        Ok(())
    }

    fn check_distance(&self, value: Option<&Datum>, which: &str) -> Result<()> {
        match value {
            Some(Datum::Null) => Err(Error::new(
                "22004",
                format!("frame {which} offset must not be null"),
            )),
            // Of a range, it is for the type to say.
            Some(Datum::Int8(..0)) if self.plan.units != Units::Range => Err(Error::new(
                "22013",
                format!("frame {which} offset must not be negative"),
            )),
            _ => Ok(()),
        }
    }

    /// Begins another partition.
    pub fn restart(&mut self) {
        (self.head, self.tail) = (Edge::default(), Edge::default());
    }

    pub fn extent(&mut self, current: &mut Current, rows: &mut dyn Partition) -> Result<Extent> {
        let head = self.find_head(current, rows)?;
        let tail = self.find_tail(current, rows)?;
        Ok(Extent { head, tail })
    }

    fn find_head(&mut self, current: &mut Current, rows: &mut dyn Partition) -> Result<u64> {
        let FrameRun { plan, head, .. } = self;
        let before = matches!(plan.start, Bound::Preceding(_));
        Ok(match (&plan.start, plan.units) {
            (Bound::UnboundedPreceding, _) => 0,
            (Bound::UnboundedFollowing, _) => rows.count()?,
            (Bound::CurrentRow, Units::Rows) => current.row,
            (Bound::CurrentRow, Units::Range | Units::Groups) => current.group_start,
            (_, Units::Rows) => away(current.row, &self.start, before)?,
            (_, Units::Groups) => {
                let first = away(current.group, &self.start, before)?;
                while head.group(rows)?.is_some_and(|group| group < first) {
                    head.advance();
                }
                head.at
            }
            (_, Units::Range) => {
                let base = current.key(rows)?;
                // In descending order what comes before is greater.
                let (sub, less) = (before != self.descending, self.descending);
                while let Some(value) = head.key(rows)? {
                    let begins = match (value.is_null(), base.is_null()) {
                        (false, false) => {
                            let (v, b, o) = (value.borrow(), base.borrow(), self.start.borrow());
                            in_range(v, b, o, sub, less, &self.io)?
                        }
                        (value, base) if self.nulls_first => !value || base,
                        (value, base) => value || !base,
                    };
                    if begins {
                        break;
                    }
                    head.advance();
                }
                head.at
            }
        })
    }

    fn find_tail(&mut self, current: &mut Current, rows: &mut dyn Partition) -> Result<u64> {
        let FrameRun { plan, tail, .. } = self;
        let before = matches!(plan.end, Bound::Preceding(_));
        Ok(match (&plan.end, plan.units) {
            (Bound::UnboundedPreceding, _) => 0,
            (Bound::UnboundedFollowing, _) => rows.count()?,
            (Bound::CurrentRow, Units::Rows) => current.row + 1,
            (Bound::CurrentRow, Units::Range | Units::Groups) => current.group_end(rows)?,
            (_, Units::Rows) => match distance(&self.end)? {
                by if before => (current.row + 1).saturating_sub(by),
                by => {
                    let last = current.row.saturating_add(by);
                    match rows.exists(last)? {
                        true => last + 1,
                        false => rows.count()?,
                    }
                }
            },
            (_, Units::Groups) => {
                let by = distance(&self.end)?;
                if before && by > current.group {
                    return Ok(0);
                }
                let last = away(current.group, &self.end, before)?;
                while tail.group(rows)?.is_some_and(|group| group <= last) {
                    tail.advance();
                }
                tail.at
            }
            (_, Units::Range) => {
                let base = current.key(rows)?;
                let (sub, less) = (before != self.descending, !self.descending);
                while let Some(value) = tail.key(rows)? {
                    let belongs = match (value.is_null(), base.is_null()) {
                        (false, false) => {
                            let (v, b, o) = (value.borrow(), base.borrow(), self.end.borrow());
                            in_range(v, b, o, sub, less, &self.io)?
                        }
                        (value, base) if self.nulls_first => value || !base,
                        (value, base) => !value || base,
                    };
                    if !belongs {
                        break;
                    }
                    tail.advance();
                }
                tail.at
            }
        })
    }

    /// Rows that are not in the frame, but for [`FrameRun::kept`].
    pub fn excluded(&self, current: &mut Current, rows: &mut dyn Partition) -> Result<Extent> {
        let (head, tail) = match self.plan.exclude {
            Exclude::Nothing => (0, 0),
            Exclude::CurrentRow => (current.row, current.row + 1),
            Exclude::Group | Exclude::Ties => (current.group_start, current.group_end(rows)?),
        };
        Ok(Extent { head, tail })
    }

    /// The row among the excluded that stays.
    pub fn kept(&self, current: &Current) -> Option<u64> {
        (self.plan.exclude == Exclude::Ties).then_some(current.row)
    }
}

fn distance(value: &Datum) -> Result<u64> {
    match value {
        Datum::Int8(by @ 0..) => Ok(by.unsigned_abs()),
        other => Err(Error::internal(format!("a frame by {other:?} rows"))),
    }
}

/// So far before or behind a place, but not before the first.
fn away(from: u64, by: &Datum, before: bool) -> Result<u64> {
    let by = distance(by)?;
    Ok(match before {
        true => from.saturating_sub(by),
        false => from.saturating_add(by),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Expr;

    /// A partition by its keys in order.
    struct Keys(Vec<Datum>);

    impl Partition for Keys {
        fn exists(&mut self, n: u64) -> Result<bool> {
            Ok(n < self.0.len() as u64)
        }
        fn count(&mut self) -> Result<u64> {
            Ok(self.0.len() as u64)
        }
        fn group(&mut self, n: u64, _: &mut Reader) -> Result<u64> {
            let keys = &self.0[..=n as usize];
            Ok(keys.windows(2).filter(|w| w[0] != w[1]).count() as u64)
        }
        fn key(&mut self, n: u64, _: &mut Reader) -> Result<Datum> {
            Ok(self.0[n as usize].clone())
        }
    }

    fn preceding() -> Bound {
        Bound::Preceding(Expr::Const(Datum::Null))
    }

    fn following() -> Bound {
        Bound::Following(Expr::Const(Datum::Null))
    }

    fn extents(
        keys: &[Option<i32>],
        order: (bool, bool),
        units: Units,
        (start, by): (Bound, Option<Datum>),
        (end, end_by): (Bound, Option<Datum>),
    ) -> Vec<(u64, u64)> {
        let plan = WindowFrame {
            units,
            start,
            end,
            exclude: Exclude::Nothing,
        };
        let (descending, nulls_first) = order;
        let key = SortKey {
            expr: Expr::Param(0),
            descending,
            nulls_first,
            by: None,
        };
        let mut frame = FrameRun::new(&plan, &[key]);
        frame
            .set_distances(by, end_by, &IoSettings::default())
            .unwrap();
        let mut rows = Keys(
            keys.iter()
                .map(|k| k.map_or(Datum::Null, Datum::Int4))
                .collect(),
        );
        let mut current = Current::default();
        let all = 0..keys.len() as u64;
        all.map(|row| {
            current.go(row, &mut rows).unwrap();
            let extent = frame.extent(&mut current, &mut rows).unwrap();
            (extent.head, extent.tail)
        })
        .collect()
    }

    const KEYS: [Option<i32>; 6] = [Some(1), Some(1), Some(3), Some(4), Some(4), None];

    #[test]
    fn rows_and_peers() {
        let frame = |units, start, end| extents(&KEYS, (false, false), units, start, end);
        let here = || (Bound::CurrentRow, None);
        let first = || (Bound::UnboundedPreceding, None);
        assert_eq!(
            frame(Units::Rows, (preceding(), Some(Datum::Int8(1))), here()),
            [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6)]
        );
        assert_eq!(
            frame(Units::Range, first(), here()),
            [(0, 2), (0, 2), (0, 3), (0, 5), (0, 5), (0, 6)]
        );
        let (two, huge) = (Datum::Int8(2), Datum::Int8(i64::MAX));
        assert_eq!(
            frame(
                Units::Rows,
                (following(), Some(two)),
                (following(), Some(huge))
            ),
            [(2, 6), (3, 6), (4, 6), (5, 6), (6, 6), (7, 6)]
        );
        let (two, one) = (Datum::Int8(2), Datum::Int8(1));
        assert_eq!(
            frame(
                Units::Rows,
                (preceding(), Some(two)),
                (preceding(), Some(one))
            ),
            [(0, 0), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5)]
        );
    }

    #[test]
    fn groups() {
        let frame = |start, end| extents(&KEYS, (false, false), Units::Groups, start, end);
        let one = || Some(Datum::Int8(1));
        assert_eq!(
            frame((preceding(), one()), (Bound::CurrentRow, None)),
            [(0, 2), (0, 2), (0, 3), (2, 5), (2, 5), (3, 6)]
        );
        assert_eq!(
            frame((Bound::UnboundedPreceding, None), (preceding(), one())),
            [(0, 0), (0, 0), (0, 2), (0, 3), (0, 3), (0, 5)]
        );
        assert_eq!(
            frame((following(), one()), (following(), one())),
            [(2, 3), (2, 3), (3, 5), (5, 6), (5, 6), (6, 6)]
        );
    }

    #[test]
    fn ranges_and_nulls() {
        let one = || Some(Datum::Int4(1));
        let around = |keys: &[Option<i32>], order| {
            let start = (preceding(), one());
            extents(keys, order, Units::Range, start, (following(), one()))
        };
        assert_eq!(
            around(&KEYS, (false, false)),
            [(0, 2), (0, 2), (2, 5), (2, 5), (2, 5), (5, 6)]
        );
        let mut descending = KEYS;
        descending.reverse();
        assert_eq!(
            around(&descending, (true, true)),
            [(0, 1), (1, 4), (1, 4), (1, 4), (4, 6), (4, 6)]
        );
    }

    #[test]
    fn distances_are_checked() {
        let plan = |units| WindowFrame {
            units,
            start: preceding(),
            end: Bound::CurrentRow,
            exclude: Exclude::Nothing,
        };
        let mut frame = FrameRun::new(&plan(Units::Rows), &[]);
        let mut code = |d| {
            frame
                .set_distances(Some(d), None, &IoSettings::default())
                .unwrap_err()
                .sqlstate()
                .to_string()
        };
        assert_eq!(code(Datum::Null), "22004");
        assert_eq!(code(Datum::Int8(-1)), "22013");
    }
}
