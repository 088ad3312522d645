//! A client that speaks the protocol byte by byte through TLS.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use testkit::wire::{self, Client, PROTOCOL_3_0};

pub type Secure = StreamOwned<ClientConnection, TcpStream>;

pub const SSL_REQUEST: u32 = 80_877_103;

/// What a client believes and shows.
pub struct Trust<'a> {
    /// The server's authority, in PEM.
    pub authority: &'a Path,
    /// The name or address that the server's certificate must have.
    pub server: &'a str,
    /// The client's own certificate and key.
    pub shown: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
}

/// The server's answer to a request for TLS.
pub fn ask(stream: &mut TcpStream) -> u8 {
    stream
        .write_all(&wire::packet(SSL_REQUEST, b""))
        .expect("send");
    let mut answer = [0];
    stream.read_exact(&mut answer).expect("an answer");
    answer[0]
}

/// A connection whose handshake is done, if both sides believe each other.
pub fn connect(port: u16, trust: Trust<'_>) -> io::Result<Secure> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(trust.authority).expect("authority") {
        roots.add(certificate.expect("PEM")).expect("a certificate");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots);
    let config = match trust.shown {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(vec![certificate], key)
            .expect("a key for the certificate"),
    };
    let name = ServerName::try_from(trust.server.to_string()).expect("a name");
    let mut stream = Client::raw(port).stream;
    assert_eq!(ask(&mut stream), b'S', "TLS is refused");
    let mut session = ClientConnection::new(Arc::new(config), name).expect("a session");
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(session, stream))
}

/// A client of the protocol over a connection that is encrypted.
pub fn client(stream: Secure, user: &str) -> Client<Secure> {
    let mut client = Client::over(stream);
    let body = format!("user\0{user}\0database\0braid\0\0");
    client.send_startup(PROTOCOL_3_0, body.as_bytes());
    client.greeting = client.until(b'Z');
    client
}
