//! Announcing groups in memory. Between instances on one machine a commit needs no message.
//!
//! Each instance has a region of memory for each other member, and offers it in every epoch. A
//! member that can open the region puts its groups there, with their transactions, and counts that
//! as announced and acknowledged at once (`fusion::visibility`, V10).
//!
//! The owner looks there before it takes a snapshot, before it draws a group's SCN, and when it
//! enters an epoch. So all that it does afterwards is as if the announcements had been messages
//! that came when they were written. If there is nothing new, looking takes two loads in one cache
//! line for each other instance.
//!
//! **Invariants.**
//! - *A region is written in the epoch in which it was offered*, by a member of that epoch. Writers
//!   are dropped under the machine's latch with which the next epoch begins, and an offer of
//!   another epoch is not taken. So nobody puts a group into the memory of an instance that died,
//!   and counts that instance's next life as told.
//! - *A region is read until its writer is known to be gone.* The last time is when the epoch is
//!   entered in which the writer is no member.
//! - *The mark beside the records* is the last group of the writer such that all members have heard
//!   of it and of all before it. It is stored before it wakes anybody.
//! - If more than half of a region is used, its owner is not looking. Then the announcement goes by
//!   message, too, and the receiver of that message looks.

use super::messages::{Answer, TxnMessage};
use super::{Cluster, Letter};
use crate::Result;
use block::{InstanceId, Scn, TxnId};
use fusion::GroupNo;
use fusion::visibility::{Effect, Evidence, Message, Status};
use interconnect::memory::{Key, SharedMemory};
use interconnect::memory_ring::{Put, RingReader, RingWriter, Seen};
use seam::{HashMap, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wait::Stat;

/// The region of this instance's memory that one other instance writes into.
pub(super) struct Inbox {
    of: InstanceId,
    key: Key,
    reader: RingReader,
    /// Up to where records have been taken in. The reading thread stores it after it has taken them
    /// in.
    tail: AtomicU64,
    mark: AtomicU64,
    reading: Mutex<()>,
}

impl Inbox {
    fn seen(&self) -> Seen {
        Seen {
            mark: self.mark.load(Ordering::Acquire),
            tail: self.tail.load(Ordering::Acquire),
        }
    }
}

/// The inboxes of all other members.
#[derive(Default)]
pub(super) struct Inboxes {
    all: arc_swap::ArcSwap<Vec<Arc<Inbox>>>,
    changing: Mutex<()>,
}

/// The members' regions that this instance writes into, in the present epoch. Guarded by the
/// machine's latch.
#[derive(Default)]
pub(super) struct Outboxes {
    of: HashMap<InstanceId, RingWriter>,
    record: Vec<u64>,
    mark: u64,
}

impl Outboxes {
    /// Forgets all regions, because another epoch begins.
    pub(super) fn clear(&mut self) {
        self.of.clear();
    }

    fn put(&mut self, to: InstanceId, evidence: Evidence, committed: &[TxnId]) -> Put {
        let Some(writer) = self.of.get_mut(&to) else {
            return Put::Full;
        };
        self.record.clear();
        self.record.extend([evidence.group.0, evidence.scn.0]);
        self.record.extend(committed.iter().map(|txn| txn.0));
        writer.put(&self.record)
    }

    pub(super) fn set_stable(&mut self, up_to: GroupNo) {
        if self.mark != up_to.0 {
            self.mark = up_to.0;
            self.of.values_mut().for_each(|w| w.set_mark(up_to.0));
        }
    }

    fn insert(&mut self, of: InstanceId, mut writer: RingWriter) {
        writer.set_mark(self.mark);
        self.of.insert(of, writer);
    }
}

/// Puts announcements into the memory of the members that have offered it, and counts them as
/// acknowledged there. The other effects stay.
pub(super) fn announce(m: &mut super::Machine, committed: &[TxnId]) {
    let mut acknowledged = Vec::new();
    let (outboxes, by_message) = (&mut m.outboxes, &mut 0);
    m.out.retain(|effect| {
        let &Effect::Send {
            to,
            message: Message::Announce(evidence),
            ..
        } = effect
        else {
            return true;
        };
        let put = outboxes.put(to, evidence, committed);
        if put != Put::Full {
            acknowledged.push((to, evidence));
        }
        *by_message += u64::from(put != Put::There);
        put != Put::There
    });
    wait::stat::add(Stat::CommitBroadcastMessages, *by_message);
    wait::stat::add(Stat::CommitBroadcastsInMemory, acknowledged.len() as u64);
    for (of, evidence) in acknowledged {
        let Evidence {
            instance, group, ..
        } = evidence;
        let heard = Message::Acknowledge { instance, group };
        m.visibility
            .message(of, heard, |_| Status::None, &mut m.out);
    }
}

impl Cluster {
    /// Takes in what others have put into this instance's memory.
    #[inline]
    pub(crate) fn look(&self) {
        if self.is_active() {
            self.look_everywhere();
        }
    }

    pub(super) fn look_everywhere(&self) {
        for inbox in self.inboxes.all.load().iter() {
            if inbox.reader.look() != inbox.seen() {
                self.read(inbox);
            }
        }
    }

    fn read(&self, inbox: &Inbox) {
        let _one_at_a_time = inbox.reading.lock();
        let (before, now) = (inbox.seen(), inbox.reader.look());
        let (mut groups, mut commits) = (Vec::new(), Vec::new());
        let mut whole = true;
        let read = inbox.reader.read(before.tail, now.tail, |record| {
            whole &= take_in(inbox.of, record, &mut groups, &mut commits);
        });
        assert!(
            read.is_ok() && whole,
            "invariant: instance {} has put whole announcements into this one's memory",
            inbox.of.0
        );
        for e in &groups {
            self.lift_to_announced(e.scn).unwrap_or_else(|why| {
                panic!(
                    "invariant: an announcement of instance {} in memory cannot be left out: {why}",
                    inbox.of.0
                )
            });
        }
        let mut m = self.machine.lock();
        let super::Machine {
            visibility, out, ..
        } = &mut *m;
        visibility.read_memory(inbox.of, &groups, GroupNo(now.mark), out);
        // As with a message, the group is registered by now, or known to all.
        if let Some(learnt) = self.learnt.get() {
            for (txn, scn) in commits {
                learnt.put(txn, Answer::Committed(scn));
            }
        }
        self.carry_out(m);
        inbox.mark.store(now.mark, Ordering::Release);
        inbox.tail.store(now.tail, Ordering::Release);
    }

    /// Lifts the clock to an SCN that was announced in memory.
    ///
    /// Its announcer drew it below a ceiling that is durable. That ceiling may be younger than the
    /// one known here: the announcer may have entered an epoch, or used up half of its SCNs, a
    /// moment ago. A message would be refused and come again. An announcement in memory has been
    /// acknowledged, so it must be taken.
    fn lift_to_announced(&self, scn: Scn) -> Result<()> {
        if let (Err(redo::Error::AboveCeiling { .. }), Some(ceiling)) =
            (self.clock.lift(scn), self.durable_ceiling.get())
        {
            self.clock.raise_ceiling(ceiling()?);
        }
        self.lift(scn)
    }

    /// Makes a region for each other member, and offers it. This is repeated with every tick,
    /// because an offer may be lost, and a member that has not entered the epoch does not take it.
    pub(super) fn offer_memory(&self) {
        let Some(memory) = self.shared_memory() else {
            return;
        };
        let _one_at_a_time = self.inboxes.changing.lock();
        let others = self.others();
        let mut all = Vec::clone(&self.inboxes.all.load());
        all.retain(|inbox| others.contains(&inbox.of));
        for &of in &others {
            if !all.iter().any(|inbox| inbox.of == of) {
                // Without a region the other instance sends messages.
                let Ok((key, region)) = memory.create() else {
                    continue;
                };
                all.push(Arc::new(Inbox {
                    of,
                    key,
                    reader: RingReader::new(region),
                    tail: AtomicU64::new(0),
                    mark: AtomicU64::new(0),
                    reading: Mutex::new(()),
                }));
            }
        }
        // The inboxes are stored before they are offered. So whatever is written into a region is
        // looked at.
        self.inboxes.all.store(Arc::new(all.clone()));
        for inbox in all {
            let offer = TxnMessage::MemoryOffered { key: inbox.key };
            self.send(Letter::new(inbox.of, &offer));
        }
    }

    /// Takes a member's offer of memory to write into.
    pub(crate) fn memory_offered(&self, from: InstanceId, epoch: u64, key: Key) {
        let Some(memory) = self.shared_memory() else {
            return;
        };
        let wanted = |m: &super::Machine| {
            epoch == self.epoch() && self.is_up(from) && !m.outboxes.of.contains_key(&from)
        };
        if !wanted(&self.machine.lock()) {
            return;
        }
        let Some(region) = memory.open(key) else {
            return; // it is on another machine
        };
        let mut m = self.machine.lock();
        if wanted(&m) {
            m.outboxes.insert(from, RingWriter::new(region));
        }
    }

    fn shared_memory(&self) -> Option<Arc<dyn SharedMemory>> {
        self.post.get().and_then(|post| post.memory())
    }
}

/// Takes one record in: group, SCN, transactions. Returns false if it is not a whole one.
fn take_in(
    of: InstanceId,
    record: &[u64],
    groups: &mut Vec<Evidence>,
    commits: &mut Vec<(TxnId, Scn)>,
) -> bool {
    let &[group, scn, ref txns @ ..] = record else {
        return false;
    };
    let scn = Scn(scn);
    groups.push(Evidence {
        instance: of,
        group: GroupNo(group),
        scn,
    });
    commits.extend(txns.iter().map(|&txn| (TxnId(txn), scn)));
    group < 1 << 62 && txns.iter().all(|&txn| TxnId(txn).instance() == of)
}
