//! Standing in for an instance that died and does not come back: its next life is lived in the process of a survivor, until its transactions are rolled back. It is an instance like any other, with its own log, a small
//! cache and its own connections; it joins, and leaves cleanly. So what a dead instance left needs no code but that of a start and a stop.
//!
//! **Invariants.**
//! - The recoverer alone stands in, for those alone whose blocks have been recovered, and not while a process says that it will be that instance.
//! - It waits for nobody when its own process is about to end.
//! - It is the control file that makes the stand-in the instance, by the locks of its files: a process that comes later waits until it has left.

use super::{Cluster, ClusterHost, Eviction};
use crate::{Config, Host, Progress, Result, open};
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

/// Time for an instance's own process to say that it is coming: a guard starts it at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// After an attempt that failed.
const RETRY: Duration = Duration::from_secs(5);
/// It rolls back, and serves others the blocks that it changes for that.
const MOST_BUFFERS: u64 = 32 << 20;

pub(super) struct Heirs {
    config: Config,
    allowed: bool,
    /// Stand-ins listen on the same address, on a port of their own.
    address: SocketAddr,
    secret: Secret,
    certificates: Option<PathBuf>,
    heartbeat: Duration,
    /// The same everywhere.
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

/// Says nothing, and ends what waits for others when the instance itself ends.
struct OfHeir<'a>(&'a Heirs);
impl Progress for OfHeir<'_> {
    fn step(&self, _: &str, _: u64, _: u64) {}
    fn is_wanted(&self) -> bool {
        !self.0.state.lock().ended
    }
}

impl Heirs {
    /// `host`: as this instance meets the others, and its heirs will.
    pub fn new(config: Config, host: &ClusterHost) -> Heirs {
        Heirs {
            config,
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
    fn due(&self, lost: &[InstanceId]) -> Vec<InstanceId> {
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
}

impl Cluster {
    /// Starts a stand-in for each instance that has been recovered and does not come back by itself.
    pub(super) fn stand_in_for_the_lost(self: &Arc<Self>) -> Result<()> {
        let members = self.members();
        if members.in_limbo.is_empty() || members.recoverer() != self.me.instance {
            return Ok(());
        }
        let is_dead = |k: &InstanceId| members.dead.iter().any(|m| m.instance == *k);
        let lost: Vec<_> = members
            .in_limbo
            .iter()
            .copied()
            .filter(|k| !is_dead(k))
            .collect();
        for k in self.heirs.due(&lost) {
            if !self.file.is_coming(k)? {
                self.stand_in(k)?;
            }
        }
        Ok(())
    }

    fn stand_in(self: &Arc<Self>, k: InstanceId) -> Result<()> {
        let cluster = self.clone();
        let run = move || match cluster.live_for(k) {
            Ok(()) => tracing::info!("what instance {} left is rolled back", k.0),
            Err(e) => {
                tracing::warn!(
                    "what instance {} left cannot be rolled back yet, and is tried again: {e}",
                    k.0
                );
                let again = seam::now() + RETRY - PATIENCE;
                cluster.heirs.state.lock().lost.insert(k.0, again);
            }
        };
        let heir =
            wait::thread::spawn_named("heir", run).map_err(|source| crate::Error::Thread {
                name: "heir",
                source,
            })?;
        self.heirs.state.lock().at_work.push((k, heir));
        Ok(())
    }

    fn live_for(&self, k: InstanceId) -> Result<()> {
        let heirs = &self.heirs;
        let address = SocketAddr::new(heirs.address.ip(), 0);
        let bound = Bound::bind(address).map_err(|e| crate::Error::Cluster(e.to_string()))?;
        let config = Config {
            instance: k.0,
            buffer_bytes: heirs.config.buffer_bytes.min(MOST_BUFFERS),
            ..heirs.config.clone()
        };
        let cluster = ClusterHost {
            lms: heirs.lms,
            heartbeat: heirs.heartbeat,
            certificates: heirs.certificates.clone(),
            stands_in: false,
            memory: heirs.memory.clone(),
            eviction: heirs.eviction.clone(),
            ..ClusterHost::new(bound, heirs.secret.clone())
        };
        let host = Host {
            storage: self.places.storage.clone(),
            members: self.places.members.clone(),
            fatal: self.fatal.clone(),
            cluster: Some(cluster),
        };
        open::stand_in(config, host, &OfHeir(heirs))
    }
}
