//! What the transactions of several instances say to each other, as bytes. Little endian, fixed lengths but for lists; whatever is cut short, too long or out of
//! range is an error.
//!
//! Header: `clock u64 | newest group u64 | horizon u64 | n u16 | n x (instance u16, group u64, scn u64)`.

use crate::{Error, Result};
use block::{FileId, InstanceId, Scn, TxnId};
use fusion::GroupNo;
use fusion::visibility::{Evidence, Header};
use interconnect::memory::Key;

/// Kinds of this layer's messages; part of the protocol.
pub(crate) mod kind {
    pub const ANNOUNCE: u16 = 100;
    pub const ACKNOWLEDGE: u16 = 101;
    pub const STABLE_WANTED: u16 = 102;
    pub const STABLE: u16 = 103;
    pub const ASK: u16 = 104;
    pub const ANSWER: u16 = 105;
    pub const TXN_WAIT: u16 = 106;
    pub const TXN_ENDED: u16 = 107;
    /// Nothing but its header.
    pub const HEARTBEAT: u16 = 108;
    /// A walk that looks for a deadlock, its second round, and what comes of it.
    pub const WALK: u16 = 109;
    pub const CHECK: u16 = 110;
    pub const VICTIM: u16 = 111;
    /// The same where a wait is for a lock that another instance has.
    pub const LOCK_WALK: u16 = 112;
    pub const LOCK_CHECK: u16 = 113;
    /// Enqueues: one message of [`fusion::ges`].
    pub const GES: u16 = 114;
    /// The key of a region of the sender's memory.
    pub const MEMORY_OFFERED: u16 = 115;
}

/// What an instance says of a transaction of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Invisible to snapshots up to this one.
    ActiveTo(Scn),
    /// [`Scn::ZERO`]: below the horizon.
    Committed(Scn),
    Aborted,
}

/// What stands in front of every message: `Header` of the visibility protocol, and the sender's horizon.
pub(crate) fn put_header(header: &Header, horizon: Scn, out: &mut Vec<u8>) {
    put(out, &[header.clock.0, header.newest.0, horizon.0]);
    let n = u16::try_from(header.evidence.len())
        .expect("invariant: an instance has few groups that are not acknowledged");
    out.extend_from_slice(&n.to_le_bytes());
    for e in &header.evidence {
        out.extend_from_slice(&e.instance.0.to_le_bytes());
        put(out, &[e.group.0, e.scn.0]);
    }
}

pub(crate) fn put_key(key: Key, out: &mut Vec<u8>) {
    out.extend_from_slice(&key.process.to_le_bytes());
    out.extend_from_slice(&key.descriptor.to_le_bytes());
    put(out, &key.token);
}

pub(crate) fn put(out: &mut Vec<u8>, words: &[u64]) {
    words
        .iter()
        .for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
}

/// Reads a message of `from` front to back.
pub(crate) struct Reader<'a> {
    from: InstanceId,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(from: InstanceId, bytes: &'a [u8]) -> Reader<'a> {
        Reader { from, bytes, at: 0 }
    }

    pub(crate) fn bad(&self, what: &'static str) -> Error {
        Error::BadMessage {
            from: self.from,
            what,
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let part = self.bytes.get(self.at..self.at + N);
        let part = part.ok_or_else(|| self.bad("it is cut short"))?;
        self.at += N;
        Ok(part.try_into().expect("as many bytes"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.take::<1>()?[0])
    }
    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.take()?))
    }
    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }
    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// SCNs and group numbers stay below 2^62: status words need two bits.
    pub(crate) fn scn(&mut self) -> Result<Scn> {
        match self.u64()? {
            scn if scn < 1 << 62 => Ok(Scn(scn)),
            _ => Err(self.bad("an SCN is out of range")),
        }
    }
    pub(crate) fn group(&mut self) -> Result<GroupNo> {
        self.scn().map(|n| GroupNo(n.0))
    }
    pub(crate) fn instance(&mut self) -> Result<InstanceId> {
        match self.u16()? {
            n if (1..=FileId::MAX_INSTANCES).contains(&n) => Ok(InstanceId(n)),
            _ => Err(self.bad("there is no such instance")),
        }
    }
    pub(crate) fn txn(&mut self) -> Result<TxnId> {
        let txn = TxnId(self.u64()?);
        match (1..=FileId::MAX_INSTANCES).contains(&txn.instance().0) {
            true => Ok(txn),
            false => Err(self.bad("there is no such transaction")),
        }
    }
    pub(crate) fn evidence(&mut self) -> Result<Evidence> {
        Ok(Evidence {
            instance: self.instance()?,
            group: self.group()?,
            scn: self.scn()?,
        })
    }

    pub(crate) fn key(&mut self) -> Result<Key> {
        Ok(Key {
            process: self.u32()?,
            descriptor: self.u32()?,
            token: [self.u64()?, self.u64()?],
        })
    }

    /// The header in front, with the sender's horizon.
    pub(crate) fn header(&mut self) -> Result<(Header, Scn)> {
        let (clock, newest, horizon) = (self.scn()?, self.group()?, self.scn()?);
        let evidence = (0..self.u16()?)
            .map(|_| self.evidence())
            .collect::<Result<_>>()?;
        let header = Header {
            clock,
            newest,
            evidence,
        };
        Ok((header, horizon))
    }

    pub(crate) fn answer(&mut self) -> Result<Answer> {
        let (tag, scn) = (self.u8()?, self.scn()?);
        match tag {
            0 => Ok(Answer::ActiveTo(scn)),
            1 => Ok(Answer::Committed(scn)),
            2 => Ok(Answer::Aborted),
            _ => Err(self.bad("an answer is of no kind that there is")),
        }
    }

    /// Bytes read so far.
    pub(crate) fn read(&self) -> usize {
        self.at
    }

    /// Nothing may follow.
    pub(crate) fn end(self) -> Result<()> {
        match self.at == self.bytes.len() {
            true => Ok(()),
            false => Err(self.bad("it is too long")),
        }
    }
}

pub(crate) fn put_evidence(e: Evidence, out: &mut Vec<u8>) {
    put_group(e.instance, e.group, out);
    put(out, &[e.scn.0]);
}

pub(crate) fn put_group(instance: InstanceId, group: GroupNo, out: &mut Vec<u8>) {
    out.extend_from_slice(&instance.0.to_le_bytes());
    put(out, &[group.0]);
}

pub(crate) fn put_answer(answer: Answer, out: &mut Vec<u8>) {
    let (tag, scn) = match answer {
        Answer::ActiveTo(scn) => (0, scn),
        Answer::Committed(scn) => (1, scn),
        Answer::Aborted => (2, Scn::ZERO),
    };
    out.push(tag);
    put(out, &[scn.0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: InstanceId = InstanceId(1);

    #[test]
    fn the_header_is_pinned_and_nothing_makes_it_panic() {
        let header = Header {
            clock: Scn(5),
            newest: GroupNo(6),
            evidence: vec![Evidence {
                instance: InstanceId(2),
                group: GroupNo(8),
                scn: Scn(9),
            }],
        };
        let mut bytes = Vec::new();
        put_header(&header, Scn(7), &mut bytes);
        let mut want = Vec::new();
        put(&mut want, &[5, 6, 7]);
        want.extend_from_slice(&[1, 0, 2, 0]);
        put(&mut want, &[8, 9]);
        assert_eq!(bytes, want);
        let mut r = Reader::new(ME, &bytes);
        assert_eq!(r.header().unwrap(), (header, Scn(7)));
        assert_eq!(r.read(), bytes.len());
        for cut in 0..bytes.len() {
            assert!(Reader::new(ME, &bytes[..cut]).header().is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut b = bytes.clone();
            b[at] = 0xff;
            let _ = Reader::new(ME, &b).header();
        }
    }

    #[test]
    fn answers_come_back() {
        for answer in [
            Answer::ActiveTo(Scn(3)),
            Answer::Committed(Scn::ZERO),
            Answer::Aborted,
        ] {
            let mut bytes = Vec::new();
            put_answer(answer, &mut bytes);
            let mut r = Reader::new(ME, &bytes);
            assert_eq!(r.answer().unwrap(), answer);
            r.end().unwrap();
        }
    }
}
