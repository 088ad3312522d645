//! TLS for clients: the certificate that the server shows, and the encrypted side of a connection.
//!
//! Only TLS 1.3 is spoken. A session has one thread, so its two directions share one
//! [`TlsSession`] without a lock.
//!
//! **Invariant.** Nothing that arrived before the handshake ended is taken for a message of the
//! session: the caller refuses a request for encryption behind which more bytes have arrived.

mod der;
pub mod made;

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

/// Room for encrypted bytes between the socket and the TLS session: one record of the longest.
const ARRIVED_BYTES: usize = (16 << 10) + 512;

/// Why the server has no certificate to show.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{file}: {why}", file = .0.display(), why = .1)]
    File(PathBuf, String),
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

impl TlsError {
    fn file(path: &Path, why: impl std::fmt::Display) -> TlsError {
        TlsError::File(path.to_path_buf(), why.to_string())
    }
}

/// The files that a server reads its side of TLS from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The authorities whose certificates clients may show.
    pub authority: Option<PathBuf>,
}

/// What the server shows to clients, and whom it believes.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    end_point: Option<Arc<[u8]>>,
}

impl Tls {
    pub fn read(files: &TlsFiles) -> Result<Tls, TlsError> {
        let chain = certificates(&files.certificate)?;
        let Some(own) = chain.first() else {
            return Err(TlsError::file(
                &files.certificate,
                "there is no certificate in it",
            ));
        };
        let end_point =
            der::signature_hash(own).map(|hash| ring::digest::digest(hash, own).as_ref().into());
        check_private(&files.key)?;
        let key =
            PrivateKeyDer::from_pem_file(&files.key).map_err(|e| TlsError::file(&files.key, e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let bad = |e: rustls::Error| TlsError::file(&files.certificate, e);
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(bad)?;
        let builder = match &files.authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots
                        .add(certificate)
                        .map_err(|e| TlsError::file(path, e))?;
                }
                let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|e| TlsError::file(path, e))?;
                builder.with_client_cert_verifier(clients)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(bad)?;
        // A session is resumed by nobody: each proves anew who it is.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(Tls {
            config: Arc::new(config),
            end_point,
        })
    }

    /// The hash of the server's certificate that binds a password's proof to the TLS session
    /// (`tls-server-end-point`, RFC 5929). `None` if the certificate's signature names no hash.
    pub fn end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| TlsError::file(path, e))
}

/// Refuses a file that is no file of bytes, or a key that others than its owner may use.
fn check_private(key: &Path) -> Result<(), TlsError> {
    let meta = std::fs::metadata(key).map_err(|e| TlsError::file(key, e))?;
    if !meta.is_file() {
        return Err(TlsError::file(key, "a private key must be a regular file"));
    }
    let me = rustix::process::geteuid().as_raw();
    check_mode(meta.mode() & 0o777, meta.uid(), me)
        .map_err(|why| TlsError::file(key, format!("{why} {}", key.display())))
}

/// Checks who may use a private key that belongs to user `owner`, for a server that user `me` runs.
/// The rules are PostgreSQL's: what the owner may do does not matter, and the group may read a key
/// of root. The error ends with a command that lacks the name of the file.
fn check_mode(mode: u32, owner: u32, me: u32) -> Result<(), String> {
    if owner != me && owner != 0 {
        return Err(format!(
            "the private key belongs to user {owner}; it must belong to root, or to user {me}, who \
             runs this server: chown {me}"
        ));
    }
    let others_may = if owner == 0 { 0o040 } else { 0 };
    if mode & 0o077 & !others_may == 0 {
        return Ok(());
    }
    Err(format!(
        "the private key has mode {mode:04o}, and users other than its owner may use it; accepted \
         is 0600 or less, or 0640 or less of a key that belongs to root: chmod 600"
    ))
}

/// The encrypted side of a connection. Both directions of a session use it in turn.
pub struct TlsSession {
    connection: ServerConnection,
    /// Encrypted bytes that have arrived and were not taken up: `arrived[start..end]`.
    arrived: Box<[u8]>,
    start: usize,
    end: usize,
}

impl TlsSession {
    pub fn new(tls: &Tls) -> Result<TlsSession, rustls::Error> {
        Ok(TlsSession {
            connection: ServerConnection::new(tls.config.clone())?,
            arrived: vec![0; ARRIVED_BYTES].into(),
            start: 0,
            end: 0,
        })
    }

    /// Carries the handshake to its end. After an error the client has been told why, and the
    /// connection is to be closed.
    pub fn handshake(&mut self, stream: &TcpStream, deadline: Instant) -> io::Result<()> {
        while self.connection.is_handshaking() {
            if self.start == self.end {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                stream.set_read_timeout(Some(left))?;
                self.arrive(|room| (&*stream).read(room))?;
                if self.start == self.end {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            self.take_up(stream)?;
        }
        Ok(())
    }

    /// The certificate that the client has shown; one of our authorities has signed it.
    fn shown(&self) -> Option<&CertificateDer<'static>> {
        self.connection.peer_certificates()?.first()
    }

    /// The name that OpenSSL has for the cipher in use.
    pub fn cipher(&self) -> Option<String> {
        let suite = self.connection.negotiated_cipher_suite()?.suite();
        let name = suite.as_str()?;
        Some(name.replacen("TLS13_", "TLS_", 1))
    }

    pub fn has_client_certificate(&self) -> bool {
        self.shown().is_some()
    }

    /// The common name in the certificate that the client has shown.
    pub fn client_name(&self) -> Option<String> {
        der::common_name(self.shown()?)
    }

    /// Like `read` of the socket, for which `receive` stands. Zero is the end.
    pub fn read(
        &mut self,
        stream: &TcpStream,
        room: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(room) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if self.start == self.end {
                self.arrive(&mut receive)?;
                if self.start == self.end {
                    // What a client had to send before it vanished was complete, or is not used.
                    return Ok(0);
                }
            }
            self.take_up(stream)?;
        }
    }

    /// Sends all of it.
    pub fn write_all(&mut self, stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // It takes up to its limit of unsent bytes, which are none here.
            let taken = self.connection.writer().write(bytes)?;
            bytes = &bytes[taken..];
            self.send(stream)?;
        }
        Ok(())
    }

    /// Tells the client that nothing more comes.
    pub fn close(&mut self, stream: &TcpStream) {
        self.connection.send_close_notify();
        // A client that is gone need not hear it.
        let _ = self.send(stream);
    }

    fn arrive(
        &mut self,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let count = loop {
            match receive(&mut self.arrived) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                received => break received?,
            }
        };
        (self.start, self.end) = (0, count);
        Ok(())
    }

    /// Takes up some of what has arrived, and sends what the protocol answers.
    fn take_up(&mut self, stream: &TcpStream) -> io::Result<()> {
        let mut bytes = &self.arrived[self.start..self.end];
        self.start += self.connection.read_tls(&mut bytes)?;
        let taken = self.connection.process_new_packets();
        let sent = self.send(stream);
        match taken {
            Ok(_) => sent,
            Err(e) => Err(io::Error::new(io::ErrorKind::InvalidData, e)),
        }
    }

    fn send(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut &*stream) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                sent => {
                    sent?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// Modes of a key as PostgreSQL 15 takes and refuses them (`check_ssl_key_file_permissions`).
    #[test]
    fn private_keys_are_taken_with_the_modes_of_postgresql() {
        const ME: u32 = 1000;
        let taken = |mode, owner| check_mode(mode, owner, ME).is_ok();
        for mode in [0o600, 0o400, 0o700, 0o500] {
            assert!(taken(mode, ME) && taken(mode, 0), "{mode:o}");
        }
        assert!(taken(0o640, 0) && taken(0o740, 0) && taken(0o440, 0));
        for mode in [0o640, 0o440] {
            assert!(!taken(mode, ME), "{mode:o}");
        }
        for mode in [0o644, 0o660, 0o620, 0o650, 0o604, 0o601, 0o777] {
            assert!(!taken(mode, ME) && !taken(mode, 0), "{mode:o}");
        }
        assert!(!taken(0o600, ME + 1) && !taken(0o400, ME + 1));
    }

    #[test]
    fn a_key_that_is_refused_is_told_its_mode_and_what_to_do() {
        let dir = std::env::temp_dir().join(format!("braid-keys-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let key = dir.join("server.key");
        std::fs::write(&key, "key").unwrap();
        let with = |mode| {
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
            check_private(&key).map_err(|e| e.to_string())
        };
        assert_eq!(with(0o600), Ok(()));
        assert_eq!(with(0o700), Ok(()));
        let refused = with(0o644).unwrap_err();
        let todo = format!("chmod 600 {}", key.display());
        for part in ["0644", "0600 or less", "0640 or less", &todo] {
            assert!(refused.contains(part), "{part:?} is not in: {refused}");
        }
        let refused = check_private(&dir).map_err(|e| e.to_string()).unwrap_err();
        assert!(refused.contains("regular file"), "{refused}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
