//! How the master serves requests: one at a time for each block, in order, with readers on the
//! side.

use super::*;

impl Master {
    pub(in crate::gcs) fn request(
        &mut self,
        block: Dba,
        from: InstanceId,
        (id, floor): (RequestId, RequestId),
        (want, have): (Want, Option<Turn>),
        out: &mut Vec<Effect>,
    ) {
        let halted = self.halted(block);
        let served = self.served.entry(from).or_default();
        served.raise(floor);
        if self.is_done(block, from, id) {
            return;
        }
        let entry = self.entry_for_later(block);
        let in_service = entry
            .service
            .as_ref()
            .is_some_and(|s| (s.request.from, s.request.id) == (from, id));
        if in_service {
            self.drive(block, out);
            return;
        }
        if entry.queue.iter().any(|r| (r.from, r.id) == (from, id)) {
            return;
        }
        if entry.service.is_none() && !halted {
            entry.believe(from, have);
        }
        let parked = halted || entry.reader_is_forwarded();
        if let Want::Read { snapshot } = want
            && parked
        {
            let to = from;
            entry.reads.insert(Reader { to, id, snapshot });
            self.serve_readers(block, out);
            return;
        }
        let mode = want.mode();
        entry.queue.push_back(Request {
            from,
            id,
            mode,
            have,
        });
        self.pump(block, out);
    }

    /// Whether a request is a late copy of one that was served already (13). The master looks at
    /// this when a request arrives and when its turn comes.
    pub(super) fn is_done(&self, block: Dba, from: InstanceId, id: RequestId) -> bool {
        if self.planted.breaks(Mutation::ForgetRequests) {
            return false;
        }
        let served = self.served.get(&from);
        let done = served.is_some_and(|s| id < s.floor || s.done.contains(&id));
        let holding = self
            .entries
            .get(&block)
            .and_then(|e| e.holders.get(&from))
            .is_some_and(|h| h.id >= id);
        done || holding
    }

    /// Forgets parked requests that were served meanwhile in another way.
    pub(super) fn drop_done(&mut self, block: Dba) {
        let Some(entry) = self.entries.get(&block) else {
            return;
        };
        let (queue, reads) = (entry.queue.clone(), entry.reads.clone());
        let live = |from, id| !self.is_done(block, from, id);
        let queue = queue.into_iter().filter(|r| live(r.from, r.id)).collect();
        let reads = reads.into_iter().filter(|r| live(r.to, r.id)).collect();
        let entry = self.entries.get_mut(&block).expect("looked up above");
        entry.queue = queue;
        entry.reads = reads;
    }

    /// Sends parked readers to the holder that has the block now. Readers stay parked only while
    /// the block is between two instances.
    pub(super) fn serve_readers(&mut self, block: Dba, out: &mut Vec<Effect>) {
        if self.halted(block) {
            return;
        }
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let Some((holder, turn)) = entry.who_can_copy() else {
            return;
        };
        for reader in std::mem::take(&mut entry.reads) {
            let Reader { to, id, snapshot } = reader;
            if to == holder {
                entry.reads.insert(reader); // the reader has just given the block away
                continue;
            }
            let message = Message::ReadFor {
                block,
                turn,
                to,
                id,
                snapshot,
            };
            out.push(Effect::Send {
                to: holder,
                message,
            });
        }
    }

    /// The holder that a reader was sent to has given the block away meanwhile. A late notice is
    /// about an ownership before the recorded one, and says nothing about the recorded one.
    pub(in crate::gcs) fn read_back(
        &mut self,
        block: Dba,
        (from, turn): (InstanceId, Turn),
        (to, id, snapshot): (InstanceId, RequestId, Scn),
        out: &mut Vec<Effect>,
    ) {
        let halted = self.halted(block);
        let entry = self.entry_for_later(block);
        entry.reads.insert(Reader { to, id, snapshot });
        let recorded = entry.holders.get(&from).is_some_and(|h| h.turn == turn);
        match &mut entry.service {
            // The block reaches its requester at any moment; then the reader is sent there.
            Some(service) => {
                let supplier = from;
                service.left |= recorded && service.phase == (Phase::Shipping { supplier });
                self.serve_readers(block, out);
            }
            None => {
                if recorded && !halted {
                    entry.holders.remove(&from); // its release notice was lost
                }
                self.pump(block, out);
            }
        }
    }

    /// Serves the next request, if none is being served.
    pub(in crate::gcs) fn pump(&mut self, block: Dba, out: &mut Vec<Effect>) {
        self.drop_done(block);
        let halted = self.halted(block);
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        if entry.service.is_some() || halted {
            return;
        }
        // An instance that asks to read anew has let go of its recorded copy, whatever becomes of
        // its notice.
        for reader in &entry.reads {
            entry.holders.remove(&reader.to);
        }
        if !entry.reads.is_empty() {
            if entry.reader_is_forwarded() {
                self.serve_readers(block, out);
            } else {
                entry.queue_readers();
            }
        }
        let entry = self.entries.get_mut(&block).expect("looked up above");
        if std::mem::take(&mut entry.write_wanted) {
            self.write_wanted(block, out);
        }
        let entry = self.entries.get_mut(&block).expect("looked up above");
        let next = if self.planted.breaks(Mutation::ServeTheLatest) {
            entry.queue.pop_back()
        } else {
            entry.queue.pop_front()
        };
        let Some(request) = next else {
            self.tidy(block);
            return;
        };
        entry.believe(request.from, request.have);
        let phase = entry.first_phase(request, self.planted);
        let turn = self.turn(block);
        let entry = self.entries.get_mut(&block).expect("looked up above");
        entry.service = Some(Service {
            request,
            turn,
            phase,
            dirty: false,
            left: false,
        });
        self.drive(block, out);
    }

    /// Sends the orders of the service's phase, for the first time or again. Every receiver
    /// tolerates repetitions.
    pub(in crate::gcs) fn drive(&mut self, block: Dba, out: &mut Vec<Effect>) {
        let Some(Service {
            request,
            turn,
            phase,
            ..
        }) = self.entries.get(&block).and_then(|e| e.service.as_ref())
        else {
            return;
        };
        let (turn, id, mode) = (*turn, request.id, request.mode);
        match phase {
            Phase::Invalidating { missing, .. } => {
                for &to in missing {
                    let message = Message::Invalidate { block, turn };
                    out.push(Effect::Send { to, message });
                }
            }
            Phase::Shipping { supplier } => {
                let message = Message::Ship {
                    block,
                    turn,
                    to: request.from,
                    id,
                    mode,
                };
                out.push(Effect::Send {
                    to: *supplier,
                    message,
                });
            }
            &Phase::Granting { source } => {
                let message = Message::Grant {
                    block,
                    id,
                    turn,
                    mode,
                    source,
                };
                out.push(Effect::Send {
                    to: request.from,
                    message,
                });
            }
            Phase::Inheriting => {
                let to = request.from;
                let have = request.have.expect("a holder inherits");
                let message = Message::Inherit { block, turn, have };
                out.push(Effect::Send { to, message });
            }
            Phase::Recovering => {
                let message = Message::Recover { block, turn };
                out.push(Effect::Send {
                    to: request.from,
                    message,
                });
            }
        }
    }

    pub(in crate::gcs) fn invalidated(
        &mut self,
        block: Dba,
        from: InstanceId,
        turn: Turn,
        image: Option<Scn>,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let Some(service) = entry.service.as_mut().filter(|s| s.turn == turn) else {
            return;
        };
        let Phase::Invalidating { missing, keeper } = &mut service.phase else {
            return;
        };
        if !missing.remove(&from) {
            return;
        }
        entry.holders.remove(&from);
        if let Some(version) = image {
            service.dirty = true;
            entry.images.insert(from, version);
        }
        if !missing.is_empty() {
            return;
        }
        service.phase = if *keeper == service.request.from {
            let dirty = service.dirty;
            Phase::Granting {
                source: Source::Own { dirty },
            }
        } else {
            Phase::Shipping { supplier: *keeper }
        };
        self.drive(block, out);
        self.serve_readers(block, out);
    }

    /// The supplier has let go meanwhile: the master asks the next one, or sends the requester to
    /// disk.
    pub(in crate::gcs) fn not_held(
        &mut self,
        block: Dba,
        from: InstanceId,
        turn: Turn,
        recoverer: InstanceId,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let Some(service) = entry.service.as_mut().filter(|s| s.turn == turn) else {
            return;
        };
        if service.phase == Phase::Inheriting {
            entry.service = None;
            entry.holders.remove(&from);
            self.inherit(block, recoverer, out);
            return;
        }
        if service.phase != (Phase::Shipping { supplier: from }) {
            return;
        }
        entry.holders.remove(&from);
        let request = service.request;
        let next = entry.holders.keys().find(|&&i| i != request.from).copied();
        let service = entry.service.as_mut().expect("looked up above");
        service.phase = match next {
            Some(supplier) => {
                service.left = false;
                Phase::Shipping { supplier }
            }
            None => {
                assert!(!service.dirty, "the dirty copy is the supplier");
                Phase::Granting {
                    source: Source::Disk,
                }
            }
        };
        if next.is_none() {
            self.disk_is_newest(block, out);
        }
        self.drive(block, out);
        self.serve_readers(block, out);
    }

    /// Ends the service: the requester has what it asked for.
    pub(in crate::gcs) fn done(
        &mut self,
        block: Dba,
        from: InstanceId,
        (id, floor, turn): (RequestId, RequestId, Turn),
        (holds, image): (bool, Option<(InstanceId, Scn)>),
        out: &mut Vec<Effect>,
    ) {
        let served = self.served.entry(from).or_default();
        served.raise(floor);
        if id >= served.floor {
            served.done.insert(id);
        }
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let current = |s: &&mut Service| s.turn == turn && s.request.from == from;
        let Some(service) = entry.service.as_mut().filter(current) else {
            return;
        };
        let mode = service.request.mode;
        entry.service = None;
        match mode {
            Mode::Exclusive => entry.holders.clear(),
            Mode::Shared => entry
                .holders
                .values_mut()
                .for_each(|h| h.mode = Mode::Shared),
        }
        if holds {
            let duty = mode == Mode::Exclusive;
            let holding = Holding {
                mode,
                turn,
                id,
                duty,
            };
            entry.holders.insert(from, holding);
        }
        if let Some((supplier, version)) = image {
            entry.images.insert(supplier, version);
        }
        self.pump(block, out);
    }
}
