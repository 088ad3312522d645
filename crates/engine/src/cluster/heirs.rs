//! The instances that have stand-ins, and how a stand-in is made ([`super::heir`] says when).

use super::setup::{ClusterHost, Eviction};
use crate::files::Places;
use crate::{Config, Error, Host, Progress, Result};
use block::InstanceId;
use interconnect::memory::SharedMemory;
use interconnect::{Bound, Secret};
use seam::Mutex;
use seam::thread::JoinHandle;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::Fatal;

/// Lives the next life of the instance that the configuration names, on this host, until its
/// transactions are rolled back.
pub(crate) type StandIn = fn(Config, Host, &dyn Progress) -> Result<()>;

/// Time for an instance's own process to say that it is coming: a guard starts it at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// After an attempt that failed.
const RETRY: Duration = Duration::from_secs(5);
/// Bytes of a stand-in's cache. A stand-in rolls back, and serves others the blocks that it changes
/// for that.
const MOST_BUFFERS: u64 = 32 << 20;

pub(super) struct Heirs {
    config: Config,
    /// Opens the database for another instance, and leaves when what that left is rolled back.
    live: StandIn,
    allowed: bool,
    /// Stand-ins listen on the same address, on a port of their own.
    address: SocketAddr,
    secret: Secret,
    certificates: Option<PathBuf>,
    heartbeat: Duration,
    /// The number of lanes, the same everywhere.
    lms: u8,
    memory: Option<Arc<dyn SharedMemory>>,
    eviction: Eviction,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since when an instance is known to be lost, or when it was last tried to stand in for it.
    lost: BTreeMap<u16, Instant>,
    at_work: Vec<(InstanceId, JoinHandle<()>)>,
    ended: bool,
}

impl Heirs {
    /// `host`: as this instance meets the others, and its heirs will.
    pub fn new(config: Config, host: &ClusterHost, live: StandIn) -> Heirs {
        Heirs {
            config,
            live,
            allowed: host.stands_in,
            address: host.bound.address(),
            secret: host.secret.clone(),
            certificates: host.certificates.clone(),
            heartbeat: host.heartbeat,
            lms: host.lms,
            memory: host.memory.clone(),
            eviction: host.eviction.clone(),
            state: Mutex::default(),
        }
    }

    /// Waits for those who are at work; there are no others from now on.
    pub fn end(&self) {
        let at_work = {
            let mut state = self.state.lock();
            state.ended = true;
            std::mem::take(&mut state.at_work)
        };
        for (_, heir) in at_work {
            assert!(
                heir.join().is_ok(),
                "invariant: background threads do not panic"
            );
        }
    }

    /// Of those that are lost, the ones whose time has come.
    pub fn due(&self, lost: &[InstanceId]) -> Vec<InstanceId> {
        let now = seam::now();
        let mut state = self.state.lock();
        state.at_work.retain(|(_, heir)| !heir.is_finished());
        state.lost.retain(|k, _| lost.contains(&InstanceId(*k)));
        let busy: Vec<_> = state.at_work.iter().map(|(k, _)| *k).collect();
        if state.ended || !self.allowed {
            return Vec::new();
        }
        lost.iter()
            .copied()
            .filter(|k| {
                let since = *state.lost.entry(k.0).or_insert(now);
                !busy.contains(k) && now >= since + PATIENCE
            })
            .collect()
    }

    /// One has started.
    pub fn works(&self, k: InstanceId, heir: JoinHandle<()>) {
        self.state.lock().at_work.push((k, heir));
    }

    /// One has failed: it is tried again after a while.
    pub fn put_off(&self, k: InstanceId) {
        let again = seam::now() + RETRY - PATIENCE;
        self.state.lock().lost.insert(k.0, again);
    }

    /// Lives the next life of an instance, and leaves when all is rolled back. On a thread of its
    /// own.
    pub fn live_for(&self, k: InstanceId, places: &Places, fatal: &Fatal) -> Result<()> {
        let address = SocketAddr::new(self.address.ip(), 0);
        let bound = Bound::bind(address).map_err(|e| Error::Cluster(e.to_string()))?;
        let config = Config {
            instance: k.0,
            buffer_bytes: self.config.buffer_bytes.min(MOST_BUFFERS),
            ..self.config.clone()
        };
        let cluster = ClusterHost {
            lms: self.lms,
            heartbeat: self.heartbeat,
            certificates: self.certificates.clone(),
            stands_in: false,
            memory: self.memory.clone(),
            eviction: self.eviction.clone(),
            ..ClusterHost::new(bound, self.secret.clone())
        };
        let host = Host {
            storage: places.storage.clone(),
            members: places.members.clone(),
            fatal: fatal.clone(),
            cluster: Some(cluster),
        };
        (self.live)(config, host, &OfHeir(self))
    }
}

/// Says nothing, and ends what waits for others when the instance itself ends.
struct OfHeir<'a>(&'a Heirs);
impl Progress for OfHeir<'_> {
    fn step(&self, _: &str, _: u64, _: u64) {}
    fn is_wanted(&self) -> bool {
        !self.0.state.lock().ended
    }
}
