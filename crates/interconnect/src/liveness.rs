//! Heartbeats, and what they tell. They are evidence for the layer that decides about membership;
//! nothing is decided here.
//!
//! **A peer is judged by what was read from it, never by the time since somebody looked** (race 15
//! of docs/design.md). A *look* is one turn of `lmon`. It counts as silent only under three
//! conditions: nothing has been read from the peer since the look before, nothing lies unread in
//! its sockets, and the look before was in time. So an instance that was itself stopped for a
//! minute wakes up to one look that does not count, not to peers that seem dead. A peer that never
//! said anything is unknown, not dead.
//!
//! Heartbeats also compare the clocks of two instances, by the exchange with the shortest round
//! trip lately. So the way out and the way back of a message can be told apart.

use crate::frame::Member;
use block::{FileId, InstanceId};
use std::time::Duration;

/// The evidence about a peer's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evidence {
    pub instance: InstanceId,
    /// The life that was heard of last. None if the peer never spoke.
    pub incarnation: Option<u32>,
    pub lanes_connected: u8,
    pub lanes: u8,
    /// The number of frames and proofs read from the peer, ever.
    pub frames_read: u64,
    /// The number of looks in a row that found the peer silent.
    pub silent_looks: u32,
}

/// Counts the silent looks at one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    read_before: u64,
    silent: u32,
}

/// How late a look may be and still count, in intervals.
const LATE_INTERVALS: u32 = 3;

/// Whether a look that comes `since` the last one counts.
pub(crate) fn is_in_time(since: Duration, interval: Duration) -> bool {
    since <= interval * LATE_INTERVALS
}

impl Watch {
    pub fn look(&mut self, frames_read: u64, unread: bool, in_time: bool) -> u32 {
        if frames_read != self.read_before {
            self.read_before = frames_read;
            self.silent = 0;
        } else if !unread && in_time && frames_read > 0 {
            self.silent = self.silent.saturating_add(1);
        }
        self.silent
    }
}

/// One row of what an instance says of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub member: Member,
    pub frames_read: u64,
    pub silent_looks: u32,
}

/// What a heartbeat carries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Heartbeat {
    pub number: u64,
    /// When the receiver's last heartbeat that arrived here was sent, by the receiver's clock.
    /// `echo_received_ns`: when it was received here, by ours. Zero if none arrived.
    pub echo_sent_ns: u64,
    pub echo_received_ns: u64,
    pub seen: Vec<Seen>,
}

const FIXED_BYTES: usize = 26;
const SEEN_BYTES: usize = 18;

impl Heartbeat {
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(FIXED_BYTES + self.seen.len() * SEEN_BYTES);
        b.extend(self.number.to_le_bytes());
        b.extend(self.echo_sent_ns.to_le_bytes());
        b.extend(self.echo_received_ns.to_le_bytes());
        b.extend((self.seen.len() as u16).to_le_bytes());
        for s in &self.seen {
            b.extend(s.member.instance.0.to_le_bytes());
            b.extend(s.member.incarnation.to_le_bytes());
            b.extend(s.frames_read.to_le_bytes());
            b.extend(s.silent_looks.to_le_bytes());
        }
        b
    }

    pub fn decode(b: &[u8]) -> Option<Heartbeat> {
        let (fixed, rows) = b.split_at_checked(FIXED_BYTES)?;
        let u64_at =
            |b: &[u8], at: usize| Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?));
        let u32_at =
            |b: &[u8], at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
        let u16_at =
            |b: &[u8], at: usize| Some(u16::from_le_bytes(b.get(at..at + 2)?.try_into().ok()?));
        if rows.len() != usize::from(u16_at(fixed, 24)?) * SEEN_BYTES {
            return None;
        }
        let seen = rows
            .chunks_exact(SEEN_BYTES)
            .map(|r| {
                let instance = u16_at(r, 0)?;
                (1..=FileId::MAX_INSTANCES)
                    .contains(&instance)
                    .then_some(())?;
                Some(Seen {
                    member: Member {
                        instance: InstanceId(instance),
                        incarnation: u32_at(r, 2)?,
                    },
                    frames_read: u64_at(r, 6)?,
                    silent_looks: u32_at(r, 14)?,
                })
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Heartbeat {
            number: u64_at(fixed, 0)?,
            echo_sent_ns: u64_at(fixed, 8)?,
            echo_received_ns: u64_at(fixed, 16)?,
            seen,
        })
    }
}

/// How far a peer's monotonic clock is ahead of ours.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offset {
    best: Option<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    offset_ns: i64,
    trip_ns: u64,
    at_ns: u64,
}

/// How long a sample is believed. Clocks drift by some 50 us per second at worst, usually by far
/// less.
const SAMPLE_LIFE_NS: u64 = 10_000_000_000;

/// The four moments of an exchange: sent and received here, received and sent there, each by the
/// clock of its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub sent_ns: u64,
    pub there_received_ns: u64,
    pub there_sent_ns: u64,
    pub received_ns: u64,
}

impl Offset {
    pub fn take(&mut self, e: Exchange) {
        let here = e.received_ns.wrapping_sub(e.sent_ns);
        let there = e.there_sent_ns.wrapping_sub(e.there_received_ns);
        let trip_ns = here.wrapping_sub(there);
        if trip_ns as i64 <= 0 {
            return;
        }
        let out = e.there_received_ns.wrapping_sub(e.sent_ns) as i64;
        let back = e.there_sent_ns.wrapping_sub(e.received_ns) as i64;
        let sample = Sample {
            // Half of each is added, so that the sum cannot overflow.
            offset_ns: (out >> 1) + (back >> 1),
            trip_ns,
            at_ns: e.received_ns,
        };
        let keep = self.best.is_some_and(|b| {
            b.trip_ns < sample.trip_ns && e.received_ns.saturating_sub(b.at_ns) < SAMPLE_LIFE_NS
        });
        if !keep {
            self.best = Some(sample);
        }
    }

    pub fn get(&self) -> i64 {
        self.best.map_or(0, |b| b.offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_in_looks_that_read_nothing() {
        let mut w = Watch::default();
        assert_eq!(w.look(0, false, true), 0, "unknown is not dead");
        assert_eq!(w.look(1, false, true), 0);
        assert_eq!(w.look(1, false, true), 1);
        assert_eq!(w.look(1, true, true), 1, "something lies unread");
        assert_eq!(w.look(1, false, false), 1, "we were stopped ourselves");
        assert_eq!(w.look(1, false, true), 2);
        assert_eq!(w.look(2, false, true), 0);
        assert!(is_in_time(
            Duration::from_millis(250),
            Duration::from_millis(100)
        ));
        assert!(!is_in_time(
            Duration::from_secs(60),
            Duration::from_millis(100)
        ));
    }

    #[test]
    fn heartbeats_are_pinned_read_back_and_never_believed_when_damaged() {
        let h = Heartbeat {
            number: 3,
            echo_sent_ns: 4,
            echo_received_ns: 5,
            seen: vec![Seen {
                member: Member {
                    instance: InstanceId(2),
                    incarnation: 7,
                },
                frames_read: 8,
                silent_looks: 9,
            }],
        };
        let b = h.encode();
        assert_eq!(b.len(), FIXED_BYTES + SEEN_BYTES);
        assert_eq!(
            b[24..],
            [1, 0, 2, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0]
        );
        assert_eq!(Heartbeat::decode(&b), Some(h));
        for n in 0..b.len() {
            assert_eq!(Heartbeat::decode(&b[..n]), None);
        }
    }

    #[test]
    fn the_shortest_exchange_tells_the_offset() {
        let mut o = Offset::default();
        let exchange = |out: u64, back: u64, at: u64| Exchange {
            sent_ns: at,
            there_received_ns: at + out + 1_000_000,
            there_sent_ns: at + out + 1_000_050,
            received_ns: at + out + 50 + back,
        };
        o.take(exchange(9_000, 1_000, 1_000_000));
        assert_eq!(o.get(), 1_004_000);
        o.take(exchange(100, 100, 2_000_000));
        assert_eq!(o.get(), 1_000_000);
        o.take(exchange(5_000, 100, 3_000_000));
        assert_eq!(o.get(), 1_000_000, "a longer one does not count");
        o.take(exchange(5_000, 5_000, SAMPLE_LIFE_NS + 9_000_000));
        assert_eq!(o.get(), 1_000_000);
        // A clock may be behind as well.
        let mut o = Offset::default();
        o.take(Exchange {
            sent_ns: 1_000_000,
            there_received_ns: 100,
            there_sent_ns: 200,
            received_ns: 1_000_200,
        });
        assert_eq!(o.get(), -999_950);
    }
}
