//! The stand-ins of this process, and how a stand-in is made ([`super::heir`] says when).

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

/// Lives the next life of the instance that the configuration names, on this host, until that
/// instance's transactions are rolled back.
pub(crate) type StandIn = fn(Config, Host, &dyn Progress) -> Result<()>;

/// The time that an instance's own process has to say that it is coming. A guard starts that
/// process at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause after an attempt to stand in that failed.
const RETRY: Duration = Duration::from_secs(5);
/// Bytes of a stand-in's cache. A stand-in rolls back, and serves others the blocks that it changes
/// in doing so.
const MOST_BUFFERS: u64 = 32 << 20;

pub(super) struct Heirs {
    config: Config,
    /// Opens the database for another instance, and leaves when that instance's transactions are
    /// rolled back.
    live: StandIn,
    allowed: bool,
    /// The address that stand-ins listen on, each on a port of its own.
    address: SocketAddr,
    secret: Secret,
    certificates: Option<PathBuf>,
    heartbeat: Duration,
    /// The number of lanes, which is the same on every instance.
    lms: u8,
    memory: Option<Arc<dyn SharedMemory>>,
    eviction: Eviction,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since when an instance is known to be lost. After an attempt to stand in for it that failed,
    /// the time is such that [`RETRY`] passes before the next.
    lost: BTreeMap<u16, Instant>,
    at_work: Vec<(InstanceId, JoinHandle<()>)>,
    ended: bool,
}

impl Heirs {
    /// Keeps what a stand-in needs. `host` says how this instance meets the others; its stand-ins
    /// meet them in the same way.
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

    /// Waits for the stand-ins that are at work. None starts from now on.
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

    /// The lost instances for which a stand-in is to start now.
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

    /// A stand-in has started.
    pub fn works(&self, k: InstanceId, heir: JoinHandle<()>) {
        self.state.lock().at_work.push((k, heir));
    }

    /// A stand-in has failed. It is tried again after [`RETRY`].
    pub fn put_off(&self, k: InstanceId) {
        let again = seam::now() + RETRY - PATIENCE;
        self.state.lock().lost.insert(k.0, again);
    }

    /// Lives the next life of an instance, and leaves when its transactions are rolled back. Runs
    /// on a thread of its own.
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

/// Reports nothing. When the instance itself ends, it calls off what its stand-ins wait for.
struct OfHeir<'a>(&'a Heirs);
impl Progress for OfHeir<'_> {
    fn step(&self, _: &str, _: u64, _: u64) {}
    fn is_wanted(&self) -> bool {
        !self.0.state.lock().ended
    }
}
