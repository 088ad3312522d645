//! When a commit takes effect, and when a reply that shows it may leave: one machine per instance.
//!
//! A commit record carries no commit SCN. All transactions of log group n take effect at e(n),
//! which the instance draws after the group is durable.
//!
//! The machine owns the instance's view of the clock, the groups that not every member is known to
//! have heard of (*unstable* groups), and the replies parked behind them. It does not own
//! transaction status. Its driver has that table (lock-free in production) and does what
//! [`Effect::MarkPending`] and [`Effect::Publish`] ask for, in that order.
//!
//! **Invariants**
//! 1. e(n) is drawn after group n is durable and marked pending, from a clock at or above every
//!    snapshot that was told "active" about a transaction of the group. So a verdict, once given,
//!    stands, and no reader waits for a flush.
//! 2. A message carries evidence (instance, group, SCN) of every unstable group that its content
//!    may rest on.
//! 3. Batch headers do so for redo: what is durable in one thread never rests on a group whose SCN
//!    could be decided otherwise later. (The thread's own e(n-1) would not do; see
//!    README, rule V6.)
//! 4. A reply leaves when every group it shows is stable. So every later reader, on any instance,
//!    sees it too.
//! 5. A group that stands in a member's memory is announced and acknowledged: the member looks
//!    there before it takes a snapshot, draws an SCN or enters an epoch
//!    ([`Visibility::read_memory`]; README, rule V10).

mod recovery;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

pub use recovery::{RedoFindings, Report, decide};

use crate::ids::GroupNo;
use crate::planted::{Mutation, Planted};
use block::ids::{InstanceId, Scn, TxnId};
use block::{LAST_GROUPS, LastGroups};
use std::collections::{BTreeMap, BTreeSet};

/// Evidence that group `group` of instance `instance`'s thread took effect at `scn`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Evidence {
    pub instance: InstanceId,
    pub group: GroupNo,
    pub scn: Scn,
}

/// The header that every message between instances carries in front.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Header {
    pub clock: Scn,
    /// The newest group of the sender's own thread that it published.
    pub newest: GroupNo,
    /// Every group the sender knows of and does not know to be stable.
    pub evidence: Vec<Evidence>,
}

/// What an instance says about a transaction of its own (or one that it took over).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    Committed(Scn),
    /// The transaction is invisible to snapshots up to this one. The asker may cache that for those
    /// snapshots only.
    ActiveTo(Scn),
}

/// State of a transaction in the driver's status table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// The table has no entry: the transaction is active, or never committed.
    None,
    /// The transaction's group is durable, and the group's SCN is being drawn. This lasts for an
    /// instant, never for an I/O.
    Pending,
    Committed(Scn),
}

/// A reply to a client, parked until it may leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplyId(pub u64);

/// What a reply shows, by which the gate decides when it may leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Shown {
    /// The commit of a transaction in this group.
    Commit(InstanceId, GroupNo),
    /// Rows committed at or below this SCN: the highest that the reply rests on. Its snapshot is a
    /// safe choice.
    UpTo(Scn),
}

/// Messages of this protocol. Each travels behind a [`Header`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// The commit broadcast. The receiver answers with [`Message::Acknowledge`].
    Announce(Evidence),
    Acknowledge {
        instance: InstanceId,
        group: GroupNo,
    },
    /// Tell the sender when all members have heard of this group. It goes to the announcer of the
    /// group.
    StableWanted {
        instance: InstanceId,
        group: GroupNo,
    },
    Stable {
        instance: InstanceId,
        group: GroupNo,
    },
    Ask {
        txn: TxnId,
        snapshot: Scn,
    },
    Answer {
        txn: TxnId,
        verdict: Verdict,
    },
}

/// An effect: what the driver has to do, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    Send {
        to: InstanceId,
        header: Header,
        message: Message,
    },
    /// Mark the group's transactions pending, then call [`Visibility::marked`].
    MarkPending(GroupNo),
    /// Publish the group's transactions as committed and put the SCN into the next batch header.
    /// Then call [`Visibility::published`].
    Publish(Evidence),
    /// Let the reply leave.
    Release(ReplyId),
    /// Take the verdict that arrived for a local asker.
    Learned { txn: TxnId, verdict: Verdict },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Unstable {
    scn: Scn,
    /// Members whose acknowledgement is missing. None if another instance announced the group.
    missing: Option<BTreeSet<InstanceId>>,
    /// The instances that asked to be told when the group is stable.
    tell: BTreeSet<InstanceId>,
    /// Whether this instance has asked the announcer already.
    asked: bool,
}

/// One instance's machine for commit and visibility.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Visibility {
    me: InstanceId,
    clock: Scn,
    members: BTreeSet<InstanceId>,
    /// The heir of each dead instance: it announces the dead one's groups.
    heirs: BTreeMap<InstanceId, InstanceId>,
    /// The newest groups of each thread that this instance has heard of. The recovery of a last
    /// group may have to know them.
    last_groups: BTreeMap<InstanceId, LastGroups>,
    /// For each other thread, the last group such that all members have heard of it and of all
    /// before it, as the thread's owner has said.
    stable: BTreeMap<InstanceId, GroupNo>,
    unstable: BTreeMap<(InstanceId, GroupNo), Unstable>,
    drawn: Option<Evidence>,
    parked_replies: BTreeSet<(ReplyId, Shown)>,
    parked_questions: BTreeSet<(InstanceId, TxnId, Scn)>,
    pub(crate) planted: Planted,
}

impl Visibility {
    /// A machine whose clock begins at `clock`. The clock must be past the persisted ceiling; a
    /// joiner's begins at the maximum of the members' clocks.
    pub fn new(me: InstanceId, clock: Scn, members: impl IntoIterator<Item = InstanceId>) -> Self {
        let mut members: BTreeSet<_> = members.into_iter().collect();
        members.insert(me);
        Visibility {
            me,
            clock,
            members,
            heirs: BTreeMap::new(),
            last_groups: BTreeMap::new(),
            stable: BTreeMap::new(),
            unstable: BTreeMap::new(),
            drawn: None,
            parked_replies: BTreeSet::new(),
            parked_questions: BTreeSet::new(),
            planted: Planted::default(),
        }
    }

    pub fn clock(&self) -> Scn {
        self.clock
    }

    /// The header of a message that leaves now. It is also what goes into the header of a batch
    /// that is sealed now.
    pub fn header(&self) -> Header {
        let mut evidence: Vec<Evidence> = self
            .unstable
            .iter()
            .map(|(&(instance, group), u)| Evidence {
                instance,
                group,
                scn: u.scn,
            })
            .collect();
        if self.planted.breaks(Mutation::EvidenceInMessages) {
            evidence.clear();
        }
        Header {
            clock: self.clock,
            newest: self.newest_group_of(self.me),
            evidence,
        }
    }

    /// The evidence for a batch header: of each other instance the newest groups that are not known
    /// to be stable, [`LAST_GROUPS`] at most, newest first.
    ///
    /// An older group needs no evidence there. An instance that heard of the newer ones knows the
    /// older one to be durable, and the header of the last of the newer ones has its SCN. This
    /// instance's own groups need none for the same reason.
    pub fn evidence_for_redo(&self) -> impl Iterator<Item = Evidence> + '_ {
        let most = if self.planted.breaks(Mutation::OneGroupInEvidence) {
            1
        } else {
            LAST_GROUPS
        };
        let mut last = (self.me, 0);
        let newest_first = self.unstable.iter().rev();
        newest_first.filter_map(move |(&(instance, group), u)| {
            last = if last.0 == instance {
                (instance, last.1 + 1)
            } else {
                (instance, 1)
            };
            (instance != self.me && last.1 <= most).then_some(Evidence {
                instance,
                group,
                scn: u.scn,
            })
        })
    }

    /// Notes that a log group of this instance's thread is durable.
    pub fn group_durable(&mut self, group: GroupNo, out: &mut Vec<Effect>) {
        assert!(self.drawn.is_none(), "groups take effect one by one");
        if self.planted.breaks(Mutation::PendingMark) {
            self.marked(group, out);
        } else {
            out.push(Effect::MarkPending(group));
        }
    }

    /// Draws the group's SCN, after its transactions were marked.
    pub fn marked(&mut self, group: GroupNo, out: &mut Vec<Effect>) {
        let scn = Scn(self.clock.0 + 1);
        self.drawn(group, scn, out);
    }

    /// Takes the group's SCN from the driver's clock, for a driver whose sessions draw SCNs beside
    /// this machine. The driver draws it after the transactions were marked and before they are
    /// published.
    pub fn drawn(&mut self, group: GroupNo, scn: Scn, out: &mut Vec<Effect>) {
        self.lift(scn);
        let evidence = Evidence {
            instance: self.me,
            group,
            scn,
        };
        self.drawn = Some(evidence);
        // The group is registered here and not at its announcement: a local reader sees the group
        // as soon as the driver publishes it.
        self.register(evidence);
        out.push(Effect::Publish(evidence));
    }

    /// Tells everybody of the group, whose transactions are published now, and answers the
    /// instances that asked meanwhile.
    pub fn published(
        &mut self,
        group: GroupNo,
        status: impl Fn(TxnId) -> Status,
        out: &mut Vec<Effect>,
    ) {
        let evidence = self.drawn.take().expect("published without being drawn");
        assert_eq!(evidence.group, group, "groups take effect in order");
        self.announce(evidence, out);
        for (from, txn, snapshot) in std::mem::take(&mut self.parked_questions) {
            self.asked(from, txn, snapshot, &status, out);
        }
    }

    /// Announces the groups of dead threads that [`decide`] gave an SCN, as the heir of their
    /// instances.
    pub fn adopt(&mut self, decided: &[Evidence], out: &mut Vec<Effect>) {
        for &evidence in decided {
            self.lift(evidence.scn);
            self.announce(evidence, out);
        }
    }

    fn announce(&mut self, evidence: Evidence, out: &mut Vec<Effect>) {
        self.register(evidence);
        for to in self.others() {
            self.send(to, Message::Announce(evidence), out);
        }
        self.settle((evidence.instance, evidence.group), out);
    }

    fn register(&mut self, evidence: Evidence) {
        self.note(evidence);
        let others = self.others();
        let entry = self
            .unstable
            .entry((evidence.instance, evidence.group))
            .or_insert_with(|| Unstable::new(evidence.scn));
        entry.missing.get_or_insert(others);
    }

    /// Answers a question about a transaction of this instance. `status` looks into the driver's
    /// table. It is called after the clock is lifted, and that makes "active" final for the asker.
    pub fn asked(
        &mut self,
        from: InstanceId,
        txn: TxnId,
        snapshot: Scn,
        status: impl Fn(TxnId) -> Status,
        out: &mut Vec<Effect>,
    ) {
        if !self.planted.breaks(Mutation::Lift) {
            self.lift(snapshot);
        }
        let verdict = match status(txn) {
            Status::None => Verdict::ActiveTo(snapshot),
            Status::Committed(scn) => Verdict::Committed(scn),
            Status::Pending => {
                self.parked_questions.insert((from, txn, snapshot));
                return;
            }
        };
        if from == self.me {
            out.push(Effect::Learned { txn, verdict });
        } else {
            self.send(from, Message::Answer { txn, verdict }, out);
        }
    }

    /// Takes the header of any message of any protocol. The driver calls this before it looks at
    /// the message's content.
    pub fn received(&mut self, from: InstanceId, header: &Header, out: &mut Vec<Effect>) {
        if !self.planted.breaks(Mutation::Lift) {
            self.lift(header.clock);
        }
        self.stable_up_to_of(from, header.stable_up_to(from));
        for &evidence in &header.evidence {
            self.hear(evidence);
        }
        let before = self.unstable.len();
        self.unstable.retain(|&(instance, group), _| {
            instance != from || group > header.newest || header.lists(instance, group)
        });
        if self.unstable.len() < before {
            self.release(out);
        }
    }

    /// Says again what `peer` may have missed: messages to it may have been lost with the
    /// connection.
    pub fn reconnected(&mut self, peer: InstanceId, out: &mut Vec<Effect>) {
        let again: Vec<Evidence> = self
            .unstable
            .iter()
            .filter(|(_, u)| u.missing.as_ref().is_some_and(|m| m.contains(&peer)))
            .map(|(&(instance, group), u)| Evidence {
                instance,
                group,
                scn: u.scn,
            })
            .collect();
        for evidence in again {
            self.send(peer, Message::Announce(evidence), out);
        }
        for u in self.unstable.values_mut() {
            u.asked = false;
        }
        self.release(out);
    }

    pub fn message(
        &mut self,
        from: InstanceId,
        message: Message,
        status: impl Fn(TxnId) -> Status,
        out: &mut Vec<Effect>,
    ) {
        match message {
            Message::Announce(evidence) => {
                self.lift(evidence.scn);
                self.hear(evidence);
                let Evidence {
                    instance, group, ..
                } = evidence;
                self.send(from, Message::Acknowledge { instance, group }, out);
            }
            Message::Acknowledge { instance, group } => {
                if let Some(missing) = self
                    .unstable
                    .get_mut(&(instance, group))
                    .and_then(|u| u.missing.as_mut())
                {
                    missing.remove(&from);
                }
                self.settle((instance, group), out);
            }
            Message::StableWanted { instance, group } => {
                match self.unstable.get_mut(&(instance, group)) {
                    _ if self.planted.breaks(Mutation::StableUntold) => {}
                    Some(u) => {
                        u.tell.insert(from);
                    }
                    None => self.send(from, Message::Stable { instance, group }, out),
                }
            }
            Message::Stable { instance, group } => {
                self.unstable.remove(&(instance, group));
                self.release(out);
            }
            Message::Ask { txn, snapshot } => self.asked(from, txn, snapshot, status, out),
            Message::Answer { txn, verdict } => out.push(Effect::Learned { txn, verdict }),
        }
    }

    /// Reads what stands in this instance's memory for announcements of `from`. That is the groups
    /// of `from`'s own thread that were not read before, and the last group up to which all members
    /// have heard of them. Each counts as received and acknowledged at the time when it was put
    /// there.
    pub fn read_memory(
        &mut self,
        from: InstanceId,
        groups: &[Evidence],
        stable: GroupNo,
        out: &mut Vec<Effect>,
    ) {
        self.stable_up_to_of(from, stable);
        for &evidence in groups {
            self.lift(evidence.scn);
            if evidence.group <= stable || self.planted.breaks(Mutation::MemoryTakenForStable) {
                self.note(evidence);
            } else {
                self.hear(evidence);
            }
        }
        let before = self.unstable.len();
        self.unstable
            .retain(|&(instance, group), _| instance != from || group > stable);
        if self.unstable.len() < before {
            self.release(out);
        }
    }

    /// The last group of this instance's thread such that all members have heard of it and of all
    /// before it.
    pub fn stable_up_to(&self) -> GroupNo {
        let mut own = self.unstable.keys().filter(|(of, _)| *of == self.me);
        match own.next() {
            Some((_, oldest)) => GroupNo(oldest.0 - 1),
            None => self.newest_group_of(self.me),
        }
    }

    /// Parks a reply that is ready until all that it shows is stable. It leaves at once if that is
    /// so already, as always on a lone instance.
    pub fn gate(&mut self, reply: ReplyId, shown: Shown, out: &mut Vec<Effect>) {
        self.parked_replies.insert((reply, shown));
        self.release(out);
    }

    /// Learns of a group that took effect and need not be waited for. A joiner is told of such
    /// groups before its first snapshot, and others are found in the redo of the dead.
    pub fn told(&mut self, evidence: Evidence) {
        self.note(evidence);
    }

    /// Takes a change of members.
    ///
    /// The dead acknowledge nothing any more. Each of their threads has an heir, which announces
    /// what [`decide`] makes of the thread's last groups.
    ///
    /// A joiner takes its first snapshot when it was told of the newest groups of each member's
    /// thread, in a message of the epoch in which it is a member. A newer group has waited for the
    /// joiner's acknowledgement. Members that die before they have told are recovered first, and
    /// the joiner's clock is lifted to what [`decide`] has made of their last groups: then nobody
    /// else knows what they had acknowledged to clients.
    pub fn members_changed(
        &mut self,
        members: impl IntoIterator<Item = InstanceId>,
        heirs: impl IntoIterator<Item = (InstanceId, InstanceId)>,
        out: &mut Vec<Effect>,
    ) {
        self.members = members.into_iter().collect();
        self.heirs.extend(heirs);
        self.parked_questions
            .retain(|(from, ..)| self.members.contains(from));
        let keys: Vec<_> = self.unstable.keys().copied().collect();
        for key in keys {
            let u = self.unstable.get_mut(&key).expect("just listed");
            if let Some(missing) = &mut u.missing {
                missing.retain(|i| self.members.contains(i));
            }
            self.settle(key, out);
        }
        for peer in self.members.clone() {
            self.reconnected(peer, out); // messages of the old epoch are dropped
        }
    }

    /// Takes all groups of an instance that is no member for stable. Either the instance left
    /// cleanly, when everybody had acknowledged its groups. Or it died, and every member has heard
    /// a header that every other member sent after all had stopped hearing the dead one.
    pub fn left(&mut self, instance: InstanceId, out: &mut Vec<Effect>) {
        let newest = self.newest_group_of(instance);
        self.stable_up_to_of(instance, newest);
        self.unstable.retain(|&(of, _), _| of != instance);
        self.release(out);
    }

    /// The SCN of the oldest group that is not known to be stable. A reply that shows nothing at or
    /// above it needs no gate.
    pub fn oldest_unstable(&self) -> Option<Scn> {
        self.unstable.values().map(|u| u.scn).min()
    }

    /// What this instance contributes to the recovery of dead threads, and what it tells a joiner.
    pub fn report(&self) -> Report {
        Report {
            clock: self.clock,
            evidence: self
                .last_groups
                .keys()
                .flat_map(|&of| evidence_of(of, self.last_groups_of(of)))
                .collect(),
        }
    }

    /// The newest groups of an instance's thread that this instance has heard of.
    pub fn last_groups_of(&self, instance: InstanceId) -> LastGroups {
        let known = self.last_groups.get(&instance).copied().unwrap_or_default();
        if self.planted.breaks(Mutation::OneGroupRemembered) {
            return known.newest().into_iter().collect();
        }
        known
    }

    fn newest_group_of(&self, instance: InstanceId) -> GroupNo {
        let known = self.last_groups.get(&instance);
        let newest = known.and_then(LastGroups::newest);
        newest.map_or(GroupNo(0), |(group, _)| GroupNo(group))
    }

    /// Raises the clock. The driver refuses implausible jumps before it calls this.
    pub fn lift(&mut self, to: Scn) {
        self.clock = self.clock.max(to);
    }

    /// Hears of a group that some instance does not know to be stable.
    ///
    /// The groups of one thread are mostly heard of in order: a header that lists a group lists the
    /// older unstable ones before it. But memory holds only what was put there. It is looked at
    /// while an older group is still under way in a message, because the memory was offered, or had
    /// room again, in between. So a newer known group says nothing about an older one.
    ///
    /// A group that is remembered, or stable, was heard of before. Any other group is unstable as
    /// far as this instance knows. If it is stable after all, its announcer says so when it is
    /// asked.
    fn hear(&mut self, evidence: Evidence) {
        let Evidence {
            instance,
            group,
            scn,
        } = evidence;
        let known = self.last_groups.get(&instance);
        let heard = known.is_some_and(|last| last.scn_of(group.0).is_some());
        let mine_or_late = instance == self.me || self.planted.breaks(Mutation::LateGroupsIgnored);
        let stable = if mine_or_late {
            self.newest_group_of(instance) // own groups register when drawn
        } else {
            self.stable.get(&instance).copied().unwrap_or_default()
        };
        self.note(evidence);
        if !heard && group > stable {
            let key = (instance, group);
            self.unstable
                .entry(key)
                .or_insert_with(|| Unstable::new(scn));
        }
    }

    fn stable_up_to_of(&mut self, instance: InstanceId, group: GroupNo) {
        let stable = self.stable.entry(instance).or_default();
        *stable = group.max(*stable);
    }

    fn note(&mut self, evidence: Evidence) {
        let known = self.last_groups.entry(evidence.instance).or_default();
        known.note(evidence.group.0, evidence.scn);
    }

    /// Takes the group for stable if every member has acknowledged it.
    fn settle(&mut self, key: (InstanceId, GroupNo), out: &mut Vec<Effect>) {
        let all = self
            .unstable
            .get(&key)
            .and_then(|u| u.missing.as_ref())
            .is_some_and(|m| m.is_empty());
        if !all {
            return;
        }
        let (instance, group) = key;
        let settled = self.unstable.remove(&key).expect("looked at above");
        let tell = if instance == self.me {
            settled.tell // the rest see it in the next header
        } else {
            self.others()
        };
        for to in tell {
            self.send(to, Message::Stable { instance, group }, out);
        }
        self.release(out);
    }

    /// Releases the replies that rest on stable groups only, and asks about the groups that the
    /// other replies wait for.
    fn release(&mut self, out: &mut Vec<Effect>) {
        let mut wanted = BTreeSet::new();
        for (reply, shown) in std::mem::take(&mut self.parked_replies) {
            let blockers: Vec<_> = self.blockers(shown).collect();
            if blockers.is_empty() {
                out.push(Effect::Release(reply));
            } else {
                wanted.extend(blockers);
                self.parked_replies.insert((reply, shown));
            }
        }
        for (instance, group) in wanted {
            self.want_stable(instance, group, out);
        }
    }

    fn blockers(&self, shown: Shown) -> impl Iterator<Item = (InstanceId, GroupNo)> + '_ {
        let open = match shown {
            Shown::Commit(..) => self.planted.breaks(Mutation::AcknowledgedBroadcast),
            Shown::UpTo(_) => self.planted.breaks(Mutation::Gate),
        };
        self.unstable
            .iter()
            .filter(move |(key, u)| {
                !open
                    && match shown {
                        Shown::Commit(instance, group) => **key == (instance, group),
                        Shown::UpTo(scn) => u.scn <= scn,
                    }
            })
            .map(|(&key, _)| key)
    }

    fn want_stable(&mut self, instance: InstanceId, group: GroupNo, out: &mut Vec<Effect>) {
        let announcer = if self.members.contains(&instance) {
            instance
        } else {
            match self.heirs.get(&instance) {
                Some(&heir) => heir,
                None => return, // no heir yet; members_changed asks again
            }
        };
        let u = self
            .unstable
            .get_mut(&(instance, group))
            .expect("a blocker is unstable");
        if announcer == self.me || std::mem::replace(&mut u.asked, true) {
            return;
        }
        self.send(announcer, Message::StableWanted { instance, group }, out);
    }

    fn others(&self) -> BTreeSet<InstanceId> {
        let mut others = self.members.clone();
        others.remove(&self.me);
        others
    }

    fn send(&self, to: InstanceId, message: Message, out: &mut Vec<Effect>) {
        out.push(Effect::Send {
            to,
            header: self.header(),
            message,
        });
    }
}

impl Header {
    /// The last group of the header's sender's thread such that all members have heard of it and of
    /// all before it.
    fn stable_up_to(&self, sender: InstanceId) -> GroupNo {
        let listed = self.evidence.iter().filter(|e| e.instance == sender);
        let oldest = listed.map(|e| e.group).min();
        oldest.map_or(self.newest, |group| GroupNo(group.0 - 1))
    }

    fn lists(&self, instance: InstanceId, group: GroupNo) -> bool {
        self.evidence
            .iter()
            .any(|e| (e.instance, e.group) == (instance, group))
    }
}

impl Unstable {
    fn new(scn: Scn) -> Self {
        Unstable {
            scn,
            missing: None,
            tell: BTreeSet::new(),
            asked: false,
        }
    }
}

/// Evidence of these groups of an instance's thread, newest first.
fn evidence_of(instance: InstanceId, groups: LastGroups) -> Vec<Evidence> {
    let evidence = groups.iter().map(|(group, scn)| Evidence {
        instance,
        group: GroupNo(group),
        scn,
    });
    evidence.collect()
}
