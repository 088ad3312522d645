//! The configuration an instance is started with. Sizes are in bytes, times in milliseconds.

use interconnect::PeerAddress;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use wait::priority::Priority;

#[derive(Clone, Debug)]
pub struct Config {
    /// The database directory, on storage that all instances share.
    pub dir: PathBuf,
    /// The number of this instance, from 1.
    pub instance: u16,
    /// Memory for the buffer cache.
    pub buffer_bytes: u64,
    /// Size of one redo file; a thread has `redo_files` of them.
    pub redo_file_bytes: u64,
    pub redo_files: u32,
    /// Directory of the second member of each redo file.
    pub redo_mirror: Option<PathBuf>,
    /// How much longer each write of the log takes, as on a slow disk.
    pub redo_write_delay: Duration,
    /// Undo kept for old snapshots. Beyond it the oldest snapshot fails (SQLSTATE 72000).
    pub undo_cap_bytes: u64,
    /// Redo that a restart may have to replay. The checkpoint moves on so that it does not become
    /// more.
    pub recovery_target_bytes: u64,
    /// Space kept ready ahead of need in the data file.
    pub preallocate_bytes: u64,
    pub max_sessions: u32,
    /// The address to listen at for other instances; none for an instance that is to be alone.
    pub interconnect: Option<SocketAddr>,
    /// Directory of the certificates by which instances on several hosts know each other
    /// ([`interconnect::certs`]). It is not read between loopback addresses.
    pub certificates: PathBuf,
    /// Where other instances listen, if it is not where the control file says.
    pub peers: Vec<PeerAddress>,
    /// Connections for blocks to each other instance; the same on every instance.
    pub lms: u8,
    /// Whether commits are announced in memory to instances on the same machine.
    pub share_memory: bool,
    /// When an instance takes over the mastership of blocks that it uses most.
    pub affinity: cache::Affinity,
    /// How long a block that several sessions waited for may stay here after it has come, before it
    /// is given away.
    pub gc_defer: Duration,
    /// Priority of the threads that sessions of all instances wait for: the receiving threads and
    /// `lgwr`. It is set as far as the system permits.
    pub priority: Priority,
    /// CPUs that the receiving threads are bound to; empty for any.
    pub lms_cpus: Vec<usize>,
    /// CPUs that `lgwr` is bound to; empty for any.
    pub lgwr_cpus: Vec<usize>,
    /// What this instance does with members that do not answer.
    pub eviction: crate::cluster::Eviction,
    /// Whether to open the database while other instances have it open.
    pub join_others: bool,
}

impl Config {
    /// The directory of certificates in the database directory, unless another is configured.
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
            redo_write_delay: Duration::ZERO,
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
