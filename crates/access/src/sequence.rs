//! Sequences at run time: an instance draws a range of values from the sequence's block and gives them out from memory.
//!
//! **Invariants.**
//! - The block's mark is moved, and the move logged, before the first value of a range is given out; so no value is given out twice,
//!   by whatever instance and after whatever crash. What an instance has not given out when it stops is a gap.
//! - What is in memory are values that nobody else has; where the sequence stands is in the block only. `setval` forgets the cached values of the instance where it is made, not
//!   those of others. Of a sequence with a cache of one nothing is ever in memory: all draw in order.
//! - A draw is not undone by a rollback. A transaction that drew a value waits at its commit for the log position that came with it.
//! - The order of latches is: the block's, then that of the values in memory. Nobody waits for the first while holding the second.

use std::collections::VecDeque;
use std::sync::Arc;

use block::sequence::{SequenceParams, SequenceRange, SequenceState, mark_payload, read};
use block::{Dba, LogPos, ObjectId, Op};
use seam::Mutex;
use txn::TxnManager;

use crate::btree::{Live, Step, Store};
use crate::space::Space;
use crate::{Error, Result};

/// A value drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw {
    pub value: i64,
    /// The log must be durable up to here before the drawing transaction's commit is acknowledged.
    pub durable: LogPos,
}

/// Values taken from the block and not given out yet.
struct Cached {
    range: SequenceRange,
    increment: i64,
    durable: LogPos,
}

/// A sequence as an instance uses it. One object per sequence and instance: it holds the instance's cached values.
pub struct Sequence<S = Live> {
    store: S,
    dba: Dba,
    cached: Mutex<VecDeque<Cached>>,
}

/// Segment header and the sequence's block.
const FIXED_BLOCKS: u32 = 2;

impl Sequence {
    /// The sequence `object` in the segment at `header`, as this instance uses it. In a new segment [`create`](Sequence::create) comes
    /// first.
    pub fn open(
        txns: &Arc<TxnManager>,
        space: &Arc<Space>,
        object: ObjectId,
        header: Dba,
    ) -> Sequence {
        Sequence::over(Live::new(txns, space, object, header, FIXED_BLOCKS), header)
    }
}

impl<S: Store> Sequence<S> {
    fn over(store: S, header: Dba) -> Sequence<S> {
        Sequence {
            store,
            dba: header.plus(1),
            cached: Mutex::new(VecDeque::new()),
        }
    }

    /// Formats the block of a new sequence in a new segment.
    pub fn create(&self, params: &SequenceParams) -> Result<()> {
        if params.increment == 0
            || params.min > params.max
            || !(params.min..=params.max).contains(&params.start)
        {
            return Err(Error::SequenceBounds {
                value: params.start,
                min: params.min,
                max: params.max,
            });
        }
        self.store.reserve()?;
        let mut guard = self.store.write_new(self.dba)?;
        self.store.change(&mut [Step {
            guard: &mut guard,
            op: Op::SequenceFormat,
            payload: &params.encode(),
        }])?;
        Ok(())
    }

    /// The next value. Called with no latch held; may wait for the block and for room in the log, never for a flush.
    pub fn draw(&self) -> Result<Draw> {
        if let Some(draw) = self.next_cached() {
            return Ok(draw);
        }
        self.store.reserve()?;
        let mut guard = self.store.write(self.dba)?;
        // Whoever had the block before us may have brought values for all.
        if let Some(draw) = self.next_cached() {
            return Ok(draw);
        }
        let (params, state) = read(&guard)?;
        let Some((range, next)) = params.take(state) else {
            let ascending = params.increment > 0;
            let limit = if ascending { params.max } else { params.min };
            return Err(Error::SequenceLimit { limit, ascending });
        };
        let durable = self.store.change(&mut [Step {
            guard: &mut guard,
            op: Op::SequenceMark,
            payload: &mark_payload(next),
        }])?;
        let mut rest = Cached {
            range,
            increment: params.increment,
            durable,
        };
        let draw = rest
            .take()
            .ok_or_else(|| block::BlockError::corrupt("a sequence gave an empty range"))?;
        if rest.range.count > 0 {
            self.cached.lock().push_back(rest);
        }
        Ok(draw)
    }

    fn next_cached(&self) -> Option<Draw> {
        let mut cached = self.cached.lock();
        let draw = cached.front_mut()?.take();
        if cached.front().is_some_and(|c| c.range.count == 0) {
            cached.pop_front();
        }
        draw
    }

    /// `setval(value, is_called)`: the next draw gives the value after `value`, or `value` itself. At once for everybody, not undone.
    pub fn set(&self, value: i64, is_called: bool) -> Result<LogPos> {
        self.store.reserve()?;
        let mut guard = self.store.write(self.dba)?;
        let (params, state) = read(&guard)?;
        if !(params.min..=params.max).contains(&value) {
            return Err(Error::SequenceBounds {
                value,
                min: params.min,
                max: params.max,
            });
        }
        let payload = mark_payload(params.set(state, value, is_called));
        let durable = self.store.change(&mut [Step {
            guard: &mut guard,
            op: Op::SequenceMark,
            payload: &payload,
        }])?;
        self.cached.lock().clear();
        Ok(durable)
    }

    /// The definition, and where the mark stands (values below it may still be in this instance's memory).
    pub fn state(&self) -> Result<(SequenceParams, SequenceState)> {
        Ok(read(&*self.store.read(self.dba)?)?)
    }
}

impl Cached {
    fn take(&mut self) -> Option<Draw> {
        self.range.count = self.range.count.checked_sub(1)?;
        let value = self.range.first;
        // Beyond the last value of a range this may wrap; that value is never given out.
        self.range.first = value.wrapping_add(self.increment);
        Some(Draw {
            value,
            durable: self.durable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btree::memory::{HEADER, Memory};

    fn create(store: &Memory, params: SequenceParams) -> Sequence<Memory> {
        let s = Sequence::over(store.clone(), HEADER);
        s.create(&params).unwrap();
        s
    }
    fn values(s: &Sequence<Memory>, n: usize) -> Vec<i64> {
        (0..n).map(|_| s.draw().unwrap().value).collect()
    }

    /// The paper's walk-through: with a cache of 20 one instance has 10-29, the other 30-49, the first goes on with 50-69.
    #[test]
    fn two_instances_draw_ranges_by_turns() {
        let store = Memory::new();
        let one = create(
            &store,
            SequenceParams {
                start: 10,
                min: 10,
                cache: 20,
                ..Default::default()
            },
        );
        let two = Sequence::over(store.clone(), HEADER);
        assert_eq!(values(&one, 1), [10]);
        assert_eq!(values(&two, 2), [30, 31]);
        assert_eq!(values(&one, 19), (11..30).collect::<Vec<_>>());
        assert_eq!(values(&one, 1), [50]);
        assert_eq!(values(&two, 18), (32..50).collect::<Vec<_>>());
        assert_eq!(one.state().unwrap().1.mark, 70);
    }

    #[test]
    fn without_cache_instances_draw_in_order() {
        let store = Memory::new();
        let one = create(
            &store,
            SequenceParams {
                start: 10,
                min: 10,
                cache: 1,
                ..Default::default()
            },
        );
        let two = Sequence::over(store.clone(), HEADER);
        assert_eq!(
            [values(&one, 1), values(&two, 1), values(&one, 1)].concat(),
            [10, 11, 12]
        );
    }

    #[test]
    fn a_restart_leaves_a_gap_and_repeats_nothing() {
        let store = Memory::new();
        let one = create(&store, SequenceParams::default());
        assert_eq!(values(&one, 3), [1, 2, 3]);
        assert_eq!(values(&Sequence::over(store, HEADER), 1), [21]);
    }

    #[test]
    fn the_limit_is_an_error_and_stays_one() {
        let store = Memory::new();
        let s = create(
            &store,
            SequenceParams {
                max: 25,
                ..Default::default()
            },
        );
        assert_eq!(values(&s, 25).last(), Some(&25));
        for _ in 0..2 {
            assert!(matches!(
                s.draw(),
                Err(Error::SequenceLimit {
                    limit: 25,
                    ascending: true
                })
            ));
        }
        s.set(24, true).unwrap();
        assert_eq!(values(&s, 1), [25]);
        assert!(matches!(
            s.set(26, true),
            Err(Error::SequenceBounds { value: 26, .. })
        ));
        s.set(7, false).unwrap();
        assert_eq!(values(&s, 2), [7, 8]);
    }

    #[test]
    fn threads_at_once_draw_every_value_once() {
        let store = Memory::new();
        let s = create(
            &store,
            SequenceParams {
                cache: 7,
                ..Default::default()
            },
        );
        let mut all: Vec<i64> = std::thread::scope(|scope| {
            let drawers: Vec<_> = (0..4).map(|_| scope.spawn(|| values(&s, 2000))).collect();
            drawers
                .into_iter()
                .flat_map(|d| d.join().unwrap())
                .collect()
        });
        all.sort();
        assert_eq!(all, (1..=8000).collect::<Vec<_>>());
    }
}
