//! What becomes of a member that does not answer and keeps its locks: it hangs, or the network
//! between two that live is cut.
//!
//! It is waited for. After [`super::Eviction::misscount`] its end is ordered, on shared storage;
//! whoever guards it there kills it, and then its locks go, which alone prove that it is dead. If
//! they do not, an operator's fence command is asked, whose success proves the same. After a cut
//! both sides are silent to each other and one has to go. The largest group whose members all hear
//! each other stays, of equal ones that with the lowest number (`fusion::membership`), by what each
//! says in its heartbeats of whom it hears: who is in that group orders at once, who is not waits
//! as long again, for the case that the group hangs as a whole. What a silent member said last
//! counts: it says that its part may be whole.
//!
//! **Invariants.**
//! - Nothing here proves a death. An order too many costs an instance that lived, never a row.
//! - Who finds an order for its own end gives none, and ends: of two who would end each other one
//!   is left, as long as the control file's lock can be had. (If the silent one has it, its end is
//!   ordered without.)

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

/// Orders as a guard reads them.
pub struct Evictions {
    orders: Orders,
    members: ClusterFile,
}

impl Evictions {
    /// Of the database in a directory, which must be there.
    pub fn open(dir: &Path) -> Result<Evictions> {
        Evictions::open_on(&OsStorage::new(dir)?)
    }

    pub fn open_on(storage: &dyn Storage) -> Result<Evictions> {
        Ok(Evictions {
            orders: Orders::open(storage)?,
            members: ClusterFile::open(storage)?,
        })
    }

    /// The last life of an instance so far.
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

/// Whether somebody holds the lock by which an instance is a member: itself, on whichever host, or
/// who stands in for it. Good to be shown; proves no death.
pub fn is_locked(dir: &Path, k: u16) -> Result<bool> {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage::new(dir)?);
    Ok(ClusterFile::open(&*storage)?.is_held(InstanceId(k))?)
}

impl Cluster {
    /// Whether a silent member has been waited for long enough.
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

    /// Orders the end of a member that hangs. If that was done before and has not helped, the fence
    /// command is asked.
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
        // What could not be ordered is ordered at the next look.
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

    /// Opened when there is somebody who could give one.
    pub(super) fn orders(&self) -> Result<&Orders> {
        if let Some(orders) = self.orders.get() {
            return Ok(orders);
        }
        let opened = Orders::open(&*self.places.storage)?;
        Ok(self.orders.get_or_init(|| opened))
    }

    /// Whether others have ordered the end of this instance; then it ends. Its guard, if it has
    /// one, may not have come to it yet, and a life that went on after such an order would meet it
    /// again later.
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

    /// On a thread of its own: how long the command takes is its own business.
    fn fence(self: &Arc<Self>, silent: Member, command: FenceCommand) -> Result<()> {
        if self.fencing.swap(true, SeqCst) {
            return Ok(()); // one command at a time: who is still silent then has its turn after it
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

/// Whether this instance is of the group that stays and orders the others' end, rather than the
/// other way round. `heard`: whom it hears itself; `views`: what the others have said last of whom
/// they hear.
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

    /// Which of `n` members find that they stay, when these links between them are cut: each hears
    /// the heartbeats of those that it is not cut from; what it heard last of the others is from
    /// before.
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

    /// Where some reach both sides of a cut.
    #[test]
    fn c22_in_a_network_that_is_half_broken_the_largest_group_stays() {
        assert_eq!(those_who_stay(5, &[(1, 2), (1, 3)]), [2, 3, 4, 5]);
        assert_eq!(those_who_stay(3, &[(2, 3)]), [1, 2]);
        assert_eq!(those_who_stay(4, &[(1, 2), (3, 4)]), [1, 3]);
        assert_eq!(those_who_stay(3, &[]), [1, 2, 3]);
    }
}
