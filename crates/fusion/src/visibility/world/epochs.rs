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

    /// Lets the last instance join. Its clock starts at the ceiling of all.
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
            let told = if self.config.planted.breaks(Mutation::JoinersAreNotTold) {
                LastGroups::default()
            } else {
                node.machine.last_groups_of(instance(n))
            };
            for to in (0..self.config.nodes).filter(|&to| to != n) {
                self.post(n, to, Body::Welcome(told));
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

    /// Tells an instance who the members are now. From here on the joiner acknowledges what this
    /// instance commits.
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
        let reports: Vec<Report> = self.reports.iter().flatten().cloned().collect();
        let adopted = self.groups_of(&dead, &reports);
        let heir = self.heir();
        for e in &adopted {
            let t = self.config.txn_in(node_of(e.instance), e.group);
            let node = self.nodes[heir].as_mut().expect("the heir lives");
            node.status[t] = Status::Committed(e.scn);
        }
        let living: Vec<InstanceId> = (0..self.config.nodes)
            .filter(|&n| self.nodes[n].is_some())
            .map(instance)
            .collect();
        let heirs: Vec<_> = dead
            .iter()
            .map(|&n| (instance(n), instance(heir)))
            .collect();
        // Every instance is in this epoch. The joiner waited for that, and what is decided lies
        // below its first snapshot.
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

    /// When the durable groups of the dead took effect, in the order of their numbers. Groups whose
    /// SCN is on disk are announced as well: a survivor may have heard of them.
    fn groups_of(&self, dead: &[usize], reports: &[Report]) -> Vec<Evidence> {
        let mut findings = RedoFindings::default();
        let mut groups = Vec::new();
        for &n in dead {
            let (instance, thread) = (instance(n), &self.threads[n]);
            let on_disk = &thread.on_disk;
            findings.evidence.extend(on_disk.evidence.iter().copied());
            findings.highest = findings.highest.max(on_disk.highest);
            findings
                .undecided
                .extend(thread.undecided().map(|group| (instance, group)));
            let written = on_disk.own.iter();
            groups.extend(written.map(|(&group, &scn)| Evidence {
                instance,
                group,
                scn,
            }));
        }
        groups.extend(decide_with(&findings, reports, self.config.planted));
        groups.sort();
        groups
    }
}
