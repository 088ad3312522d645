//! Calls of window functions under way.

use std::sync::Arc;

use block::value::{Datum, DatumRef};

use super::frame::{Current, Extent, FrameRun, Partition};
use super::sliding::{Inputs, Sliding, Take};
use super::{Bound, Exclude, Units, WindowFunction};
use crate::error::{Error, Result};
use crate::expr::cast;
use crate::query::plan::Window;

/// The rows of the partition with what is computed from them.
pub trait Rows: Partition {
    /// Computes an argument of a call in a row.
    fn arg(&mut self, call: usize, arg: usize, row: u64) -> Result<Datum>;
    /// Calls `take` with the arguments of a call in a row, unless its filter refuses the row.
    fn args(&mut self, call: usize, row: u64, take: &mut Take<'_>) -> Result<()>;
}

pub struct CallRun {
    /// The place in the plan.
    number: usize,
    function: WindowFunction,
    args: usize,
    /// The place of its frame among all.
    pub frame: usize,
    state: Kept,
}

enum Kept {
    Nothing,
    Buckets(Option<Buckets>),
    Aggregate(Sliding),
}

/// ntile under way.
struct Buckets {
    number: i32,
    rows: u64,
    /// Rows of the bucket; the first buckets have one more.
    size: u64,
    larger: u64,
}

impl CallRun {
    pub fn new(plan: &Arc<Window>, number: usize, frame: usize) -> CallRun {
        let call = &plan.calls[number];
        CallRun {
            number,
            function: call.function,
            args: call.args.len(),
            frame,
            state: match call.function {
                WindowFunction::Aggregate(aggregate) => Kept::Aggregate(Sliding::new(aggregate)),
                WindowFunction::Ntile => Kept::Buckets(None),
                _ => Kept::Nothing,
            },
        }
    }

    pub fn number(&self) -> usize {
        self.number
    }

    pub fn is_aggregate(&self) -> bool {
        matches!(self.function, WindowFunction::Aggregate(_))
    }

    /// Whether it looks at the rows of its frame.
    pub fn has_frame(&self) -> bool {
        use WindowFunction as F;
        matches!(
            self.function,
            F::Aggregate(_) | F::FirstValue | F::LastValue | F::NthValue
        )
    }

    /// Whether it may look at rows before the current row's peers, once that row has its value.
    pub fn looks_back(&self, frame: &FrameRun) -> bool {
        use WindowFunction as F;
        match self.function {
            F::Lag => true,
            F::Lead => self.args > 1,
            F::FirstValue | F::LastValue | F::NthValue => true,
            F::Aggregate(_) => {
                let plan = frame.plan();
                plan.start != Bound::UnboundedPreceding
                    || plan.exclude != Exclude::Nothing
                    || matches!(plan.end, Bound::Preceding(_))
                    || (plan.units == Units::Range && plan.end.distance().is_some())
            }
            _ => false,
        }
    }

    /// Begins another partition.
    pub fn restart(&mut self) {
        match &mut self.state {
            Kept::Nothing => {}
            Kept::Buckets(buckets) => *buckets = None,
            Kept::Aggregate(sliding) => sliding.restart(0),
        }
    }

    /// The value in the current row.
    pub fn value(
        &mut self,
        current: &mut Current,
        (frame, extent): (&FrameRun, Extent),
        rows: &mut dyn Rows,
    ) -> Result<Datum> {
        use WindowFunction as F;
        let call = self.number;
        Ok(match self.function {
            F::RowNumber => Datum::Int8(current.row as i64 + 1),
            F::Rank => Datum::Int8(current.group_start as i64 + 1),
            F::DenseRank => Datum::Int8(current.group as i64 + 1),
            F::PercentRank => Datum::Float8(match rows.count()? {
                0 | 1 => 0.0,
                count => current.group_start as f64 / (count - 1) as f64,
            }),
            F::CumeDist => {
                let end = current.group_end(rows)?;
                Datum::Float8(end as f64 / rows.count()? as f64)
            }
            F::Ntile => self.bucket(current, rows)?,
            F::Lag => self.shifted(current, -1, rows)?,
            F::Lead => self.shifted(current, 1, rows)?,
            F::FirstValue => value_at(call, from_head(0), (current, frame, extent), rows)?,
            F::LastValue => value_at(call, from_tail, (current, frame, extent), rows)?,
            F::NthValue => {
                let place = match integer(&rows.arg(call, 1, current.row)?)? {
                    None => return Ok(Datum::Null),
                    Some(place @ 1..) => place.unsigned_abs() - 1,
                    Some(_) => {
                        return Err(Error::new(
                            "22016",
                            "argument of nth_value must be greater than zero",
                        ));
                    }
                };
                value_at(call, from_head(place), (current, frame, extent), rows)?
            }
            F::Aggregate(_) => self.aggregate(current, (frame, extent), rows)?,
        })
    }

    fn aggregate(
        &mut self,
        current: &mut Current,
        (frame, extent): (&FrameRun, Extent),
        rows: &mut dyn Rows,
    ) -> Result<Datum> {
        let call = self.number;
        let Kept::Aggregate(sliding) = &mut self.state else {
            return Err(Error::internal("an aggregate without its state"));
        };
        if frame.plan().exclude == Exclude::Nothing {
            return sliding.value(extent, &mut Args { call, rows });
        }
        let excluded = frame.excluded(current, rows)?;
        let kept = frame.kept(current);
        sliding.value_without(extent, excluded, kept, &mut Args { call, rows })
    }

    fn bucket(&mut self, current: &Current, rows: &mut dyn Rows) -> Result<Datum> {
        let Kept::Buckets(kept) = &mut self.state else {
            return Err(Error::internal("ntile without its state"));
        };
        if kept.is_none() {
            let count = rows.count()?;
            let buckets = match integer(&rows.arg(self.number, 0, current.row)?)? {
                None => return Ok(Datum::Null),
                Some(buckets @ 1..) => buckets.unsigned_abs(),
                Some(_) => {
                    return Err(Error::new(
                        "22014",
                        "argument of ntile must be greater than zero",
                    ));
                }
            };
            let (size, larger) = match count / buckets {
                0 => (1, 0),
                size => (size, count % buckets),
            };
            *kept = Some(Buckets {
                number: 1,
                rows: 0,
                size,
                larger,
            });
        }
        let Some(b) = kept else {
            return Err(Error::internal("ntile without its buckets"));
        };
        if b.rows == b.size + u64::from(b.larger > 0) {
            (b.number, b.rows) = (b.number + 1, 0);
            b.larger = b.larger.saturating_sub(1);
        }
        b.rows += 1;
        Ok(Datum::Int4(b.number))
    }

    /// lag and lead.
    fn shifted(&self, current: &Current, sign: i64, rows: &mut dyn Rows) -> Result<Datum> {
        let call = self.number;
        let by = match self.args {
            1 => 1,
            _ => match integer(&rows.arg(call, 1, current.row)?)? {
                None => return Ok(Datum::Null),
                Some(by) => by,
            },
        };
        let target = current.row.checked_add_signed(sign * by);
        match target {
            Some(row) if rows.exists(row)? => rows.arg(call, 0, row),
            _ if self.args > 2 => rows.arg(call, 2, current.row),
            _ => Ok(Datum::Null),
        }
    }
}

/// The arguments of one call.
struct Args<'a> {
    call: usize,
    rows: &'a mut dyn Rows,
}

impl Inputs for Args<'_> {
    fn each(&mut self, n: u64, take: &mut Take<'_>) -> Result<()> {
        self.rows.args(self.call, n, take)
    }
}

fn integer(value: &Datum) -> Result<Option<i64>> {
    match value.borrow() {
        DatumRef::Null => Ok(None),
        value => match cast::integer(value) {
            Some(n) => Ok(Some(n)),
            None => Err(Error::internal(format!("{value:?} as a number of rows"))),
        },
    }
}

/// The row so many behind the frame's first, past those that are excluded.
///
/// If ties are excluded, the current row stands where its group begins in the frame, also if it is
/// not in the frame itself: then there is no value. So PostgreSQL has it. The row found need not
/// be in the frame.
fn from_head(place: u64) -> impl Fn(Exclude, u64, Extent, Extent) -> Option<u64> {
    move |exclude, current, frame, group| {
        let row = frame.head.saturating_add(place);
        let overlap = group.head.max(frame.head);
        let within = row >= group.head && group.tail > frame.head;
        Some(match exclude {
            Exclude::CurrentRow if row >= current && current >= frame.head => row + 1,
            Exclude::Group if within => row + (group.tail - overlap),
            Exclude::Ties if within && row == overlap => current,
            Exclude::Ties if within => row + (group.tail - overlap) - 1,
            _ => row,
        })
    }
}

/// The last row of the frame before those that are excluded.
fn from_tail(exclude: Exclude, current: u64, frame: Extent, group: Extent) -> Option<u64> {
    let row = frame.tail.checked_sub(1)?;
    let overlap = group.tail.min(frame.tail);
    let within = row < group.tail && group.head < frame.tail;
    match exclude {
        Exclude::CurrentRow if row <= current && current < frame.tail => row.checked_sub(1),
        Exclude::Group if within => row.checked_sub(overlap - group.head),
        Exclude::Ties if within && row == overlap - 1 => Some(current),
        Exclude::Ties if within => row.checked_sub(overlap - 1 - group.head),
        _ => Some(row),
    }
}

/// The first argument of a call in a row of its frame; NULL if there is no such row.
fn value_at(
    call: usize,
    place: impl Fn(Exclude, u64, Extent, Extent) -> Option<u64>,
    (current, frame, extent): (&mut Current, &FrameRun, Extent),
    rows: &mut dyn Rows,
) -> Result<Datum> {
    let exclude = frame.plan().exclude;
    let out = frame.excluded(current, rows)?;
    let Some(row) = place(exclude, current.row, extent, out) else {
        return Ok(Datum::Null);
    };
    let is_out = (out.head..out.tail).contains(&row) && frame.kept(current) != Some(row);
    match (extent.head..extent.tail).contains(&row) && !is_out {
        true => rows.arg(call, 0, row),
        false => Ok(Datum::Null),
    }
}
