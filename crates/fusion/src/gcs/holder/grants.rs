//! Taking possession of blocks, and what a change of epoch means for them.

use super::*;

impl Holder {
    pub(in crate::gcs) fn granted(
        &mut self,
        from: InstanceId,
        message: Message,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let (block, id, turn) = match message {
            Message::Grant {
                block, id, turn, ..
            }
            | Message::Block {
                block, id, turn, ..
            } => (block, id, turn),
            _ => unreachable!("only grants come here"),
        };
        let image = match message {
            Message::Block {
                version,
                dirty: true,
                mode: Mode::Exclusive,
                ..
            } => Some((from, version)),
            _ => None,
        };
        let local = self.blocks.entry(block).or_default();
        if local.wanted.is_some_and(|(wanted, _)| wanted == id) {
            local.wanted = None;
            self.outstanding.remove(&id);
            self.take(message, out);
        }
        let local = self.blocks.get_mut(&block).expect("entered above");
        let holds = local.held.as_ref().is_some_and(|h| h.turn == turn);
        let message = Message::Done {
            block,
            id,
            floor: self.floor(),
            turn,
            holds,
            image,
        };
        let to = master(block);
        out.push(Effect::Send { to, message });
        self.unpark(block, master, out);
        self.tidy(block);
    }

    /// Takes possession.
    pub(super) fn take(&mut self, message: Message, out: &mut Vec<Effect>) {
        let generation = self.generation();
        let (block, id, turn, mode) = match message {
            Message::Grant {
                block,
                id,
                turn,
                mode,
                ..
            }
            | Message::Block {
                block,
                id,
                turn,
                mode,
                ..
            } => (block, id, turn, mode),
            _ => unreachable!("only grants come here"),
        };
        let local = self.blocks.get_mut(&block).expect("requested");
        let mut guests = BTreeSet::new();
        local.queue.retain(|&(waiter, want)| {
            let served = want.mode() <= mode;
            if served {
                guests.insert(waiter);
            }
            !served
        });
        let (installed, duty, version) = match message {
            Message::Grant {
                source: Source::Disk,
                ..
            } => {
                out.push(Effect::ReadFromDisk {
                    block,
                    mode,
                    generation,
                });
                (false, false, Scn::ZERO)
            }
            Message::Grant {
                source: Source::Own { dirty },
                ..
            } => {
                let held = local
                    .held
                    .as_ref()
                    .expect("a copy is not given up while its upgrade is asked for");
                assert!(held.closing.is_none(), "turns of one block overlap");
                out.push(Effect::SetMode {
                    block,
                    mode,
                    generation,
                });
                if dirty {
                    out.push(Effect::MarkDirty { block });
                }
                (held.installed, held.duty || dirty, held.copies.0)
            }
            Message::Block { version, dirty, .. } => {
                out.push(Effect::Install {
                    block,
                    mode,
                    generation,
                    dirty,
                });
                (true, dirty, version)
            }
            _ => unreachable!("only grants come here"),
        };
        if installed {
            for &waiter in &guests {
                out.push(Effect::Run { block, waiter });
            }
        }
        local.held = Some(Held {
            mode,
            turn,
            id,
            generation,
            installed,
            duty,
            notify: duty,
            guests,
            closing: None,
            copies: (version, 0),
        });
    }

    pub(in crate::gcs) fn copy_arrived(
        &mut self,
        from: InstanceId,
        (block, id, clock): (Dba, RequestId, Scn),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        if local.wanted.is_none_or(|(wanted, _)| wanted != id) {
            return;
        }
        local.wanted = None;
        self.outstanding.remove(&id);
        local.queue.retain(|&(waiter, want)| {
            // Who came later, with a snapshot beyond the copy, asks again.
            let served = matches!(want, Want::Read { snapshot } if snapshot <= clock);
            if served {
                out.push(Effect::ReadCopy {
                    block,
                    waiter,
                    supplier: from,
                });
            }
            !served
        });
        self.advance(block, master, out);
        self.tidy(block);
    }

    // ---- reconnection, reconfiguration, recovery ----

    /// Sends outstanding requests again whose master is `to`, or all.
    pub(in crate::gcs) fn ask_again(
        &self,
        to: Option<InstanceId>,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        for &block in self.blocks.keys() {
            if to.is_none_or(|to| to == master(block)) {
                self.ask(block, master, out);
            }
        }
    }

    /// A new epoch: orders under way are void, what was closed for them is opened again.
    pub(in crate::gcs) fn new_epoch(&mut self, out: &mut Vec<Effect>) {
        self.flushing.clear();
        self.recoveries.clear();
        let blocks: Vec<Dba> = self.blocks.keys().copied().collect();
        for block in blocks {
            let local = self.blocks.get_mut(&block).expect("just listed");
            local.parked = None;
            local.parked_reads.clear();
            if let Some(image) = &mut local.image {
                image.turn = None;
            }
            if local.held.as_ref().is_some_and(|h| h.closing.is_some()) {
                self.reopen(block, out);
            }
        }
    }

    /// After the epoch's new masters are known: local sessions go on, requests are driven again.
    pub(in crate::gcs) fn resume(&mut self, master: MasterOf, out: &mut Vec<Effect>) {
        self.ask_again(None, master, out);
        let blocks: Vec<Dba> = self.blocks.keys().copied().collect();
        for block in blocks {
            self.advance(block, master, out);
        }
    }

    pub(in crate::gcs) fn declare(&self, within: impl Fn(Dba) -> bool) -> Vec<(Dba, Declaration)> {
        self.blocks
            .iter()
            .filter(|(block, _)| within(**block))
            .map(|(&block, local)| {
                let held = local.held.as_ref().map(|h| DeclaredHold {
                    mode: h.mode,
                    turn: h.turn,
                    id: h.id,
                    duty: h.duty || h.mode == Mode::Exclusive,
                });
                let image = local.image.map(|i| i.version);
                (block, Declaration { held, image })
            })
            .filter(|(_, d)| *d != Declaration::default())
            .collect()
    }

    /// Brings a block back and owns it from now on. Whatever was asked for here is thereby served.
    pub(in crate::gcs) fn recover(
        &mut self,
        block: Dba,
        turn: Turn,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let generation = self.generation();
        let id = RequestId(self.last_id);
        let local = self.blocks.entry(block).or_default();
        let known = self.recoveries.get(&block).copied();
        match &local.held {
            None if known.is_some_and(|(taken, _)| taken > turn) => return,
            None if known.is_some_and(|(taken, _)| taken == turn) => {} // written and let go
            None => {
                let served = local.wanted.take().map(|(id, _)| id);
                if let Some(wanted) = served {
                    self.outstanding.remove(&wanted);
                }
                self.recoveries.insert(block, (turn, served));
                let queue = std::mem::take(&mut local.queue);
                local.held = Some(Held {
                    mode: Mode::Exclusive,
                    turn,
                    id,
                    generation,
                    installed: false,
                    duty: true,
                    notify: true,
                    guests: queue.into_iter().map(|(waiter, _)| waiter).collect(),
                    closing: None,
                    copies: (Scn::ZERO, 0),
                });
                out.push(Effect::Recover { block, generation });
            }
            Some(held) if held.turn == turn => {}
            Some(_) => return, // late
        }
        let to = master(block);
        let local = &self.blocks[&block];
        let id = local.held.as_ref().map_or(id, |h| h.id);
        let served = self.recoveries.get(&block).and_then(|(_, id)| *id);
        let message = Message::Recovered {
            block,
            turn,
            id,
            served,
            holds: local.held.is_some(),
        };
        out.push(Effect::Send { to, message });
        self.tidy(block);
    }

    /// Forgets blocks in which this instance has no part any more.
    pub(super) fn tidy(&mut self, block: Dba) {
        if self.blocks.get(&block) == Some(&Local::default()) {
            self.blocks.remove(&block);
        }
    }
}
