//! What an instance is started with. Sizes are in bytes, times in milliseconds.

use interconnect::PeerAddress;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use wait::priority::Priority;

#[derive(Clone, Debug)]
pub struct Config {
    /// The database directory, on storage that all instances share.
    pub dir: PathBuf,
    /// Number of this instance, from 1.
    pub instance: u16,
    /// Memory for buffers.
    pub buffer_bytes: u64,
    /// Size of one redo file; a thread has `redo_files` of them.
    pub redo_file_bytes: u64,
    pub redo_files: u32,
    /// Directory of the second member of each redo file.
    pub redo_mirror: Option<PathBuf>,
    /// Undo kept for old snapshots; beyond it the oldest snapshot fails (SQLSTATE 72000).
    pub undo_cap_bytes: u64,
    /// Redo that a restart may have to replay; the checkpoint follows so that it is not more.
    pub recovery_target_bytes: u64,
    /// Space kept ready ahead of need in the data file.
    pub preallocate_bytes: u64,
    pub max_sessions: u32,
    /// Where to listen for other instances; none to be alone.
    pub interconnect: Option<SocketAddr>,
    /// Directory of the certificates by which instances on several hosts know each other
    /// ([`interconnect::certs`]); not looked at between loopback addresses.
    pub certificates: PathBuf,
    /// Where other instances listen, if not where the control file says.
    pub peers: Vec<PeerAddress>,
    /// Connections for blocks to each other instance; the same everywhere.
    pub lms: u8,
    /// Whether commits are announced in memory to instances on the same machine.
    pub share_memory: bool,
    /// When blocks that one instance uses mostly are mastered there.
    pub affinity: cache::Affinity,
    /// For how long a block that several sessions waited for may stay here after it has come,
    /// before it is given away.
    pub gc_defer: Duration,
    /// Of the threads that all sessions, here and elsewhere, wait for: the receiving ones and
    /// `lgwr`. As far as the system permits.
    pub priority: Priority,
    /// CPUs that the receiving threads are bound to; empty for any.
    pub lms_cpus: Vec<usize>,
    /// CPUs that `lgwr` is bound to; empty for any.
    pub lgwr_cpus: Vec<usize>,
    /// What is done with members that do not answer.
    pub eviction: crate::cluster::Eviction,
    /// Whether to open the database while other instances have it open.
    pub join_others: bool,
}

impl Config {
    /// Where certificates are unless said otherwise: in the database directory.
    pub const CERTIFICATES: &str = "certificates";

    pub fn new(dir: impl Into<PathBuf>) -> Config {
        let dir = dir.into();
        Config {
            certificates: dir.join(Config::CERTIFICATES),
            dir,
            instance: 1,
            buffer_bytes: 256 << 20,
            redo_file_bytes: 128 << 20,
            redo_files: 4,
            redo_mirror: None,
            undo_cap_bytes: 4 << 30,
            recovery_target_bytes: 100 << 20,
            preallocate_bytes: 16 << 20,
            max_sessions: 1100,
            interconnect: None,
            peers: Vec::new(),
            lms: 1,
            share_memory: true,
            affinity: cache::Affinity::default(),
            gc_defer: Duration::from_millis(8),
            priority: Priority::default(),
            lms_cpus: Vec::new(),
            lgwr_cpus: Vec::new(),
            eviction: crate::cluster::Eviction::default(),
            join_others: true,
        }
    }
}
