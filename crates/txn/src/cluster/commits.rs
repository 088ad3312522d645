//! Commits of this instance's groups, and the replies that wait until all members have heard of a
//! group.

use super::{Cluster, Machine, memory};
use crate::timing::Answered;
use block::{Scn, ThreadId, TxnId};
use fusion::GroupNo;
use fusion::visibility::{ReplyId, Shown, Status};
use redo::{BatchNo, CommitWaiter, GroupEvidence};
use seam::Mutex;
use seam::thread::Thread;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wait::Event;

/// The most transactions that an announcement names (2 KiB). The other transactions of a larger
/// group are asked about.
const MAX_ANNOUNCED: usize = 256;

/// A thread that waits for groups to be acknowledged.
pub(super) struct Seat {
    told: AtomicBool,
    /// The answer that was missing. It is set before the waiter is told.
    answer: Mutex<Option<Answered>>,
    thread: Thread,
}

/// The sessions that are woken when a reply may leave.
pub(super) enum Parked {
    Here(Arc<Seat>),
    /// Threads that have not been woken since their group became durable.
    Committed(Vec<CommitWaiter>),
}

impl Parked {
    /// Wakes the sessions. `how` is the answer of another instance that did it.
    pub(super) fn wake(self, how: Option<Answered>) {
        match self {
            Parked::Here(seat) => {
                *seat.answer.lock() = how;
                seat.told.store(true, Ordering::Release);
                seat.thread.unpark();
            }
            Parked::Committed(waiters) => waiters
                .into_iter()
                .for_each(|w| w.wake(how.map(|how| how.known()))),
        }
    }
}

thread_local! {
    /// The highest SCN of a commit that this thread found visible while its group was not known to
    /// be stable. It never falls, because the groups it stands for become stable.
    static SHOWN: Cell<u64> = const { Cell::new(0) };
}

impl Cluster {
    /// Notes that the clock drew `scn` for the group, which is marked and not published yet.
    pub(crate) fn drawn(&self, batch: BatchNo, scn: Scn) {
        let mut m = self.machine.lock();
        let Machine {
            visibility, out, ..
        } = &mut *m;
        visibility.drawn(GroupNo(batch.0), scn, out);
        out.clear(); // its publication is the caller's next step
        self.carry_out(m);
    }

    /// Announces a group whose transactions read "committed". The announcement names them, so that
    /// an instance that meets their changes need not ask.
    pub(crate) fn published(&self, batch: BatchNo, committed: &[TxnId]) {
        let mut m = self.machine.lock();
        let Machine {
            visibility, out, ..
        } = &mut *m;
        // No question is parked in the machine: questions are answered from the words.
        visibility.published(GroupNo(batch.0), |_| Status::None, out);
        let told = &committed[..committed.len().min(MAX_ANNOUNCED)];
        memory::announce(&mut m, told);
        self.carry_out_with(m, told);
    }

    /// Waits until all members have acknowledged the group.
    pub(crate) fn wait_for_group(&self, batch: BatchNo, scn: Scn) {
        if self.oldest_unstable.load(Ordering::Acquire) <= scn.0 {
            let p = [u64::from(self.me.0), batch.0, scn.0];
            self.park(Shown::Commit(self.me, GroupNo(batch.0)), p);
        }
    }

    /// Notes that this thread shows a commit, if its group is not known to be stable. On a lone
    /// instance every group is stable.
    #[inline]
    pub(crate) fn shows(&self, committed: Scn) {
        if committed.0 >= self.oldest_unstable.load(Ordering::Acquire) && committed.0 > SHOWN.get()
        {
            SHOWN.set(committed.0);
        }
    }

    /// The highest SCN that replies of this thread rest on, of groups that were not known to be
    /// stable when they were looked at.
    #[inline]
    pub(crate) fn shown(&self) -> Scn {
        Scn(SHOWN.get())
    }

    /// Waits until every group at or below `snapshot` that this instance knows of has been
    /// acknowledged by all members.
    #[inline]
    pub(crate) fn gate(&self, snapshot: Scn) {
        if self.oldest_unstable.load(Ordering::Acquire) > snapshot.0 {
            return;
        }
        self.look(); // the other instance may have said meanwhile that all have heard
        if self.oldest_unstable.load(Ordering::Acquire) <= snapshot.0 {
            self.park(Shown::UpTo(snapshot), [0, 0, snapshot.0]);
        }
    }

    #[cold]
    fn park(&self, shown: Shown, p: [u64; 3]) {
        let seat = Arc::new(Seat {
            told: AtomicBool::new(false),
            answer: Mutex::default(),
            thread: seam::thread::current(),
        });
        let since_ns = wait::timestamp_ns();
        self.park_as(Parked::Here(seat.clone()), shown);
        if !seat.told.load(Ordering::Acquire) {
            let event = Event::LogFileSyncScn;
            wait::during_remote(event, p, (0, since_ns), || {
                while !seat.told.load(Ordering::Acquire) {
                    seam::thread::park();
                }
                let answer = seat.answer.lock().take();
                ((), event, answer.map(|how| how.served(since_ns)))
            });
        }
    }

    /// The evidence of other instances' groups that the redo which is in the log now may rest on.
    /// Called under the log latch.
    pub(crate) fn evidence(&self, out: &mut Vec<GroupEvidence>) {
        // A thread that has seen something of an unstable group finds the group here; see the
        // module.
        if self.oldest_unstable.load(Ordering::Acquire) == u64::MAX {
            return;
        }
        let m = self.machine.lock();
        out.extend(m.visibility.evidence_for_redo().map(|e| GroupEvidence {
            thread: ThreadId(e.instance.0),
            batch: BatchNo(e.group.0),
            scn: e.scn,
        }));
    }

    fn park_as(&self, who: Parked, shown: Shown) {
        let mut m = self.machine.lock();
        m.next_reply += 1;
        let reply = ReplyId(m.next_reply);
        m.parked.insert(reply, who);
        let Machine {
            visibility, out, ..
        } = &mut *m;
        visibility.gate(reply, shown, out);
        self.carry_out(m);
    }

    /// Wakes the sessions that committed in the group, which is published, when all members have
    /// acknowledged it.
    pub(crate) fn wake_when_stable(&self, batch: BatchNo, waiters: Vec<CommitWaiter>) {
        if self.oldest_unstable.load(Ordering::Acquire) == u64::MAX {
            waiters.into_iter().for_each(CommitWaiter::wake_at_once);
            return;
        }
        let group = Shown::Commit(self.me, GroupNo(batch.0));
        self.park_as(Parked::Committed(waiters), group);
    }
}
