//! Orders and their answers as bytes.

use block::InstanceId;
use wire::{Bad, Reader, Writer, fields, tagged};

use super::SECRET_MAX_BYTES;
use crate::authority::Authority;

/// The first byte of a question that is an order.
pub const ORDER: u8 = 2;

/// What is to be done with a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// A client asks for its statement to be cancelled, and this is the secret that it has.
    Request { secret: Vec<u8> },
    /// Its statement is to be cancelled, by a role that may do so.
    Cancel { by: Authority },
    /// It is to end, by a role that may end it.
    End { by: Authority },
    /// Nothing: is it there?
    Look,
    /// It is to be traced at this level of event 10046, or not any more (zero), by a role that may
    /// end it.
    Trace { by: Authority, level: u8 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    pub from: InstanceId,
    pub incarnation: u64,
    /// No two orders of one life of an instance have the same.
    pub number: u64,
    pub sid: u32,
    /// Zero: of whichever session has the number.
    pub serial: u32,
    pub act: Act,
}

tagged! { impl Act: u8 {
    Request = 1 { secret },
    Cancel = 2 { by },
    End = 3 { by },
    Look = 4,
    Trace = 5 { by, level },
} }

/// What an instance says to an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    NotFound,
    /// The session is there, or was until the order ended it.
    Found,
    /// It is there, and is of this role, whose rights the order's role does not have.
    Refused {
        role: u32,
    },
}

tagged! { impl Answer: u8 {
    NotFound = 0,
    Found = 1,
    Refused = 2 { role },
} }

fields! { impl Order { from, incarnation, number, sid, serial, act } }

impl Order {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![ORDER];
        Writer::new(&mut bytes).put(self);
        bytes
    }

    /// `question` begins with [`ORDER`].
    pub fn decode(question: &[u8]) -> Result<Order, Bad> {
        let mut r = Reader::new(question);
        if r.get::<u8>()? != ORDER {
            return Err(r.bad("it is no order"));
        }
        let order: Order = r.get()?;
        match &order.act {
            Act::Request { secret } if secret.len() > SECRET_MAX_BYTES => {
                Err(r.bad("no secret is so long"))
            }
            _ => r.finish().map(|()| order),
        }
    }

    /// What tells it from all other orders.
    pub fn key(&self) -> (u16, u64, u64) {
        (self.from.0, self.incarnation, self.number)
    }
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).put(self);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Answer, Bad> {
        wire::decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fuzz::Family;

    fn samples() -> Vec<Order> {
        let order = |act| Order {
            from: InstanceId(2),
            incarnation: 3,
            number: 4,
            sid: 5,
            serial: 6,
            act,
        };
        let secret = b"key".to_vec();
        let by = |superuser| Authority { role: 7, superuser };
        vec![
            order(Act::Request { secret }),
            order(Act::Cancel { by: by(false) }),
            order(Act::End { by: by(true) }),
            order(Act::Look),
            order(Act::Trace {
                by: by(true),
                level: 12,
            }),
        ]
    }

    #[test]
    fn the_bytes_of_orders_are_pinned() {
        let head = b"\x02\x02\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\x06\0\0\0";
        let acts: [&[u8]; 5] = [
            b"\x01\x03\0\0\0key",
            b"\x02\x07\0\0\0\0",
            b"\x03\x07\0\0\0\x01",
            b"\x04",
            b"\x05\x07\0\0\0\x01\x0c",
        ];
        for (order, act) in samples().iter().zip(acts) {
            let bytes = [&head[..], act].concat();
            assert_eq!(order.encode(), bytes);
            assert_eq!(Order::decode(&bytes).as_ref(), Ok(order));
        }
        for (answer, bytes) in [
            (Answer::NotFound, &b"\0"[..]),
            (Answer::Found, b"\x01"),
            (Answer::Refused { role: 7 }, b"\x02\x07\0\0\0"),
        ] {
            assert_eq!(answer.encode(), bytes);
            assert_eq!(Answer::decode(bytes), Ok(answer));
        }
        for wrong in [&b""[..], b"\x02", b"\x03", b"\x01\x01"] {
            assert!(Answer::decode(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_order_are_refused() {
        let mut long = samples();
        long[0].act = Act::Request {
            secret: vec![7; SECRET_MAX_BYTES + 1],
        };
        assert!(Order::decode(&long[0].encode()).is_err());
        let mut other = samples()[1].encode();
        other[0] = 1;
        assert!(Order::decode(&other).is_err());
        let family = Family {
            kinds: vec![(vec![ORDER], "an order")],
            encode: &|order: &Order| order.encode(),
            decode: &Order::decode,
        };
        family.check(&samples());
    }
}
