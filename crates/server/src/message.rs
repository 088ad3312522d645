//! Messages from a client, decoded in place. Every string and value borrows from the session's
//! input buffer.
//!
//! Decoding is pure and total: whatever the bytes, the result is a message or a [`Violation`],
//! never a panic. No allocation is larger than the message itself.

use std::fmt;

/// The longest message that is accepted. A statement of 10 MB and values of many MB fit, and one
/// client cannot take all memory.
pub const MAX_MESSAGE_BYTES: usize = 256 << 20;
/// The longest message of the kinds that carry a name at most (Sync, Describe, Execute...), as in
/// PostgreSQL.
pub const MAX_SMALL_MESSAGE_BYTES: usize = 10_000;
/// Bytes of a message's tag and length.
pub const HEADER_BYTES: usize = 5;

/// The client broke the protocol. The text goes to the client with SQLSTATE 08P01.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub message: String,
    /// Whether the stream can be trusted no more. The connection is then closed after the answer.
    pub fatal: bool,
}

impl Violation {
    fn new(message: impl Into<String>) -> Violation {
        Violation {
            message: message.into(),
            fatal: false,
        }
    }
    fn fatal(message: impl Into<String>) -> Violation {
        Violation {
            message: message.into(),
            fatal: true,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

type Decoded<T> = Result<T, Violation>;

/// The target of a Describe or Close. Names are bytes: the code that uses a name checks whether it
/// is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    Statement(&'a [u8]),
    Portal(&'a [u8]),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Frontend<'a> {
    Query(&'a [u8]),
    Parse {
        name: &'a [u8],
        sql: &'a [u8],
        types: U32s<'a>,
    },
    Bind(Bind<'a>),
    Describe(Target<'a>),
    Execute {
        portal: &'a [u8],
        max_rows: i32,
    },
    Close(Target<'a>),
    Flush,
    Sync,
    CopyData(&'a [u8]),
    CopyDone,
    CopyFail(&'a [u8]),
    /// A password or SASL answer that nobody asked for.
    Password,
    FunctionCall(FunctionCall<'a>),
    Terminate,
}

/// A Bind message. The lists are read when they are asked for, so decoding allocates nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    pub portal: &'a [u8],
    pub statement: &'a [u8],
    formats: I16s<'a>,
    /// The values, validated. Each is a length (-1: NULL) and its bytes.
    values: &'a [u8],
    value_count: usize,
    result_formats: I16s<'a>,
}

impl<'a> Bind<'a> {
    pub fn formats(&self) -> I16s<'a> {
        self.formats
    }
    pub fn result_formats(&self) -> I16s<'a> {
        self.result_formats
    }
    pub fn value_count(&self) -> usize {
        self.value_count
    }
    /// The parameter values; `None` is NULL.
    pub fn values(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut rest = Reader { bytes: self.values };
        (0..self.value_count).map(move |_| rest.value().unwrap_or(None))
    }
}

/// A FunctionCall message: a function by its number, with the values of its arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionCall<'a> {
    pub function: u32,
    pub formats: I16s<'a>,
    pub values: Vec<Option<&'a [u8]>>,
    pub result_format: i16,
}

/// Big-endian 16-bit numbers, read when they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct I16s<'a>(&'a [u8]);

impl I16s<'_> {
    pub fn iter(&self) -> impl Iterator<Item = i16> {
        self.0
            .chunks_exact(2)
            .map(|b| i16::from_be_bytes([b[0], b[1]]))
    }
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }
}

/// Big-endian 32-bit numbers, read when they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct U32s<'a>(&'a [u8]);

impl U32s<'_> {
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0
            .chunks_exact(4)
            .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }
}

/// Looks at the start of the input. `Ok(Some(n))`: the first message is `n` bytes long, header
/// included, and may not have arrived in full. `Ok(None)`: not even its header has arrived. An
/// unknown kind or length is fatal.
pub fn frame(input: &[u8]) -> Decoded<Option<usize>> {
    let Some(header) = input.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let tag = header[0];
    let limit = match tag {
        b'Q' | b'P' | b'B' | b'd' | b'F' => MAX_MESSAGE_BYTES,
        b'D' | b'E' | b'C' | b'H' | b'S' | b'c' | b'f' | b'p' | b'X' => MAX_SMALL_MESSAGE_BYTES,
        _ => {
            return Err(Violation::fatal(format!(
                "invalid frontend message type {tag}"
            )));
        }
    };
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    if length < 4 {
        return Err(Violation::fatal("invalid message length"));
    }
    if length > limit {
        return Err(Violation::fatal(format!(
            "message of {length} bytes is longer than the limit of {limit} bytes for its type"
        )));
    }
    Ok(Some(length + 1))
}

/// Decodes one message that [`frame`] accepted and that has arrived in full.
pub fn decode(message: &[u8]) -> Decoded<Frontend<'_>> {
    let Some((header, body)) = message.split_at_checked(HEADER_BYTES) else {
        return Err(Violation::fatal("message without header"));
    };
    let mut body = Reader { bytes: body };
    let decoded = match header[0] {
        b'Q' => Frontend::Query(body.string()?),
        b'P' => Frontend::Parse {
            name: body.string()?,
            sql: body.string()?,
            types: body.u32s()?,
        },
        b'B' => Frontend::Bind(body.bind()?),
        b'D' => Frontend::Describe(body.target("DESCRIBE")?),
        b'C' => Frontend::Close(body.target("CLOSE")?),
        b'E' => Frontend::Execute {
            portal: body.string()?,
            max_rows: body.i32()?,
        },
        b'H' => Frontend::Flush,
        b'S' => Frontend::Sync,
        b'X' => Frontend::Terminate,
        b'd' => Frontend::CopyData(body.rest()),
        b'c' => Frontend::CopyDone,
        b'f' => Frontend::CopyFail(body.string()?),
        b'p' => {
            body.rest();
            Frontend::Password
        }
        b'F' => Frontend::FunctionCall(body.function_call()?),
        tag => {
            return Err(Violation::fatal(format!(
                "invalid frontend message type {tag}"
            )));
        }
    };
    if body.bytes.is_empty() {
        Ok(decoded)
    } else {
        Err(Violation::new("invalid message format"))
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Decoded<&'a [u8]> {
        let (head, rest) = self
            .bytes
            .split_at_checked(count)
            .ok_or_else(|| Violation::new("insufficient data left in message"))?;
        self.bytes = rest;
        Ok(head)
    }
    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }
    fn string(&mut self) -> Decoded<&'a [u8]> {
        let end = self
            .bytes
            .iter()
            .position(|&b| b == 0)
            .ok_or_else(|| Violation::new("invalid string in message"))?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(text)
    }
    fn i16(&mut self) -> Decoded<i16> {
        let b = self.take(2)?;
        Ok(i16::from_be_bytes([b[0], b[1]]))
    }
    fn i32(&mut self) -> Decoded<i32> {
        let b = self.take(4)?;
        Ok(i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }
    /// Reads a count of list elements: 16 bits without sign, as PostgreSQL reads them.
    fn count(&mut self) -> Decoded<usize> {
        Ok(usize::from(self.i16()? as u16))
    }
    fn i16s(&mut self) -> Decoded<I16s<'a>> {
        let count = self.count()?;
        Ok(I16s(self.take(count * 2)?))
    }
    fn u32s(&mut self) -> Decoded<U32s<'a>> {
        let count = self.count()?;
        Ok(U32s(self.take(count * 4)?))
    }
    fn value(&mut self) -> Decoded<Option<&'a [u8]>> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length)
                    .map_err(|_| Violation::new("invalid length of a parameter value"))?;
                Ok(Some(self.take(length)?))
            }
        }
    }
    fn target(&mut self, what: &str) -> Decoded<Target<'a>> {
        match self.take(1)?[0] {
            b'S' => Ok(Target::Statement(self.string()?)),
            b'P' => Ok(Target::Portal(self.string()?)),
            kind => Err(Violation::new(format!(
                "invalid {what} message subtype {kind}"
            ))),
        }
    }
    fn function_call(&mut self) -> Decoded<FunctionCall<'a>> {
        let function = self.i32()?.cast_unsigned();
        let formats = self.i16s()?;
        let count = self.count()?;
        if formats.len() > 1 && formats.len() != count {
            return Err(Violation::new(format!(
                "function call message contains {} argument formats but {count} arguments",
                formats.len()
            )));
        }
        let values = (0..count).map(|_| self.value()).collect::<Decoded<_>>()?;
        Ok(FunctionCall {
            function,
            formats,
            values,
            result_format: self.i16()?,
        })
    }
    fn bind(&mut self) -> Decoded<Bind<'a>> {
        let (portal, statement) = (self.string()?, self.string()?);
        let formats = self.i16s()?;
        let value_count = self.count()?;
        let all = self.bytes;
        for _ in 0..value_count {
            self.value()?;
        }
        let values = &all[..all.len() - self.bytes.len()];
        if formats.len() > 1 && formats.len() != value_count {
            return Err(Violation::new(format!(
                "bind message has {} parameter formats but {value_count} parameters",
                formats.len()
            )));
        }
        Ok(Bind {
            portal,
            statement,
            formats,
            values,
            value_count,
            result_formats: self.i16s()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn bind_gives_back_its_values() {
        let body = b"p\0s\0\x00\x01\x00\x01\x00\x03\x00\x00\x00\x02ab\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00";
        let bytes = message(b'B', body);
        assert_eq!(frame(&bytes), Ok(Some(bytes.len())));
        let Ok(Frontend::Bind(bind)) = decode(&bytes) else {
            panic!()
        };
        assert_eq!((bind.portal, bind.statement), (&b"p"[..], &b"s"[..]));
        assert_eq!(bind.formats().iter().collect::<Vec<_>>(), [1]);
        assert_eq!(
            bind.values().collect::<Vec<_>>(),
            [Some(&b"ab"[..]), None, Some(&b""[..])]
        );
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        assert!(frame(b"Q\0\0\0\x03").unwrap_err().fatal);
        assert!(frame(b"Q\xff\xff\xff\xff").unwrap_err().fatal);
        assert!(frame(b"S\0\x01\0\0").unwrap_err().fatal);
        assert!(frame(b"!\0\0\0\x04").unwrap_err().fatal);
        assert_eq!(frame(b"Q\0\0"), Ok(None));
        // The Bind promises more values, or longer ones, than it has.
        assert!(decode(&message(b'B', b"\0\0\0\0\xff\xff")).is_err());
        assert!(decode(&message(b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff")).is_err());
        assert!(decode(&message(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe")).is_err());
        // One message has a string without its end, the other has bytes beyond the end.
        assert!(decode(&message(b'Q', b"select 1")).is_err());
        assert!(decode(&message(b'Q', b"select 1\0x")).is_err());
    }

    /// The decoder gets random damage to valid messages, and plain noise. It answers, and reads
    /// nothing beyond the message.
    #[test]
    fn fuzz_decoder() {
        let seeds = [
            message(b'Q', b"select 1\0"),
            message(b'P', b"s1\0select $1\0\0\x01\0\0\0\x17"),
            message(
                b'B',
                b"\0s1\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01",
            ),
            message(b'D', b"Ss1\0"),
            message(b'E', b"\0\0\0\0\0"),
            message(b'C', b"Pc\0"),
            message(b'f', b"no\0"),
            message(b'd', b"1\t2\n"),
        ];
        let seed = crate::testing::seed("BRAID_FUZZ_SEED");
        let mut random = crate::testing::Random::new(seed);
        for _ in 0..200_000 {
            let mut bytes = seeds[random.below(seeds.len())].clone();
            for _ in 0..random.below(6) {
                let at = random.below(bytes.len());
                match random.below(4) {
                    0 => bytes[at] = random.next() as u8,
                    1 => bytes.truncate(at.max(1)),
                    2 => bytes.insert(at, random.next() as u8),
                    _ => bytes[at] ^= 1 << random.below(8),
                }
            }
            let Ok(Some(length)) = frame(&bytes) else {
                continue;
            };
            if length > bytes.len() {
                continue;
            }
            if let Ok(Frontend::Bind(bind)) = decode(&bytes[..length]) {
                assert_eq!(bind.values().count(), bind.value_count(), "seed {seed}");
            }
        }
    }
}
