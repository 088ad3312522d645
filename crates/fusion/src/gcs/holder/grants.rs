//! How the holder takes possession of blocks, and what a change of epoch means for them.

use super::*;
use crate::gcs::bucket_of;
use crate::gcs::masters::Masters;
use std::ops::Bound;

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

    /// Takes possession of the block that a grant or a shipment gives.
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
            // A session that came later, with a snapshot beyond the copy, asks again.
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

    /// Sends outstanding requests for these blocks again.
    pub(in crate::gcs) fn ask_again(
        &self,
        blocks: &RangeInclusive<Dba>,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        for &block in self.outstanding.values().filter(|b| blocks.contains(b)) {
            self.ask(block, master, out);
        }
    }

    /// Voids the orders under way for these blocks, which have a new epoch or a new term. Frames
    /// that were closed for such orders open again. Returns the blocks that sessions wait for.
    pub(in crate::gcs) fn void_orders(
        &mut self,
        blocks: &RangeInclusive<Dba>,
        out: &mut Vec<Effect>,
    ) -> Vec<Dba> {
        self.flushing.retain(|(_, block)| !blocks.contains(block));
        self.recoveries.retain(|block, _| !blocks.contains(block));
        let (mut closed, mut waited, mut idle) = (Vec::new(), Vec::new(), Vec::new());
        for (&block, local) in self.blocks.range_mut(blocks.clone()) {
            let parked = local.parked.take().is_some() || !local.parked_reads.is_empty();
            local.parked_reads.clear();
            if let Some(image) = &mut local.image {
                image.turn = None;
            }
            if local.held.as_ref().is_some_and(|h| h.closing.is_some()) {
                closed.push(block);
            }
            if !local.queue.is_empty() {
                waited.push(block);
            } else if parked {
                idle.push(block);
            }
        }
        for block in closed {
            self.reopen(block, out);
        }
        for block in idle {
            self.tidy(block);
        }
        waited
    }

    /// Lets local sessions go on and drives requests again, after the new masters of these blocks
    /// are known.
    pub(in crate::gcs) fn resume(
        &mut self,
        blocks: &RangeInclusive<Dba>,
        waited: &[Dba],
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        self.ask_again(blocks, master, out);
        for &block in waited {
            self.advance(block, master, out);
        }
    }

    /// The first part of the declaration of each of these hash buckets, in one pass. Blocks of
    /// granules that some instance took are declared, too: the asker need not know of the same
    /// granules.
    pub(in crate::gcs) fn declare_buckets(
        &self,
        buckets: &BTreeSet<u16>,
        masters: &Masters,
        limit: usize,
    ) -> BTreeMap<u16, Part> {
        let mut parts: BTreeMap<u16, Part> =
            buckets.iter().map(|&b| (b, Part::default())).collect();
        for (&block, local) in &self.blocks {
            if let Some(part) = parts.get_mut(&bucket_of(block, masters.buckets())) {
                declare_into(part, block, local, limit);
            }
        }
        parts
    }

    /// The first part of a granule's declaration, or the next part of a bucket's declaration.
    pub(in crate::gcs) fn declare_behind(
        &self,
        (bucket, after): (Bucket, Option<Dba>),
        masters: &Masters,
        limit: usize,
    ) -> Part {
        let mut part = Part::default();
        let (first, last) = match bucket {
            Bucket::Hash(_) => (Bound::Unbounded, Bound::Unbounded),
            Bucket::Granule(granule, _) => {
                let blocks = masters.blocks(granule);
                let (first, last) = blocks.into_inner();
                (Bound::Included(first), Bound::Included(last))
            }
        };
        if let (Some(after), Bound::Included(last)) = (after, last)
            && after >= last
        {
            return part;
        }
        let first = after.map_or(first, Bound::Excluded);
        for (&block, local) in self.blocks.range((first, last)) {
            if part.1 {
                break;
            }
            let is_in = |b: u16| bucket_of(block, masters.buckets()) == b;
            if !matches!(bucket, Bucket::Hash(b) if !is_in(b)) {
                declare_into(&mut part, block, local, limit);
            }
        }
        part
    }

    pub(in crate::gcs) fn declare_block(&self, block: Dba) -> Declaration {
        let local = self.blocks.get(&block);
        local.map(Local::declaration).unwrap_or_default()
    }

    /// Brings a block back and owns it from now on. That serves whatever was asked for here.
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

fn declare_into((blocks, more): &mut Part, block: Dba, local: &Local, limit: usize) {
    let declaration = local.declaration();
    if declaration == Declaration::default() {
        return;
    }
    match blocks.len() < limit {
        true => blocks.push((block, declaration)),
        false => *more = true,
    }
}
