//! One step of the shard, and what the shard asks for.

use super::dead::ClusterMember;
use super::jobs::Job;
use super::messages;
use super::provenance::{copy_came, how_it_came};
use super::slot::Told;
use super::state::{Arrived, Cause, Image, SHARD, State, TERMED_SHARD, ToRead, state_of};
use crate::Cache;
use crate::frame::{CLEAN, CLOSED, Frame, FrameIx, SHARED};
use block::{BlockBuf, Dba, InstanceId, Scn};
use fusion::gcs::{Closed, Effect, Message, Mode, Shard};
use fusion::ids::{Generation, Member, RequestId};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use wait::{Event, Stat, stat};
use wire::Writer;

impl Cache {
    /// Gives the shard an input and does what it asks for, until it asks for nothing more. Never
    /// waits.
    pub(super) fn step(
        &self,
        s: &mut State,
        cause: Cause<'_>,
        input: impl FnOnce(&mut Shard, &mut Vec<Effect>),
    ) {
        let mut out = std::mem::take(&mut s.scratch);
        out.clear();
        input(&mut s.shard, &mut out);
        let mut at = 0;
        while at < out.len() {
            // The clone is cheap: an effect owns a declaration at most.
            let effect = out[at].clone();
            at += 1;
            self.perform(s, &cause, effect, &mut out);
        }
        s.timing.step_is_over();
        s.scratch = out;
    }

    fn perform(&self, s: &mut State, cause: &Cause<'_>, effect: Effect, out: &mut Vec<Effect>) {
        match effect {
            Effect::Send { to, message } if to == s.me => {
                let epoch = s.shard.epoch().0;
                let message = Box::new(message);
                let shard = s.number;
                s.outgoing.job(Job::Own {
                    shard,
                    epoch,
                    message,
                });
            }
            Effect::Send { to, message } => self.send_message(s, to, &message, None),
            Effect::ShipCurrent { to, message } => self.ship_current(s, to, &message),
            // The clock was lifted to the snapshot when the message arrived.
            Effect::ShipCopy { to, block, id, .. } => self.ship_copy(s, (to, block, id), out),
            Effect::ReadFromDisk {
                block,
                mode,
                generation,
            } => {
                let to_read = ToRead {
                    mode,
                    generation,
                    claimed: None,
                    recovery: false,
                    failures: 0,
                    owed: false,
                };
                s.to_read.insert(block, to_read);
                self.find_reader(s, block, cause);
                if s.to_read[&block].claimed.is_none() {
                    // The asker waits no more. Others must not wait for a session that does not
                    // read the block.
                    s.shard.unreadable(block, generation, out);
                }
            }
            Effect::Install {
                block, mode, dirty, ..
            } => {
                let bytes = cause
                    .block
                    .expect("invariant: an installed block came with the message");
                stat::add(Stat::GcCurrentBlocksReceived, 1);
                if mode == Mode::Exclusive {
                    self.note_its_coming(s, block);
                }
                let arrived = Arrived {
                    block: Box::new(bytes.clone()),
                    state: state_of(mode),
                    dirty,
                };
                s.arrived.insert(block, arrived);
            }
            Effect::SetMode { block, mode, .. } => self.set_mode(s, block, state_of(mode)),
            Effect::MarkDirty { block } => self.take_duty(s, block),
            Effect::Close {
                block,
                keep,
                generation,
            } => self.close(s, (block, keep, generation), out),
            Effect::FlushLog { upto } => {
                let durable = self.redo.durable();
                if durable >= upto {
                    s.shard.flushed(durable, out);
                } else {
                    stat::add(Stat::GcBlockFlushes, 1);
                    s.outgoing.job(Job::Flush(upto));
                }
            }
            Effect::Write { block } => self.write_or_say_so(s, block, out),
            Effect::KeepImage { block, version } => self.keep_image(s, block, version),
            Effect::Discard { block } => self.discard(s, block),
            Effect::Forget { block, version } => {
                if s.images.get(&block).is_some_and(|i| i.version <= version) {
                    s.images.remove(&block);
                }
            }
            Effect::Run { block, waiter } => match s.waiting.remove(&waiter.0) {
                Some(w) => {
                    let how = how_it_came(&w, cause);
                    s.outgoing.tell(w.slot, waiter.0, Told::Run, how);
                }
                // The session gave up when its read failed.
                None => s.shard.latched(block, waiter, out),
            },
            Effect::ReadCopy { waiter, .. } => {
                let bytes = cause
                    .block
                    .expect("invariant: a copy came with the message");
                if let Some(w) = s.waiting.remove(&waiter.0) {
                    let mut how = copy_came(cause, w.joined);
                    if w.remastered {
                        how = how.named(Event::GcRemaster);
                    }
                    let copy = Told::Copy(Arc::new(bytes.clone()));
                    s.outgoing.tell(w.slot, waiter.0, copy, how);
                }
            }
            Effect::DropCopies { supplier } => {
                s.undo.gone(supplier, s.shard.epoch().0);
                self.gcs.copies_lost.fetch_add(1, SeqCst);
            }
            Effect::Recover { block, generation } => self.recover(s, block, generation),
            Effect::MasterMoved { granule, from, to } => self.master_moved(s, granule, (from, to)),
            Effect::GranuleOpened { granule } => self.granule_opened(s, granule),
            Effect::CloseThreads { dead } => {
                let life = |m: &Member| (m.instance, m.incarnation.0 as u32);
                let dead: Vec<ClusterMember> = dead.iter().map(life).collect();
                let (epoch, shards) = (s.shard.epoch().0, self.shards().len());
                let dead = self.gcs.closing.lock().one_more(epoch, dead, shards);
                let told = self.gcs.closed.get();
                let told = told.expect(
                    "invariant: the listener of closed threads is set before somebody is dead",
                );
                if !dead.is_empty() {
                    told(epoch, &dead);
                }
            }
        }
    }

    pub(super) fn send_message(
        &self,
        s: &mut State,
        to: InstanceId,
        message: &Message,
        block: Option<&BlockBuf>,
    ) {
        let waiting = &s.waiting;
        let since = || {
            let of_block = waiting
                .values()
                .filter(|w| Some(w.dba) == block_of(message));
            of_block.map(|w| w.asked_ns).min()
        };
        let spent = s.timing.leaving(to, message, since);
        s.last_sent_to = Some(to);
        let term = s.shard.term_of(message);
        let first = if term.is_by_hash() {
            SHARD
        } else {
            TERMED_SHARD
        };
        let head = (to, first + u16::from(s.number), s.shard.epoch().0);
        stat::add(Stat::GcMessagesSent, 1);
        s.outgoing.letter(head, block, |body| {
            if !term.is_by_hash() {
                Writer::new(body).put(&term);
            }
            messages::encode(message, spent, body);
        });
    }

    /// The block's frame, found even while chains change.
    pub(super) fn frame_of(&self, dba: Dba) -> Option<FrameIx> {
        self.find(dba).or_else(|| {
            let bucket = self.bucket(dba);
            let _chain = self.chain_latch(bucket).lock();
            self.walk(bucket, dba, usize::MAX)
        })
    }

    /// Sends the current block. It is closed under its latch, or shared, so nobody changes it.
    fn ship_current(&self, s: &mut State, to: InstanceId, message: &Message) {
        let &Message::Block { block, version, .. } = message else {
            unreachable!("invariant: a current block travels as such");
        };
        stat::add(Stat::GcCurrentBlocksServed, 1);
        s.timing.building();
        if let Some(image) = s.images.remove(&block) {
            if image.version == version && s.shard.mode(block).is_none() {
                self.send_message(s, to, message, Some(&image.block));
                s.images.insert(block, image);
                return;
            }
            s.images.insert(block, image);
        }
        if let Some(arrived) = s.arrived.remove(&block) {
            self.send_message(s, to, message, Some(&arrived.block));
            s.arrived.insert(block, arrived);
            return;
        }
        let ix = self
            .frame_of(block)
            .expect("invariant: a block that is held is in a frame");
        // SAFETY: closed or shared, and only a step of the shard, of which this is one, can make it
        // exclusive again or free its frame.
        let bytes = unsafe { &*self.memory.block(ix.0 as usize) };
        debug_assert!(bytes.scn() == version || bytes.is_unformatted());
        self.send_message(s, to, message, Some(bytes));
    }

    fn ship_copy(
        &self,
        s: &mut State,
        (to, block, id): (InstanceId, Dba, RequestId),
        out: &mut Vec<Effect>,
    ) {
        s.timing.copying((to, id.0));
        if let Some(arrived) = s.arrived.remove(&block) {
            self.send_copy(s, (to, block, id), &arrived.block, out);
            s.arrived.insert(block, arrived);
            return;
        }
        let ix = self.frame_of(block);
        let latched = ix.filter(|ix| self.frame(*ix).latch.try_lock_shared());
        match latched {
            Some(ix) => {
                self.send_copy_of(s, (to, block, id), ix, out);
                // SAFETY: latched above.
                unsafe { self.frame(ix).latch.unlock_shared() }
            }
            None => s.outgoing.job(Job::Copy { to, block, id }),
        }
    }

    /// Sends a copy of a frame's block. The caller has the frame latched.
    pub(super) fn send_copy_of(
        &self,
        s: &mut State,
        whom: (InstanceId, Dba, RequestId),
        ix: FrameIx,
        out: &mut Vec<Effect>,
    ) {
        // SAFETY: latched by the caller.
        let bytes = unsafe { &*self.memory.block(ix.0 as usize) };
        self.send_copy(s, whom, bytes, out);
    }

    fn send_copy(
        &self,
        s: &mut State,
        (to, block, id): (InstanceId, Dba, RequestId),
        bytes: &BlockBuf,
        out: &mut Vec<Effect>,
    ) {
        s.timing.building();
        let clock = self.redo.clock().now();
        let message = Message::Copy { block, id, clock };
        self.send_message(s, to, &message, Some(bytes));
        stat::add(Stat::GcCrBlocksServed, 1);
        s.shard.copied(block, bytes.scn(), out);
    }

    fn set_mode(&self, s: &mut State, dba: Dba, state: u8) {
        match s.arrived.get_mut(&dba) {
            Some(arrived) => arrived.state = state,
            None => {
                let ix = self
                    .frame_of(dba)
                    .expect("invariant: a block that is held is in a frame");
                self.frame(ix).state.store(state, Release);
            }
        }
    }

    /// Makes a block dirty from now on, though nothing here changed it.
    pub(super) fn take_duty(&self, s: &mut State, dba: Dba) {
        if let Some(to_read) = s.to_read.get_mut(&dba) {
            to_read.owed = true;
            return;
        }
        match s.arrived.get_mut(&dba) {
            Some(arrived) => arrived.dirty = true,
            None => {
                let ix = self
                    .frame_of(dba)
                    .expect("invariant: a block that is held is in a frame");
                self.mark_dirty_unlatched(self.frame(ix));
            }
        }
    }

    /// Marks a frame dirty without its latch. `since_copy` comes first: `dbw0` copies it to
    /// `first_dirty` and looks at it again afterwards.
    pub(super) fn mark_dirty_unlatched(&self, frame: &Frame) {
        let end = self.redo.end().0;
        frame.since_copy.fetch_min(end, SeqCst);
        frame.first_dirty.fetch_min(end, SeqCst);
    }

    fn close(
        &self,
        s: &mut State,
        (dba, keep, generation): (Dba, Option<Mode>, Generation),
        out: &mut Vec<Effect>,
    ) {
        s.timing.closing(dba);
        let came = s.wanted.goes(dba);
        if let Some(arrived) = s.arrived.get_mut(&dba) {
            arrived.state = keep.map_or(CLOSED, state_of);
            let found = Closed {
                version: arrived.block.scn(),
                dirty: arrived.dirty,
                redo: block::LogPos(0),
            };
            s.shard.closed(dba, generation, found, out);
            return;
        }
        if let Some((evicted, ix)) = s.evicting
            && evicted == dba
        {
            let found = self.close_frame(ix, keep);
            s.shard.closed(dba, generation, found, out);
            return;
        }
        if self.stays(s, came, (dba, keep, generation)) {
            return;
        }
        let ix = self
            .frame_of(dba)
            .expect("invariant: a block that is held is in a frame");
        let frame = self.frame(ix);
        if !frame.latch.try_lock_exclusive() {
            s.outgoing.job(Job::Close {
                dba,
                keep,
                generation,
            });
            return;
        }
        if keep.is_none() && frame.writing.load(SeqCst) {
            self.gcs.helper.park(Job::Close {
                dba,
                keep,
                generation,
            });
        } else {
            let found = self.close_frame(ix, keep);
            s.shard.closed(dba, generation, found, out);
        }
        // SAFETY: latched above.
        unsafe { frame.latch.unlock_exclusive() }
    }

    /// Lowers the mode of a frame. The caller has it latched exclusively. If no mode is kept, no
    /// write of it may be in flight.
    pub(super) fn close_frame(&self, ix: FrameIx, keep: Option<Mode>) -> Closed {
        let frame = self.frame(ix);
        assert!(
            keep.is_some() || !frame.writing.load(SeqCst),
            "invariant: a block does not leave while an older version of it is being written"
        );
        frame.state.store(keep.map_or(CLOSED, state_of), Release);
        // SAFETY: latched exclusively by the caller.
        let block = unsafe { &*self.memory.block(ix.0 as usize) };
        Closed {
            version: block.scn(),
            dirty: frame.is_dirty(),
            redo: block::LogPos(frame.last_change.load(Relaxed)),
        }
    }

    /// Asks for the block to be written if it is dirty. Otherwise says that its version is on disk.
    fn write_or_say_so(&self, s: &mut State, dba: Dba, out: &mut Vec<Effect>) {
        let Some((_, generation)) = s.shard.mode(dba) else {
            return;
        };
        if s.arrived.contains_key(&dba) {
            s.outgoing.job(Job::Write { dba, generation });
            return;
        }
        let Some(ix) = self.frame_of(dba) else { return };
        let frame = self.frame(ix);
        if frame.is_dirty() {
            self.writer.want_block(dba);
        } else if frame.latch.try_lock_shared() {
            // SAFETY: latched.
            let version = unsafe { &*self.memory.block(ix.0 as usize) }.scn();
            let clean = !frame.is_dirty();
            // SAFETY: latched above.
            unsafe { frame.latch.unlock_shared() }
            match clean {
                true => s.shard.wrote(dba, version, out),
                false => self.writer.want_block(dba),
            }
        } else {
            s.outgoing.job(Job::Write { dba, generation });
        }
    }

    /// Keeps a block that is given away as a past image. The image contains the changes of an older
    /// one, but the redo that the older one needs is needed still.
    fn keep_image(&self, s: &mut State, dba: Dba, version: Scn) {
        let older = s.images.get(&dba).map_or(CLEAN, |older| older.first_dirty);
        if let Some(arrived) = s.arrived.remove(&dba) {
            let image = Image {
                block: arrived.block,
                version,
                first_dirty: older.min(self.redo.end().0),
            };
            s.images.insert(dba, image);
            return;
        }
        let ix = self
            .frame_of(dba)
            .expect("invariant: a block that is given away is in a frame");
        let frame = self.frame(ix);
        assert!(
            frame.state.load(Acquire) == CLOSED,
            "invariant: a block that is given away is closed"
        );
        // SAFETY: closed, so nobody changes it; its frame is freed by steps of the shard only.
        let block = unsafe { &*self.memory.block(ix.0 as usize) };
        let image = Image {
            block: Box::new(block.clone()),
            version,
            first_dirty: older.min(frame.first_dirty.load(SeqCst)),
        };
        s.images.insert(dba, image);
        self.clean_closed(frame); // the frame is free
    }

    fn discard(&self, s: &mut State, dba: Dba) {
        if s.arrived.remove(&dba).is_some() || s.to_read.remove(&dba).is_some() {
            return;
        }
        if let Some(ix) = self.frame_of(dba) {
            let frame = self.frame(ix);
            assert!(
                frame.state.load(Acquire) < SHARED && !frame.is_dirty(),
                "invariant: a block that is let go is closed and clean"
            );
            self.clean_closed(frame);
        }
    }

    /// Marks a closed frame clean. If an image is kept it must be in place before: there the
    /// checkpoint looks for it.
    fn clean_closed(&self, frame: &Frame) {
        frame.since_copy.store(CLEAN, SeqCst);
        frame.first_dirty.store(CLEAN, SeqCst);
        frame.last_change.store(0, Relaxed);
        frame.forget_usage();
    }
}

/// The block that an order to another instance is about, if a session of this instance may wait for
/// it.
fn block_of(message: &Message) -> Option<Dba> {
    match *message {
        Message::Ship { block, .. } | Message::ReadFor { block, .. } => Some(block),
        _ => None,
    }
}
