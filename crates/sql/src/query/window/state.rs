//! States of the aggregates that there are: `count`.

use block::value::{Datum, DatumRef};

use crate::error::Result;
use crate::query::aggregate::Aggregate;

pub struct State {
    function: Aggregate,
    count: i64,
}

impl State {
    pub fn new(function: Aggregate) -> State {
        State { function, count: 0 }
    }

    pub fn add(&mut self, values: &[DatumRef<'_>]) -> Result<()> {
        self.count += self.counts(values);
        Ok(())
    }

    /// False, with nothing changed, if a row cannot be taken out exactly.
    pub fn remove(&mut self, values: &[DatumRef<'_>]) -> Result<bool> {
        self.count -= self.counts(values);
        Ok(true)
    }

    pub fn result(&self) -> Result<Datum> {
        Ok(Datum::Int8(self.count))
    }

    fn counts(&self, values: &[DatumRef<'_>]) -> i64 {
        match self.function {
            Aggregate::CountRows => 1,
            Aggregate::Count => i64::from(values != [DatumRef::Null]),
        }
    }
}
