//! The block of a sequence: its definition and its high-water mark.
//!
//! ```text
//! 32 draw number (8) | 40 mark i64 | 48 flags u16 (1: exhausted) | 50 reserved (6), zero
//! 56 start i64 | 64 increment i64 | 72 minimum i64 | 80 maximum i64
//! 88 cache u32 | 92 cycle u8 | 93 reserved (3), zero
//! ```
//!
//! The mark is the next value that no instance has in its cache yet. An exhausted sequence has
//! given out its last value.
//!
//! **Invariant.** The draw number rises by one with each change of the mark, never falls, and is
//! not undone. So of two states of a sequence the one with the higher draw number is the newer.

use crate::{BlockBuf, BlockError, BlockType, Result};

const DRAW_AT: usize = 32;
const MARK_AT: usize = 40;
const FLAGS_AT: usize = 48;
const START_AT: usize = 56;
const INCREMENT_AT: usize = 64;
const MIN_AT: usize = 72;
const MAX_AT: usize = 80;
const CACHE_AT: usize = 88;
const CYCLE_AT: usize = 92;
const PARAMS_LEN: usize = 37;
const EXHAUSTED: u16 = 1;

/// The definition of a sequence, as `CREATE SEQUENCE` gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceParams {
    pub start: i64,
    /// The increment, which is not zero.
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    /// The number of values that an instance takes at a time; 1 is `NOCACHE`.
    pub cache: u32,
    pub cycle: bool,
}

impl Default for SequenceParams {
    fn default() -> SequenceParams {
        SequenceParams {
            start: 1,
            increment: 1,
            min: 1,
            max: i64::MAX,
            cache: 20,
            cycle: false,
        }
    }
}

/// The state of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceState {
    pub draw: u64,
    pub mark: i64,
    pub exhausted: bool,
}

/// A run of values: `first`, then `count - 1` more, each `increment` further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceRange {
    pub first: i64,
    pub count: u32,
}

impl SequenceParams {
    /// Takes up to `cache` values from the mark. Returns the values and the state after. None if
    /// the sequence has reached its limit.
    pub fn take(&self, state: SequenceState) -> Option<(SequenceRange, SequenceState)> {
        let first = match (state.exhausted, self.cycle) {
            (false, _) => state.mark,
            (true, true) if self.increment > 0 => self.min,
            (true, true) => self.max,
            (true, false) => return None,
        };
        // The number of steps left up to the limit, in wider arithmetic: the range of i64 has 2^64
        // values.
        let room = if self.increment > 0 {
            self.max as i128 - first as i128
        } else {
            first as i128 - self.min as i128
        };
        if room < 0 {
            return None;
        }
        let steps = room / (self.increment as i128).abs();
        let count = (steps + 1).min(self.cache.max(1) as i128) as u32;
        let next = first as i128 + self.increment as i128 * count as i128;
        let exhausted = count as i128 == steps + 1;
        let mark = if exhausted { first } else { next as i64 };
        Some((
            SequenceRange { first, count },
            SequenceState {
                draw: state.draw + 1,
                mark,
                exhausted,
            },
        ))
    }

    /// The state after `setval(value, is_called)`.
    pub fn set(&self, state: SequenceState, value: i64, is_called: bool) -> SequenceState {
        let draw = state.draw + 1;
        if !is_called {
            return SequenceState {
                draw,
                mark: value,
                exhausted: false,
            };
        }
        match value
            .checked_add(self.increment)
            .filter(|v| (self.min..=self.max).contains(v))
        {
            Some(mark) => SequenceState {
                draw,
                mark,
                exhausted: false,
            },
            None => SequenceState {
                draw,
                mark: value,
                exhausted: true,
            },
        }
    }

    pub fn encode(&self) -> [u8; PARAMS_LEN] {
        let mut out = [0; PARAMS_LEN];
        for (i, v) in [self.start, self.increment, self.min, self.max]
            .into_iter()
            .enumerate()
        {
            out[i * 8..i * 8 + 8].copy_from_slice(&v.to_le_bytes());
        }
        out[32..36].copy_from_slice(&self.cache.to_le_bytes());
        out[36] = self.cycle as u8;
        out
    }
}

/// Reads a sequence's block.
pub fn read(b: &BlockBuf) -> Result<(SequenceParams, SequenceState)> {
    if b.block_type()? != BlockType::Sequence {
        return Err(BlockError::corrupt(format!(
            "block {} is no sequence",
            b.dba()
        )));
    }
    let i64_at = |at| b.u64_at(at) as i64;
    let params = SequenceParams {
        start: i64_at(START_AT),
        increment: i64_at(INCREMENT_AT),
        min: i64_at(MIN_AT),
        max: i64_at(MAX_AT),
        cache: b.u32_at(CACHE_AT),
        cycle: b.0[CYCLE_AT] != 0,
    };
    if params.increment == 0 || params.min > params.max {
        return Err(BlockError::corrupt(format!(
            "sequence {}: definition makes no sense",
            b.dba()
        )));
    }
    let state = SequenceState {
        draw: b.u64_at(DRAW_AT),
        mark: i64_at(MARK_AT),
        exhausted: b.u16_at(FLAGS_AT) & EXHAUSTED != 0,
    };
    Ok((params, state))
}

/// Applies `SequenceFormat`: the definition. The sequence stands at its start.
pub fn apply_format(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    if payload.len() != PARAMS_LEN {
        return Err(BlockError::corrupt(format!(
            "definition of a sequence has {} bytes",
            payload.len()
        )));
    }
    b.0[START_AT..START_AT + PARAMS_LEN].copy_from_slice(payload);
    let start = b.u64_at(START_AT);
    b.put_u64(MARK_AT, start);
    Ok(())
}

/// The payload of `SequenceMark`.
pub fn mark_payload(state: SequenceState) -> [u8; 17] {
    let mut out = [0; 17];
    out[..8].copy_from_slice(&state.draw.to_le_bytes());
    out[8..16].copy_from_slice(&state.mark.to_le_bytes());
    out[16] = state.exhausted as u8;
    out
}

/// Applies `SequenceMark`: `draw number (8) | mark (8) | exhausted (1)`.
pub fn apply_mark(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    if payload.len() != 17 {
        return Err(BlockError::corrupt(format!(
            "mark of a sequence has {} bytes",
            payload.len()
        )));
    }
    let draw = u64::from_le_bytes(payload[..8].try_into().expect("eight bytes"));
    if draw <= b.u64_at(DRAW_AT) {
        return Err(BlockError::corrupt(format!(
            "sequence {}: draw number {draw} does not rise",
            b.dba()
        )));
    }
    b.put_u64(DRAW_AT, draw);
    b.0[MARK_AT..MARK_AT + 8].copy_from_slice(&payload[8..16]);
    b.put_u16(FLAGS_AT, if payload[16] != 0 { EXHAUSTED } else { 0 });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dba, FileId, ObjectId};

    fn drain(params: SequenceParams, mut state: SequenceState) -> Vec<i64> {
        let mut out = Vec::new();
        while let Some((range, next)) = params.take(state) {
            out.extend((0..range.count).map(|i| {
                range
                    .first
                    .wrapping_add(params.increment.wrapping_mul(i as i64))
            }));
            state = next;
        }
        out
    }

    #[test]
    fn ranges_stop_exactly_at_the_limit() {
        let p = SequenceParams {
            start: 10,
            min: 1,
            max: 35,
            cache: 20,
            ..Default::default()
        };
        let at_start = SequenceState {
            draw: 0,
            mark: 10,
            exhausted: false,
        };
        let (range, state) = p.take(at_start).unwrap();
        assert_eq!(
            (range, state.mark),
            (
                SequenceRange {
                    first: 10,
                    count: 20
                },
                30
            )
        );
        assert_eq!(drain(p, at_start), (10..=35).collect::<Vec<_>>());
        let down = SequenceParams {
            start: -1,
            increment: -3,
            min: -10,
            max: -1,
            cache: 2,
            cycle: false,
        };
        assert_eq!(
            drain(
                down,
                SequenceState {
                    draw: 0,
                    mark: -1,
                    exhausted: false
                }
            ),
            [-1, -4, -7, -10]
        );
    }

    #[test]
    fn limits_of_the_type_do_not_overflow() {
        let p = SequenceParams {
            start: i64::MAX - 1,
            cache: 1000,
            ..Default::default()
        };
        assert_eq!(
            drain(
                p,
                SequenceState {
                    draw: 0,
                    mark: i64::MAX - 1,
                    exhausted: false
                }
            ),
            [i64::MAX - 1, i64::MAX]
        );
        let p = SequenceParams {
            start: i64::MIN,
            increment: i64::MAX,
            min: i64::MIN,
            max: i64::MAX,
            cache: 50,
            cycle: false,
        };
        let values = drain(
            p,
            SequenceState {
                draw: 0,
                mark: i64::MIN,
                exhausted: false,
            },
        );
        assert_eq!(values, [i64::MIN, -1, i64::MAX - 1]);
    }

    #[test]
    fn a_cycle_begins_again_at_the_other_end() {
        let p = SequenceParams {
            start: 5,
            min: 3,
            max: 6,
            cache: 3,
            cycle: true,
            ..Default::default()
        };
        let mut state = SequenceState {
            draw: 0,
            mark: 5,
            exhausted: false,
        };
        let mut seen = Vec::new();
        for _ in 0..4 {
            let (range, next) = p.take(state).unwrap();
            seen.push((range.first, range.count));
            state = next;
        }
        assert_eq!(seen, [(5, 2), (3, 3), (6, 1), (3, 3)]);
    }

    #[test]
    fn the_draw_number_only_rises() {
        let mut b = BlockBuf::zeroed();
        b.format(Dba::new(FileId(1), 9), ObjectId(5), BlockType::Sequence);
        let p = SequenceParams {
            start: 7,
            ..Default::default()
        };
        apply_format(&mut b, &p.encode()).unwrap();
        let (read_back, state) = read(&b).unwrap();
        assert_eq!((read_back, state.mark), (p, 7));
        let (_, next) = p.take(state).unwrap();
        apply_mark(&mut b, &mark_payload(next)).unwrap();
        assert_eq!(read(&b).unwrap().1, next);
        assert!(apply_mark(&mut b, &mark_payload(next)).is_err());
    }
}
