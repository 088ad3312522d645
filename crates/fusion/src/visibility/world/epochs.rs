//! Deaths, joins and recovery in the world: who is a member, and what is decided about the dead.

use super::*;

impl World {
    pub(super) fn crash(&mut self, mask: u8) {
        self.crashed = true;
        self.epoch += 1;
        for n in (0..self.config.nodes).filter(|n| mask & (1 << n) != 0) {
            self.nodes[n] = None;
        }
    }

    /// Its clock starts at the ceiling of all.
    pub(super) fn join(&mut self) {
        self.outside = false;
        self.epoch += 1;
        let clocks = self.nodes.iter().flatten().map(|n| n.machine.clock());
        let clock = clocks.max().expect("somebody is a member");
        let n = self.config.nodes - 1;
        let mut joiner = Node::new(&self.config, n, clock, 0..self.config.nodes);
        joiner.epoch = self.epoch;
        self.nodes[n] = Some(joiner);
    }

    pub(super) fn enter_epoch(&mut self, n: usize) {
        self.look_unless(Mutation::MemoryUnreadByReports, n);
        let node = self.nodes[n].as_mut().expect("enabled");
        node.epoch = self.epoch;
        self.letters.retain(|l| l.to != n || l.epoch == self.epoch);
        if self.config.joins {
            self.meet_members(n);
        }
        let node = self.nodes[n].as_ref().expect("enabled");
        if self.crashed {
            self.reports[n] = Some(node.machine.report());
        } else {
            let newest = node.machine.newest_of(instance(n));
            let told = !self.config.planted.breaks(Mutation::JoinersAreNotTold);
            for to in (0..self.config.nodes).filter(|&to| to != n) {
                self.post(n, to, Body::Welcome(newest.filter(|_| told)));
            }
        }
        for reader in self.readers.iter_mut().filter(|r| r.node == n) {
            for (t, verdict) in reader.verdicts.iter().enumerate() {
                if verdict.is_none() {
                    reader.asked &= !(1 << t);
                }
            }
        }
    }

    /// From here on the joiner acknowledges what this instance commits.
    pub(super) fn meet_members(&mut self, n: usize) {
        let up = (0..self.config.nodes).filter(|&m| self.nodes[m].is_some());
        let members: Vec<InstanceId> = up.map(instance).collect();
        self.with(n, |node, out| {
            node.machine.members_changed(members, [], out)
        });
    }

    pub(super) fn recover(&mut self) {
        self.recovered = true;
        let is_dead =
            |n: &usize| self.nodes[*n].is_none() && !(self.outside && Some(*n) == self.joiner());
        let dead: Vec<usize> = (0..self.config.nodes).filter(is_dead).collect();
        let mut findings = RedoFindings::default();
        for &n in &dead {
            let thread = &self.threads[n];
            findings.evidence.extend(thread.evidence.iter().copied());
            findings.highest = findings.highest.max(thread.highest);
            if thread.commit && thread.scn.is_none() {
                findings.undecided.push((instance(n), GROUP));
            }
        }
        let reports: Vec<Report> = self.reports.iter().flatten().cloned().collect();
        let decided = decide_with(&findings, &reports, self.config.planted);
        let heir = self.heir();
        for (t, &owner) in self.config.owners.iter().enumerate() {
            let fresh = decided.iter().find(|e| node_of(e.instance) == owner);
            let scn = self.threads[owner].scn.or(fresh.map(|e| e.scn));
            if let (true, Some(scn)) = (dead.contains(&owner), scn) {
                let node = self.nodes[heir].as_mut().expect("the heir lives");
                node.status[t] = Status::Committed(scn);
            }
        }
        let living: Vec<InstanceId> = (0..self.config.nodes)
            .filter(|&n| self.nodes[n].is_some())
            .map(instance)
            .collect();
        let heirs: Vec<_> = dead
            .iter()
            .map(|&n| (instance(n), instance(heir)))
            .collect();
        // What is on disk about the dead threads' older groups is announced as well: a survivor may have heard of them.
        let on_disk = dead
            .iter()
            .filter_map(|&n| self.threads[n].scn.map(|scn| (n, scn)));
        let mut adopted: Vec<Evidence> = on_disk
            .map(|(n, scn)| Evidence {
                instance: instance(n),
                group: GROUP,
                scn,
            })
            .collect();
        adopted.extend(decided);
        // Everybody is in this epoch: that is what a joiner wanted to hear, and what is decided lies below its first snapshot.
        let joiner = self.joiner().and_then(|n| self.nodes[n].as_mut());
        if let Some(joiner) = joiner {
            let survivors = (0..self.config.nodes).filter(|n| !dead.contains(n));
            self.welcomed |= survivors.map(|n| 1 << n).sum::<u8>();
            for report in &reports {
                joiner.machine.lift(report.clock);
                report.evidence.iter().for_each(|&e| joiner.machine.told(e));
            }
            adopted.iter().for_each(|e| joiner.machine.lift(e.scn));
        }
        for n in living.iter().rev().map(|&i| node_of(i)) {
            self.with(n, |node, out| {
                let members = living.iter().copied();
                node.machine
                    .members_changed(members, heirs.iter().copied(), out);
                if n == heir {
                    node.machine.adopt(&adopted, out);
                }
            });
        }
    }
}
