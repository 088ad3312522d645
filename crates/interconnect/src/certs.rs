//! Certificates for the mutual TLS between hosts: one authority per cluster, one certificate per
//! instance.
//!
//! The authority's key stays in the directory where it was made (mode 700, keys 600). An instance
//! needs its own certificate and key, and the authority's certificate. A stand-in for a dead
//! instance needs the dead one's certificate and key.
//!
//! An instance's certificate carries the name [`instance_name`], which the other side checks: an
//! instance cannot speak for another one. Certificates made elsewhere do as well if they carry that
//! name. Certificates do not expire: the cluster secret and removal of the files end an instance's
//! rights, no clock does.

use crate::{Error, Result};
use block::InstanceId;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The name in an instance's certificate.
pub fn instance_name(instance: InstanceId) -> String {
    format!("instance-{}.braid", instance.0)
}

/// The files from which an instance reads its side of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl TlsFiles {
    /// The files that [`create_authority`] and [`create_instance`] write in a directory.
    pub fn in_directory(dir: &Path, instance: InstanceId) -> TlsFiles {
        TlsFiles {
            authority: authority_file(dir),
            certificate: dir.join(format!("instance-{}.pem", instance.0)),
            key: dir.join(format!("instance-{}.key", instance.0)),
        }
    }
}

fn authority_file(dir: &Path) -> PathBuf {
    dir.join("authority.pem")
}

fn authority_key_file(dir: &Path) -> PathBuf {
    dir.join("authority.key")
}

/// The parameters of the authority. They are always the same, so that the key alone is enough to
/// issue more certificates.
fn authority_params() -> Result<CertificateParams> {
    let mut p = CertificateParams::new(Vec::new()).map_err(failed)?;
    p.distinguished_name
        .push(DnType::CommonName, "Braid cluster authority");
    p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    p.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(p)
}

/// Makes a cluster's authority in `dir`, unless it has one. Returns whether one was made.
pub fn create_authority(dir: &Path) -> Result<bool> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.map_err(|e| Error::io("create", dir.display(), e))?;
    let (key_file, certificate) = (authority_key_file(dir), authority_file(dir));
    if certificate.exists() {
        return Ok(false);
    }
    // A key without certificate is left over from a making that was cut off. The certificate
    // follows from the key.
    let key = match key_file.exists() {
        true => authority_key(dir)?,
        false => {
            let key = KeyPair::generate().map_err(failed)?;
            write_new(&key_file, &key.serialize_pem(), 0o600)?;
            key
        }
    };
    let text = authority_params()?.self_signed(&key).map_err(failed)?.pem();
    write_new(&certificate, &text, 0o644)?;
    Ok(true)
}

/// Makes key and certificate of an instance in `dir`, signed by the authority there, unless they
/// exist. Returns whether they were made.
pub fn create_instance(dir: &Path, instance: InstanceId) -> Result<bool> {
    let files = TlsFiles::in_directory(dir, instance);
    if files.certificate.exists() {
        return Ok(false);
    }
    let issuer = Issuer::new(authority_params()?, authority_key(dir)?);
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
    // A key without certificate is left over from a making that was cut off, and is good for
    // nothing.
    match std::fs::remove_file(&files.key) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("replace", files.key.display(), e));
        }
        _ => {}
    }
    write_new(&files.key, &key.serialize_pem(), 0o600)?;
    write_new(&files.certificate, &certificate.pem(), 0o644)?;
    Ok(true)
}

fn authority_key(dir: &Path) -> Result<KeyPair> {
    let path = authority_key_file(dir);
    check_private(&path)?;
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", path.display(), e))?;
    KeyPair::from_pem(&text).map_err(failed)
}

/// Refuses a key that others than its owner may use: it is nobody's own.
pub(crate) fn check_private(key: &Path) -> Result<()> {
    check_secret(key, "key")
}

/// Refuses a file with a secret, which messages call `what`, if others than its owner may use it.
pub(crate) fn check_secret(file: &Path, what: &str) -> Result<()> {
    let shown = file.display().to_string();
    let meta = std::fs::metadata(file).map_err(|e| Error::io("read", &shown, e))?;
    let mode = meta.permissions().mode() & 0o777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(Error::Config(format!(
            "{shown}: the {what} has mode {mode:04o}, and users other than its owner may use it; \
             accepted is 0600 or less: chmod 600 {shown}"
        ))),
    }
}

fn failed(e: rcgen::Error) -> Error {
    Error::Config(format!("cannot make a certificate: {e}"))
}

/// Writes a file whole or not at all: it is written under another name first.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let part = path.with_extension(format!("part-{}", std::process::id()));
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&part)
        .and_then(|mut f| f.write_all(text.as_bytes()).and_then(|()| f.sync_all()))
        // A file that another process has just made is not replaced.
        .and_then(|()| std::fs::hard_link(&part, path));
    let removed = std::fs::remove_file(&part);
    made.and(removed)
        .map_err(|e| Error::io("create", path.display(), e))
}
