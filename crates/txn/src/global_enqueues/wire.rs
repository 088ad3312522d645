//! Messages about enqueues as bytes: a tag, then the fields in order. Little endian; whatever is cut short, too long or out of range is an error.

use super::{Global, names};
use crate::Result;
use crate::cluster::wire::{self as base, Reader};
use crate::timing::Spent;
use block::InstanceId;
use fusion::ges::{Kept, Message, Mode, Value};
use fusion::{Epoch, RequestId, Term, Turn};

const MODES: [Mode; 6] = [
    Mode::Null,
    Mode::SubShared,
    Mode::SubExclusive,
    Mode::Shared,
    Mode::SharedSubExclusive,
    Mode::Exclusive,
];

pub(crate) fn put_resource(resource: Global, out: &mut Vec<u8>) {
    out.extend_from_slice(&resource.0.to_le_bytes());
}

fn put_turn(turn: Turn, out: &mut Vec<u8>) {
    base::put(out, &[turn.epoch.0, turn.number]);
}

fn put_value(value: Option<Value>, out: &mut Vec<u8>) {
    out.push(u8::from(value.is_some()));
    if let Some(v) = value {
        base::put(out, &[v.version, v.data]);
    }
}

fn put_after(after: Option<Global>, out: &mut Vec<u8>) {
    out.push(u8::from(after.is_some()));
    after.iter().for_each(|r| put_resource(*r, out));
}

fn put_count(n: usize, out: &mut Vec<u8>) {
    let n = u32::try_from(n).expect("invariant: locks fit memory");
    out.extend_from_slice(&n.to_le_bytes());
}

/// Answers, behind which stands what they took.
fn is_timed(message: &Message) -> bool {
    matches!(
        message,
        Message::Grant { .. }
            | Message::Denied { .. }
            | Message::Recalled { .. }
            | Message::Refused { .. }
    )
}

/// `spent`: of an answer, and of nothing else.
pub(super) fn put(message: &Message, spent: Option<Spent>, out: &mut Vec<u8>) {
    put_message(message, out);
    assert_eq!(spent.is_some(), is_timed(message), "{message:?}");
    if let Some(spent) = spent {
        spent.put(out);
    }
}

fn put_message(message: &Message, out: &mut Vec<u8>) {
    let mut head = |tag: u8, resource: Global| {
        out.push(tag);
        put_resource(resource, out);
    };
    match message {
        Message::Request {
            resource,
            id,
            mode,
            has,
            own,
            patient,
        } => {
            head(0, *resource);
            base::put(out, &[id.0]);
            let modes = [*mode, *has, *own].map(|m| m as u8);
            out.extend_from_slice(&modes);
            out.push(u8::from(*patient));
        }
        Message::Grant {
            resource,
            id,
            turn,
            mode,
            value,
        } => {
            head(1, *resource);
            base::put(out, &[id.0]);
            put_turn(*turn, out);
            out.push(*mode as u8);
            put_value(*value, out);
        }
        Message::Denied { resource, id } => {
            head(2, *resource);
            base::put(out, &[id.0]);
        }
        Message::Cancel { resource, id } => {
            head(12, *resource);
            base::put(out, &[id.0]);
        }
        Message::Waits { resource, id } => {
            head(13, *resource);
            base::put(out, &[id.0]);
        }
        Message::Recalling { resource, turn } => {
            head(14, *resource);
            put_turn(*turn, out);
        }
        Message::Void { resource, turn } => {
            head(15, *resource);
            put_turn(*turn, out);
        }
        Message::Done {
            resource,
            id,
            turn,
            holds,
        } => {
            head(3, *resource);
            base::put(out, &[id.0]);
            put_turn(*turn, out);
            out.push(u8::from(*holds));
        }
        Message::Recall {
            resource,
            turn,
            keep,
            patient,
        } => {
            head(4, *resource);
            put_turn(*turn, out);
            out.extend_from_slice(&[*keep as u8, u8::from(*patient)]);
        }
        Message::Recalled {
            resource,
            turn,
            mode,
            value,
        } => {
            head(5, *resource);
            put_turn(*turn, out);
            out.push(*mode as u8);
            put_value(*value, out);
        }
        Message::Refused { resource, turn } => {
            head(6, *resource);
            put_turn(*turn, out);
        }
        Message::Released { resource, id } => {
            head(7, *resource);
            base::put(out, &[id.0]);
        }
        Message::ValueRead { resource, value } => {
            head(8, *resource);
            put_value(Some(*value), out);
        }
        Message::DeclareWanted { after } => {
            out.push(9);
            put_after(*after, out);
        }
        Message::Declare {
            epoch,
            after,
            kept,
            more,
            fresh,
        } => {
            out.push(10);
            base::put(out, &[epoch.0]);
            put_after(*after, out);
            out.extend_from_slice(&[u8::from(*more), u8::from(*fresh)]);
            put_count(kept.len(), out);
            for k in kept {
                put_resource(k.resource, out);
                out.push(k.mode as u8);
                put_turn(k.turn, out);
                base::put(out, &[k.id.0]);
                put_value(k.value, out);
            }
        }
        Message::Welcome {
            after,
            without,
            more,
        } => {
            out.push(11);
            put_after(*after, out);
            out.push(u8::from(*more));
            put_count(without.len(), out);
            without.iter().for_each(|r| put_resource(*r, out));
        }
        Message::WelcomeWanted { after } => head(16, *after),
    }
}

impl Reader<'_> {
    pub(crate) fn resource(&mut self) -> Result<Global> {
        let (low, high) = (self.u64()?, self.u64()?);
        let resource = fusion::ges::Resource(u128::from(high) << 64 | u128::from(low));
        match names::local(resource) {
            Some(_) => Ok(resource),
            None => Err(self.bad("there is no such lock")),
        }
    }

    pub(crate) fn mode(&mut self) -> Result<Mode> {
        let mode = self.u8()?;
        let known = MODES.get(usize::from(mode)).copied();
        known.ok_or_else(|| self.bad("there is no such lock mode"))
    }

    pub(crate) fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.bad("a flag is neither set nor clear")),
        }
    }

    fn turn(&mut self) -> Result<Turn> {
        Ok(Turn {
            epoch: Epoch(self.u64()?),
            term: Term::BY_HASH,
            number: self.u64()?,
        })
    }

    fn id(&mut self) -> Result<RequestId> {
        Ok(RequestId(self.u64()?))
    }

    fn value(&mut self) -> Result<Option<Value>> {
        if !self.flag()? {
            return Ok(None);
        }
        // A version is an SCN, or one more.
        let (version, data) = (self.scn()?.0, self.scn()?.0);
        Ok(Some(Value { version, data }))
    }

    fn after(&mut self) -> Result<Option<Global>> {
        match self.flag()? {
            true => Ok(Some(self.resource()?)),
            false => Ok(None),
        }
    }

    fn kept(&mut self) -> Result<Kept> {
        Ok(Kept {
            resource: self.resource()?,
            mode: self.mode()?,
            turn: self.turn()?,
            id: self.id()?,
            value: self.value()?,
        })
    }
}

pub(super) fn read(from: InstanceId, body: &[u8]) -> Result<(Message, Option<Spent>)> {
    let mut r = Reader::new(from, body);
    let message = read_message(&mut r)?;
    let spent = match is_timed(&message) {
        true => Some(Spent::read(&mut r)?),
        false => None,
    };
    r.end()?;
    Ok((message, spent))
}

fn read_message(r: &mut Reader<'_>) -> Result<Message> {
    let message = match r.u8()? {
        0 => Message::Request {
            resource: r.resource()?,
            id: r.id()?,
            mode: r.mode()?,
            has: r.mode()?,
            own: r.mode()?,
            patient: r.flag()?,
        },
        1 => Message::Grant {
            resource: r.resource()?,
            id: r.id()?,
            turn: r.turn()?,
            mode: r.mode()?,
            value: r.value()?,
        },
        2 => Message::Denied {
            resource: r.resource()?,
            id: r.id()?,
        },
        3 => Message::Done {
            resource: r.resource()?,
            id: r.id()?,
            turn: r.turn()?,
            holds: r.flag()?,
        },
        4 => Message::Recall {
            resource: r.resource()?,
            turn: r.turn()?,
            keep: r.mode()?,
            patient: r.flag()?,
        },
        5 => Message::Recalled {
            resource: r.resource()?,
            turn: r.turn()?,
            mode: r.mode()?,
            value: r.value()?,
        },
        6 => Message::Refused {
            resource: r.resource()?,
            turn: r.turn()?,
        },
        7 => Message::Released {
            resource: r.resource()?,
            id: r.id()?,
        },
        8 => {
            let resource = r.resource()?;
            match r.value()? {
                Some(value) => Message::ValueRead { resource, value },
                None => return Err(r.bad("a value that was read is none")),
            }
        }
        9 => Message::DeclareWanted { after: r.after()? },
        10 => {
            let (epoch, after) = (Epoch(r.u64()?), r.after()?);
            let (more, fresh, n) = (r.flag()?, r.flag()?, r.u32()?);
            // As many as there are bytes for; the count alone must not take memory.
            let kept = (0..n).map(|_| r.kept()).collect::<Result<_>>()?;
            Message::Declare {
                epoch,
                after,
                kept,
                more,
                fresh,
            }
        }
        11 => {
            let (after, more, n) = (r.after()?, r.flag()?, r.u32()?);
            let without = (0..n).map(|_| r.resource()).collect::<Result<_>>()?;
            Message::Welcome {
                after,
                without,
                more,
            }
        }
        12 => Message::Cancel {
            resource: r.resource()?,
            id: r.id()?,
        },
        13 => Message::Waits {
            resource: r.resource()?,
            id: r.id()?,
        },
        14 => Message::Recalling {
            resource: r.resource()?,
            turn: r.turn()?,
        },
        15 => Message::Void {
            resource: r.resource()?,
            turn: r.turn()?,
        },
        16 => Message::WelcomeWanted {
            after: r.resource()?,
        },
        _ => return Err(r.bad("a message about locks is of no kind that there is")),
    };
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NameClass, Resource};
    use block::ObjectId;
    use fusion::ges::PART;

    fn all() -> Vec<Message> {
        let table = names::global(Resource::Table(ObjectId(77))).unwrap();
        let key = names::global(Resource::Name(NameClass::Advisory, u64::MAX, 1)).unwrap();
        let (id, epoch) = (RequestId(5), Epoch(6));
        let term = Term::BY_HASH;
        let turn = Turn {
            epoch,
            term,
            number: 7,
        };
        let read = Value {
            version: 9,
            data: 8,
        };
        let value = Some(read);
        let kept = Kept {
            resource: key,
            mode: Mode::Shared,
            turn,
            id,
            value,
        };
        let resource = table;
        vec![
            Message::Request {
                resource,
                id,
                mode: Mode::Exclusive,
                has: Mode::SubShared,
                own: Mode::SubExclusive,
                patient: true,
            },
            Message::Grant {
                resource: key,
                id,
                turn,
                mode: Mode::SubShared,
                value,
            },
            Message::Denied { resource, id },
            Message::Done {
                resource,
                id,
                turn,
                holds: false,
            },
            Message::Recall {
                resource,
                turn,
                keep: Mode::SubExclusive,
                patient: false,
            },
            Message::Recalled {
                resource,
                turn,
                mode: Mode::Null,
                value: None,
            },
            Message::Refused { resource, turn },
            Message::Released { resource: key, id },
            Message::ValueRead {
                resource: key,
                value: read,
            },
            Message::DeclareWanted { after: Some(key) },
            Message::Declare {
                epoch,
                after: None,
                kept: vec![kept, kept],
                more: false,
                fresh: true,
            },
            Message::Welcome {
                after: Some(table),
                without: vec![table, key],
                more: true,
            },
            Message::Cancel { resource, id },
            Message::Waits { resource, id },
            Message::Recalling { resource, turn },
            Message::Void { resource, turn },
            Message::WelcomeWanted { after: table },
        ]
    }

    /// However many locks an instance keeps, what it says of them in one message fits into one.
    #[test]
    fn a_whole_part_fits_into_a_message() {
        let all = all();
        let of_all = |m: &Message| match m.clone() {
            Message::Declare { epoch, kept, .. } => Some(Message::Declare {
                epoch,
                after: Some(kept[0].resource),
                kept: vec![kept[0]; PART],
                more: true,
                fresh: true,
            }),
            Message::Welcome { after, without, .. } => Some(Message::Welcome {
                after,
                without: vec![without[0]; PART],
                more: true,
            }),
            _ => None,
        };
        let whole: Vec<Message> = all.iter().filter_map(of_all).collect();
        assert_eq!(whole.len(), 2);
        for message in whole {
            let mut bytes = Vec::new();
            put(&message, None, &mut bytes);
            // Before it stands what is said before every message.
            assert!(bytes.len() <= 64 << 10, "{} bytes", bytes.len());
            assert_eq!(read(InstanceId(2), &bytes).unwrap(), (message, None));
        }
    }

    #[test]
    fn messages_come_back_and_nothing_makes_it_panic() {
        let from = InstanceId(2);
        for (tag, message) in all().into_iter().enumerate() {
            let mut bytes = Vec::new();
            let spent = is_timed(&message).then(|| Spent {
                queue_ns: 3,
                ..Spent::by(from)
            });
            put(&message, spent, &mut bytes);
            assert_eq!(bytes[0], tag as u8, "the tag is part of the protocol");
            assert_eq!(read(from, &bytes).unwrap(), (message.clone(), spent));
            for cut in 0..bytes.len() {
                assert!(read(from, &bytes[..cut]).is_err(), "{message:?} at {cut}");
            }
            for at in 0..bytes.len() {
                for byte in [0xff, 0x7f, 12] {
                    let mut bad = bytes.clone();
                    bad[at] = byte;
                    let _ = read(from, &bad);
                }
            }
            bytes.push(0);
            assert!(read(from, &bytes).is_err());
        }
    }
}
