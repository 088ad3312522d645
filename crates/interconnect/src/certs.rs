//! Certificates for the mutual TLS between hosts: one authority per cluster, one certificate per instance.
//!
//! The authority's key stays in the directory where it was made (mode 600); an instance needs its own certificate and key and the authority's certificate. An
//! instance's certificate carries the name [`instance_name`], which the other side checks: it cannot speak for another instance. Certificates made elsewhere do as well if they
//! carry that name. They do not expire: the cluster secret and removal of the files end an instance's rights, no clock does.

use crate::{Error, Result};
use block::InstanceId;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The name in an instance's certificate.
pub fn instance_name(instance: InstanceId) -> String {
    format!("instance-{}.braid", instance.0)
}

/// Where an instance's side of TLS is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl TlsFiles {
    /// The names under which [`create_authority`] and [`create_instance`] write.
    pub fn in_directory(dir: &Path, instance: InstanceId) -> TlsFiles {
        TlsFiles {
            authority: dir.join("authority.pem"),
            certificate: dir.join(format!("instance-{}.pem", instance.0)),
            key: dir.join(format!("instance-{}.key", instance.0)),
        }
    }
}

fn authority_key_file(dir: &Path) -> PathBuf {
    dir.join("authority.key")
}

/// Always the same, so that the key alone is enough to issue more certificates.
fn authority_params() -> Result<CertificateParams> {
    let mut p = CertificateParams::new(Vec::new()).map_err(failed)?;
    p.distinguished_name
        .push(DnType::CommonName, "Braid cluster authority");
    p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    p.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(p)
}

/// Makes a cluster's authority in `dir`, which must not have one.
pub fn create_authority(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| Error::io("create", dir.display(), e))?;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = authority_params()?.self_signed(&key).map_err(failed)?;
    write_new(&authority_key_file(dir), &key.serialize_pem(), 0o600)?;
    let files = TlsFiles::in_directory(dir, InstanceId(1));
    write_new(&files.authority, &certificate.pem(), 0o644)
}

/// Makes key and certificate of an instance, signed by the authority in `dir`, beside it.
pub fn create_instance(dir: &Path, instance: InstanceId) -> Result<TlsFiles> {
    let key_file = authority_key_file(dir);
    let authority =
        std::fs::read_to_string(&key_file).map_err(|e| Error::io("read", key_file.display(), e))?;
    let authority = KeyPair::from_pem(&authority).map_err(failed)?;
    let issuer = Issuer::new(authority_params()?, authority);
    let mut p = CertificateParams::new(vec![instance_name(instance)]).map_err(failed)?;
    p.distinguished_name
        .push(DnType::CommonName, instance_name(instance));
    p.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    p.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    p.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = p.signed_by(&key, &issuer).map_err(failed)?;
    let files = TlsFiles::in_directory(dir, instance);
    write_new(&files.key, &key.serialize_pem(), 0o600)?;
    write_new(&files.certificate, &certificate.pem(), 0o644)?;
    Ok(files)
}

fn failed(e: rcgen::Error) -> Error {
    Error::Config(format!("cannot make a certificate: {e}"))
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut f| f.write_all(text.as_bytes()).and_then(|()| f.sync_all()))
        .map_err(|e| Error::io("create", path.display(), e))
}
