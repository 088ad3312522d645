//! The start of a session: requests for encryption, cancel requests, protocol version and
//! parameters.

use crate::message::Violation;

/// The longest packet before a session exists, as in PostgreSQL.
pub const MAX_STARTUP_BYTES: usize = 10_000;
/// The newest minor version of protocol 3 that this server speaks. 3.2 has cancel keys of variable
/// length. 3.1 was never defined.
pub const NEWEST_MINOR: u16 = 2;
/// A client may ask for encryption in two ways, once in each.
pub const MAX_ENCRYPTION_REQUESTS: usize = 2;

const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS_ENCRYPTION: u32 = 80_877_104;

#[derive(Debug, PartialEq, Eq)]
pub enum Packet {
    /// SSLRequest: answered with `S`, on which a TLS handshake follows, or with `N`, on which the
    /// client goes on in the clear or gives up.
    Ssl,
    /// GSSENCRequest: always answered with `N`.
    GssEncryption,
    Cancel {
        pid: i32,
        secret: Vec<u8>,
    },
    Startup(Startup),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Startup {
    /// The minor version to be used: the client's, or [`NEWEST_MINOR`].
    pub minor: u16,
    /// Whether the client asked for more than this server has: a newer version, or unknown options.
    /// If so, it must be told.
    pub negotiate: bool,
    pub unknown_options: Vec<String>,
    pub user: String,
    pub database: String,
    /// Settings for the session, in the client's order.
    pub parameters: Vec<(String, String)>,
    /// Command-line switches. `parameters` override what the switches set.
    pub options: String,
    /// Whether the client wants to be a standby.
    pub replication: bool,
}

/// Decodes a packet that is complete, its length included.
pub fn decode(packet: &[u8]) -> Result<Packet, Violation> {
    let wrong = |text: &str| Violation {
        message: text.into(),
        fatal: true,
    };
    let (Some(code), Some(body)) = (packet.get(4..8), packet.get(8..)) else {
        return Err(wrong("invalid length of startup packet"));
    };
    let code = u32::from_be_bytes([code[0], code[1], code[2], code[3]]);
    match code {
        SSL => return Ok(Packet::Ssl),
        GSS_ENCRYPTION => return Ok(Packet::GssEncryption),
        CANCEL => {
            let (pid, secret) = body
                .split_first_chunk::<4>()
                .ok_or_else(|| wrong("invalid cancel request"))?;
            return Ok(Packet::Cancel {
                pid: i32::from_be_bytes(*pid),
                secret: secret.to_vec(),
            });
        }
        _ => {}
    }
    let (major, minor) = ((code >> 16) as u16, code as u16);
    if major != 3 {
        return Err(Violation {
            message: format!(
                "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.{NEWEST_MINOR}"
            ),
            fatal: true,
        });
    }
    let mut startup = Startup {
        minor: minor.min(NEWEST_MINOR),
        negotiate: minor > NEWEST_MINOR,
        unknown_options: Vec::new(),
        user: String::new(),
        database: String::new(),
        parameters: Vec::new(),
        options: String::new(),
        replication: false,
    };
    let body = body
        .strip_suffix(b"\0")
        .ok_or_else(|| wrong("invalid startup packet layout: expected terminator as last byte"))?;
    let mut strings = body.split(|&b| b == 0);
    // The packet has pairs of strings, each ended by a zero. The end of the last leaves an empty
    // piece.
    while let Some(name) = strings.next().filter(|name| !name.is_empty()) {
        let value = strings.next().ok_or_else(|| {
            wrong("invalid startup packet layout: expected terminator as last byte")
        })?;
        let text = |bytes: &[u8]| {
            std::str::from_utf8(bytes)
                .map(str::to_string)
                .map_err(|_| wrong("startup packet is not valid UTF-8"))
        };
        // A program's name may be in any encoding, so only its ASCII characters are shown.
        let shown = |bytes: &[u8]| {
            let ascii = |&b: &u8| if b.is_ascii() { char::from(b) } else { '?' };
            bytes.iter().map(ascii).collect()
        };
        let (name, value) = match text(name)? {
            name if name == "application_name" => (name, shown(value)),
            name => (name, text(value)?),
        };
        match name.as_str() {
            "user" => startup.user = value,
            "database" => startup.database = value,
            "options" => startup.options = value,
            "replication" => startup.replication = replication(&value),
            _ if name.starts_with("_pq_.") => startup.unknown_options.push(name),
            _ => startup.parameters.push((name, value)),
        }
    }
    if startup.user.is_empty() {
        return Err(wrong("no PostgreSQL user name specified in startup packet"));
    }
    if startup.database.is_empty() {
        startup.database.clone_from(&startup.user);
    }
    startup.negotiate |= !startup.unknown_options.is_empty();
    Ok(Packet::Startup(startup))
}

/// Whether the value asks for a connection that ships redo: `database`, or any word that does not
/// mean false.
fn replication(value: &str) -> bool {
    let value = value.to_lowercase();
    let is = |word: &str| !value.is_empty() && word.starts_with(&value);
    !(is("false") || is("no") || value == "off" || value == "of" || value == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_programs_of_any_encoding() {
        let body =
            b"user\0me\0options\0-c geqo=off\0replication\0off\0application_name\0caf\xe9\0\0";
        let Ok(Packet::Startup(startup)) = decode(&packet(3 << 16, body)) else {
            panic!()
        };
        assert_eq!(startup.options, "-c geqo=off");
        assert_eq!(
            startup.parameters,
            [("application_name".to_string(), "caf?".to_string())]
        );
        assert!(!startup.replication);
        for (value, wanted) in [
            ("true", true),
            ("database", true),
            ("no", false),
            ("", true),
        ] {
            assert_eq!(replication(value), wanted, "{value:?}");
        }
    }

    fn packet(code: u32, body: &[u8]) -> Vec<u8> {
        let mut out = (body.len() as u32 + 8).to_be_bytes().to_vec();
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn versions_are_negotiated() {
        let body = b"user\0me\0database\0braid\0application_name\0psql\0_pq_.x\0on\0\0";
        let Ok(Packet::Startup(startup)) = decode(&packet(3 << 16, body)) else {
            panic!()
        };
        assert_eq!(
            (startup.minor, startup.negotiate, startup.database.as_str()),
            (0, true, "braid")
        );
        assert_eq!(startup.unknown_options, ["_pq_.x"]);
        assert_eq!(
            startup.parameters,
            [("application_name".to_string(), "psql".to_string())]
        );
        let Ok(Packet::Startup(startup)) = decode(&packet(3 << 16 | 99, b"user\0me\0\0")) else {
            panic!()
        };
        assert_eq!(
            (startup.minor, startup.negotiate, startup.database.as_str()),
            (2, true, "me")
        );
        assert!(decode(&packet(2 << 16, b"user\0me\0\0")).is_err());
    }

    #[test]
    fn broken_packets_are_refused() {
        for body in [
            &b"user\0me"[..],
            b"",
            b"\0",
            b"user\0",
            b"database\0x\0\0",
            b"user\0\xff\0\0",
        ] {
            assert!(decode(&packet(3 << 16, body)).is_err(), "{body:?}");
        }
        assert!(decode(&packet(CANCEL, b"\0")).is_err());
        assert!(decode(b"\0\0\0\x04").is_err());
    }

    #[test]
    fn fuzz_startup() {
        let seed = crate::testing::seed("BRAID_FUZZ_SEED");
        let mut random = crate::testing::Random::new(seed);
        for _ in 0..50_000 {
            let mut bytes = packet(
                3 << 16,
                b"user\0me\0options\0-c a.b=\\ x\0client_encoding\0'utf-8'\0\0",
            );
            for _ in 0..random.below(5) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = random.next() as u8,
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, 0),
                }
            }
            // Whatever the options say, `parse` returns.
            if let Ok(Packet::Startup(startup)) = decode(&bytes) {
                let _ = crate::options::parse(&startup.options);
            }
        }
    }
}
