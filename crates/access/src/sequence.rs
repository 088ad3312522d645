//! Sequences at run time. An instance takes a range of values from the sequence's block, or the
//! instance that does so for all gives it a range. It gives the values out from memory.
//!
//! **Invariants.**
//! - The block's mark is moved, and the move logged, before the first value of a range is given
//!   out. So no value is given out twice, by whatever instance and after whatever crash. What an
//!   instance has not given out when it stops is a gap.
//! - Values in memory are values that nobody else has. The state of the sequence is in the block,
//!   and in what instances were told of it by an instance that has died since ([`Floor`]; a session
//!   that is about to move the mark asks for it with the block latched). `setval` forgets the
//!   cached values of the instance where it is made, not those of others. Of a sequence with a
//!   cache of one nothing is ever in memory: all draw in order.
//! - A rollback does not undo a draw. A transaction that drew a value waits at its commit for the
//!   log position that came with the value, in whichever log it is ([`Logged`]).
//! - The order of latches is: the block's, then that of the values in memory. Nobody waits for the
//!   first while holding the second.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::sequence::{SequenceParams, SequenceRange, SequenceState, mark_payload, read};
use block::{Dba, LogPos, ObjectId, Op};
use fusion::sequences::Mark;
use seam::Mutex;
use txn::TxnManager;

use crate::btree::{Live, Step, Store};
use crate::space::Space;
use crate::{Error, Result};

/// The log that has the mark behind a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Logged {
    /// This instance's log. It is durable there before the drawing transaction's commit is
    /// acknowledged.
    Here(LogPos),
    /// The log of another instance. The mark is durable there before the drawing transaction
    /// commits.
    There(Mark),
}

/// A value that was drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw {
    pub value: i64,
    pub logged: Logged,
}

/// Values that were taken from the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    pub range: SequenceRange,
    pub increment: i64,
    /// Whether values that are not used at once may be kept: the sequence has a cache.
    pub keep: bool,
    pub state: SequenceState,
    pub end: LogPos,
}

/// What others know of a sequence's state. It is asked for, and told, under the latch of the
/// sequence's block.
pub trait Floor {
    /// The state that the sequence has reached at least. None: nobody may move the mark now.
    fn at_least(&self) -> Option<Option<SequenceState>>;
    /// Notes that the block has this state, logged here or durable.
    fn stands(&self, state: SequenceState);
    /// Notes that `setval` was made here: values on their way to this instance are not put into its
    /// memory any more.
    fn set(&self);
}

/// The floor of a lone instance: nobody else knows anything.
pub struct Alone;

impl Floor for Alone {
    fn at_least(&self) -> Option<Option<SequenceState>> {
        Some(None)
    }
    fn stands(&self, _: SequenceState) {}
    fn set(&self) {}
}

/// A value from memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    pub draw: Draw,
    /// Whether it is time to ask for the next values: the sequence is drawn from steadily, and few
    /// values of what another instance has given are left.
    pub runs_low: bool,
}

/// The time within which a steady drawer uses up a range. A steady drawer does not wait for the
/// next range: a wait of some 60 us then matters, and a mark that stands a range further ahead does
/// not.
const STEADILY: Duration = Duration::from_millis(20);

/// Values that are not given out yet.
struct Cached {
    range: SequenceRange,
    increment: i64,
    logged: Logged,
    /// The number of values left at which the next ones are to be asked for.
    low: Option<u32>,
}

#[derive(Default)]
struct Memory {
    ranges: VecDeque<Cached>,
    /// When another instance last gave values.
    kept_at: Option<Instant>,
}

/// A sequence as an instance uses it. There is one object per sequence and instance: it holds the
/// instance's cached values.
pub struct Sequence<S = Live> {
    store: S,
    object: ObjectId,
    dba: Dba,
    memory: Mutex<Memory>,
}

/// The number of fixed blocks: segment header and the sequence's block.
const FIXED_BLOCKS: u32 = 2;

impl Sequence {
    /// Opens the sequence `object` in the segment at `header`, as this instance uses it. In a new
    /// segment [`create`](Sequence::create) comes first.
    pub fn open(
        txns: &Arc<TxnManager>,
        space: &Arc<Space>,
        object: ObjectId,
        header: Dba,
    ) -> Sequence {
        let store = Live::new(txns, space, object, header, FIXED_BLOCKS);
        Sequence::over(store, object, header)
    }
}

impl<S: Store> Sequence<S> {
    fn over(store: S, object: ObjectId, header: Dba) -> Sequence<S> {
        Sequence {
            store,
            object,
            dba: header.plus(1),
            memory: Mutex::default(),
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

    /// Draws the next value from the block or from memory. None: not now. It is called with no
    /// latch held. It may wait for the block and for room in the log, never for a flush.
    pub fn draw(&self, floor: &impl Floor) -> Result<Option<Draw>> {
        if let Some(held) = self.next_cached() {
            return Ok(Some(held.draw));
        }
        self.store.reserve()?;
        let mut guard = self.store.write(self.dba)?;
        // The instance that had the block before may have brought values for all.
        if let Some(held) = self.next_cached() {
            return Ok(Some(held.draw));
        }
        let Some(taken) = self.take_from(&mut guard, 1, floor)? else {
            return Ok(None);
        };
        let mut rest = Cached {
            range: taken.range,
            increment: taken.increment,
            logged: Logged::Here(taken.end),
            low: None,
        };
        let held = rest
            .take()
            .ok_or_else(|| block::BlockError::corrupt("a sequence gave an empty range"))?;
        if rest.range.count > 0 {
            self.memory.lock().ranges.push_back(rest);
        }
        Ok(Some(held.draw))
    }

    /// Takes values for another instance, where `wanted` sessions wait: as many values, or a range
    /// to be cached. None: not now. It waits as [`draw`](Sequence::draw) does.
    pub fn take(&self, wanted: u32, floor: &impl Floor) -> Result<Option<Taken>> {
        self.store.reserve()?;
        let mut guard = self.store.write(self.dba)?;
        self.take_from(&mut guard, wanted, floor)
    }

    /// Takes values as [`take`](Sequence::take) does, without waiting. The outer None means that
    /// this is not possible.
    pub fn try_take(&self, wanted: u32, floor: &impl Floor) -> Option<Result<Option<Taken>>> {
        if !self.store.try_reserve() {
            return None;
        }
        let mut guard = self.store.try_write(self.dba)?;
        Some(self.take_from(&mut guard, wanted, floor))
    }

    fn take_from(
        &self,
        guard: &mut S::Write<'_>,
        wanted: u32,
        floor: &impl Floor,
    ) -> Result<Option<Taken>> {
        let (mut params, state) = self.read_own(guard)?;
        let Some(at_least) = floor.at_least() else {
            return Ok(None);
        };
        let keep = params.cache > 1;
        if !keep {
            params.cache = wanted;
        }
        let Some((range, next)) = params.take(higher(state, at_least)) else {
            let ascending = params.increment > 0;
            let limit = if ascending { params.max } else { params.min };
            return Err(Error::SequenceLimit { limit, ascending });
        };
        let end = self.mark(guard, next)?;
        floor.stands(next);
        Ok(Some(Taken {
            range,
            increment: params.increment,
            keep,
            state: next,
            end,
        }))
    }

    fn mark(&self, guard: &mut S::Write<'_>, state: SequenceState) -> Result<LogPos> {
        wait::stat::add(wait::Stat::SequenceMarks, 1);
        self.store.change(&mut [Step {
            guard,
            op: Op::SequenceMark,
            payload: &mark_payload(state),
        }])
    }

    /// Reads the block. It may be another object's by now, if another instance asks.
    fn read_own(&self, block: &block::BlockBuf) -> Result<(SequenceParams, SequenceState)> {
        if block.object() != self.object {
            let (dba, object) = (self.dba, self.object);
            let what = format!("block {dba} is not of sequence {}", object.0);
            return Err(block::BlockError::corrupt(what).into());
        }
        Ok(read(block)?)
    }

    /// The next value from memory, if there is one.
    pub fn next_cached(&self) -> Option<Held> {
        let mut memory = self.memory.lock();
        let held = memory.ranges.front_mut()?.take();
        if memory.ranges.front().is_some_and(|c| c.range.count == 0) {
            memory.ranges.pop_front();
        }
        held
    }

    /// Keeps values that another instance has taken for this one.
    pub fn keep(&self, range: SequenceRange, increment: i64, mark: Mark) {
        let mut memory = self.memory.lock();
        let since = memory.kept_at.replace(seam::now());
        let steadily = since.is_some_and(|at| seam::elapsed(at) < STEADILY);
        memory.ranges.push_back(Cached {
            range,
            increment,
            logged: Logged::There(mark),
            low: steadily.then_some(range.count / 4),
        });
    }

    /// Raises the mark to one that this instance was told of and whose instance has gone. When this
    /// returns the block has that mark or a later one, logged here or durable. It may wait for the
    /// block to be recovered.
    pub fn raise(&self, to: SequenceState, floor: &impl Floor) -> Result<LogPos> {
        self.store.reserve()?;
        let mut guard = self.store.write(self.dba)?;
        let (_, state) = self.read_own(&guard)?;
        let end = match state.draw < to.draw {
            true => self.mark(&mut guard, to)?,
            false => LogPos(0),
        };
        floor.stands(higher(state, Some(to)));
        Ok(end)
    }

    /// Does `setval(value, is_called)`: the next draw gives the value after `value`, or `value`
    /// itself. It holds at once for everybody and is not undone. None: not now.
    pub fn set(&self, value: i64, is_called: bool, floor: &impl Floor) -> Result<Option<LogPos>> {
        self.store.reserve()?;
        let mut guard = self.store.write(self.dba)?;
        let (params, state) = self.read_own(&guard)?;
        if !(params.min..=params.max).contains(&value) {
            return Err(Error::SequenceBounds {
                value,
                min: params.min,
                max: params.max,
            });
        }
        let Some(at_least) = floor.at_least() else {
            return Ok(None);
        };
        let next = params.set(higher(state, at_least), value, is_called);
        let end = self.mark(&mut guard, next)?;
        floor.stands(next);
        floor.set();
        self.memory.lock().ranges.clear();
        Ok(Some(end))
    }

    /// The definition, and the state of the mark. Values below the mark may still be in this
    /// instance's memory.
    pub fn state(&self) -> Result<(SequenceParams, SequenceState)> {
        Ok(read(&*self.store.read(self.dba)?)?)
    }
}

/// The newer of two states.
fn higher(state: SequenceState, other: Option<SequenceState>) -> SequenceState {
    match other {
        Some(other) if other.draw > state.draw => other,
        _ => state,
    }
}

impl Cached {
    fn take(&mut self) -> Option<Held> {
        self.range.count = self.range.count.checked_sub(1)?;
        let value = self.range.first;
        // Beyond the last value of a range this may wrap. That value is never given out.
        self.range.first = value.wrapping_add(self.increment);
        Some(Held {
            draw: Draw {
                value,
                logged: self.logged,
            },
            runs_low: self.low == Some(self.range.count),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btree::memory::{HEADER, Memory, OBJECT};

    fn create(store: &Memory, params: SequenceParams) -> Sequence<Memory> {
        let s = Sequence::over(store.clone(), OBJECT, HEADER);
        s.create(&params).unwrap();
        s
    }
    fn draw(s: &Sequence<Memory>) -> Draw {
        s.draw(&Alone).unwrap().unwrap()
    }
    fn values(s: &Sequence<Memory>, n: usize) -> Vec<i64> {
        (0..n).map(|_| draw(s).value).collect()
    }

    /// The paper's walk-through: with a cache of 20, one instance has 10-29, the other 30-49, and
    /// the first goes on with 50-69.
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
        let two = Sequence::over(store.clone(), OBJECT, HEADER);
        assert_eq!(values(&one, 1), [10]);
        assert_eq!(values(&two, 2), [30, 31]);
        assert_eq!(values(&one, 19), (11..30).collect::<Vec<_>>());
        assert_eq!(values(&one, 1), [50]);
        assert_eq!(values(&two, 18), (32..50).collect::<Vec<_>>());
        assert_eq!(one.state().unwrap().1.mark, 70);
    }

    struct Known(Option<Option<SequenceState>>);
    impl Floor for Known {
        fn at_least(&self) -> Option<Option<SequenceState>> {
            self.0
        }
        fn stands(&self, _: SequenceState) {}
        fn set(&self) {}
    }

    /// If an instance died with its log, what it gave to others counts. It is put into the block
    /// before a transaction that rests on it commits.
    #[test]
    fn what_others_know_counts() {
        let store = Memory::new();
        let s = create(&store, SequenceParams::default());
        assert_eq!(values(&s, 20), (1..=20).collect::<Vec<_>>());
        let known = SequenceState {
            draw: 7,
            mark: 141,
            exhausted: false,
        };
        assert_eq!(s.draw(&Known(None)).unwrap(), None);
        assert_eq!(s.set(5, true, &Known(None)).unwrap(), None);
        let knowing = Known(Some(Some(known)));
        assert_eq!(s.draw(&knowing).unwrap().unwrap().value, 141);
        let older = SequenceState {
            draw: 8,
            mark: 3,
            exhausted: false,
        };
        assert_eq!(s.raise(older, &Alone).unwrap(), LogPos(0));
        let newer = SequenceState {
            draw: 12,
            mark: 400,
            exhausted: false,
        };
        assert!(s.raise(newer, &Alone).unwrap() > LogPos(0));
        assert_eq!(s.state().unwrap().1, newer);
        s.set(9, false, &knowing).unwrap().unwrap();
        assert_eq!(s.state().unwrap().1.draw, 13);
        let taken = s.take(3, &knowing).unwrap().unwrap();
        assert_eq!(
            (taken.range, taken.keep),
            (
                SequenceRange {
                    first: 9,
                    count: 20
                },
                true
            )
        );
    }

    /// If ranges follow each other quickly, the next one is asked for when a quarter is left. It is
    /// never asked for in the first range, and once in each other.
    #[test]
    fn values_run_low_where_they_are_drawn_steadily() {
        let store = Memory::new();
        let s = create(&store, SequenceParams::default());
        let home = fusion::Member {
            instance: block::InstanceId(2),
            incarnation: fusion::Incarnation(1),
        };
        let mark = Mark {
            home,
            pos: LogPos(1),
            state: s.state().unwrap().1,
        };
        let low = || {
            let held = std::iter::from_fn(|| s.next_cached());
            let low = held.filter(|h| h.runs_low).map(|h| h.draw.value);
            low.collect::<Vec<_>>()
        };
        let keep = |first, count| s.keep(SequenceRange { first, count }, 1, mark);
        keep(1, 20);
        assert_eq!(low(), [0; 0]);
        keep(21, 20);
        assert_eq!(low(), [35]);
        keep(41, 2);
        assert_eq!(low(), [42]);
        keep(43, 20);
        keep(63, 20);
        s.memory.lock().kept_at = seam::now().checked_sub(STEADILY);
        keep(83, 20);
        assert_eq!(low(), [57, 77]);
        keep(103, 20);
        s.set(500, false, &Alone).unwrap();
        assert_eq!(low(), [0; 0]);
    }

    /// If nothing may be kept, as many values are taken as are wanted. `try_take` takes them only
    /// if it need not wait.
    #[test]
    fn values_are_taken_for_others() {
        let store = Memory::new();
        let s = create(
            &store,
            SequenceParams {
                cache: 1,
                max: 5,
                ..Default::default()
            },
        );
        let taken = s.try_take(3, &Alone).unwrap().unwrap().unwrap();
        assert_eq!(
            (taken.range, taken.keep),
            (SequenceRange { first: 1, count: 3 }, false)
        );
        let taken = s.try_take(3, &Alone).unwrap().unwrap().unwrap();
        assert_eq!(taken.range, SequenceRange { first: 4, count: 2 });
        assert!(matches!(
            s.take(1, &Alone),
            Err(Error::SequenceLimit { limit: 5, .. })
        ));
        let other = Sequence::over(store, ObjectId(OBJECT.0 + 1), HEADER);
        assert!(other.take(1, &Alone).is_err());
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
        let two = Sequence::over(store.clone(), OBJECT, HEADER);
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
        assert_eq!(values(&Sequence::over(store, OBJECT, HEADER), 1), [21]);
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
                s.draw(&Alone),
                Err(Error::SequenceLimit {
                    limit: 25,
                    ascending: true
                })
            ));
        }
        s.set(24, true, &Alone).unwrap();
        assert_eq!(values(&s, 1), [25]);
        assert!(matches!(
            s.set(26, true, &Alone),
            Err(Error::SequenceBounds { value: 26, .. })
        ));
        s.set(7, false, &Alone).unwrap();
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
