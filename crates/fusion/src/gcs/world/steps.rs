//! What each action does to the world.

use super::*;

impl World {
    pub(in crate::gcs) fn apply(&mut self, action: &Action) {
        match *action {
            Action::Start(n, block, want) => self.start_session(n, block, want),
            Action::Execute(n, waiter) => self.execute(n, waiter),
            Action::Flush(n) => {
                let node = self.nodes[n].as_mut().expect("enabled");
                node.durable = node.dropped + node.redo.len();
                let upto = LogPos(node.durable as u64);
                self.with(n, 0, |shard, out| shard.flushed(upto, out));
            }
            Action::BeginWrite(n, block) => {
                let frame = self.frame(n, block);
                frame.writing = Some(frame.version);
            }
            Action::EndWrite(n, block) => self.end_write(n, block),
            Action::Load(n, block) => self.load(n, block),
            Action::FailRead(n, block) => {
                self.config.failed_reads -= 1;
                self.fail_read(n, block);
            }
            Action::Evict(n, block) => {
                self.config.evictions -= 1;
                self.with(n, 0, |shard, out| shard.evict(block, out));
            }
            Action::Deliver(l) => self.deliver(l),
            Action::Duplicate(l) => {
                self.config.duplicates -= 1;
                let twin = self.letters[l].clone();
                self.letters.push(twin);
            }
            Action::Break(a, b) => {
                self.config.breaks -= 1;
                self.lose(a, b);
            }
            Action::Crash(n, land) => self.crash(n, land),
            Action::Rejoin(n) => {
                self.config.rejoins -= 1;
                self.start(n);
            }
            Action::Decide => self.decide(None),
            Action::Remaster(bucket, n) => {
                self.config.remasters -= 1;
                self.decide(Some((bucket, n)));
            }
            Action::Take(n, granule) => {
                self.config.takes -= 1;
                self.with(n, 0, |shard, out| {
                    shard.take(granule, out);
                });
            }
            Action::Enter(n) => self.enter(n),
            Action::ReadRedo(n) => {
                self.read_redo = true;
                let blocks = self.dead.values().flatten().map(|v| v.block).collect();
                self.with(n, 0, |shard, out| shard.pass_one(blocks, out));
            }
        }
        self.truncate();
        self.check();
        self.letters.sort();
    }

    pub(super) fn frame(&mut self, n: usize, block: Dba) -> &mut Frame {
        let node = self.nodes[n].as_mut().expect("enabled");
        node.frames.get_mut(&block).expect("enabled")
    }

    pub(super) fn fail(&mut self, what: impl Into<String>) {
        self.violation.get_or_insert(what.into());
    }

    pub(super) fn start_session(&mut self, n: usize, block: Dba, want: Want) {
        self.next_session += 1;
        let waiter = Waiter(self.next_session as u64);
        let (need, early_read) = (self.latest[&block], self.disk[&block]);
        let want = match want {
            Want::Read { .. } => Want::Read {
                snapshot: Scn(need),
            },
            other => other,
        };
        let node = self.nodes[n].as_mut().expect("enabled");
        let hit = node.frames.get(&block).filter(|f| {
            f.loading.is_none() && f.closing.is_none() && f.mode.is_some_and(|m| m >= want.mode())
        });
        let stage = hit.map_or(Stage::Waiting, |frame| Stage::Ready {
            version: frame.version,
            generation: frame.generation,
            hit: true,
        });
        let found = stage != Stage::Waiting;
        node.sessions.push(Session {
            waiter,
            block,
            want,
            need,
            stage,
            early_read,
        });
        if found {
            return;
        }
        self.with(n, 0, |shard, out| shard.request(block, want, waiter, out));
    }

    /// Lets the session latch the frame, check again that the instance still owns the block, and do
    /// its work (8).
    pub(super) fn execute(&mut self, n: usize, waiter: Waiter) {
        let planted = self.config.planted;
        let node = self.nodes[n].as_mut().expect("enabled");
        let at = node
            .sessions
            .iter()
            .position(|s| s.waiter == waiter)
            .expect("enabled");
        let session = node.sessions[at].clone();
        let block = session.block;
        let frame = node.frames.get_mut(&block);
        let owned = match session.stage {
            Stage::Ready { generation, .. } => frame.filter(|f| {
                f.loading.is_none()
                    && f.mode.is_some_and(|m| m >= session.want.mode())
                    && (f.generation == generation
                        || planted.breaks(Mutation::ModeWithoutGeneration))
            }),
            _ => None,
        };
        match (session.stage, owned) {
            (Stage::Copy { version }, _) => {
                node.sessions.remove(at);
                if version < session.need {
                    self.fail("R3: a reader got a copy older than its snapshot");
                }
            }
            (
                Stage::Ready {
                    version,
                    generation,
                    ..
                },
                Some(frame),
            ) => {
                // If the generation has changed, the session's pointer leads to what the frame held
                // when the session was woken.
                let version = if frame.generation == generation {
                    frame.version
                } else {
                    version
                };
                if session.want == Want::Exclusive {
                    if version != self.latest[&block] {
                        self.fail("8: a session changed a block that had changed under it");
                        return;
                    }
                    frame.version = version + 1;
                    frame.dirty = true;
                    let after = frame.version;
                    node.redo.push(Vector { block, after });
                    frame.redo = node.dropped + node.redo.len();
                    self.latest.insert(block, after);
                } else if frame.version < session.need {
                    self.fail("a current read got an old version");
                }
                let node = self.nodes[n].as_mut().expect("enabled");
                node.sessions.remove(at);
                self.with(n, 0, |shard, out| shard.latched(block, waiter, out));
            }
            _ => {
                node.sessions[at].stage = Stage::Waiting;
                self.with(n, 0, |shard, out| {
                    shard.latched(block, waiter, out);
                    shard.request(block, session.want, waiter, out);
                });
            }
        }
    }

    pub(super) fn end_write(&mut self, n: usize, block: Dba) {
        let node = self.nodes[n].as_mut().expect("enabled");
        if let Some(version) = node.stray_writes.remove(&block) {
            self.reach_disk(block, version);
            return;
        }
        let frame = self.frame(n, block);
        let version = frame.writing.take().expect("enabled");
        if frame.version == version {
            frame.dirty = false;
            frame.write_wanted = false;
        }
        let closing = frame.closing;
        self.reach_disk(block, version);
        self.with(n, 0, |shard, out| shard.wrote(block, Scn(version), out));
        if let Some((keep, generation)) = closing {
            self.close(n, block, keep, generation);
        }
    }

    pub(super) fn reach_disk(&mut self, block: Dba, version: u64) {
        if self.disk[&block] > version {
            self.fail("5: an older version was written over a newer one");
        }
        self.disk.insert(block, version);
    }

    /// Ends a read from disk, or a recovery.
    pub(super) fn load(&mut self, n: usize, block: Dba) {
        let mut version = self.disk[&block];
        let node = self.nodes[n].as_ref().expect("enabled");
        let recovery = node.frames[&block].loading == Some(true);
        if recovery {
            version = version.max(node.images.get(&block).copied().unwrap_or(0));
            let vectors = || self.dead.values().flatten().filter(|v| v.block == block);
            while vectors().any(|v| v.after == version + 1) {
                version += 1;
            }
        } else if self.config.planted.breaks(Mutation::ReadBeforeGrant) {
            let mut early = node.sessions.iter().filter(|s| s.block == block);
            version = early.next().map_or(version, |s| s.early_read);
        }
        if version != self.latest[&block] {
            let how = if recovery { "recovery" } else { "R4/11: disk" };
            self.fail(format!("{how} gave a version that is not the newest"));
        }
        let on_disk = self.disk[&block] == version;
        let frame = self.frame(n, block);
        frame.loading = None;
        frame.version = version;
        frame.dirty = recovery && !on_disk;
        frame.write_wanted &= frame.dirty;
        let generation = frame.generation;
        self.with(n, 0, |shard, out| {
            shard.installed(block, Scn(version), generation, out);
        });
    }

    /// Lets a read from disk fail: every session that waits for the block here goes away with the
    /// error.
    pub(super) fn fail_read(&mut self, n: usize, block: Dba) {
        let node = self.nodes[n].as_mut().expect("enabled");
        let waits = |s: &Session| s.block == block && s.stage == Stage::Waiting;
        node.sessions.retain(|s| !waits(s));
        let generation = node.frames[&block].generation;
        self.with(n, 0, |shard, out| shard.unreadable(block, generation, out));
    }

    pub(in crate::gcs) fn deliver(&mut self, l: usize) {
        let letter = self.letters.remove(l);
        let Some(node) = &self.nodes[letter.to] else {
            return;
        };
        let admitted = node.shard.admits(letter.epoch) == crate::gcs::Admission::Now;
        if node.incarnation != letter.life || !admitted {
            return;
        }
        let from = instance(letter.from);
        self.with(letter.to, letter.bytes, |shard, out| {
            shard.message(from, letter.term, letter.message, out);
        });
    }

    pub(super) fn lose(&mut self, a: usize, b: usize) {
        let between = |l: &Letter| (l.from, l.to) == (a, b) || (l.from, l.to) == (b, a);
        self.letters.retain(|l| !between(l));
        for (n, peer) in [(a, b), (b, a)] {
            let both = self.nodes[a].is_some() && self.nodes[b].is_some();
            if both && self.nodes[n].as_ref().unwrap().shard.epoch() != Epoch(0) {
                self.with(n, 0, |shard, out| shard.reconnected(instance(peer), out));
            }
        }
    }

    pub(super) fn crash(&mut self, n: usize, land: bool) {
        self.config.crashes -= 1;
        let node = self.nodes[n].take().expect("enabled");
        if land {
            for (&block, frame) in &node.frames {
                if let Some(version) = frame.writing {
                    self.reach_disk(block, version);
                }
            }
        }
        let durable = node.durable - node.dropped;
        let member = Member {
            instance: instance(n),
            incarnation: node.incarnation,
        };
        // A life that no epoch has met has written nothing, and nobody recovers it.
        if self.plan.members.contains(&member) {
            self.dead.insert(member, node.redo[..durable].to_vec());
        } else {
            assert_eq!(durable, 0, "an instance that is no member writes nothing");
        }
        for b in 0..self.config.blocks {
            let block = dba(b);
            let survives = self.surviving_version(block);
            self.latest.insert(block, survives);
            for session in self
                .nodes
                .iter_mut()
                .flatten()
                .flat_map(|n| &mut n.sessions)
            {
                if session.block == block {
                    session.need = session.need.min(survives);
                }
            }
        }
    }

    /// The version that must not be lost: everything durable, and everything that a survivor holds.
    pub(super) fn surviving_version(&self, block: Dba) -> u64 {
        let dead = self.dead.values().flatten();
        let living = self.nodes.iter().flatten();
        let redo = living
            .clone()
            .flat_map(|n| &n.redo[..n.durable - n.dropped])
            .chain(dead)
            .filter(|v| v.block == block)
            .map(|v| v.after);
        let frames = living
            .clone()
            .filter_map(|n| n.frames.get(&block).filter(|f| f.loading.is_none()))
            .map(|f| f.version);
        let images = living.filter_map(|n| n.images.get(&block).copied());
        redo.chain(frames)
            .chain(images)
            .chain([self.disk[&block]])
            .max()
            .expect("disk has a version")
    }

    /// Decides the next epoch, as the holder of the control file's lock does.
    pub(super) fn decide(&mut self, remaster: Option<(usize, usize)>) {
        let alive: Vec<usize> = (0..self.config.nodes)
            .filter(|&n| self.nodes[n].is_some())
            .collect();
        self.plan.epoch = Epoch(self.plan.epoch.0 + 1);
        self.plan.members = alive
            .iter()
            .map(|&n| Member {
                instance: instance(n),
                incarnation: self.lives[n],
            })
            .collect();
        let living: Vec<InstanceId> = alive.iter().map(|&n| instance(n)).collect();
        crate::membership::assign_masters(&mut self.plan.masters, &living);
        if let Some((bucket, n)) = remaster {
            self.plan.masters[bucket] = instance(n);
        }
        self.plan.recovering = self.dead.keys().copied().collect();
        self.plan.recoverer = living[0];
        self.read_redo = self.dead.is_empty();
    }

    pub(super) fn enter(&mut self, n: usize) {
        let plan = self.plan.clone();
        self.with(n, 0, |shard, out| shard.reconfigure(plan, out));
    }
}
