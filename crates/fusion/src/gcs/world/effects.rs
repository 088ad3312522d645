//! What shards ask for, done to frames, disk and network; and what must hold after every step.

use super::*;

impl World {
    /// Runs a step of a node's shard and does what the shard asks for. `bytes`: the version that
    /// came with a message.
    pub(in crate::gcs) fn with(
        &mut self,
        n: usize,
        bytes: u64,
        step: impl FnOnce(&mut Shard, &mut Vec<Effect>),
    ) {
        let mut out = Vec::new();
        step(
            &mut self.nodes[n].as_mut().expect("the living act").shard,
            &mut out,
        );
        for effect in out {
            self.effect(n, bytes, effect);
        }
    }

    pub(super) fn post(&mut self, from: usize, to: InstanceId, message: Message, bytes: u64) {
        let to = node_of(to);
        let epoch = self.nodes[from]
            .as_ref()
            .expect("the living act")
            .shard
            .epoch();
        let term = self.nodes[from]
            .as_ref()
            .expect("the living act")
            .shard
            .term_of(&message);
        self.letters.push(Letter {
            from,
            to,
            life: self.lives[to],
            epoch,
            term,
            message,
            bytes,
        });
    }

    pub(super) fn effect(&mut self, n: usize, bytes: u64, effect: Effect) {
        match effect {
            Effect::Send { to, message } => self.post(n, to, message, 0),
            Effect::ShipCurrent { to, message } => self.ship_current(n, to, message),
            Effect::ShipCopy {
                to,
                block,
                id,
                snapshot,
            } => self.ship_copy(n, to, (block, id, snapshot)),
            Effect::ReadFromDisk {
                block,
                mode,
                generation,
            } => self.install(n, block, mode, generation, Some(false), 0, false),
            Effect::Recover { block, generation } => {
                self.install(n, block, Mode::Exclusive, generation, Some(true), 0, true);
            }
            Effect::Install {
                block,
                mode,
                generation,
                dirty,
            } => self.install(n, block, mode, generation, None, bytes, dirty),
            Effect::SetMode {
                block,
                mode,
                generation,
            } => {
                let frame = self.frame(n, block);
                frame.mode = Some(mode);
                frame.generation = generation;
                frame.closing = None;
            }
            Effect::MarkDirty { block } => self.frame(n, block).dirty = true,
            Effect::Close {
                block,
                keep,
                generation,
            } => self.begin_close(n, block, keep, generation),
            Effect::FlushLog { upto } => {
                let node = self.nodes[n].as_mut().expect("the living act");
                node.flush_wanted = node.flush_wanted.max(upto.0 as usize);
            }
            Effect::Write { block } => self.write(n, block),
            Effect::KeepImage { block, version } => {
                self.remove_frame(n, block);
                let node = self.nodes[n].as_mut().expect("the living act");
                node.images.insert(block, version.0);
            }
            Effect::Discard { block } => self.remove_frame(n, block),
            Effect::Forget { block, version } => {
                let node = self.nodes[n].as_mut().expect("the living act");
                if node.images.get(&block).is_some_and(|&v| v <= version.0) {
                    node.images.remove(&block);
                }
            }
            Effect::Run { block, waiter } => self.run(n, block, waiter),
            Effect::ReadCopy { waiter, .. } => {
                if let Some(session) = self.session(n, waiter) {
                    session.stage = Stage::Copy { version: bytes };
                }
            }
            // Sessions of this world use a copy within one step.
            Effect::DropCopies { .. } | Effect::MasterMoved { .. } => {}
            Effect::GranuleOpened { .. } => {}
            Effect::CloseThreads { dead } => self.close_threads(&dead),
        }
    }

    pub(super) fn remove_frame(&mut self, n: usize, block: Dba) {
        let node = self.nodes[n].as_mut().expect("the living act");
        if let Some(writing) = node.frames.remove(&block).and_then(|f| f.writing) {
            node.stray_writes.insert(block, writing);
        }
    }

    pub(super) fn ship_current(&mut self, n: usize, to: InstanceId, message: Message) {
        let Message::Block { block, version, .. } = message else {
            unreachable!("only blocks are shipped");
        };
        let node = self.nodes[n].as_ref().expect("the living act");
        let frame = node.frames.get(&block).map(|f| f.version);
        let here = frame.or(node.images.get(&block).copied());
        let mut unflushed = node.redo[node.durable - node.dropped..].iter();
        let early = unflushed.any(|v| v.block == block && v.after <= version.0);
        if here != Some(version.0) {
            self.fail("10: what was shipped is not what was closed");
        }
        if early {
            self.fail("R2: a current copy left before its redo was durable");
        }
        self.post(n, to, message, version.0);
    }

    pub(super) fn ship_copy(&mut self, n: usize, to: InstanceId, asked: (Dba, RequestId, Scn)) {
        let (block, id, snapshot) = asked;
        let node = self.nodes[n].as_ref().expect("the living act");
        let frame = node.frames.get(&block).map(|f| f.version);
        let version = frame
            .or(node.images.get(&block).copied())
            .expect("asked for");
        // The supplier's clock, counted in versions. It was lifted to the asker's snapshot.
        let clock = snapshot.max(Scn(version));
        self.post(n, to, Message::Copy { block, id, clock }, version);
        self.with(n, 0, |shard, out| shard.copied(block, Scn(version), out));
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a frame")]
    pub(super) fn install(
        &mut self,
        n: usize,
        block: Dba,
        mode: Mode,
        generation: Generation,
        loading: Option<bool>,
        version: u64,
        dirty: bool,
    ) {
        let node = self.nodes[n].as_mut().expect("the living act");
        let frame = Frame {
            version,
            mode: Some(mode),
            generation,
            dirty,
            redo: 0,
            closing: None,
            writing: None,
            write_wanted: dirty,
            loading,
        };
        node.frames.insert(block, frame);
    }

    pub(super) fn session(&mut self, n: usize, waiter: Waiter) -> Option<&mut Session> {
        let node = self.nodes[n].as_mut().expect("the living act");
        node.sessions.iter_mut().find(|s| s.waiter == waiter)
    }

    pub(super) fn run(&mut self, n: usize, block: Dba, waiter: Waiter) {
        let node = self.nodes[n].as_ref().expect("the living act");
        let frame = &node.frames[&block];
        let (version, generation) = (frame.version, frame.generation);
        if let Some(session) = self.session(n, waiter) {
            session.stage = Stage::Ready {
                version,
                generation,
                hit: false,
            };
        }
    }

    pub(super) fn begin_close(
        &mut self,
        n: usize,
        block: Dba,
        keep: Option<Mode>,
        generation: Generation,
    ) {
        let node = self.nodes[n].as_ref().expect("the living act");
        let now = node.frames[&block].generation;
        let guest = |s: &Session| {
            let woken =
                matches!(s.stage, Stage::Ready { generation, hit: false, .. } if generation == now);
            s.block == block && woken
        };
        if node.sessions.iter().any(guest) {
            self.fail("R7: a grant was recalled before its sessions had latched it");
        }
        let waits = self.frame(n, block).writing.is_some();
        if waits && !self.config.planted.breaks(Mutation::CloseDuringWrite) {
            self.frame(n, block).closing = Some((keep, generation));
        } else {
            self.close(n, block, keep, generation);
        }
    }

    pub(super) fn close(
        &mut self,
        n: usize,
        block: Dba,
        keep: Option<Mode>,
        generation: Generation,
    ) {
        let frame = self.frame(n, block);
        frame.closing = None;
        frame.mode = keep;
        frame.generation = generation;
        let found = Closed {
            version: Scn(frame.version),
            dirty: frame.dirty,
            redo: LogPos(frame.redo as u64),
        };
        self.with(n, 0, |shard, out| {
            shard.closed(block, generation, found, out)
        });
    }

    pub(super) fn write(&mut self, n: usize, block: Dba) {
        let node = self.nodes[n].as_mut().expect("the living act");
        let Some(frame) = node.frames.get_mut(&block) else {
            return;
        };
        let version = Scn(frame.version);
        if frame.dirty {
            frame.write_wanted = true;
            node.flush_wanted = node.flush_wanted.max(frame.redo);
        } else {
            self.with(n, 0, |shard, out| shard.wrote(block, version, out));
        }
    }

    pub(super) fn close_threads(&mut self, closed: &BTreeSet<Member>) {
        for member in closed {
            for vector in self.dead.remove(member).into_iter().flatten() {
                if self.disk[&vector.block] < vector.after {
                    self.fail("18: a dead thread was closed before its changes were on disk");
                }
            }
        }
    }

    // ---- what must hold ----

    /// Lets every instance advance its checkpoint as far as it may, at every step: the hardest case
    /// for R5.
    pub(super) fn truncate(&mut self) {
        let mut lost = false;
        for node in self.nodes.iter_mut().flatten() {
            while let Some(&Vector { block, after }) = node.redo.first() {
                let frame = node.frames.get(&block);
                let dirty = frame.is_some_and(|f| f.dirty || f.loading.is_some());
                let image = node.images.get(&block).is_some_and(|&v| v >= after);
                if node.dropped == node.durable || dirty || image {
                    break;
                }
                lost |= self.disk[&block] < after;
                node.redo.remove(0);
                node.dropped += 1;
            }
        }
        if lost {
            self.fail("R5: a checkpoint passed redo that is not on disk");
        }
    }

    pub(super) fn check(&mut self) {
        for b in 0..self.config.blocks {
            let block = dba(b);
            let (mut shared, mut exclusive) = (0, 0);
            for node in self.nodes.iter().flatten() {
                let Some(frame) = node.frames.get(&block) else {
                    continue;
                };
                match frame.mode {
                    Some(Mode::Shared) => shared += 1,
                    Some(Mode::Exclusive) => exclusive += 1,
                    None => {}
                }
                let usable = frame.mode.is_some() && frame.loading.is_none();
                if usable && frame.version != self.latest[&block] {
                    self.violation
                        .get_or_insert("R1: a current copy is not the newest version".into());
                }
            }
            if exclusive > 1 || (exclusive == 1 && shared > 0) {
                self.fail("R1: an exclusive holder is not alone");
            }
        }
    }

    /// Describes the action, with the message that it is about, for reading a replayed seed.
    pub(in crate::gcs) fn describe(&self, action: &Action) -> String {
        match action {
            Action::Deliver(l) | Action::Duplicate(l) => {
                let letter = &self.letters[*l];
                let (from, to) = (letter.from, letter.to);
                let (epoch, term, message) = (letter.epoch.0, letter.term, &letter.message);
                format!("{action:?} {from}->{to} e{epoch} {term:?} {message:?}")
            }
            _ => format!("{action:?}"),
        }
    }

    /// How many sessions have done their work.
    pub(in crate::gcs) fn finished(&self) -> usize {
        let waiting: usize = self.nodes.iter().flatten().map(|n| n.sessions.len()).sum();
        self.next_session - waiting
    }

    pub(in crate::gcs) fn bucket(&self, block: Dba) -> usize {
        usize::from(bucket_of(block, self.plan.masters.len() as u16))
    }

    pub(in crate::gcs) fn images(&self) -> Vec<(usize, Dba)> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .flat_map(|(n, node)| {
                let images = node.iter().flat_map(|node| node.images.keys());
                images.map(move |&b| (n, b))
            })
            .collect()
    }

    /// Whether nothing is frozen anywhere.
    pub(in crate::gcs) fn is_whole(&self) -> bool {
        self.nodes.iter().flatten().all(|n| n.shard.is_whole())
    }

    pub(in crate::gcs) fn recovering(&self) -> bool {
        !self.dead.is_empty()
    }
}
