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
