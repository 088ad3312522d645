//! `braid certificates`: makes an authority of the cluster, and a certificate for each instance.
//! The TLS between hosts needs them.

use std::process::ExitCode;

use block::{FileId, InstanceId};
use interconnect::certs::{self, TlsFiles};

use crate::Failure;
use crate::cli::CertificatesArgs;

/// Makes the certificates that are missing. Existing ones stay.
pub fn run(args: &CertificatesArgs) -> Result<ExitCode, Failure> {
    let possible = 1..=FileId::MAX_INSTANCES;
    if !possible.contains(&args.instances) {
        return Err(Failure(format!(
            "{} instances: {} to {} are possible",
            args.instances,
            possible.start(),
            possible.end()
        )));
    }
    let data = &args.data.data;
    let dir = match &args.to {
        Some(dir) => dir.clone(),
        None => data.join(engine::Config::CERTIFICATES),
    };
    std::fs::create_dir_all(data)
        .map_err(|e| Failure(format!("cannot create {}: {e}", data.display())))?;
    let said = |made: bool| match made {
        true => "made",
        false => "is there already",
    };
    let made = certs::create_authority(&dir)?;
    let file = TlsFiles::in_directory(&dir, InstanceId(1)).authority;
    say!("braid: authority {}: {}", said(made), file.display());
    for k in 1..=args.instances {
        let made = certs::create_instance(&dir, InstanceId(k))?;
        let file = TlsFiles::in_directory(&dir, InstanceId(k)).certificate;
        say!(
            "braid: certificate of instance {k} {}: {}",
            said(made),
            file.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}
