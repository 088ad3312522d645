//! Ends a member that does not answer and keeps its locks. Such a member hangs, or the network
//! between two living instances is cut.
//!
//! An instance waits for a silent member for [`super::Eviction::misscount`]. Then it orders the
//! member's end, on shared storage. The member's guard reads the order and kills the member, and
//! the locks go with the process. Only that proves the death. If the locks stay, the instance runs
//! the operator's fence command; its success proves the death, too.
//!
//! After a cut, both sides are silent to each other, and one side has to go. The largest group
//! whose members all hear each other stays. Of groups of one size, the one with the lowest instance
//! number stays (`fusion::membership`). The groups follow from the heartbeats: each member says in
//! them whom it hears. A member of the group that stays orders at once. Any other member waits
//! twice as long, in case that group hangs as a whole. What a silent member said last counts: it
//! says that the member's part of the network may be whole.
//!
//! **Invariants.**
//! - Nothing here proves a death. A needless order ends an instance that lived, but never loses a
//!   row.
//! - An instance that finds an order for its own end gives none, and ends. So if two instances
//!   would end each other, one is left, as long as the control file's lock can be had. (If the
//!   silent member has that lock, its end is ordered without the lock.)

use super::members::{Members, list};
use super::setup::Contact;
use super::state::Cluster;
use super::suspicion::SUSPICIOUS_LOOKS;
use crate::Result;
use block::InstanceId;
use fusion::membership::{Reach, who_stays};
use interconnect::{Member, Seen, ViewOf};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use storage::lease::{ClusterFile, FenceCommand, Order, Orders, Proof};
use storage::{OsStorage, Storage};

/// The eviction orders of a database, as a guard reads them.
pub struct Evictions {
    orders: Orders,
    members: ClusterFile,
}

impl Evictions {
    /// Opens the orders of the database in a directory. It is an error if there is no database.
    pub fn open(dir: &Path) -> Result<Evictions> {
        Evictions::open_on(&OsStorage::new(dir)?)
    }

    pub fn open_on(storage: &dyn Storage) -> Result<Evictions> {
        Ok(Evictions {
            orders: Orders::open(storage)?,
            members: ClusterFile::open(storage)?,
        })
    }

    /// The incarnation of an instance's last life so far; zero if it never lived.
    pub fn life(&self, k: u16) -> Result<u32> {
        let members = self.members.read()?;
        Ok(members.member(InstanceId(k)).map_or(0, |m| m.incarnation))
    }

    /// The instance that has ordered the end of instance `k` in a life after `after`, if any.
    pub fn ordered(&self, k: u16, after: u32) -> Result<Option<u16>> {
        let order = self.orders.read(InstanceId(k))?;
        Ok(order.filter(|o| o.incarnation > after).map(|o| o.by.0))
    }
}

/// Whether a process holds the lock by which an instance is a member. That is the instance itself,
/// on whichever host, or its stand-in. The answer may be shown to people; it proves no death.
pub fn is_locked(dir: &Path, k: u16) -> Result<bool> {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage::new(dir)?);
    Ok(ClusterFile::open(&*storage)?.is_held(InstanceId(k))?)
}

impl Cluster {
    /// Whether a member has been silent for so long that its end is to be ordered.
    pub(super) fn is_overdue(&self, silent: Member) -> bool {
        let members = self.members();
        let views = self.interconnect.get().map_or(Vec::new(), |i| i.views());
        let state = self.state.lock();
        let heard = |m: &&Member| !state.is_silent(m.instance);
        let heard: Vec<Member> = members.up.iter().filter(heard).copied().collect();
        let patience = match stays(self.me, &members, &heard, &views) {
            true => self.eviction.misscount,
            false => 2 * self.eviction.misscount,
        };
        let suspicion = state.suspicion.get(&silent.instance.0);
        suspicion.is_some_and(|s| s.is_overdue(patience, seam::now()))
    }

    /// Orders the end of a member that hangs. If an order was given before and has not helped, this
    /// also runs the fence command.
    pub(super) fn evict(self: &Arc<Self>, silent: Member) -> Result<()> {
        let orders = self.orders()?;
        if self.obeys(orders)? {
            return Ok(());
        }
        tracing::warn!(
            "{} has not answered for {} s: its end is ordered",
            list(&[silent.instance]),
            self.eviction.misscount.as_secs()
        );
        orders.give(Order {
            instance: silent.instance,
            incarnation: silent.incarnation,
            by: self.me.instance,
            epoch: self.members().epoch,
        })?;
        // If an order could not be given, the next look gives it.
        let again = {
            let mut state = self.state.lock();
            let suspicion = state.suspicion.entry(silent.instance.0).or_default();
            suspicion.ordered.replace(seam::now()).is_some()
        };
        match (again, &self.eviction.fence) {
            (true, Some(fence)) => self.fence(silent, fence.clone()),
            _ => Ok(()),
        }
    }

    /// The file of orders. It is opened at the first use: an instance without company needs none.
    pub(super) fn orders(&self) -> Result<&Orders> {
        if let Some(orders) = self.orders.get() {
            return Ok(orders);
        }
        let opened = Orders::open(&*self.places.storage)?;
        Ok(self.orders.get_or_init(|| opened))
    }

    /// Whether others have ordered the end of this instance; if so, the instance ends. Its guard,
    /// if it has one, may not have read the order yet. A life that went on after such an order
    /// would meet the order again later.
    pub(super) fn obeys(&self, orders: &Orders) -> Result<bool> {
        let order = orders.read(self.me.instance)?;
        let Some(order) = order.filter(|o| o.incarnation >= self.me.incarnation) else {
            return Ok(false);
        };
        let by = list(&[order.by]);
        self.end(&format!(
            "{by} has ordered the end of this instance: it did not answer"
        ));
        Ok(true)
    }

    /// Runs the fence command on a thread of its own, because nobody knows how long the command
    /// takes.
    fn fence(self: &Arc<Self>, silent: Member, command: FenceCommand) -> Result<()> {
        if self.fencing.swap(true, SeqCst) {
            return Ok(()); // one command at a time: the next silent member has its turn afterwards
        }
        let cluster = self.clone();
        let run = move || {
            if let Err(e) = cluster.run_fence(silent, &command) {
                tracing::error!("{silent} is not known to be gone: {e}");
            }
            cluster.fencing.store(false, SeqCst);
        };
        let started = wait::thread::spawn_named("fenc", run);
        let thread = started.map_err(|source| {
            self.fencing.store(false, SeqCst);
            crate::Error::Thread {
                name: "fenc",
                source,
            }
        })?;
        self.readers.lock().push(thread);
        Ok(())
    }

    fn run_fence(&self, silent: Member, command: &FenceCommand) -> Result<()> {
        let found = self.file.read()?;
        let address = match found.member(silent.instance) {
            Some(m) => Contact::parse(&m.address)?.address.to_string(),
            None => String::new(),
        };
        let fenced = command.run(silent.instance, silent.incarnation, &address)?;
        self.file.declare_dead(&[Proof::Fence(&fenced)], None)?;
        self.ring();
        Ok(())
    }
}

/// Whether this instance belongs to the group that stays and orders the end of the others. `heard`
/// are the members that this instance hears itself. `views` are what the others have said last
/// about whom they hear.
fn stays(me: Member, members: &Members, heard: &[Member], views: &[ViewOf]) -> bool {
    let hears = |seen: &Seen| seen.silent_looks < SUSPICIOUS_LOOKS;
    let mut reach = Reach::new();
    for member in &members.up {
        let view = views.iter().find(|v| v.instance == member.instance);
        let whom: BTreeSet<InstanceId> = match view {
            _ if *member == me => heard.iter().map(|m| m.instance).collect(),
            Some(view) => {
                let of_members = view.seen.iter().filter(|s| members.up.contains(&s.member));
                let heard = of_members.filter(|s| hears(s));
                heard.map(|s| s.member.instance).collect()
            }
            None => BTreeSet::new(),
        };
        reach.insert(member.instance, whom);
    }
    who_stays(&reach).contains(&me.instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(k: u16) -> Member {
        Member {
            instance: InstanceId(k),
            incarnation: 1,
        }
    }

    /// Which of `n` members find that they stay if the links in `cut` are cut. Each member hears
    /// the present heartbeats of those that it is not cut from. What it heard last of the others is
    /// from before the cut.
    fn those_who_stay(n: u16, cut: &[(u16, u16)]) -> Vec<u16> {
        let all: Vec<Member> = (1..=n).map(member).collect();
        let members = Members {
            epoch: 1,
            up: all.clone(),
            dead: Vec::new(),
            in_limbo: Vec::new(),
        };
        let linked = |a: u16, b: u16| !cut.contains(&(a, b)) && !cut.contains(&(b, a));
        let view = |of: u16, now: bool| ViewOf {
            instance: InstanceId(of),
            seen: (1..=n)
                .filter(|k| *k != of)
                .map(|k| Seen {
                    member: member(k),
                    frames_read: 1,
                    silent_looks: if now && !linked(of, k) {
                        SUSPICIOUS_LOOKS
                    } else {
                        0
                    },
                })
                .collect(),
        };
        let finds_so = |k: &u16| {
            let heard: Vec<Member> = all
                .iter()
                .copied()
                .filter(|m| linked(*k, m.instance.0))
                .collect();
            let others = (1..=n).filter(|o| o != k);
            let views: Vec<ViewOf> = others.map(|o| view(o, linked(*k, o))).collect();
            stays(member(*k), &members, &heard, &views)
        };
        (1..=n).filter(finds_so).collect()
    }

    #[test]
    fn of_two_parts_exactly_one_stays() {
        for n in 1..=6u16 {
            for part in 0..1u32 << n {
                let (a, b): (Vec<u16>, Vec<u16>) = (1..=n).partition(|k| part >> (k - 1) & 1 == 1);
                let cut: Vec<(u16, u16)> = a
                    .iter()
                    .flat_map(|&a| b.iter().map(move |&b| (a, b)))
                    .collect();
                let larger = match a.len().cmp(&b.len()) {
                    std::cmp::Ordering::Greater => a,
                    std::cmp::Ordering::Equal if a.contains(&1) => a,
                    _ => b,
                };
                assert_eq!(those_who_stay(n, &cut), larger);
            }
        }
    }

    /// Some members reach both sides of the cut.
    #[test]
    fn c22_in_a_network_that_is_half_broken_the_largest_group_stays() {
        assert_eq!(those_who_stay(5, &[(1, 2), (1, 3)]), [2, 3, 4, 5]);
        assert_eq!(those_who_stay(3, &[(2, 3)]), [1, 2]);
        assert_eq!(those_who_stay(4, &[(1, 2), (3, 4)]), [1, 3]);
        assert_eq!(those_who_stay(3, &[]), [1, 2, 3]);
    }
}
