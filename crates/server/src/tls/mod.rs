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
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
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

/// Refuses a key that others may read. The group may read a key that belongs to root, as in
/// PostgreSQL.
fn check_private(key: &Path) -> Result<(), TlsError> {
    let meta = std::fs::metadata(key).map_err(|e| TlsError::file(key, e))?;
    let allowed = if meta.uid() == 0 { 0o640 } else { 0o600 };
    match meta.permissions().mode() & 0o777 & !allowed {
        0 => Ok(()),
        _ => Err(TlsError::file(
            key,
            format!("the key may be read by others; chmod {allowed:o} it"),
        )),
    }
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
