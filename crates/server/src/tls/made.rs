//! Certificates that the server makes for itself: an authority of the database, and a certificate
//! for each instance that the authority has signed.
//!
//! They are not those of the interconnect, which let an instance into the cluster. A client that
//! has `authority.pem` can verify every instance of the database (`sslmode=verify-full`).
//!
//! **Invariants.**
//! - A file is written whole or not at all.
//! - The authority's key, once there, stays: clients keep its certificate.
//! - Keys are written with mode 600, in a directory of mode 700.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::{TlsError, TlsFiles, check_private};

/// The certificate of the authority, for clients.
pub fn authority_file(dir: &Path) -> PathBuf {
    dir.join("authority.pem")
}

fn authority_key_file(dir: &Path) -> PathBuf {
    dir.join("authority.key")
}

/// The names by which clients of this machine find the server, and the machine's own.
pub fn names_of_machine() -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).into();
    // A machine that does not say its name is found by its addresses.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let is_dns = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    if host != "localhost" && !host.is_empty() && host.bytes().all(is_dns) {
        names.push(host.to_string());
    }
    names
}

/// Makes what is missing in `dir` of the files of this instance. A certificate that lacks one of
/// the names is made anew.
pub fn ensure(dir: &Path, instance: u16, names: &[String]) -> Result<TlsFiles, TlsError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| TlsError::file(dir, e))?;
    let path = dir.join(format!("server-{instance}.pem"));
    let authority = authority(dir)?;
    if !is_good(&path, names) {
        let (certificate, key) = signed(&authority, names)?;
        // Key and certificate are in one file, so that they always belong together.
        let text = format!("{}{}", key.serialize_pem(), certificate.pem());
        write(&path, &text, 0o600, Existing::Replaced)?;
    }
    Ok(TlsFiles {
        certificate: path.clone(),
        key: path,
        authority: None,
    })
}

/// Whether the file has a key and a certificate for all these names.
fn is_good(path: &Path, names: &[String]) -> bool {
    let Ok(certificate) = CertificateDer::from_pem_file(path) else {
        return false;
    };
    let Ok(certificate) = webpki::EndEntityCert::try_from(&certificate) else {
        return false;
    };
    let has = |name: &String| {
        ServerName::try_from(name.as_str())
            .is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    };
    PrivateKeyDer::from_pem_file(path).is_ok() && names.iter().all(has)
}

/// The authority's parameters, which are always the same: its key is enough to sign more.
fn authority_params() -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "Braid database authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// The authority of the database. The first instance that comes makes it.
fn authority(dir: &Path) -> Result<Issuer<'static, KeyPair>, TlsError> {
    let path = authority_key_file(dir);
    if !path.exists() {
        let key = KeyPair::generate()?;
        write(&path, &key.serialize_pem(), 0o600, Existing::Kept)?;
    }
    check_private(&path)?;
    let text = std::fs::read_to_string(&path).map_err(|e| TlsError::file(&path, e))?;
    let key = KeyPair::from_pem(&text).map_err(|e| TlsError::file(&path, e))?;
    let certificate = authority_file(dir);
    if !certificate.exists() {
        let text = authority_params()?.self_signed(&key)?.pem();
        write(&certificate, &text, 0o644, Existing::Kept)?;
    }
    Ok(Issuer::new(authority_params()?, key))
}

fn signed(
    authority: &Issuer<'static, KeyPair>,
    names: &[String],
) -> Result<(rcgen::Certificate, KeyPair), TlsError> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "Braid");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    Ok((certificate, key))
}

enum Existing {
    Replaced,
    /// The file of another instance, which was first, stays.
    Kept,
}

fn write(path: &Path, text: &str, mode: u32, existing: Existing) -> Result<(), TlsError> {
    let part = path.with_extension(format!("part-{}", std::process::id()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&part)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())
                .and_then(|()| file.sync_all())
        })
        .and_then(|()| match existing {
            Existing::Replaced => std::fs::rename(&part, path),
            Existing::Kept => {
                let linked = match std::fs::hard_link(&part, path) {
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
                    linked => linked,
                };
                linked.and(std::fs::remove_file(&part))
            }
        });
    written.map_err(|e| TlsError::file(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Tls;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn keys_are_private_and_stay() {
        let dir = std::env::temp_dir().join(format!("braid-made-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let names = names_of_machine();
        let files = ensure(&dir, 1, &names).unwrap();
        assert!(Tls::read(&files).unwrap().end_point().is_some());
        let first = std::fs::read(&files.key).unwrap();
        let authority = std::fs::read(authority_file(&dir)).unwrap();
        for file in [&files.key, &authority_key_file(&dir)] {
            let mode = std::fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
        // A second start, another instance, and another name.
        ensure(&dir, 1, &names).unwrap();
        assert_eq!(std::fs::read(&files.key).unwrap(), first);
        let second = ensure(&dir, 2, &names).unwrap();
        assert_ne!(second, files);
        let more = [names, vec!["10.1.0.1".into()]].concat();
        ensure(&dir, 1, &more).unwrap();
        assert_ne!(std::fs::read(&files.key).unwrap(), first);
        assert_eq!(std::fs::read(authority_file(&dir)).unwrap(), authority);
        // A key that others may read is nobody's own.
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&files.key, open).unwrap();
        let Err(e) = Tls::read(&files) else {
            panic!("a key that others may read was taken")
        };
        assert!(e.to_string().contains("chmod"), "{e}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
