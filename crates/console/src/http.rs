//! HTTP/1.1 as far as a browser needs it here: requests with a body of known length, and responses
//! that are made before they are sent.
//!
//! **Invariants.**
//! - A head has [`HEAD_BYTES`] at most, a body [`BODY_BYTES`], and both have to arrive in time.
//! - What is ambiguous about where a request ends is refused, and ends the connection.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use server::Caller;

/// The longest head of a request: several times what browsers send.
const HEAD_BYTES: usize = 16 << 10;
/// The longest body: a name and a password.
const BODY_BYTES: usize = 8 << 10;
/// How long a connection may rest between two requests.
const REST: Duration = Duration::from_secs(30);
/// How long a request may take to arrive, once it has begun.
const ARRIVAL: Duration = Duration::from_secs(5);

/// A request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// Names and values behind the question mark.
    pub query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub is_last: bool,
}

/// Why no request was read.
#[derive(Debug, PartialEq, Eq)]
pub enum NoRequest {
    /// The client has gone, or rests too long.
    Gone,
    /// The client sent what cannot be answered but with this status.
    Bad(&'static str),
}

impl Request {
    /// A header by its name in lower case. Of several with one name, none counts.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n == name);
        let value = found.next().map(|(_, value)| value.as_str());
        value.filter(|_| found.next().is_none())
    }

    /// A parameter of the query.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Bytes of a connection that have arrived and belong to no request yet.
#[derive(Default)]
pub struct Arrived(Vec<u8>);

impl Arrived {
    /// The next request of a connection.
    pub fn request(&mut self, caller: &Caller) -> Result<Request, NoRequest> {
        if self.0.is_empty() {
            self.more(caller, REST)?;
        }
        let deadline = Instant::now() + ARRIVAL;
        let left = || deadline.saturating_duration_since(Instant::now());
        let end = loop {
            let end = end_of_head(&self.0);
            if let Some(end) = end.filter(|end| *end <= HEAD_BYTES) {
                break end;
            }
            if end.is_some() || self.0.len() > HEAD_BYTES {
                return Err(NoRequest::Bad("431 Request Header Fields Too Large"));
            }
            if left().is_zero() {
                return Err(NoRequest::Gone);
            }
            self.more(caller, left())?;
        };
        let (mut request, length) = parse(&self.0[..end]).map_err(NoRequest::Bad)?;
        self.0.drain(..end);
        while self.0.len() < length {
            if left().is_zero() {
                return Err(NoRequest::Gone);
            }
            self.more(caller, left())?;
        }
        request.body = self.0.drain(..length).collect();
        Ok(request)
    }

    fn more(&mut self, caller: &Caller, limit: Duration) -> Result<(), NoRequest> {
        let mut room = [0; 4096];
        match caller.read(&mut room, limit) {
            Ok(0) | Err(_) => Err(NoRequest::Gone),
            Ok(count) => {
                self.0.extend_from_slice(&room[..count]);
                Ok(())
            }
        }
    }
}

/// Where the head ends, its empty line included.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    Some(end + 4)
}

/// A request of its head, and the length of the body that follows.
fn parse(head: &[u8]) -> Result<(Request, usize), &'static str> {
    const BAD: &str = "400 Bad Request";
    let text = std::str::from_utf8(head).map_err(|_| BAD)?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some(version), None) => (method, target, version),
        _ => return Err(BAD),
    };
    let is_last = match version {
        "HTTP/1.1" => false,
        "HTTP/1.0" => true,
        _ => return Err("505 HTTP Version Not Supported"),
    };
    let is_plain = |b: u8| b.is_ascii_graphic();
    if !target.starts_with('/') || !target.bytes().all(is_plain) {
        return Err(BAD);
    }
    let mut request = Request {
        method: method.to_string(),
        is_last,
        ..Request::default()
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    request.path = path.to_string();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        request
            .query
            .push((decoded(name).ok_or(BAD)?, decoded(value).ok_or(BAD)?));
    }
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(BAD)?;
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(BAD);
        }
        let value = value.trim_matches([' ', '\t']);
        if value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
            return Err(BAD);
        }
        request
            .headers
            .push((name.to_ascii_lowercase(), value.to_string()));
    }
    let has = |name: &str| request.headers.iter().any(|(n, _)| n == name);
    if has("transfer-encoding") {
        return Err("501 Not Implemented");
    }
    let length = match (has("content-length"), request.header("content-length")) {
        (false, _) => 0,
        (true, Some(text)) if text.bytes().all(|b| b.is_ascii_digit()) => {
            text.parse().map_err(|_| BAD)?
        }
        (true, _) => return Err(BAD),
    };
    if length > BODY_BYTES {
        return Err("413 Content Too Large");
    }
    let closes = |text: &str| text.eq_ignore_ascii_case("close");
    request.is_last |= request.header("connection").is_some_and(closes);
    Ok((request, length))
}

/// A part of a query without its escapes. None if that is no text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        bytes.push(match b {
            b'+' => b' ',
            b'%' => {
                let digit = |b: u8| char::from(b).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                (high * 16 + low) as u8
            }
            b => b,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: &'static str,
    pub kind: &'static str,
    pub body: Vec<u8>,
    /// Headers besides those that all responses have.
    pub headers: Vec<(&'static str, String)>,
}

/// What a page of the console may do: load what its own host serves, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

impl Response {
    pub fn new(status: &'static str, kind: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status,
            kind,
            body: body.into(),
            headers: Vec::new(),
        }
    }

    pub fn text(status: &'static str, body: impl Into<String>) -> Response {
        let mut body = body.into();
        body.push('\n');
        Response::new(status, "text/plain; charset=utf-8", body)
    }

    pub fn json(status: &'static str, value: &serde_json::Value) -> Response {
        Response::new(status, "application/json", value.to_string())
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.push((name, value.into()));
        self
    }

    /// The response as it is sent. `is_last`: the connection ends behind it.
    pub fn bytes(self, is_last: bool, is_head: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {}\r\n", self.status);
        let length = self.body.len().to_string();
        let connection = if is_last { "close" } else { "keep-alive" };
        let all = [
            ("Content-Type", self.kind),
            ("Content-Length", &length),
            ("Connection", connection),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
        ];
        let own = self.headers.iter().map(|(n, v)| (*n, v.as_str()));
        for (name, value) in all.into_iter().chain(own) {
            // Writing to a string does not fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if !is_head {
            bytes.extend(self.body);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        let (request, length) = parse(
            b"POST /api/login?a=1&b=%3Cx%3E+y HTTP/1.1\r\nHost: x:1\r\nContent-Length: 12\r\n\
              Connection: Close\r\n\r\n",
        )
        .unwrap();
        assert_eq!((request.path.as_str(), length), ("/api/login", 12));
        assert_eq!(request.parameter("b"), Some("<x> y"));
        assert_eq!(request.header("host"), Some("x:1"));
        assert!(request.is_last);
        assert!(!parse(b"GET / HTTP/1.1\r\n\r\n").unwrap().0.is_last);
        assert!(parse(b"GET / HTTP/1.0\r\n\r\n").unwrap().0.is_last);
    }

    #[test]
    fn what_is_ambiguous_is_refused() {
        for (head, wanted) in [
            ("", "400"),
            ("GET /\r\n\r\n", "400"),
            ("GET  / HTTP/1.1\r\n\r\n", "400"),
            ("GET http://x/ HTTP/1.1\r\n\r\n", "400"),
            ("GET / HTTP/2\r\n\r\n", "505"),
            ("GET /%zz?%zz HTTP/1.1\r\n\r\n", "400"),
            ("GET /?%ff HTTP/1.1\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nA b: c\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\n folded\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\na: b\nc: d\r\n\r\n", "400"),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "501",
            ),
            ("POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", "400"),
            ("POST / HTTP/1.1\r\nContent-Length: 99999\r\n\r\n", "413"),
            (
                "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                "400",
            ),
        ] {
            let status = parse(head.as_bytes()).unwrap_err();
            assert!(status.starts_with(wanted), "{head:?}: {status}");
        }
        let twice = parse(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap();
        assert_eq!(twice.0.header("host"), None);
    }

    #[test]
    fn fuzz_requests() {
        let whole =
            b"POST /api/sql?a=%41&b=+ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\n\r\n";
        // Each byte damaged in turn: the answer is a request or a status.
        for at in 0..whole.len() {
            for byte in [0, b'\n', b' ', b':', b'%', 0xff] {
                let mut bytes = whole.to_vec();
                bytes[at] = byte;
                let _ = parse(&bytes);
                let _ = parse(&bytes[..at]);
            }
        }
    }

    #[test]
    fn responses_say_what_a_page_may_do() {
        let bytes = Response::text("200 OK", "x").bytes(true, false);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain"));
        assert!(text.contains("Content-Security-Policy: default-src 'none'; script-src 'self'"));
        assert!(text.ends_with("\r\n\r\nx\n"));
        let head = Response::text("200 OK", "x").bytes(false, true);
        assert!(String::from_utf8(head).unwrap().ends_with("\r\n\r\n"));
    }
}
