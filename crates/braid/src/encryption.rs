//! The certificate that an instance shows to its clients: the operator's, or one made at the start.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use server::tls::{Tls, TlsFiles, made};
use sql::params::Instance;

use crate::Failure;

/// Directory of the certificates that are made at the start, in the database directory.
pub const DIRECTORY: &str = "tls";

/// `None`: clients are not offered TLS. `listen` is the address for clients.
pub fn certificate(
    params: &Instance,
    data: &Path,
    instance: u16,
    listen: IpAddr,
) -> Result<Option<Tls>, Failure> {
    if !params.is_on("ssl") {
        return Ok(None);
    }
    let file = |name: &str| {
        let text = params.text(name);
        (!text.is_empty()).then(|| data.join(text))
    };
    let given = (file("ssl_cert_file"), file("ssl_key_file"));
    let files = match given {
        (Some(certificate), Some(key)) => TlsFiles {
            certificate,
            key,
            authority: None,
        },
        (None, None) => made(params, data, instance, listen)?,
        _ => {
            return Err(Failure(
                "ssl_cert_file and ssl_key_file are given together or not at all".into(),
            ));
        }
    };
    let authority: Option<PathBuf> = file("ssl_ca_file");
    Ok(Some(Tls::read(&TlsFiles { authority, ..files })?))
}

/// The instance's own files, made if they are missing or the instance has got another address.
fn made(
    params: &Instance,
    data: &Path,
    instance: u16,
    listen: IpAddr,
) -> Result<TlsFiles, Failure> {
    let mut names = made::names_of_machine();
    let other = params.text("interconnect_address").trim().parse().ok();
    for address in [Some(listen), other].into_iter().flatten() {
        let name = address.to_string();
        if !address.is_unspecified() && !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(made::ensure(&data.join(DIRECTORY), instance, &names)?)
}
