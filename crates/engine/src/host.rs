//! The foundation of an instance: its storage, its redo members, and how it meets others.

use crate::cluster::ClusterHost;
use crate::{Config, Error, Result};
use block::InstanceId;
use interconnect::certs::TlsFiles;
use interconnect::{Bound, Secret};
use std::sync::Arc;
use storage::{OsStorage, Storage};

/// Ends the instance at once, whatever it is doing. It is called with the reason when a promise of
/// the hardware is broken.
pub use storage::Fatal;

/// The file of the cluster's secret, in the database directory. Only its owner may read it.
const SECRET_FILE: &str = "cluster.secret";

/// The foundation on which an instance is opened.
pub struct Host {
    pub storage: Arc<dyn Storage>,
    /// Where the members of the redo files are. As a rule `storage` is the first of them.
    pub members: Vec<Arc<dyn Storage>>,
    /// Ends the instance. A real one does not return. If it returns, nothing is written any more
    /// and all work fails.
    pub fatal: Fatal,
    /// How it meets other instances; none if it is to be alone.
    pub cluster: Option<ClusterHost>,
}

/// Ends the process because a promise of the hardware is broken: nothing else is safe. The next
/// start recovers what is in the log.
pub(crate) fn stop_at_once(why: &str) -> ! {
    wait::thread::abort(why)
}

/// Directories of the members of the redo files.
pub(crate) fn log_members(
    config: &Config,
    storage: &Arc<dyn Storage>,
) -> Result<Vec<Arc<dyn Storage>>> {
    let mut members = vec![storage.clone()];
    if let Some(mirror) = &config.redo_mirror {
        members.push(Arc::new(OsStorage::new(mirror)?));
    }
    Ok(members)
}

/// Takes the port of the interconnect and reads the secret of the cluster. The first instance that
/// needs the secret makes it.
pub(crate) fn cluster_host(config: &Config) -> Result<Option<ClusterHost>> {
    let Some(address) = config.interconnect else {
        return Ok(None);
    };
    let failed = |e: interconnect::Error| Error::Cluster(e.to_string());
    if address.ip().is_unspecified() {
        return Err(Error::Cluster(format!(
            "interconnect_address {}: give an address at which the other instances reach this one",
            address.ip()
        )));
    }
    let leaves = |a: std::net::SocketAddr| !a.ip().is_loopback();
    let leaves_host = leaves(address) || config.peers.iter().any(|p| leaves(p.address));
    if leaves_host {
        check_certificate(config)?;
    }
    let bound = Bound::bind(address).map_err(failed)?;
    let path = config.dir.join(SECRET_FILE);
    let secret = match path.exists() {
        true => Secret::read(&path),
        // Another instance may make the secret at the same time.
        false => Secret::create(&path).or_else(|e| match path.exists() {
            true => Secret::read(&path),
            false => Err(e),
        }),
    };
    let mut host = ClusterHost::new(bound, secret.map_err(failed)?);
    host.certificates = leaves_host.then(|| config.certificates.clone());
    host.peers = config.peers.clone();
    host.lms = config.lms;
    host.priority = config.priority;
    host.cpus = config.lms_cpus.clone();
    host.eviction = config.eviction.clone();
    if !config.share_memory {
        host.memory = None;
    }
    Ok(Some(host))
}

/// Finds a missing certificate before it is needed, and says how to make it.
fn check_certificate(config: &Config) -> Result<()> {
    let files = TlsFiles::in_directory(&config.certificates, InstanceId(config.instance));
    match [&files.authority, &files.certificate, &files.key]
        .into_iter()
        .find(|f| !f.exists())
    {
        None => Ok(()),
        Some(missing) => Err(Error::Cluster(format!(
            "{} is missing: between hosts instances show certificates, which braid certificates --data {} --instances {} makes",
            missing.display(),
            config.dir.display(),
            config.instance.max(2)
        ))),
    }
}
