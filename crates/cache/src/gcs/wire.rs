//! The messages of a shard as bytes: a tag, then the fields in the order of their declaration, little-endian, without padding.

use block::{Dba, InstanceId, Scn};
use fusion::gcs::{Declaration, DeclaredHold, Message, Mode, Source, Want};
use fusion::ids::{Bucket, Epoch, Granule, RequestId, Term, Turn};

/// First bytes of the messages behind which is said what the request has cost so far ([`super::timing`]): orders and answers about one.
pub(super) const TIMED: [u8; 6] = [3, 5, 10, 15, 16, 17];

/// Appends the term under which a message is sent.
pub(super) fn put_term(term: Term, out: &mut Vec<u8>) {
    Writer(out).term(term);
}

/// Takes a term off the front.
pub(super) fn split_term(bytes: &[u8]) -> Option<(Term, &[u8])> {
    let mut r = Reader(bytes);
    let term = r.term()?;
    Some((term, r.0))
}

/// Appends the message. The bytes of a block travel beside it.
pub(super) fn encode(message: &Message, out: &mut Vec<u8>) {
    let mut w = Writer(out);
    match message {
        Message::Request {
            block,
            id,
            floor,
            want,
            have,
        } => {
            w.head(1, *block);
            w.u64(id.0);
            w.u64(floor.0);
            w.want(*want);
            w.option(*have, Writer::turn);
        }
        Message::Done {
            block,
            id,
            floor,
            turn,
            holds,
            image,
        } => {
            w.head(2, *block);
            w.u64(id.0);
            w.u64(floor.0);
            w.turn(*turn);
            w.flag(*holds);
            w.option(*image, |w, (instance, version)| {
                w.u16(instance.0);
                w.u64(version.0);
            });
        }
        Message::Ship {
            block,
            turn,
            to,
            id,
            mode,
        } => {
            w.head(3, *block);
            w.turn(*turn);
            w.u16(to.0);
            w.u64(id.0);
            w.mode(*mode);
        }
        Message::Invalidate { block, turn } => w.turned(4, *block, *turn),
        Message::ReadFor {
            block,
            turn,
            to,
            id,
            snapshot,
        } => w.read(5, *block, *turn, (*to, *id, *snapshot)),
        Message::WriteOrder { block, turn } => w.turned(6, *block, *turn),
        Message::Written { block, version } => w.versioned(7, *block, *version),
        Message::Invalidated { block, turn, image } => {
            w.turned(8, *block, *turn);
            w.option(*image, |w, version| w.u64(version.0));
        }
        Message::NotHeld { block, turn } => w.turned(9, *block, *turn),
        Message::ReadBack {
            block,
            turn,
            to,
            id,
            snapshot,
        } => w.read(10, *block, *turn, (*to, *id, *snapshot)),
        Message::Released { block, turn } => w.turned(11, *block, *turn),
        Message::SteppedDown { block, turn } => w.turned(12, *block, *turn),
        Message::Wrote { block, version } => w.versioned(13, *block, *version),
        Message::WriteWanted { block, version } => w.versioned(14, *block, *version),
        Message::Grant {
            block,
            id,
            turn,
            mode,
            source,
        } => {
            w.head(15, *block);
            w.u64(id.0);
            w.turn(*turn);
            w.mode(*mode);
            w.u8(match source {
                Source::Disk => 0,
                Source::Own { dirty: false } => 1,
                Source::Own { dirty: true } => 2,
            });
        }
        Message::Block {
            block,
            id,
            turn,
            mode,
            version,
            dirty,
        } => {
            w.head(16, *block);
            w.u64(id.0);
            w.turn(*turn);
            w.mode(*mode);
            w.u64(version.0);
            w.flag(*dirty);
        }
        Message::Copy { block, id, clock } => {
            w.head(17, *block);
            w.u64(id.0);
            w.u64(clock.0);
        }
        Message::DeclareWanted { buckets, blocks } => {
            w.u8(18);
            w.list(buckets, |w, b| w.bucket(*b));
            w.list(blocks, |w, b| w.u64(b.0));
        }
        Message::Declare {
            bucket,
            after,
            blocks,
            more,
        } => {
            w.u8(19);
            w.bucket(*bucket);
            w.option(*after, |w, b| w.u64(b.0));
            w.declarations(blocks);
            w.flag(*more);
        }
        Message::DeadRedo {
            after,
            blocks,
            more,
        } => {
            w.u8(20);
            w.option(*after, |w, b| w.u64(b.0));
            w.list(blocks, |w, b| w.u64(b.0));
            w.flag(*more);
        }
        Message::DeclareMore { bucket, after } => {
            w.head(26, *after);
            w.bucket(*bucket);
        }
        Message::DeclareBlocks { blocks } => {
            w.u8(27);
            w.declarations(blocks);
        }
        Message::DeadRedoMore { after } => w.head(28, *after),
        Message::Recover { block, turn } => w.turned(21, *block, *turn),
        Message::Recovered {
            block,
            turn,
            id,
            served,
            holds,
        } => {
            w.turned(22, *block, *turn);
            w.u64(id.0);
            w.option(*served, |w, id| w.u64(id.0));
            w.flag(*holds);
        }
        Message::Inherit { block, turn, have } => {
            w.turned(23, *block, *turn);
            w.turn(*have);
        }
        Message::Inherited { block, turn } => w.turned(24, *block, *turn),
        Message::RecoveryDone => w.u8(25),
        Message::Moved { block } => w.head(29, *block),
        Message::TakenWanted { after } => {
            w.u8(30);
            w.option(*after, |w, g| w.u64(g.0));
        }
        Message::Taken {
            after,
            granules,
            more,
        } => {
            w.u8(31);
            w.option(*after, |w, g| w.u64(g.0));
            w.list(granules, |w, (granule, term)| {
                w.u64(granule.0);
                w.term(*term);
            });
            w.flag(*more);
        }
    }
}

/// None if the bytes are not exactly one message.
pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
    let mut r = Reader(bytes);
    let tag = r.u8()?;
    let message = match tag {
        18 => Message::DeclareWanted {
            buckets: r.list(3, Reader::bucket)?,
            blocks: r.list(8, Reader::dba)?,
        },
        19 => Message::Declare {
            bucket: r.bucket()?,
            after: r.option(Reader::dba)?,
            blocks: r.declarations()?,
            more: r.flag()?,
        },
        20 => Message::DeadRedo {
            after: r.option(Reader::dba)?,
            blocks: r.list(8, Reader::dba)?,
            more: r.flag()?,
        },
        26 => {
            let after = r.dba()?;
            let bucket = r.bucket()?;
            Message::DeclareMore { bucket, after }
        }
        27 => Message::DeclareBlocks {
            blocks: r.declarations()?,
        },
        28 => Message::DeadRedoMore { after: r.dba()? },
        25 => Message::RecoveryDone,
        29 => Message::Moved { block: r.dba()? },
        30 => Message::TakenWanted {
            after: r.option(Reader::granule)?,
        },
        31 => Message::Taken {
            after: r.option(Reader::granule)?,
            granules: r.list(14, |r| Some((r.granule()?, r.term()?)))?,
            more: r.flag()?,
        },
        1..=3 | 15..=17 => about_request(tag, &mut r)?,
        _ => about_turn(tag, &mut r)?,
    };
    r.0.is_empty().then_some(message)
}

fn about_request(tag: u8, r: &mut Reader<'_>) -> Option<Message> {
    let block = r.dba()?;
    Some(match tag {
        1 => Message::Request {
            block,
            id: r.id()?,
            floor: r.id()?,
            want: r.want()?,
            have: r.option(Reader::turn)?,
        },
        2 => Message::Done {
            block,
            id: r.id()?,
            floor: r.id()?,
            turn: r.turn()?,
            holds: r.flag()?,
            image: r.option(|r| Some((r.instance()?, r.scn()?)))?,
        },
        3 => Message::Ship {
            block,
            turn: r.turn()?,
            to: r.instance()?,
            id: r.id()?,
            mode: r.mode()?,
        },
        15 => Message::Grant {
            block,
            id: r.id()?,
            turn: r.turn()?,
            mode: r.mode()?,
            source: match r.u8()? {
                0 => Source::Disk,
                1 => Source::Own { dirty: false },
                2 => Source::Own { dirty: true },
                _ => return None,
            },
        },
        16 => Message::Block {
            block,
            id: r.id()?,
            turn: r.turn()?,
            mode: r.mode()?,
            version: r.scn()?,
            dirty: r.flag()?,
        },
        17 => Message::Copy {
            block,
            id: r.id()?,
            clock: r.scn()?,
        },
        _ => return None,
    })
}

fn about_turn(tag: u8, r: &mut Reader<'_>) -> Option<Message> {
    let block = r.dba()?;
    if let 7 | 13 | 14 = tag {
        let version = r.scn()?;
        return Some(match tag {
            7 => Message::Written { block, version },
            13 => Message::Wrote { block, version },
            _ => Message::WriteWanted { block, version },
        });
    }
    let turn = r.turn()?;
    Some(match tag {
        4 => Message::Invalidate { block, turn },
        5 | 10 => {
            let (to, id, snapshot) = (r.instance()?, r.id()?, r.scn()?);
            match tag {
                5 => Message::ReadFor {
                    block,
                    turn,
                    to,
                    id,
                    snapshot,
                },
                _ => Message::ReadBack {
                    block,
                    turn,
                    to,
                    id,
                    snapshot,
                },
            }
        }
        6 => Message::WriteOrder { block, turn },
        8 => Message::Invalidated {
            block,
            turn,
            image: r.option(Reader::scn)?,
        },
        9 => Message::NotHeld { block, turn },
        11 => Message::Released { block, turn },
        12 => Message::SteppedDown { block, turn },
        21 => Message::Recover { block, turn },
        22 => Message::Recovered {
            block,
            turn,
            id: r.id()?,
            served: r.option(Reader::id)?,
            holds: r.flag()?,
        },
        23 => Message::Inherit {
            block,
            turn,
            have: r.turn()?,
        },
        24 => Message::Inherited { block, turn },
        _ => return None,
    })
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    fn u16(&mut self, v: u16) {
        self.0.extend(v.to_le_bytes());
    }
    fn u32(&mut self, v: u32) {
        self.0.extend(v.to_le_bytes());
    }
    fn u64(&mut self, v: u64) {
        self.0.extend(v.to_le_bytes());
    }
    fn flag(&mut self, v: bool) {
        self.u8(u8::from(v));
    }
    fn head(&mut self, tag: u8, block: Dba) {
        self.u8(tag);
        self.u64(block.0);
    }
    fn turned(&mut self, tag: u8, block: Dba, turn: Turn) {
        self.head(tag, block);
        self.turn(turn);
    }
    fn versioned(&mut self, tag: u8, block: Dba, version: Scn) {
        self.head(tag, block);
        self.u64(version.0);
    }
    fn read(
        &mut self,
        tag: u8,
        block: Dba,
        turn: Turn,
        (to, id, snapshot): (InstanceId, RequestId, Scn),
    ) {
        self.turned(tag, block, turn);
        self.u16(to.0);
        self.u64(id.0);
        self.u64(snapshot.0);
    }
    fn turn(&mut self, turn: Turn) {
        self.u64(turn.epoch.0);
        self.term(turn.term);
        self.u64(turn.number);
    }
    fn term(&mut self, term: Term) {
        self.u32(term.number);
        self.u16(term.master.0);
    }
    fn bucket(&mut self, bucket: Bucket) {
        match bucket {
            Bucket::Hash(bucket) => {
                self.u8(0);
                self.u16(bucket);
            }
            Bucket::Granule(granule, term) => {
                self.u8(1);
                self.u64(granule.0);
                self.term(term);
            }
        }
    }
    fn mode(&mut self, mode: Mode) {
        self.u8(match mode {
            Mode::Shared => 0,
            Mode::Exclusive => 1,
        });
    }
    fn want(&mut self, want: Want) {
        match want {
            Want::Read { snapshot } => {
                self.u8(0);
                self.u64(snapshot.0);
            }
            Want::Shared => self.u8(1),
            Want::Exclusive => self.u8(2),
        }
    }
    fn option<T>(&mut self, v: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.flag(v.is_some());
        if let Some(v) = v {
            put(self, v);
        }
    }
    fn list<T>(&mut self, of: &[T], put: impl Fn(&mut Self, &T)) {
        self.u32(of.len() as u32);
        of.iter().for_each(|item| put(self, item));
    }
    fn declarations(&mut self, of: &[(Dba, Declaration)]) {
        self.list(of, |w, (block, declaration)| {
            w.u64(block.0);
            w.declaration(declaration);
        });
    }
    fn declaration(&mut self, d: &Declaration) {
        self.option(d.held, |w, h| {
            w.mode(h.mode);
            w.turn(h.turn);
            w.u64(h.id.0);
            w.flag(h.duty);
        });
        self.option(d.image, |w, version| w.u64(version.0));
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|b| b[0])
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    /// A number of things of at least `size` bytes each: no more than can follow.
    fn count(&mut self, size: usize) -> Option<usize> {
        let n = u32::from_le_bytes(self.take()?) as usize;
        (n <= self.0.len() / size).then_some(n)
    }
    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn dba(&mut self) -> Option<Dba> {
        self.u64().map(Dba)
    }
    fn scn(&mut self) -> Option<Scn> {
        self.u64().map(Scn)
    }
    fn id(&mut self) -> Option<RequestId> {
        self.u64().map(RequestId)
    }
    fn instance(&mut self) -> Option<InstanceId> {
        self.take().map(u16::from_le_bytes).map(InstanceId)
    }
    fn turn(&mut self) -> Option<Turn> {
        Some(Turn {
            epoch: Epoch(self.u64()?),
            term: self.term()?,
            number: self.u64()?,
        })
    }
    fn term(&mut self) -> Option<Term> {
        Some(Term {
            number: u32::from_le_bytes(self.take()?),
            master: self.instance()?,
        })
    }
    fn granule(&mut self) -> Option<Granule> {
        self.u64().map(Granule)
    }
    fn bucket(&mut self) -> Option<Bucket> {
        match self.u8()? {
            0 => self.take().map(u16::from_le_bytes).map(Bucket::Hash),
            1 => Some(Bucket::Granule(self.granule()?, self.term()?)),
            _ => None,
        }
    }
    fn mode(&mut self) -> Option<Mode> {
        match self.u8()? {
            0 => Some(Mode::Shared),
            1 => Some(Mode::Exclusive),
            _ => None,
        }
    }
    fn want(&mut self) -> Option<Want> {
        match self.u8()? {
            0 => Some(Want::Read {
                snapshot: self.scn()?,
            }),
            1 => Some(Want::Shared),
            2 => Some(Want::Exclusive),
            _ => None,
        }
    }
    #[allow(clippy::option_option)] // missing bytes, and a field that is not there
    fn option<T>(&mut self, get: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.flag()? {
            true => get(self).map(Some),
            false => Some(None),
        }
    }
    /// Of things of at least `size` bytes each.
    fn list<T>(&mut self, size: usize, get: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let n = self.count(size)?;
        (0..n).map(|_| get(self)).collect()
    }
    fn declarations(&mut self) -> Option<Vec<(Dba, Declaration)>> {
        self.list(10, |r| Some((r.dba()?, r.declaration()?)))
    }
    fn declaration(&mut self) -> Option<Declaration> {
        let held = self.option(|r| {
            Some(DeclaredHold {
                mode: r.mode()?,
                turn: r.turn()?,
                id: r.id()?,
                duty: r.flag()?,
            })
        })?;
        let image = self.option(Reader::scn)?;
        Some(Declaration { held, image })
    }
}

#[cfg(test)]
mod tests;
