//! Waits that another instance causes: which instances served them, and where their time went.
//!
//! The serving instance says what its part took, by its own clock. The waiting instance knows by
//! its own clock when it asked, when the answer was here and when it ran again. What the round trip
//! took beyond the serving belongs to the messages. It is divided evenly among them, two or three,
//! because two machines' clocks cannot tell them apart. So the parts of a wait always add up to it.
//!
//! **Invariants.**
//! - The parts of a wait add up to its time, whatever the other instance claims.
//! - What is kept is bounded: there are sums by event and instance, and by object and instance for
//!   [`OBJECTS_MAX`] pairs. Further pairs share a row.

use crate::Event;
use crate::histogram::Histogram;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// The most pairs of object and serving instance that have sums of their own: 4096 of about 100
/// bytes.
pub const OBJECTS_MAX: usize = 4096;

/// The parts of a wait for another instance, in the order in which they pass.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The request on its way to the instance that served it; over the master, if the master is a
    /// third instance.
    MessageOut,
    /// The wait for the request's turn: in the socket until a receiving thread came to it, and
    /// behind others' requests for the block.
    Queue,
    /// The wait for the buffer, which sessions there used or `dbw0` was writing. For a lock: the
    /// wait for its users there. For a transaction: the wait for its end.
    InUse,
    /// The making of the answer.
    Build,
    /// The wait until the redo of the block's changes, or of a commit, is durable.
    Flush,
    /// The time that the serving took beyond the parts above.
    Other,
    MessageBack,
    /// The time from the arrival of the answer until the session runs again.
    Wake,
}

impl Part {
    pub const ALL: [Part; PARTS] = [
        Part::MessageOut,
        Part::Queue,
        Part::InUse,
        Part::Build,
        Part::Flush,
        Part::Other,
        Part::MessageBack,
        Part::Wake,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Part::MessageOut => "message out",
            Part::Queue => "queue",
            Part::InUse => "in use",
            Part::Build => "build",
            Part::Flush => "log flush",
            Part::Other => "other",
            Part::MessageBack => "message back",
            Part::Wake => "wake up",
        }
    }
}

pub const PARTS: usize = 8;

/// What the instances that served a request say of it, each by its own clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    /// The instance that answered.
    pub instance: u16,
    /// The number of messages that the request took: three over a master that is neither the asker
    /// nor the server.
    pub messages: u8,
    pub queue_ns: u64,
    pub in_use_ns: u64,
    pub build_ns: u64,
    pub flush_ns: u64,
    pub other_ns: u64,
    /// How long ago the answer had arrived here when the session ran again.
    pub wake_ns: u64,
    /// When the waiting began, by [`crate::timestamp_ns`], if that was before this wait: a session
    /// interrupts a long wait to look around.
    pub since_ns: Option<u64>,
    /// The block that came, if one came.
    pub transfer: Option<Transfer>,
}

/// A block that came from another instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    pub object: u32,
    /// Whether it was the current block, and not a copy.
    pub current: bool,
    /// Whether the block was not served at once.
    pub busy: bool,
}

/// A wait that is over, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteWait {
    pub event: Event,
    pub instance: u16,
    pub total_ns: u64,
    /// The nanoseconds of each [`Part`].
    pub parts_ns: [u64; PARTS],
}

impl RemoteWait {
    /// Takes a wait of `total_ns` apart by what was served within it.
    pub fn new(event: Event, total_ns: u64, s: &Served) -> RemoteWait {
        let mut left = total_ns;
        let mut part = |ns: u64| {
            let ns = ns.min(left);
            left -= ns;
            ns
        };
        let wake = part(s.wake_ns);
        let [queue, in_use, build, flush, other] =
            [s.queue_ns, s.in_use_ns, s.build_ns, s.flush_ns, s.other_ns].map(&mut part);
        let back = left / u64::from(s.messages.max(2));
        RemoteWait {
            event,
            instance: s.instance,
            total_ns,
            parts_ns: [left - back, queue, in_use, build, flush, other, back, wake],
        }
    }

    pub fn part_ns(&self, part: Part) -> u64 {
        self.parts_ns[part as usize]
    }
}

/// The sums of one part, or of whole waits.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    /// The number of waits in which the part took any time.
    pub waits: u64,
    pub time_ns: u64,
    pub max_ns: u64,
    pub histogram: Histogram,
}

impl Sum {
    const ZERO: Sum = Sum {
        waits: 0,
        time_ns: 0,
        max_ns: 0,
        histogram: Histogram::EMPTY,
    };

    fn add(&mut self, ns: u64) {
        if ns > 0 {
            self.waits += 1;
            self.time_ns += ns;
            self.max_ns = self.max_ns.max(ns);
            self.histogram.add(ns);
        }
    }
}

/// Waits for one event that one instance served (`v$gc_latency`).
#[derive(Clone, Debug)]
pub struct LatencyRow {
    pub event: Event,
    pub instance: u16,
    pub total: Sum,
    /// The sum of each [`Part`].
    pub parts: [Sum; PARTS],
}

/// Blocks of one object that came from one instance (`v$gc_transfers`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransferRow {
    /// The object. None for all objects that have no row of their own.
    pub object: Option<u32>,
    pub from: u16,
    pub current_blocks: u64,
    pub cr_blocks: u64,
    pub two_way: u64,
    pub three_way: u64,
    pub busy: u64,
    pub flush_waits: u64,
    pub flush_ns: u64,
    pub time_ns: u64,
}

/// A session's waits for one event that one instance served (`v$session_gc_latency`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionRow {
    pub event: Event,
    pub instance: u16,
    pub waits: u64,
    pub time_ns: u64,
    /// The nanoseconds of each [`Part`].
    pub parts_ns: [u64; PARTS],
}

/// A wait that covers a moment at which a sample looked at its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub began_ns: u64,
    pub number: u64,
    pub wait: RemoteWait,
}

/// What a session has waited for other instances.
#[derive(Default)]
pub(crate) struct OfSession {
    /// The last such wait, and its number among all waits of the session.
    pub last: Option<(u64, RemoteWait)>,
    sums: BTreeMap<(u16, u16), SessionRow>,
    /// When a sample last looked at the session.
    looked_ns: Option<u64>,
    seen: Option<Seen>,
}

impl OfSession {
    pub fn note(&mut self, number: u64, began_ns: u64, wait: RemoteWait) {
        self.last = Some((number, wait));
        let key = (wait.event as u16, wait.instance);
        let row = self.sums.entry(key).or_insert(SessionRow {
            event: wait.event,
            instance: wait.instance,
            waits: 0,
            time_ns: 0,
            parts_ns: [0; PARTS],
        });
        row.waits += 1;
        row.time_ns += wait.total_ns;
        for (sum, ns) in row.parts_ns.iter_mut().zip(wait.parts_ns) {
            *sum += ns;
        }
        if self
            .looked_ns
            .is_some_and(|looked_ns| began_ns <= looked_ns)
        {
            self.looked_ns = None;
            self.seen = Some(Seen {
                began_ns,
                number,
                wait,
            });
        }
    }

    /// Notes that a sample looks at the session, which waits, and wants to know later what it
    /// waited for: [`OfSession::seen`].
    pub fn look(&mut self, now_ns: u64) {
        self.looked_ns = Some(now_ns);
    }

    /// The wait in which the session was when a sample last looked, if that wait is over and was
    /// for another instance.
    pub fn seen(&self) -> Option<Seen> {
        self.seen
    }

    pub fn sums(&self) -> Vec<SessionRow> {
        self.sums.values().copied().collect()
    }
}

#[derive(Default)]
struct Sums {
    latency: BTreeMap<(u16, u16), Box<LatencyRow>>,
    transfers: HashMap<(u32, u16), TransferRow>,
    /// The rows of all other objects, by instance.
    others: HashMap<u16, TransferRow>,
}

static SUMS: Mutex<Option<Sums>> = Mutex::new(None);

fn sums<R>(f: impl FnOnce(&mut Sums) -> R) -> R {
    f(SUMS.lock().get_or_insert_with(Sums::default))
}

/// Counts a wait that is over.
pub(crate) fn note(w: &RemoteWait, served: &Served) {
    sums(|s| s.note(w, served));
}

/// Counts the blocks that came within one wait for several, which took `total_ns`. Each answer has
/// the same share of it, also one with no block.
pub fn came_together(event: Event, total_ns: u64, answers: &[Served]) {
    sums(|s| s.together(event, total_ns, answers));
}

impl Sums {
    fn note(&mut self, w: &RemoteWait, served: &Served) {
        let key = (w.event as u16, w.instance);
        let row = self.latency.entry(key).or_insert_with(|| {
            Box::new(LatencyRow {
                event: w.event,
                instance: w.instance,
                total: Sum::ZERO,
                parts: [Sum::ZERO; PARTS],
            })
        });
        row.total.add(w.total_ns);
        for (sum, ns) in row.parts.iter_mut().zip(w.parts_ns) {
            sum.add(ns);
        }
        if let Some(t) = &served.transfer {
            self.transferred(t, served, w);
        }
    }

    fn together(&mut self, event: Event, total_ns: u64, answers: &[Served]) {
        let count = answers.len() as u64;
        for (before, served) in (0..).zip(answers) {
            // What a division leaves is shared out, too, so that the shares add up.
            let share_ns = total_ns * (before + 1) / count - total_ns * before / count;
            if let Some(t) = &served.transfer {
                self.transferred(t, served, &RemoteWait::new(event, share_ns, served));
            }
        }
    }

    fn transferred(&mut self, t: &Transfer, served: &Served, w: &RemoteWait) {
        let (key, from) = ((t.object, w.instance), w.instance);
        let known = self.transfers.contains_key(&key) || self.transfers.len() < OBJECTS_MAX;
        let row = match known {
            true => self.transfers.entry(key).or_insert(TransferRow {
                object: Some(t.object),
                from,
                ..TransferRow::default()
            }),
            false => self.others.entry(from).or_insert(TransferRow {
                from,
                ..TransferRow::default()
            }),
        };
        let flush_ns = w.part_ns(Part::Flush);
        row.current_blocks += u64::from(t.current);
        row.cr_blocks += u64::from(!t.current);
        row.two_way += u64::from(served.messages < 3);
        row.three_way += u64::from(served.messages >= 3);
        row.busy += u64::from(t.busy);
        row.flush_waits += u64::from(flush_ns > 0);
        row.flush_ns += flush_ns;
        row.time_ns += w.total_ns;
    }
}

/// The latencies by event and instance.
pub fn latencies() -> Vec<LatencyRow> {
    sums(|s| s.latency.values().map(|r| (**r).clone()).collect())
}

/// The transfers by object and instance, those without an object last.
pub fn transfers() -> Vec<TransferRow> {
    let mut rows: Vec<TransferRow> = sums(|s| {
        s.transfers
            .values()
            .chain(s.others.values())
            .copied()
            .collect()
    });
    rows.sort_by_key(|r| (r.object.is_none(), r.object, r.from));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Served {
        Served {
            instance: 2,
            messages: 2,
            queue_ns: 10,
            in_use_ns: 20,
            build_ns: 30,
            flush_ns: 40,
            other_ns: 5,
            wake_ns: 100,
            since_ns: None,
            transfer: None,
        }
    }

    #[test]
    fn the_messages_share_what_remains_of_the_round_trip() {
        let w = RemoteWait::new(Event::GcCrBlock2Way, 605, &served());
        assert_eq!(w.parts_ns, [200, 10, 20, 30, 40, 5, 200, 100]);
        let three = Served {
            messages: 3,
            ..served()
        };
        let w = RemoteWait::new(Event::GcCrBlock3Way, 805, &three);
        assert_eq!(
            (w.part_ns(Part::MessageOut), w.part_ns(Part::MessageBack)),
            (400, 200)
        );
    }

    /// The parts add up even if an instance claims to have worked longer than the wait lasted.
    #[test]
    fn the_parts_add_up_to_the_wait() {
        let liar = Served {
            queue_ns: u64::MAX,
            flush_ns: u64::MAX,
            wake_ns: 7,
            messages: 0,
            ..served()
        };
        for s in [served(), liar, Served::default()] {
            for total in [0, 1, 6, 7, 99, 204, 205, 206, 1 << 40] {
                let w = RemoteWait::new(Event::GcCrBlock2Way, total, &s);
                assert_eq!(w.parts_ns.iter().sum::<u64>(), total, "{s:?}");
            }
        }
    }

    #[test]
    fn objects_beyond_the_limit_share_a_row_and_nothing_is_lost() {
        let mut s = Sums::default();
        let add = |s: &mut Sums, object: u32, from: u16, current: bool| {
            let transfer = Transfer {
                object,
                current,
                busy: object == 0,
            };
            let served = Served {
                instance: from,
                transfer: Some(transfer),
                ..served()
            };
            let w = RemoteWait::new(Event::GcCurrentBlock2Way, 1000, &served);
            s.note(&w, &served);
        };
        let beyond = OBJECTS_MAX as u32 + 50;
        (0..beyond).for_each(|object| add(&mut s, object, 2, true));
        add(&mut s, 3, 2, false);
        add(&mut s, beyond, 3, false);
        assert_eq!(s.transfers.len(), OBJECTS_MAX);
        assert_eq!(s.transfers[&(3, 2)].cr_blocks, 1);
        assert_eq!(
            (s.others[&2].current_blocks, s.others[&3].cr_blocks),
            (50, 1)
        );
        let rows = || s.transfers.values().chain(s.others.values());
        let blocks: u64 = rows().map(|r| r.current_blocks + r.cr_blocks).sum();
        assert_eq!(blocks, u64::from(beyond) + 2);
        assert_eq!(rows().map(|r| r.time_ns).sum::<u64>(), 1000 * blocks);
        assert_eq!(
            (s.transfers[&(0, 2)].busy, s.transfers[&(1, 2)].flush_waits),
            (1, 1)
        );
        let row = &s.latency[&(Event::GcCurrentBlock2Way as u16, 2)];
        assert_eq!(row.total.waits, u64::from(beyond) + 1);
        let parts: u64 = row.parts.iter().map(|p| p.time_ns).sum();
        assert_eq!(parts, row.total.time_ns);
        let buckets: Vec<_> = row.total.histogram.buckets().collect();
        assert_eq!(buckets, [(2, row.total.waits)]);
    }

    /// No object whose blocks came is shown without time because another block came last.
    #[test]
    fn blocks_that_came_together_share_the_time_of_the_wait() {
        let of = |object: Option<u32>| Served {
            instance: 2,
            transfer: object.map(|object| Transfer {
                object,
                current: false,
                busy: false,
            }),
            ..Served::default()
        };
        let mut s = Sums::default();
        let answers = [of(Some(1)), of(Some(7)), of(Some(7)), of(None)];
        s.together(Event::GcMultiBlockRequest, 4003, &answers);
        let row = |object| s.transfers[&(object, 2)];
        assert_eq!((row(1).cr_blocks, row(1).time_ns), (1, 1000));
        assert_eq!((row(7).cr_blocks, row(7).time_ns), (2, 2002));
        s.together(Event::GcMultiBlockRequest, 5, &[]);
        assert_eq!(s.latency.len(), 0, "the wait itself is counted elsewhere");
    }
}
