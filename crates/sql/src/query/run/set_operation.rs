//! UNION, INTERSECT and EXCEPT. Rows are equal if their values are; NULLs are equal.
//!
//! UNION ALL gives the left side's rows and then the right side's. UNION gives a row when it comes
//! for the first time, as far as memory allows to know that. The others count how often a row comes
//! on each side.

use std::sync::Arc;

use super::hash_join::check_cancel;
use super::store::load;
use super::tally::{Counted, Counts, Seen, Side, Tally, read_row};
use super::{Frame, Operator, operator};
use crate::error::Result;
use crate::query::plan::{SetKind, SetOperation};
use crate::session::Core;

pub struct SetRun {
    plan: Arc<SetOperation>,
    left: Box<dyn Operator>,
    right: Box<dyn Operator>,
    state: State,
    tally: Option<Tally>,
    key: Vec<u8>,
    row: Vec<u8>,
    unchecked: u32,
}

enum State {
    Read(Side),
    /// The rows are counted. The one in `row` comes so many times more.
    Counted(Box<Counted>, u64),
    End,
}

impl SetRun {
    pub fn new(plan: &Arc<SetOperation>, measured: bool) -> SetRun {
        SetRun {
            plan: plan.clone(),
            left: operator(&plan.left, measured),
            right: operator(&plan.right, measured),
            state: State::End,
            tally: None,
            key: Vec::new(),
            row: Vec::new(),
            unchecked: 0,
        }
    }

    /// Reads the next row of a side; false once both are at their end.
    fn next_input(&mut self, core: &mut Core, frame: &mut Frame) -> Result<Option<Side>> {
        loop {
            let State::Read(side) = self.state else {
                return Ok(None);
            };
            let input = match side {
                Side::Left => &mut self.left,
                Side::Right => &mut self.right,
            };
            if input.next(core, frame)? {
                return Ok(Some(side));
            }
            if side == Side::Right {
                return Ok(None);
            }
            self.right.open(core, frame)?;
            self.state = State::Read(Side::Right);
        }
    }

    fn next_of_all(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let Some(side) = self.next_input(core, frame)? else {
            self.state = State::End;
            return Ok(false);
        };
        for (e, into) in columns(&self.plan, side).iter().zip(&self.plan.into) {
            let value = frame.eval(e, core)?;
            frame.set(*into, value);
        }
        Ok(true)
    }

    /// Reads and counts rows up to the next that is known to be new, for a UNION, or all. False at
    /// the end of both sides.
    fn count_rows(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let is_union = self.plan.kind == SetKind::Union;
        while let Some(side) = self.next_input(core, frame)? {
            check_cancel(&mut self.unchecked)?;
            let (key, row) = (&mut self.key, &mut self.row);
            let (columns, padded) = (columns(&self.plan, side), &self.plan.padded);
            read_row(columns, padded, core, frame, key, row)?;
            let tally = self.tally.get_or_insert_with(|| Tally::new(core));
            let counted_as = if is_union { Side::Left } else { side };
            if tally.add(core, counted_as, key, row)? == Seen::New && is_union {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn next_counted(&mut self, frame: &mut Frame) -> Result<bool> {
        loop {
            let State::Counted(counted, more) = &mut self.state else {
                return Ok(false);
            };
            if *more > 0 {
                *more -= 1;
                load(&self.row, frame, &self.plan.into)?;
                return Ok(true);
            }
            check_cancel(&mut self.unchecked)?;
            match counted.next_row()? {
                None => self.state = State::End,
                Some((row, counts)) => {
                    *more = times(self.plan.kind, self.plan.all, counts);
                    self.row.clear();
                    self.row.extend_from_slice(row);
                }
            }
        }
    }
}

fn columns(plan: &SetOperation, side: Side) -> &[crate::expr::Expr] {
    match side {
        Side::Left => &plan.left_columns,
        Side::Right => &plan.right_columns,
    }
}

/// How often a row comes out that came in so often.
fn times(kind: SetKind, all: bool, counts: Counts) -> u64 {
    let Counts { left, right } = counts;
    match (kind, all) {
        (SetKind::Union, true) => left + right,
        (SetKind::Union, false) => 1,
        (SetKind::Intersect, true) => left.min(right),
        (SetKind::Intersect, false) => left.min(right).min(1),
        (SetKind::Except, true) => left.saturating_sub(right),
        (SetKind::Except, false) => u64::from(left > 0 && right == 0),
    }
}

impl Operator for SetRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.tally = None;
        self.state = State::Read(Side::Left);
        self.left.open(core, frame)
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let is_union = self.plan.kind == SetKind::Union;
        if is_union && self.plan.all {
            return self.next_of_all(core, frame);
        }
        if matches!(self.state, State::Read(_)) {
            if self.count_rows(core, frame)? {
                load(&self.row, frame, &self.plan.into)?;
                return Ok(true);
            }
            // What a UNION has in its table has been given.
            let tally = self.tally.take();
            self.state = match tally.map(|tally| tally.finish(!is_union)).transpose()? {
                Some(counted) => State::Counted(Box::new(counted), 0),
                None => State::End,
            };
        }
        self.next_counted(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_as_often_as_in_postgresql() {
        use SetKind::*;
        for (kind, all, left, right, wanted) in [
            (Union, false, 2, 1, 1),
            (Union, false, 0, 1, 1),
            (Intersect, true, 3, 2, 2),
            (Intersect, true, 0, 2, 0),
            (Intersect, false, 3, 2, 1),
            (Intersect, false, 3, 0, 0),
            (Except, true, 3, 2, 1),
            (Except, true, 2, 3, 0),
            (Except, false, 3, 0, 1),
            (Except, false, 3, 1, 0),
            (Except, false, 0, 1, 0),
        ] {
            let counts = Counts { left, right };
            assert_eq!(
                times(kind, all, counts),
                wanted,
                "{kind:?} {all} {counts:?}"
            );
        }
    }
}
