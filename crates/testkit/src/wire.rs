//! A client that speaks PostgreSQL's protocol byte by byte, so that it can also speak it wrongly.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A message: its tag and its body.
#[derive(Clone, PartialEq, Eq)]
pub struct Message(pub u8, pub Vec<u8>);

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}{:?}",
            self.0 as char,
            String::from_utf8_lossy(&self.1[..self.1.len().min(200)])
        )
    }
}

impl Message {
    /// A field of an ErrorResponse; empty if it has none of this code.
    pub fn field(&self, code: u8) -> String {
        let fields = self.1.split(|&b| b == 0);
        let mut found = fields
            .filter(|f| f.first() == Some(&code))
            .map(|f| String::from_utf8_lossy(&f[1..]).into_owned());
        found.next_back().unwrap_or_default()
    }
    /// The SQLSTATE of an ErrorResponse.
    pub fn sqlstate(&self) -> String {
        assert_eq!(self.0, b'E', "{self:?} is no error");
        self.field(b'C')
    }
}

/// A connection that sends whatever it is given, in the clear or through TLS.
pub struct Client<S = TcpStream> {
    pub stream: S,
    /// What the server said until it was ready for the first query.
    pub greeting: Vec<Message>,
}

pub const PROTOCOL_3_0: u32 = 3 << 16;
const CANCEL: u32 = 80_877_102;

impl Client {
    /// A connection that has said nothing yet.
    pub fn raw(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("timeout");
        stream.set_nodelay(true).expect("nodelay");
        Client::over(stream)
    }

    /// A connection that is ready for queries.
    pub fn connect(port: u16) -> Client {
        Client::connect_as(port, PROTOCOL_3_0)
    }

    /// Like `connect`, with another version of the protocol.
    pub fn connect_as(port: u16, version: u32) -> Client {
        let mut client = Client::raw(port);
        client.send_startup(version, b"user\0tester\0database\0braid\0\0");
        client.greeting = client.until(b'Z');
        client
    }

    /// Asks the server to cancel the statement of another connection.
    pub fn cancel(port: u16, key: &[u8]) {
        let mut client = Client::raw(port);
        client.send_startup(CANCEL, key);
        assert_eq!(client.receive(), None, "a cancel request gets no answer");
    }
}

impl<S: Read + Write> Client<S> {
    /// A connection over a stream on which nothing of the protocol has been said yet.
    pub fn over(stream: S) -> Client<S> {
        Client {
            stream,
            greeting: Vec::new(),
        }
    }

    /// Sends a packet without a tag: a startup packet or a request.
    pub fn send_startup(&mut self, code: u32, body: &[u8]) {
        self.stream.write_all(&packet(code, body)).expect("send");
    }

    /// Sends messages in one write.
    pub fn send(&mut self, messages: &[Message]) {
        let mut bytes = Vec::new();
        for Message(tag, body) in messages {
            bytes.push(*tag);
            bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
            bytes.extend_from_slice(body);
        }
        self.stream.write_all(&bytes).expect("send");
    }

    /// The next message; `None` once the server has closed the connection. The test fails if the
    /// server does neither for a minute.
    pub fn receive(&mut self) -> Option<Message> {
        match self.try_receive() {
            Ok(message) => Some(message),
            Err(e) => match e.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    None
                }
                _ => panic!("neither a message nor the end: {e}"),
            },
        }
    }

    /// The next message. The error is a timeout if there is none in time.
    pub fn try_receive(&mut self) -> std::io::Result<Message> {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body)?;
        Ok(Message(header[0], body))
    }

    /// All messages up to the next one with this tag, which is the last.
    pub fn until(&mut self, tag: u8) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let Some(message) = self.receive() else {
                panic!("closed after {messages:?}")
            };
            messages.push(message);
            if messages.last().is_some_and(|m| m.0 == tag) {
                return messages;
            }
        }
    }

    /// Runs a Query message to its end and returns the answer.
    pub fn query(&mut self, sql: &str) -> Vec<Message> {
        self.send(&[query(sql)]);
        self.until(b'Z')
    }

    /// Runs a Query that must not fail and returns the first column of its rows.
    pub fn column(&mut self, sql: &str) -> Vec<String> {
        let messages = self.query(sql);
        assert!(messages.iter().all(|m| m.0 != b'E'), "{sql}: {messages:?}");
        messages
            .iter()
            .filter(|m| m.0 == b'D')
            .map(first_value)
            .collect()
    }

    /// The process number and the secret of the greeting, for `cancel`.
    pub fn key(&self) -> Vec<u8> {
        self.greeting
            .iter()
            .find(|m| m.0 == b'K')
            .expect("a cancel key")
            .1
            .clone()
    }
}

/// A packet without a tag.
pub fn packet(code: u32, body: &[u8]) -> Vec<u8> {
    let mut packet = (body.len() as u32 + 8).to_be_bytes().to_vec();
    packet.extend_from_slice(&code.to_be_bytes());
    packet.extend_from_slice(body);
    packet
}

fn first_value(row: &Message) -> String {
    let length = i32::from_be_bytes([row.1[2], row.1[3], row.1[4], row.1[5]]);
    match usize::try_from(length) {
        Ok(length) => String::from_utf8_lossy(&row.1[6..6 + length]).into_owned(),
        Err(_) => "NULL".into(),
    }
}

/// The tags of messages, in their order.
pub fn tags(messages: &[Message]) -> String {
    messages.iter().map(|m| m.0 as char).collect()
}

pub const SYNC: Message = Message(b'S', Vec::new());
pub const FLUSH: Message = Message(b'H', Vec::new());

fn c_strings(parts: &[&str]) -> Vec<u8> {
    parts
        .iter()
        .flat_map(|part| part.bytes().chain([0]))
        .collect()
}

pub fn query(sql: &str) -> Message {
    Message(b'Q', c_strings(&[sql]))
}

pub fn parse(name: &str, sql: &str, types: &[u32]) -> Message {
    let mut body = c_strings(&[name, sql]);
    body.extend_from_slice(&(types.len() as u16).to_be_bytes());
    body.extend(types.iter().flat_map(|oid| oid.to_be_bytes()));
    Message(b'P', body)
}

pub fn bind(
    portal: &str,
    statement: &str,
    formats: &[i16],
    values: &[Option<&[u8]>],
    results: &[i16],
) -> Message {
    let mut body = c_strings(&[portal, statement]);
    let list = |body: &mut Vec<u8>, formats: &[i16]| {
        body.extend_from_slice(&(formats.len() as u16).to_be_bytes());
        body.extend(formats.iter().flat_map(|f| f.to_be_bytes()));
    };
    list(&mut body, formats);
    body.extend_from_slice(&(values.len() as u16).to_be_bytes());
    for value in values {
        match value {
            None => body.extend_from_slice(&(-1i32).to_be_bytes()),
            Some(bytes) => {
                body.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                body.extend_from_slice(bytes);
            }
        }
    }
    list(&mut body, results);
    Message(b'B', body)
}

pub fn describe(kind: u8, name: &str) -> Message {
    let mut body = vec![kind];
    body.extend(c_strings(&[name]));
    Message(b'D', body)
}

pub fn execute(portal: &str, max_rows: i32) -> Message {
    let mut body = c_strings(&[portal]);
    body.extend_from_slice(&max_rows.to_be_bytes());
    Message(b'E', body)
}

pub fn copy_data(data: &[u8]) -> Message {
    Message(b'd', data.to_vec())
}
