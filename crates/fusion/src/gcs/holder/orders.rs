//! What the holder does when the master (or a reader through it) wants the block.

use super::*;

impl Holder {
    pub(in crate::gcs) fn ship(
        &mut self,
        order: (Dba, Turn, InstanceId, RequestId, Mode),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let (block, turn, to, id, mode) = order;
        self.order(block, Order::Ship { turn, to, id, mode }, master, out);
    }

    pub(in crate::gcs) fn invalidate(
        &mut self,
        block: Dba,
        turn: Turn,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        self.order(block, Order::Invalidate { turn }, master, out);
    }

    pub(super) fn order(
        &mut self,
        block: Dba,
        order: Order,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let turn = order.turn().expect("orders of a master have a turn");
        let local = self.blocks.entry(block).or_default();
        let Some(held) = &mut local.held else {
            self.order_without_copy(block, order, master, out);
            return;
        };
        if turn <= held.turn && !self.planted.breaks(Mutation::IgnoreTurns) {
            return;
        }
        if !held.installed && self.planted.breaks(Mutation::AnswerBeforeInstallation) {
            self.order_without_copy(block, order, master, out);
            return;
        }
        let current = held.closing.as_ref().and_then(|c| c.order.turn());
        if current != Some(turn) {
            local.parked = Some(order);
        }
        self.unpark(block, master, out);
    }

    /// Answers an order for a copy that is gone: repeats what was sent, or says that the copy is
    /// gone.
    pub(super) fn order_without_copy(
        &mut self,
        block: Dba,
        order: Order,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let image = self.blocks[&block].image;
        let reply = match (order, image) {
            (
                Order::Ship { turn, to, id, mode },
                Some(Image {
                    version,
                    turn: Some(taken),
                    given: Some(given),
                }),
            ) if (taken, given) == (turn, (to, id)) => {
                let message = Message::Block {
                    block,
                    id,
                    turn,
                    mode,
                    version,
                    dirty: true,
                };
                out.push(Effect::ShipCurrent { to, message });
                return;
            }
            (Order::Invalidate { turn }, _) => Message::Invalidated {
                block,
                turn,
                // An image of an earlier turn says nothing about the copy that this order takes
                // back.
                image: image.filter(|i| i.turn == Some(turn)).map(|i| i.version),
            },
            (order, _) => Message::NotHeld {
                block,
                turn: order.turn().expect("orders of a master have a turn"),
            },
        };
        let to = master(block);
        out.push(Effect::Send { to, message: reply });
        self.tidy(block);
    }

    /// Begins a parked order as soon as nothing stands against it.
    pub(super) fn unpark(&mut self, block: Dba, master: MasterOf, out: &mut Vec<Effect>) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        if let (None, Some(order)) = (&local.held, local.parked) {
            local.parked = None; // the copy went in another way before
            self.order_without_copy(block, order, master, out);
            self.advance(block, master, out);
            return;
        }
        let recallable = self.planted.breaks(Mutation::RecallFromGuests);
        let ready = local
            .held
            .as_ref()
            .is_some_and(|h| h.idle() || (recallable && h.installed && h.closing.is_none()));
        match local.parked {
            Some(order) if ready => {
                local.parked = None;
                self.close(block, order, out);
                self.ship_shared_at_once(block, master, out);
            }
            Some(_) => {}
            None => self.advance(block, master, out),
        }
    }

    pub(super) fn close(&mut self, block: Dba, order: Order, out: &mut Vec<Effect>) {
        let generation = self.generation();
        let held = self
            .blocks
            .get_mut(&block)
            .and_then(|l| l.held.as_mut())
            .expect("only a copy that is held is closed");
        held.closing = Some(Closing { order, found: None });
        if order.keep() == Some(held.mode) {
            return; // a shared copy shipped to another reader stays as it is
        }
        held.generation = generation;
        out.push(Effect::Close {
            block,
            keep: order.keep(),
            generation,
        });
    }

    /// Ships a shared copy without closing it: its redo was flushed when it became shared.
    pub(super) fn ship_shared_at_once(
        &mut self,
        block: Dba,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let local = self.blocks.get_mut(&block).expect("just closed");
        let Some(held) = &mut local.held else { return };
        let shared = held.mode == Mode::Shared;
        match &held.closing {
            Some(Closing {
                order:
                    order @ Order::Ship {
                        mode: Mode::Shared, ..
                    },
                found: None,
            }) if shared => {
                let order = *order;
                held.closing = None;
                let version = held.copies.0;
                self.send_current(block, order, version, false, out);
                self.unpark(block, master, out);
            }
            _ => {}
        }
    }

    pub(super) fn send_current(
        &self,
        block: Dba,
        order: Order,
        version: Scn,
        dirty: bool,
        out: &mut Vec<Effect>,
    ) {
        if let Order::Ship { turn, to, id, mode } = order {
            let message = Message::Block {
                block,
                id,
                turn,
                mode,
                version,
                dirty,
            };
            out.push(Effect::ShipCurrent { to, message });
        }
    }

    /// Sends the closed copy where the order says, once its redo is durable.
    pub(super) fn finish_closing(&mut self, block: Dba, master: MasterOf, out: &mut Vec<Effect>) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        let Some(held) = &mut local.held else { return };
        let Some(Closing {
            order,
            found: Some(found),
        }) = held.closing.clone()
        else {
            return; // given up at a change of epoch
        };
        held.closing = None;
        let to = master(block);
        match order {
            Order::Evict if found.dirty => self.reopen(block, out),
            Order::Evict => {
                let message = Message::Released {
                    block,
                    turn: held.turn,
                };
                local.held = None;
                out.push(Effect::Discard { block });
                out.push(Effect::Send { to, message });
            }
            Order::StepDown => {
                held.mode = Mode::Shared;
                held.copies = (found.version, 0);
                let message = Message::SteppedDown {
                    block,
                    turn: held.turn,
                };
                out.push(Effect::Send { to, message });
            }
            Order::Ship {
                mode: Mode::Shared, ..
            } => {
                held.mode = Mode::Shared;
                held.copies = (found.version, 0);
                self.send_current(block, order, found.version, false, out);
            }
            Order::Ship { turn, to, id, .. } => {
                self.send_current(block, order, found.version, found.dirty, out);
                self.give_up(block, found, (turn, Some((to, id))), out);
            }
            Order::Invalidate { turn } => {
                let image = found.dirty.then_some(found.version);
                self.give_up(block, found, (turn, None), out);
                let message = Message::Invalidated { block, turn, image };
                out.push(Effect::Send { to, message });
            }
        }
        self.unpark(block, master, out);
    }

    /// Gives up the copy, which another instance owns now. A dirty copy leaves its past image.
    pub(super) fn give_up(
        &mut self,
        block: Dba,
        found: Closed,
        (turn, given): (Turn, Option<(InstanceId, RequestId)>),
        out: &mut Vec<Effect>,
    ) {
        let local = self.blocks.get_mut(&block).expect("held until now");
        local.held = None;
        if found.dirty && !self.planted.breaks(Mutation::NoPastImage) {
            let version = found.version;
            local.image = Some(Image {
                version,
                turn: Some(turn),
                given,
            });
            out.push(Effect::KeepImage { block, version });
        } else {
            out.push(Effect::Discard { block });
        }
    }

    /// Makes the frame usable again, under a new generation, because its closing came to nothing.
    pub(super) fn reopen(&mut self, block: Dba, out: &mut Vec<Effect>) {
        let generation = self.generation();
        let local = self.blocks.get_mut(&block).expect("held");
        let held = local.held.as_mut().expect("held");
        held.closing = None;
        held.generation = generation;
        let mode = held.mode;
        out.push(Effect::SetMode {
            block,
            mode,
            generation,
        });
    }

    pub(in crate::gcs) fn read_for(
        &mut self,
        block: Dba,
        (turn, to, id, snapshot): (Turn, InstanceId, RequestId, Scn),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        if to == self.me {
            self.read_for_myself(block, id, master, out);
            return;
        }
        let copy = Effect::ShipCopy {
            to,
            block,
            id,
            snapshot,
        };
        let local = self.blocks.get_mut(&block);
        let image = local.as_ref().is_some_and(|l| l.image.is_some());
        let waits = self.planted.breaks(Mutation::ReadersWaitForFlush);
        let ready = |h: &Held| h.installed && !(waits && h.closing.is_some());
        match local.and_then(|l| l.held.as_ref().map(ready).map(|r| (l, r))) {
            Some((_, true)) => out.push(copy),
            Some((local, false)) => {
                local.parked_reads.insert((to, id, snapshot, turn));
            }
            None if image && self.planted.breaks(Mutation::CopyFromPastImage) => {
                out.push(copy);
            }
            None => {
                let message = Message::ReadBack {
                    block,
                    turn,
                    to,
                    id,
                    snapshot,
                };
                let to = master(block);
                out.push(Effect::Send { to, message });
            }
        }
    }

    /// Serves a reader of this instance that asked for the block before the instance came to own it
    /// by a recovery.
    pub(super) fn read_for_myself(
        &mut self,
        block: Dba,
        id: RequestId,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        if let Some(local) = self.blocks.get_mut(&block)
            && local.wanted.is_some_and(|(wanted, _)| wanted == id)
        {
            local.wanted = None;
            self.outstanding.remove(&id);
            self.unpark(block, master, out);
        }
    }

    /// A copy of this version went to a reader. An exclusive holder that only serves readers steps
    /// down.
    pub(in crate::gcs) fn copied(&mut self, block: Dba, version: Scn, out: &mut Vec<Effect>) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        let Some(held) = &mut local.held else { return };
        if held.mode != Mode::Exclusive {
            return;
        }
        let count = if held.copies.0 == version {
            held.copies.1 + 1
        } else {
            1
        };
        held.copies = (version, count.min(STEP_DOWN_AFTER_COPIES));
        let idle = held.idle() && local.parked.is_none() && local.wanted.is_none();
        let stays = self.planted.breaks(Mutation::NeverStepDown);
        if count >= STEP_DOWN_AFTER_COPIES && idle && !stays {
            self.close(block, Order::StepDown, out);
        }
    }

    /// Brings the version that is held under `turn`, or a later one, to disk, as the master wants.
    pub(in crate::gcs) fn write_order(
        &mut self,
        block: Dba,
        turn: Turn,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let held = self.blocks.get_mut(&block).and_then(|l| l.held.as_mut());
        match held {
            // A clean copy that this instance got since says nothing about what is on disk.
            Some(held) if held.turn == turn || held.turn > turn && held.duty => {
                held.notify = true;
                if held.installed {
                    out.push(Effect::Write { block });
                }
            }
            _ => {
                let message = Message::Released { block, turn };
                let to = master(block);
                out.push(Effect::Send { to, message });
            }
        }
    }

    /// Takes over the duty to write a copy whose owner is dead. From here on the copy is dirty, so
    /// it is not let go before it is written (17b).
    pub(in crate::gcs) fn inherit(
        &mut self,
        block: Dba,
        (turn, have): (Turn, Turn),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let held = self.blocks.get_mut(&block).and_then(|l| l.held.as_mut());
        let message = match held {
            Some(held) if held.turn == have => {
                held.duty = true;
                held.notify = true;
                out.push(Effect::MarkDirty { block });
                Message::Inherited { block, turn }
            }
            _ => Message::NotHeld { block, turn },
        };
        let to = master(block);
        out.push(Effect::Send { to, message });
    }

    pub(in crate::gcs) fn written(&mut self, block: Dba, version: Scn, out: &mut Vec<Effect>) {
        let Some(local) = self.blocks.get_mut(&block) else {
            return;
        };
        if local.image.is_some_and(|i| i.version <= version) {
            local.image = None;
        }
        out.push(Effect::Forget { block, version });
        self.tidy(block);
    }
}
