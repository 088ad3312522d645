//! Mutual TLS 1.3 between hosts: which certificates are accepted, and the check that a certificate
//! belongs to the instance that shows it.

use crate::certs::{self, TlsFiles, instance_name};
use crate::{Error, Result};
use block::InstanceId;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::sync::Arc;

/// The label of the exporter that binds the proof of the secret to the TLS session.
const EXPORTER_LABEL: &[u8] = b"EXPERIMENTAL-braid-interconnect";

/// An instance's side of TLS, as client and as server.
#[derive(Clone)]
pub(crate) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    pub fn read(files: &TlsFiles) -> Result<Tls> {
        let bad = |path: &std::path::Path, e: &dyn std::fmt::Display| {
            Error::Config(format!("{}: {e}", path.display()))
        };
        let certificates = |path: &std::path::Path| -> Result<Vec<CertificateDer<'static>>> {
            CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect)
                .map_err(|e| bad(path, &e))
        };
        let chain = certificates(&files.certificate)?;
        certs::check_private(&files.key)?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| bad(&files.key, &e))?;
        let mut roots = RootCertStore::empty();
        for c in certificates(&files.authority)? {
            roots.add(c).map_err(|e| bad(&files.authority, &e))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(Tls {
            client: client(&provider, &roots, chain.clone(), key.clone_key())
                .map_err(|e| bad(&files.certificate, &e))?,
            server: server(&provider, &roots, chain, key)
                .map_err(|e| bad(&files.certificate, &e))?,
        })
    }

    pub fn connect(
        &self,
        to: InstanceId,
    ) -> std::result::Result<rustls::Connection, rustls::Error> {
        let name = server_name(to);
        ClientConnection::new(self.client.clone(), name).map(Into::into)
    }

    pub fn accept(&self) -> std::result::Result<rustls::Connection, rustls::Error> {
        ServerConnection::new(self.server.clone()).map(Into::into)
    }
}

fn client(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> std::result::Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain, key)?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

fn server(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> std::result::Result<Arc<ServerConfig>, Box<dyn std::error::Error>> {
    let clients =
        WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build()?;
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn server_name(instance: InstanceId) -> ServerName<'static> {
    ServerName::try_from(instance_name(instance)).expect("invariant: instance names are DNS names")
}

/// Whether the certificate that the other side showed is that of `instance`.
pub(crate) fn shows(connection: &rustls::Connection, instance: InstanceId) -> bool {
    connection
        .peer_certificates()
        .and_then(|chain| chain.first())
        .and_then(|c| webpki::EndEntityCert::try_from(c).ok())
        .is_some_and(|c| {
            c.verify_is_valid_for_subject_name(&server_name(instance))
                .is_ok()
        })
}

/// A value that only the two ends of this session know.
pub(crate) fn exporter(
    connection: &rustls::Connection,
) -> std::result::Result<[u8; 32], rustls::Error> {
    connection.export_keying_material([0; 32], EXPORTER_LABEL, None)
}
