//! Aggregates over frames.
//!
//! **Invariant.** The state holds exactly the rows from `from` up to `to`. A frame that only grows
//! takes each row in once. Rows that leave a frame are taken out where the aggregate can do that
//! without a trace; otherwise it starts anew.

use block::value::{Datum, DatumRef};

use super::frame::Extent;
use crate::error::Result;
use crate::query::aggregate::{Aggregate, State};

/// What an aggregate takes in.
pub trait Inputs {
    /// Calls `take` with the arguments in a row, unless the row is filtered out.
    fn each(&mut self, n: u64, take: &mut Take<'_>) -> Result<()>;
}

pub type Take<'t> = dyn FnMut(&[DatumRef<'_>]) -> Result<()> + 't;

pub struct Sliding {
    aggregate: Aggregate,
    state: State,
    from: u64,
    to: u64,
    /// The value of the state, if it has been computed.
    value: Option<Datum>,
}

impl Sliding {
    pub fn new(aggregate: Aggregate) -> Sliding {
        Sliding {
            aggregate,
            state: State::new(&aggregate),
            from: 0,
            to: 0,
            value: None,
        }
    }

    /// Begins anew at a row, with nothing taken in.
    pub fn restart(&mut self, at: u64) {
        self.state = State::new(&self.aggregate);
        (self.from, self.to, self.value) = (at, at, None);
    }

    /// The value over the rows of an extent.
    pub fn value(&mut self, frame: Extent, inputs: &mut dyn Inputs) -> Result<Datum> {
        self.go(frame, inputs)?;
        if let Some(value) = &self.value {
            return Ok(value.clone());
        }
        let value = self.state.result()?;
        self.value = Some(value.clone());
        Ok(value)
    }

    /// The value over the rows of an extent but those excluded; of these, `kept` counts.
    pub fn value_without(
        &mut self,
        frame: Extent,
        excluded: Extent,
        kept: Option<u64>,
        inputs: &mut dyn Inputs,
    ) -> Result<Datum> {
        let (first, last) = (excluded.head.max(frame.head), excluded.tail.min(frame.tail));
        let out = |n: &u64| Some(*n) != kept;
        if first >= last || !(first..last).any(|n| out(&n)) {
            return self.value(frame, inputs);
        }
        self.go(frame, inputs)?;
        let mut out_of_state = Vec::new();
        let mut removed = true;
        for n in (first..last).filter(out) {
            removed = self.remove(n, inputs)?;
            if !removed {
                break;
            }
            out_of_state.push(n);
        }
        let value = match removed {
            true => Some(self.state.result()?),
            false => None,
        };
        for n in out_of_state {
            self.add(n, inputs)?;
        }
        if let Some(value) = value {
            return Ok(value);
        }
        let mut state = State::new(&self.aggregate);
        for n in frame.head..frame.tail {
            if !(first..last).contains(&n) || !out(&n) {
                inputs.each(n, &mut |args| state.add(args))?;
            }
        }
        state.result()
    }

    /// Makes the state that of the rows of an extent.
    fn go(&mut self, frame: Extent, inputs: &mut dyn Inputs) -> Result<()> {
        let Extent { head, tail } = frame;
        if head >= tail || head >= self.to || head < self.from || tail < self.to {
            if self.from != head || self.to != head {
                self.restart(head);
            }
        } else if head > self.from {
            // To take out more than would stay costs more than to start anew.
            let mut removed = head - self.from <= tail - head;
            for n in self.from..head {
                removed = removed && self.remove(n, inputs)?;
            }
            match removed {
                true => (self.from, self.value) = (head, None),
                false => self.restart(head),
            }
        }
        for n in self.to..tail {
            self.add(n, inputs)?;
            (self.to, self.value) = (n + 1, None);
        }
        Ok(())
    }

    fn add(&mut self, n: u64, inputs: &mut dyn Inputs) -> Result<()> {
        inputs.each(n, &mut |args| self.state.add(args))
    }

    /// Takes a row out. False if that cannot be done.
    fn remove(&mut self, n: u64, inputs: &mut dyn Inputs) -> Result<bool> {
        let mut removed = true;
        inputs.each(n, &mut |args| {
            removed = self.state.remove(args)?;
            Ok(())
        })?;
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of one value each, and how often one was looked at.
    struct Values(Vec<Option<i64>>, usize);

    impl Inputs for Values {
        fn each(&mut self, n: u64, take: &mut Take<'_>) -> Result<()> {
            self.1 += 1;
            take(&[self.0[n as usize].map_or(DatumRef::Null, DatumRef::Int8)])
        }
    }

    fn extent(head: u64, tail: u64) -> Extent {
        Extent { head, tail }
    }

    fn values(count: usize) -> Values {
        let value = |n: usize| (!n.is_multiple_of(3)).then_some(n as i64);
        Values((0..count).map(value).collect(), 0)
    }

    fn counted(values: &Values, rows: impl Iterator<Item = u64>) -> Datum {
        let present = rows.filter(|n| values.0[*n as usize].is_some());
        Datum::Int8(present.count() as i64)
    }

    #[test]
    fn rows_come_in_and_go_out_once() {
        let mut rows = values(1000);
        let mut count = Sliding::new(Aggregate::Count);
        for row in 0..1000 {
            let frame = extent(u64::saturating_sub(row, 100), row + 1);
            let wanted = counted(&rows, frame.head..frame.tail);
            assert_eq!(count.value(frame, &mut rows).unwrap(), wanted);
        }
        assert!(rows.1 < 2000, "{} rows were looked at", rows.1);
    }

    #[test]
    fn frames_without_rows_and_leaps() {
        let mut rows = values(50);
        let mut count = Sliding::new(Aggregate::Count);
        let frames = [
            (0, 0),
            (0, 3),
            (2, 2),
            (7, 5),
            (7, 12),
            (8, 12),
            (40, 50),
            (50, 50),
        ];
        for (head, tail) in frames {
            let wanted = counted(&rows, head..tail);
            assert_eq!(count.value(extent(head, tail), &mut rows).unwrap(), wanted);
        }
        count.restart(0);
        let wanted = counted(&rows, 0..4);
        assert_eq!(count.value(extent(0, 4), &mut rows).unwrap(), wanted);
    }

    #[test]
    fn excluded_rows_do_not_count() {
        let mut rows = values(40);
        let mut count = Sliding::new(Aggregate::Count);
        for row in 0..40 {
            let frame = extent(u64::saturating_sub(row, 5), (row + 4).min(40));
            let out = extent(row / 4 * 4, row / 4 * 4 + 4);
            for kept in [None, Some(row)] {
                let stays = |n: &u64| !(out.head..out.tail).contains(n) || Some(*n) == kept;
                let wanted = counted(&rows, (frame.head..frame.tail).filter(stays));
                let found = count.value_without(frame, out, kept, &mut rows).unwrap();
                assert_eq!(found, wanted, "row {row}");
            }
        }
    }
}
